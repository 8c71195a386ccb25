// The list-valued sampling parameters: checked and sorted on construction, then immutable and shared by all copies, so
// that a request with a thousand prompts holds each list once. May be read on any thread.
#pragma once

#include "runtime/support/types.hpp"

#include <cstddef>
#include <initializer_list>
#include <memory>
#include <utility>
#include <vector>

namespace troupe {

/// Throws failure naming the field if its list has more entries.
void expect_at_most(const char* field, std::size_t found, std::size_t most);

template <class T>
class shared_list {
public:
  const T* begin() const { return items_ ? items_->data() : nullptr; }
  const T* end() const { return begin() + size(); }
  std::size_t size() const { return items_ ? items_->size() : 0; }
  bool empty() const { return size() == 0; }

protected:
  shared_list() = default;
  explicit shared_list(std::vector<T> items)
    : items_(items.empty() ? nullptr : std::make_shared<const std::vector<T>>(std::move(items))) {}

private:
  std::shared_ptr<const std::vector<T>> items_; // null: empty
};

/// Ids that end a sequence: distinct, ascending.
class stop_id_set : public shared_list<token_id> {
public:
  stop_id_set() = default;
  /// Throws failure(bad_request) if there are too many or one is negative.
  stop_id_set(std::vector<token_id> ids);
  stop_id_set(std::initializer_list<token_id> ids) : stop_id_set(std::vector(ids)) {}

  bool contains(token_id id) const;
};

/// Additions to the logits of some ids: distinct, ascending.
class logit_bias_map : public shared_list<std::pair<token_id, float>> {
public:
  using entry = std::pair<token_id, float>;

  logit_bias_map() = default;
  /// Throws failure(bad_request) if there are too many, an id is negative or repeated, or a bias is out of range.
  logit_bias_map(std::vector<entry> entries);
  logit_bias_map(std::initializer_list<entry> entries) : logit_bias_map(std::vector(entries)) {}
};

} // namespace troupe
