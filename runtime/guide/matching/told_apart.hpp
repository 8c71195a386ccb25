// Follows JSON in which some values must differ from earlier ones (`uniqueItems`, names that are counted): the
// automaton says where, seen_values says from what. Does not offer the end of a value that was there already, nor
// anything that could only lead to such an end: where few ways lead on, all of them are tried. Owned by a guide, under
// its lock.
#pragma once

#include "runtime/guide/grammar/automaton.hpp"
#include "runtime/guide/seen_values.hpp"

#include <string_view>
#include <unordered_map>

namespace troupe::guides {

/// Whether a byte of JSON is inside a string.
struct json_place {
  bool in_string = false, is_escaped = false;
  void take(unsigned char byte) {
    if (is_escaped)
      is_escaped = false;
    else if (byte == '"')
      in_string = !in_string;
    else
      is_escaped = in_string && byte == '\\';
  }
};

class told_apart {
public:
  explicit told_apart(automaton& states) : states_(states) {}

  /// The successor, as automaton::next. `seen` takes the byte too.
  automaton_state next(automaton_state s, unsigned char byte, seen_values& seen);
  /// Whether nothing is left behind which the value or name under way could end. Always false unless `may_run_out`.
  bool runs_out(automaton_state s, const seen_values& seen);
  /// Whether few texts can end it: a function of the state.
  bool may_run_out(automaton_state s, json_place place);
  /// Whether these bytes may follow.
  bool allows(automaton_state s, std::string_view bytes, const seen_values& seen);

private:
  static constexpr std::size_t most_ends = 64, most_steps = 2048;
  bool find_few(automaton_state s, json_place place);

  automaton& states_;
  std::unordered_map<automaton_state, bool> may_run_out_;
};

} // namespace troupe::guides
