// Deterministic automata of sets of regular expressions, each with a tag that tells which of them has matched. Built
// while it is used: a state's transitions are computed when it is first left. States are shared by content. A plain
// value; copies are independent. Not for concurrent use.
#pragma once

#include "runtime/guide/regex/character_kinds.hpp"
#include "runtime/guide/regex/expressions.hpp"

#include <array>
#include <cstdint>
#include <span>
#include <vector>

namespace troupe::guides {

using lexer_state = std::uint32_t;
inline constexpr lexer_state dead_lexer = 0;

/// Sets of characters that states often treat alike. Tokens made of one of them alone are decided at once (masks.cpp).
/// The first: characters that stand for themselves in JSON's strings (no quote, no backslash, no control character),
/// except U+2028 and U+2029, which `.` does not match. The others are ASCII.
enum class alphabet : std::uint8_t { plain, name, alphanumeric, lower };
inline constexpr std::size_t alphabets = 4;
constexpr byte_set ascii_of(alphabet a) {
  const auto lower = byte_set::range('a', 'z');
  const auto alphanumeric = lower | byte_set::range('A', 'Z') | byte_set::range('0', '9');
  switch (a) {
    case alphabet::plain: return byte_set::range(0x20, 0x7F) & ~(byte_set::of('"') | byte_set::of('\\'));
    case alphabet::name: return alphanumeric | byte_set::of('_') | byte_set::of('-');
    case alphabet::alphanumeric: return alphanumeric;
    case alphabet::lower: break;
  }
  return lower;
}

struct tagged_expression {
  std::uint32_t tag;
  expression match;
  friend bool operator==(const tagged_expression&, const tagged_expression&) = default;
};

class lexer {
public:
  explicit lexer(const guide_limits& limits = {}) : expressions_(limits), limits_(limits) { states_.emplace_back(); }

  expressions& regex() { return expressions_; }
  const expressions& regex() const { return expressions_; }

  /// Before the first byte. Sorted by tag; a tag may have several expressions. Dead ones are left out, so the result
  /// may be `dead_lexer`.
  lexer_state start(std::span<const tagged_expression> alternatives);

  lexer_state next(lexer_state s, unsigned char byte) {
    if (!states_[s].expanded)
      expand(s);
    const auto& st = states_[s];
    return targets_[st.targets + classes_[st.classes][byte]];
  }
  /// Bytes that do not lead to `dead_lexer`.
  const byte_set& live(lexer_state s) {
    if (!states_[s].expanded)
      expand(s);
    return states_[s].live;
  }
  /// Whether anything but the end can follow.
  bool goes_on(lexer_state s) const { return states_[s].goes_on; }
  /// The states that bytes lead to, dead or not. Valid until the next call.
  std::span<const lexer_state> successors(lexer_state s) {
    if (!states_[s].expanded)
      expand(s);
    return std::span(targets_).subspan(states_[s].targets, states_[s].target_count);
  }
  /// The bytes that lead to the same state as this one. Valid until the next call.
  const byte_set& alike(lexer_state s, unsigned char byte) {
    if (!states_[s].expanded)
      expand(s);
    const auto& st = states_[s];
    return leading_[st.targets + classes_[st.classes][byte]];
  }
  /// The kinds of characters all of which lead to the same state as this of usual_bytes, without a match within one.
  character_kinds alike_kinds(lexer_state s, std::size_t usual);
  /// The state that every character of that kind leads to, or `not_uniform`, as `after`.
  lexer_state after_beyond_ascii(lexer_state s);
  /// Tags whose expressions match what has been read.
  std::span<const std::uint32_t> accepts(lexer_state s) const {
    return {accepts_.data() + states_[s].accepts, states_[s].accept_count};
  }

  /// The state that every character of the alphabet leads to, which may be dead, or `not_uniform`; also that if there
  /// is a match within a character.
  static constexpr lexer_state not_uniform = 0xFFFFFFFF;
  lexer_state after(lexer_state s, alphabet a);
  /// How many characters of the alphabet can follow, whichever they are, without a match behind any of them; `most` if
  /// it is more; `not_uniform` if at some point before that it matters which.
  std::uint32_t characters(lexer_state s, alphabet a, std::uint32_t most);

  std::size_t size() const { return states_.size(); }

private:
  static constexpr std::uint32_t unknown = 0xFFFFFFFD;
  struct state {
    byte_set live;
    std::uint32_t entries = 0, entry_count = 0; // in entries_
    std::uint32_t accepts = 0, accept_count = 0;
    std::uint32_t classes = 0;                   // in classes_
    std::uint32_t targets = 0, target_count = 0; // in targets_, by class
    std::array<lexer_state, alphabets> after{unknown, unknown, unknown, unknown};
    std::array<character_kinds, usual_bytes.size()> alike{unknown, unknown};
    lexer_state after_beyond_ascii = unknown;
    bool expanded = false;
    bool goes_on = false;
  };

  lexer_state intern(std::vector<tagged_expression> entries);
  void expand(lexer_state s);
  lexer_state uniform_after(lexer_state s, const byte_set& bytes);
  bool characters_lead(lexer_state s, lexer_state to, std::span<const utf8_sequences> characters);

  expressions expressions_;
  guide_limits limits_;
  std::vector<state> states_; // 0 is dead
  std::vector<tagged_expression> entries_;
  std::vector<std::uint32_t> accepts_;
  std::vector<std::array<std::uint8_t, 256>> classes_;
  std::vector<lexer_state> targets_;
  std::vector<byte_set> leading_; // to each target
  intern_table table_;
};

} // namespace troupe::guides
