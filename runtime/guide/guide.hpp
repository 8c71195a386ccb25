// Guides: what a text may look like (a JSON Schema, a regular expression, a grammar, ...), compiled once, and the state
// of one text that follows it. Matching is over bytes: it does not depend on how a text is cut into tokens.
//
// A guide is immutable to its users and shared between threads. Its automaton is built while it is used, belongs to the
// guide, and is guarded by its lock; it is dropped and built anew when it has grown to the limits. A guide_state
// belongs to one thread at a time. It is a function of the bytes that it has taken, never of what the automaton
// already holds.
#pragma once

#include "runtime/guide/guide_pool.hpp"
#include "runtime/guide/guide_source.hpp"
#include "runtime/guide/limits.hpp"
#include "runtime/guide/matching/vocabulary.hpp"
#include "runtime/guide/seen_values.hpp"

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace troupe::guides {

class guide {
public:
  struct parts;
  explicit guide(std::unique_ptr<parts> p);
  ~guide();

  const guide_vocabulary& vocabulary() const;
  /// Bytes of grammar, automaton and masks, when a state was last asked for anything.
  std::size_t memory() const;

  /// Does a part of what masks need, ahead of texts that need them: about so many steps. False once nothing is left to
  /// do. Changes nothing but the time that masks take. Any thread.
  bool prepare(std::uint64_t steps) const;

private:
  friend class guide_state;
  std::unique_ptr<parts> parts_;
};

/// Throws failure(bad_request) with one sentence: what is malformed, not supported, or too large. `pool`, if given,
/// counts its memory.
std::shared_ptr<const guide> compile_guide(const guide_source& source,
                                           std::shared_ptr<const guide_vocabulary> vocabulary,
                                           const guide_limits& limits = {}, std::shared_ptr<guide_pool> pool = nullptr);

/// One text that follows a guide. A plain value: a copy is a fork. Its size is that of the text.
///
/// Every function that is not const may throw failure(bad_request) where the text needs more states than the limits
/// allow; the same text does so always, whatever ran before.
class guide_state {
public:
  explicit guide_state(std::shared_ptr<const guide> g);

  /// Takes a token. False, and nothing changes, if the guide forbids it.
  bool advance(token_id token);
  /// Takes bytes. False, and nothing changes, if the guide forbids them; `taken`, if given, is how many of them it
  /// allows.
  bool advance(std::string_view bytes, std::size_t* taken = nullptr);

  /// Whether the text may end here.
  bool can_end();
  /// Whether it has ended, or nothing but its end may follow.
  bool is_finished();
  /// The allowed tokens, one bit per id, `vocabulary().words()` words. The tokens that end a text are allowed where
  /// `can_end()`; after one of them, none is.
  void mask(std::span<std::uint64_t> out);
  /// The bytes that must follow, up to the first choice; empty if there is one, or if the text may end. At most `most`.
  std::string forced(std::size_t most = longest_forced);
  static constexpr std::size_t longest_forced = 4096;

  /// What has been taken, without the token that ended it.
  const std::string& text() const { return text_; }

private:
  /// Runs `use` with the automaton and the state that the text leads to; again with an empty one if it is full.
  template <class F>
  auto with_automaton(F use);

  std::shared_ptr<const guide> guide_;
  std::string text_;
  std::uint64_t generation_ = 0; // of the automaton that `state_` belongs to
  std::uint32_t state_ = 0;
  seen_values seen_; // of the text, where the guide tells values apart
  bool ended_ = false;
};

} // namespace troupe::guides
