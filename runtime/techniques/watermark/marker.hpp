// Marks the tokens of one sequence as they are chosen. Its state is a function of the generated tokens. A place is
// marked if the tokens that it depends on were generated, because a detector does not have the prompt.
#pragma once

#include "runtime/sampling/candidates.hpp"
#include "runtime/techniques/hooks.hpp"
#include "runtime/techniques/watermark/watermark.hpp"

#include <memory>
#include <optional>
#include <unordered_set>

namespace troupe::watermarks {

class marker : public logits_edit {
public:
  explicit marker(std::shared_ptr<const options> o) : options_(std::move(o)) {}

  std::unique_ptr<logits_edit> clone() const override { return std::make_unique<marker>(*this); }

  /// A token was generated.
  void append(token_id id) override;

  /// Green lists: favours the next token's. Takes constant time for each id of the vocabulary.
  void edit(std::span<float> logits) const override;

  /// Gumbel: the token that the key chooses in place of a random number. Nothing where an equal context was there
  /// before, as the same numbers twice would change the distribution, or where there is no context yet.
  std::optional<token_id> choose(candidates& tokens) const override;

private:
  std::optional<place> next() const;

  std::shared_ptr<const options> options_;
  std::vector<token_id> recent_;           // generated, the last `width`
  std::unordered_set<std::uint64_t> used_; // seeds that have chosen a token
};

} // namespace troupe::watermarks
