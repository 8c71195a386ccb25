// What a request asks of techniques: at most one use of each. A value, cheap to copy.
#pragma once

#include "runtime/techniques/technique.hpp"

#include <memory>
#include <utility>
#include <vector>

namespace troupe {

class technique_uses {
public:
  technique_uses() = default;
  explicit technique_uses(technique_use_ptr one) { set(std::move(one)); }

  auto begin() const { return all().begin(); }
  auto end() const { return all().end(); }
  bool empty() const { return all().empty(); }

  /// In place of the use of the same technique, if there is one. Null: adds nothing.
  void set(technique_use_ptr one);

  /// Null: there is none.
  const technique_use* find(const technique& of) const;
  /// The use as the technique's own type.
  template <class Use>
  const Use* find(const technique& of) const {
    return static_cast<const Use*>(find(of));
  }

  /// Whether any of them edits logits.
  bool edits() const;
  /// The one that judges sequences together; null: none.
  const technique_use* group() const;
  /// The one that contrasts rows of logits; null: none.
  const technique_use* contrast() const;

  /// What answers follow; null: they are free.
  const constraint_source* constraint() const;

  /// What they come to beside the other parameters of their request. Throws failure(bad_request).
  technique_uses settled(sampling_params& params, const given_fields& given) const;

  /// The uses that are left of them for a model. Throws failure if one cannot be.
  technique_uses fitted(const generation& asked, const technique_limits& limits) const;

  /// Keeps `what` for as long as anybody has one of them.
  void keep(const std::shared_ptr<const void>& what);
  std::size_t bytes() const;

private:
  using list = std::vector<technique_use_ptr>; // by their techniques' names

  const list& all() const;

  std::shared_ptr<const list> all_ = {}; // null: none
};

} // namespace troupe
