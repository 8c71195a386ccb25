// Computes which tokens may follow in a state of the automaton. Masks are kept by state, so a state's mask is computed
// once. The work for a new one grows with the tokens whose fate the state decides, hardly with the vocabulary:
//
// - If plain characters change nothing (inside a string), or only count, plain tokens are decided at once, and the
//   others by what stands behind their plain characters.
// - If most characters lead to such a state (the first byte of a key), its mask is corrected for the others.
// - Otherwise the prefix tree is walked. A walk ends early if little is allowed, and where characters of the kinds
//   behind a node make no difference.
//
// If values must differ from earlier ones, a state's mask also lists the tokens whose fate these decide; they are
// looked at whenever a mask is asked for. Owned by a guide, under its lock.
#pragma once

#include "runtime/guide/grammar/automaton.hpp"
#include "runtime/guide/matching/told_apart.hpp"
#include "runtime/guide/matching/vocabulary.hpp"

#include <cstdint>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

namespace troupe::guides {

class token_masks {
public:
  token_masks(automaton& states, const guide_vocabulary& vocabulary)
    : states_(states), vocabulary_(vocabulary), apart_(states) {}

  /// Writes one bit per token id, `vocabulary.words()` words. The tokens that end a text are set where it may end.
  /// Throws failure(bad_request) beyond the automaton's limits.
  /// `seen`: what was there, where the grammar tells values apart.
  void write(automaton_state s, const seen_values& seen, std::span<std::uint64_t> out);

  told_apart& apart() { return apart_; }

private:
  using mask = std::vector<std::uint64_t>;
  struct stored {
    mask dense;                   // empty if sparse
    std::vector<token_id> sparse; // the tokens
    std::vector<token_id> apart;  // those of them that depend on what was there
  };
  struct frame { // children of a node that are still to be visited
    std::uint32_t at, end;
    automaton_state in, assumed;
    byte_set live; // bytes to look at
    json_place place;
    bool passed; // the end of what is told apart
  };

  const stored& find(automaton_state s, json_place place);
  stored make(automaton_state s, json_place place);
  stored pack(std::span<const std::uint64_t> base);
  void clear_found();
  void add(const token_tree& tree, automaton_state s, json_place place);
  void correct(automaton_state s, automaton_state assumed, json_place place, mask& out);
  const mask* add_counted(automaton_state s, json_place place);
  bool depends(frame& f, automaton_state next, json_place place);
  bool all_follow(const token_tree& tree, std::uint32_t node, automaton_state s, std::uint32_t many);
  std::optional<alphabet> loop_of(automaton_state s);
  automaton_state usual_successor(automaton_state s, json_place& place);

  automaton& states_;
  const guide_vocabulary& vocabulary_;
  told_apart apart_;
  std::unordered_map<automaton_state, stored> masks_;

  // Scratch:
  std::vector<token_id> found_, dependent_;
  std::vector<std::span<const token_id>> all_found_; // parts of trees
  std::vector<frame> frames_;
};

} // namespace troupe::guides
