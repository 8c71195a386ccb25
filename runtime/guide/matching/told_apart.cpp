#include "runtime/guide/matching/told_apart.hpp"

#include <vector>

namespace troupe::guides {

namespace {

/// The change of depth that a byte outside of strings makes.
int deeper(unsigned char byte) { return byte == '[' || byte == '{' ? 1 : byte == ']' || byte == '}' ? -1 : 0; }

bool is_space(unsigned char byte) { return byte == ' ' || byte == '\n' || byte == '\r' || byte == '\t'; }

} // namespace

automaton_state told_apart::next(automaton_state s, unsigned char byte, seen_values& seen) {
  auto n = states_.next(s, byte);
  if (n == dead_state)
    return n;
  if (seen.take(byte).again && states_.is_told_apart(n))
    n = states_.next_again(s, byte);
  if (n != dead_state && states_.begins_values(n))
    seen = {};
  return n;
}

bool told_apart::allows(automaton_state s, std::string_view bytes, const seen_values& seen) {
  meter::charge(4 + 4 * bytes.size());
  auto behind = seen.innermost(bytes.size() + 2); // each byte ends one at most, and what runs out one more
  for (const unsigned char b : bytes)
    if ((s = next(s, b, behind)) == dead_state)
      return false;
  return !runs_out(s, behind);
}

bool told_apart::may_run_out(automaton_state s, json_place place) {
  if (!states_.tells_apart(s))
    return false;
  if (const auto known = may_run_out_.find(s); known != may_run_out_.end())
    return known->second;
  const auto few = find_few(s, place);
  may_run_out_.emplace(s, few);
  return few;
}

// Both searches leave out white space, which makes no new values, and end each way where a value or name ends that is
// told apart from others, unless it lies in a part that began behind `s`.

bool told_apart::find_few(automaton_state s, json_place place) {
  struct visit {
    automaton_state at;
    json_place place;
    int depth;
  };
  std::vector<visit> open{{s, place, 0}};
  std::size_t steps = 0, ends = 0;
  while (!open.empty()) {
    const auto v = open.back();
    open.pop_back();
    if (states_.can_end(v.at))
      return false;
    const auto live = states_.live(v.at);
    for (unsigned b = 0; b < 256; ++b) {
      const auto byte = static_cast<unsigned char>(b);
      if (!live.has(byte) || (!v.place.in_string && is_space(byte)))
        continue;
      meter::charge(2);
      if (++steps > most_steps)
        return false;
      auto n = states_.next(v.at, byte);
      if (n == dead_state)
        continue;
      auto depth = v.depth + (v.place.in_string ? 0 : deeper(byte));
      if (states_.is_told_apart(n) && depth <= 0) {
        if (++ends > most_ends)
          return false;
        n = states_.next_again(v.at, byte);
        if (n == dead_state)
          continue;
        if (depth < v.depth) // a bracket ends it for good
          continue;
      }
      if (n == v.at || depth < 0) // any number of texts, or what is told apart is over
        return false;
      auto next = v.place;
      next.take(byte);
      open.push_back({n, next, depth});
    }
  }
  return true;
}

bool told_apart::runs_out(automaton_state s, const seen_values& seen) {
  if (!may_run_out(s, {seen.in_string(), seen.is_escaped()}))
    return false;
  struct visit {
    automaton_state at;
    seen_values seen;
  };
  const auto start = seen.depth();
  std::vector<visit> open{{s, seen}};
  std::size_t steps = 0;
  while (!open.empty()) {
    const auto v = std::move(open.back());
    open.pop_back();
    const auto live = states_.live(v.at);
    for (unsigned b = 0; b < 256; ++b) {
      const auto byte = static_cast<unsigned char>(b);
      if (!live.has(byte) || (!v.seen.in_string() && is_space(byte)))
        continue;
      meter::charge(8);
      if (++steps > most_steps)
        return false;
      auto n = states_.next(v.at, byte);
      if (n == dead_state)
        continue;
      auto inside = v.seen;
      const auto event = inside.take(byte);
      if (states_.is_told_apart(n)) {
        if (inside.depth() <= start && !event.again)
          return false;
        if (event.again)
          n = states_.next_again(v.at, byte);
        if (n == dead_state || inside.depth() < start)
          continue;
      }
      if (inside.depth() < start)
        return false;
      open.push_back({n, std::move(inside)});
    }
  }
  return true;
}

} // namespace troupe::guides
