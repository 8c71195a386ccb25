#include "runtime/sampling/stop_strings.hpp"

#include "runtime/sampling/sampling_ranges.hpp"
#include "runtime/support/error.hpp"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

namespace troupe {

namespace {

using sampling_fields::most_stop_bytes;
using sampling_fields::most_stops;

void check(const std::vector<std::string>& texts) {
  const auto refuse = [](const std::string& rule) { throw failure(errc::bad_request, "`stop` " + rule, "stop"); };
  if (texts.size() > most_stops)
    refuse("may have at most " + std::to_string(most_stops) + " entries, not " + std::to_string(texts.size()));
  std::size_t bytes = 0;
  for (const auto& text : texts) {
    if (text.empty())
      refuse("must not contain an empty string");
    bytes += text.size();
  }
  if (bytes > most_stop_bytes)
    refuse("may have at most " + std::to_string(most_stop_bytes) + " bytes in all, not " + std::to_string(bytes));
}

} // namespace

stop_strings::stop_strings(std::vector<std::string> texts) {
  static_assert(most_stops < none && most_stop_bytes + 2 < std::numeric_limits<state>::max());
  check(texts);
  if (!texts.empty())
    all_ = std::make_shared<const contents>(std::move(texts));
}

stop_strings::contents::contents(std::vector<std::string> given) : texts(std::move(given)) {
  std::vector<std::size_t> sorted(texts.size()); // equal ones in the order given
  std::iota(sorted.begin(), sorted.end(), 0);
  std::ranges::stable_sort(sorted, {}, [&](std::size_t i) -> const std::string& { return texts[i]; });

  struct range {
    std::size_t first, last; // of `sorted`: the strings with the node's prefix
    state parent;
  };
  std::vector<range> ranges{{0, texts.size(), 0}};
  nodes.emplace_back();
  for (std::size_t at = 0; at < nodes.size(); ++at) { // a node's children are appended when it is visited
    auto [first, last, parent] = ranges[at];
    const auto depth = nodes[at].depth;
    if (at != 0 && nodes[at].depth > 1)
      nodes[at].suffix = next(nodes[parent].suffix, nodes[at].byte);
    if (at != 0 && texts[sorted[first]].size() == depth)
      nodes[at].match = static_cast<unsigned char>(sorted[first]);
    else
      nodes[at].match = nodes[nodes[at].suffix].match;
    while (first < last && texts[sorted[first]].size() == depth)
      ++first;
    nodes[at].first_child = static_cast<state>(nodes.size());
    while (first < last) {
      const char byte = texts[sorted[first]][depth];
      auto end = first;
      while (end < last && texts[sorted[end]][depth] == byte)
        ++end;
      ranges.push_back({first, end, static_cast<state>(at)});
      nodes.push_back({.depth = static_cast<std::uint16_t>(depth + 1), .byte = static_cast<unsigned char>(byte)});
      first = end;
    }
  }
  nodes.push_back({.first_child = static_cast<state>(nodes.size())});
}

stop_strings::state stop_strings::contents::child(state from, unsigned char byte) const {
  const auto first = nodes.begin() + nodes[from].first_child, last = nodes.begin() + nodes[from + 1u].first_child;
  const auto found = std::ranges::lower_bound(first, last, byte, {}, &node::byte);
  return found != last && found->byte == byte ? static_cast<state>(found - nodes.begin()) : state{0};
}

stop_strings::state stop_strings::contents::next(state from, unsigned char byte) const {
  for (;;) {
    if (const auto to = child(from, byte); to != 0)
      return to;
    if (from == 0)
      return 0;
    from = nodes[from].suffix;
  }
}

stop_strings::state stop_strings::open(state of) const {
  while (of != 0 && all_->nodes[of].first_child == all_->nodes[of + 1u].first_child)
    of = all_->nodes[of].suffix;
  return of;
}

stop_strings::state stop_strings::next(state from, unsigned char byte) const { return all_->next(from, byte); }

} // namespace troupe
