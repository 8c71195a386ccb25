#include "runtime/stop_matcher.hpp"

#include <algorithm>
#include <utility>

namespace troupe {

namespace {

std::uint64_t edge(std::uint32_t from, unsigned char byte) {
  return std::uint64_t{from} << 8 | byte;
}

} // namespace

stop_matcher::stop_matcher(std::vector<std::string> stops) : nodes_(1) {
  std::vector<std::pair<std::uint32_t, unsigned char>> parents(1); // of each node: the node and byte it continues
  for (std::uint32_t i = 0; i < stops.size(); ++i) {
    lengths_.push_back(stops[i].size());
    std::uint32_t at = 0;
    for (const unsigned char byte : stops[i]) {
      const auto [found, added] = edges_.try_emplace(edge(at, byte), static_cast<std::uint32_t>(nodes_.size()));
      if (added) {
        nodes_.push_back({.depth = nodes_[at].depth + 1});
        parents.emplace_back(at, byte);
      }
      at = found->second;
    }
    if (at != 0 && nodes_[at].match == none)
      nodes_[at].match = i;
  }
  // A node's suffix is shorter than the node, so the shorter nodes must be complete first.
  std::vector<std::vector<std::uint32_t>> by_depth;
  for (std::uint32_t i = 1; i < nodes_.size(); ++i) {
    by_depth.resize(std::max<std::size_t>(by_depth.size(), nodes_[i].depth));
    by_depth[nodes_[i].depth - 1].push_back(i);
  }
  for (const auto& level : by_depth) {
    for (const std::uint32_t i : level) {
      const auto [parent, byte] = parents[i];
      if (parent != 0)
        nodes_[i].suffix = advance(nodes_[parent].suffix, byte);
      if (nodes_[i].match == none)
        nodes_[i].match = nodes_[nodes_[i].suffix].match;
    }
  }
}

std::uint32_t stop_matcher::child(std::uint32_t from, unsigned char byte) const {
  const auto found = edges_.find(edge(from, byte));
  return found == edges_.end() ? none : found->second;
}

std::uint32_t stop_matcher::advance(std::uint32_t from, unsigned char byte) const {
  for (;;) {
    if (const auto next = child(from, byte); next != none)
      return next;
    if (from == 0)
      return 0;
    from = nodes_[from].suffix;
  }
}

stop_matcher::result stop_matcher::push(std::string_view piece) {
  if (last_.stopped)
    return last_;
  if (edges_.empty())
    return {.text = std::string(piece)};
  std::string text = std::exchange(held_, {});
  for (const char byte : piece) {
    text.push_back(byte);
    state_ = advance(state_, static_cast<unsigned char>(byte));
    if (const auto match = nodes_[state_].match; match != none) {
      text.resize(text.size() - lengths_[match]);
      last_ = {.text = {}, .stopped = true, .which = match};
      return {.text = std::move(text), .stopped = true, .which = match};
    }
  }
  const auto safe = text.size() - nodes_[state_].depth;
  held_ = text.substr(safe);
  text.resize(safe);
  return {.text = std::move(text)};
}

std::string stop_matcher::finish() {
  state_ = 0;
  return std::exchange(held_, {});
}

} // namespace troupe
