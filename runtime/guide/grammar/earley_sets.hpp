// The sets of an automaton: every position in every rule that a text may have reached, with the sets in which those rules
// began. Sets are shared by content: texts that allow the same continuations are in the same set. Owned by the automaton.
#pragma once

#include "runtime/guide/grammar/grammar.hpp"
#include "runtime/guide/grammar/steady_vector.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace troupe::guides {

using automaton_state = std::uint32_t;
inline constexpr automaton_state dead_state = 0;

class earley_sets {
public:
  /// Where a rule that ends returns to: the positions of set `set` that wait for `rule`.
  struct origin {
    automaton_state set;
    rule_id rule;
    friend auto operator<=>(const origin&, const origin&) = default;
  };
  struct scan { // within a terminal
    lexer_state in;
    rule_state at;
    origin back;
    friend auto operator<=>(const scan&, const scan&) = default;
  };
  struct waiter { // for the end of a rule that began in this set
    rule_id rule;
    rule_state to;
    origin back;
    friend auto operator<=>(const waiter&, const waiter&) = default;
  };

  /// `g` is finished.
  explicit earley_sets(const grammar& g);

  grammar& rules() { return grammar_; }
  const grammar& rules() const { return grammar_; }
  std::size_t size() const { return sets_.size(); }

  /// Before the first byte.
  automaton_state start();
  /// Throws failure(bad_request) beyond the limits. `was_there`: the value or name that ends with this byte was there
  /// already.
  automaton_state successor(automaton_state s, unsigned char byte, bool was_there = false);

  /// Terminals that are under way, sorted.
  std::span<const scan> scans(automaton_state s) const {
    return std::span(scans_).subspan(sets_[s].scans, sets_[s].scan_count);
  }
  bool can_end(automaton_state s) const { return sets_[s].can_end; }
  bool is_told_apart(automaton_state s) const { return sets_[s].is_told_apart; }
  bool tells_apart(automaton_state s) const { return sets_[s].tells_apart; }
  bool begins_values(automaton_state s) const { return sets_[s].begins_values; }

private:
  static constexpr std::uint32_t unknown = 0xFFFFFFFF;
  static constexpr automaton_state itself = 0xFFFFFFFF;  // an origin: the set that holds the item
  static constexpr automaton_state outside = 0xFFFFFFFE; // an origin: the end of the root rule ends the text

  struct position {
    rule_state at;
    origin back;
  };
  struct set {
    std::uint32_t scans = 0, scan_count = 0, waiters = 0, waiter_count = 0;
    bool can_end = false;
    bool is_told_apart = false, begins_values = false;
    bool tells_apart = false; // a function of the others
  };

  bool is_within_told_apart() const;
  void reach(rule_state at, origin back);
  void close();
  void visit(const position& p);
  void end_rule(origin back);
  automaton_state intern();

  grammar grammar_;
  steady_vector<set> sets_; // 0 is dead
  std::vector<scan> scans_;
  std::vector<waiter> waiters_;
  intern_table table_;

  // The set being made.
  std::vector<scan> new_scans_;
  std::vector<waiter> new_waiters_;
  std::vector<position> positions_; // reached, in order
  std::vector<std::uint32_t> position_table_;
  std::vector<origin> ended_;
  bool new_can_end_ = false, new_is_told_apart_ = false, new_begins_values_ = false;
  bool was_there_ = false; // what has just ended
};

} // namespace troupe::guides
