// The automaton of a grammar over bytes, built while it is used. A state is an Earley set, and what is known of it (its
// transitions, its masks) serves all texts that reach it. Work is bounded by the limits on states and items. Not for
// concurrent use.
#pragma once

#include "runtime/guide/grammar/earley_sets.hpp"
#include "runtime/guide/grammar/grammar.hpp"
#include "runtime/guide/grammar/steady_vector.hpp"

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace troupe::guides {

class automaton {
public:
  /// `g` is finished.
  explicit automaton(const grammar& g);

  automaton_state start() const { return start_; }
  /// Throws failure(bad_request) beyond the limits.
  automaton_state next(automaton_state s, unsigned char byte) {
    if (const auto* row = row_of_[s]) {
      const auto known = row[byte];
      if (known != unknown)
        return known;
    }
    return compute(s, byte);
  }
  /// The next state where the value or name that ends with this byte was there already in its array or object: no rule
  /// that tells values apart goes on behind it.
  automaton_state next_again(automaton_state s, unsigned char byte);
  bool can_end(automaton_state s) const { return sets_.can_end(s); }
  /// Bytes that do not lead to `dead_state`.
  const byte_set& live(automaton_state s) {
    if (!row_of_[s])
      open(s);
    return known_[s].live;
  }
  /// The state that every character of the alphabet leads to, or dead_state, or `not_uniform`.
  static constexpr automaton_state not_uniform = 0xFFFFFFFF;
  automaton_state after(automaton_state s, alphabet a);
  /// See lexer::characters.
  std::uint32_t characters(automaton_state s, alphabet a, std::uint32_t most);

  /// Texts that may follow, whatever their characters are, ended or not within one: such as are found by those kinds
  /// that lead where most do, or by all that may follow. Where values are told apart, none that lead into one.
  enum choice : std::uint8_t { alike, alive };
  text_bounds free_text(automaton_state s, choice which) {
    return known_[s].knows_free_text[which] ? known_[s].free_text[which] : find_free_text(s, which);
  }
  /// What `free_text` gave when somebody asked; none if nobody has.
  text_bounds known_free_text(automaton_state s, choice which) const { return known_[s].free_text[which]; }

  // -- of JSON whose values are told apart (rule_edges, seen_values.hpp) --------------------

  bool tells_values_apart() const { return sets_.rules().tells_values_apart(); }
  /// Whether a value or name that must not have been there has ended here.
  bool is_told_apart(automaton_state s) const { return sets_.is_told_apart(s); }
  /// Whether such a one may be under way, or begin.
  bool tells_apart(automaton_state s) const { return sets_.tells_apart(s); }
  /// Whether JSON begins here: what was before is not a part of it.
  bool begins_values(automaton_state s) const { return sets_.begins_values(s); }

  std::size_t size() const { return sets_.size(); }

  /// Derives terminals ahead of texts that need them, by about so much work. False once there is nothing left to do.
  /// Changes nothing but the time that other functions take.
  bool prepare(std::uint64_t steps);

private:
  static constexpr std::uint32_t unknown = 0xFFFFFFFF, not_asked = 0xFFFFFFFE;
  static constexpr std::size_t rows_at_once = 16;

  /// What has been found out about a state.
  struct knowledge {
    std::array<automaton_state, alphabets> after{not_asked, not_asked, not_asked, not_asked};
    std::array<bool, 2> knows_free_text{};
    std::array<text_bounds, 2> free_text{}; // by choice
    byte_set live;
  };

  lexer& lex() { return sets_.rules().lexer(); }
  automaton_state grown(automaton_state s);
  void open(automaton_state s);
  automaton_state compute(automaton_state s, unsigned char byte);
  template <class F>
  void for_each_scanner(automaton_state s, F visit);
  text_bounds find_free_text(automaton_state s, choice which);
  bool matters(automaton_state s) const;
  automaton_state after_beyond_ascii(automaton_state s);
  character_kinds alive_kinds(automaton_state s);
  character_kinds alike_kinds(automaton_state s);

  earley_sets sets_;
  steady_vector<knowledge> known_;                           // by state
  std::vector<automaton_state*> row_of_;                     // by state: its 256 successors; null: not opened
  std::vector<std::unique_ptr<automaton_state[]>> rows_;     // many each, which stay where they are
  std::size_t rows_left_ = 0;                                // in the last ones
  std::unordered_map<std::uint64_t, automaton_state> again_; // by state and byte
  automaton_state start_ = dead_state;

  rule_state prepared_ = 0;             // states of rules whose terminals have been looked at
  std::vector<lexer_state> to_prepare_; // their states
  std::vector<bool> prepare_seen_;
  static constexpr std::size_t most_prepared = 8'192; // states of terminals
};

} // namespace troupe::guides
