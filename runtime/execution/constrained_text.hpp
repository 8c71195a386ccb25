// The text of one sequence as it follows a constraint: knows which tokens may come next; mask_workers make these masks
// ahead of time. Its constraint_state belongs to the jobs of its constraint's lane; a constrained_text belongs to the
// thread that samples. It is a function of the tokens alone: when and by whom a mask was made changes nothing.
#pragma once

#include "runtime/execution/mask_workers.hpp"
#include "runtime/scheduling/step.hpp"
#include "runtime/support/error.hpp"
#include "runtime/support/types.hpp"
#include "runtime/techniques/constraint.hpp"

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace troupe {

/// What may follow a text. Either `forced`, tokens that must follow one another without a draw, or a mask.
struct next_tokens {
  std::vector<token_id> forced = {};
  std::vector<std::uint64_t> allowed = {}; // one bit per id; ends (EOS, stop ids) included
  std::vector<token_id> withheld = {};     // that are banned, and could follow otherwise
  std::optional<error> why = {};           // it cannot go on

  /// Copies `logits` [vocab] to `row`, with minus infinity for what is not allowed.
  void apply(std::span<const float> logits, std::vector<float>& row) const;
};

class constrained_text {
public:
  /// The text of `start`, which is constrained, ending with EOS or a stop id. An end is allowed where the constraint has
  /// it and, before min_tokens, nothing else may follow. Begins to make what may follow.
  constrained_text(std::shared_ptr<mask_workers> workers, const sampling_start& start,
                   std::span<const token_id> eos_ids);

  /// What may follow the text; null while it is being made.
  const next_tokens* next() const;

  /// Whether what may follow the text, or one of its guesses, is still being made. Each calls `tell` then, on any thread,
  /// once it has been made.
  bool lacks_any(const std::function<void()>& tell) const;

  /// Appends tokens that may follow.
  void append(std::span<const token_id> tokens);

  /// Begins to make what may follow each of these guesses, as far as they may follow one another. `parents`: of each the
  /// guess that it follows, which comes earlier; -1: the text. None: each follows the one before it.
  void guess(std::span<const token_id> tokens, std::span<const std::int32_t> parents = {});

  /// What may follow the guess number `i`; null while it is being made, or if there is no such guess.
  const next_tokens* after_guess(std::size_t i) const;

  /// The text with one more token.
  constrained_text fork(token_id token) const;

private:
  struct rules;
  struct text;
  struct result;

  constrained_text(std::shared_ptr<mask_workers> workers, std::shared_ptr<const rules> r);
  static void prepare(mask_workers& workers, std::shared_ptr<const rules> r, std::weak_ptr<text> of, int slices);
  std::shared_ptr<result> begin(std::function<void(text&, next_tokens&)> make) const;

  std::shared_ptr<mask_workers> workers_;
  std::shared_ptr<const rules> rules_;
  std::shared_ptr<text> text_;
  std::shared_ptr<result> next_;
  std::vector<std::shared_ptr<result>> after_guesses_;
};

} // namespace troupe
