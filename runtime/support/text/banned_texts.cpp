#include "runtime/support/text/banned_texts.hpp"

#include "runtime/support/error.hpp"

#include <deque>

namespace troupe {

namespace {

std::uint64_t edge_of(std::uint32_t node, unsigned char byte) { return std::uint64_t{node} << 8 | byte; }

} // namespace

banned_texts::banned_texts(const std::vector<std::string>& texts) : nodes_(1) {
  std::size_t bytes = 0;
  for (const auto& text : texts)
    bytes += text.size();
  if (texts.size() > most_texts || bytes > most_bytes)
    refuse_field("banned",
                 "may have at most " + std::to_string(most_texts) + " texts of " + std::to_string(most_bytes) +
                   " bytes together");
  struct child {
    state of;
    unsigned char byte;
  };
  std::vector<std::vector<child>> children(1);
  for (const auto& text : texts) {
    if (text.empty())
      refuse_field("banned", "must not have an empty text");
    state at = 0;
    for (const unsigned char byte : text) {
      const auto [edge, is_new] = edges_.try_emplace(edge_of(at, byte), static_cast<state>(nodes_.size()));
      if (is_new) {
        children[at].push_back({edge->second, byte});
        children.emplace_back();
        nodes_.emplace_back();
      }
      at = edge->second;
    }
    nodes_[at].complete = true;
  }
  std::deque<state> open; // by depth
  for (const auto& first : children[0])
    open.push_back(first.of);
  for (; !open.empty(); open.pop_front()) {
    const auto at = open.front();
    for (const auto& [next, byte] : children[at]) {
      auto suffix = nodes_[at].fallback;
      while (suffix != 0 && !edges_.contains(edge_of(suffix, byte)))
        suffix = nodes_[suffix].fallback;
      const auto found = edges_.find(edge_of(suffix, byte));
      nodes_[next].fallback = found == edges_.end() ? 0 : found->second;
      nodes_[next].complete = nodes_[next].complete || nodes_[nodes_[next].fallback].complete;
      open.push_back(next);
    }
  }
}

banned_texts::state banned_texts::step(state from, unsigned char byte) const {
  for (;;) {
    if (const auto found = edges_.find(edge_of(from, byte)); found != edges_.end())
      return nodes_[found->second].complete ? hit : found->second;
    if (from == 0)
      return 0;
    from = nodes_[from].fallback;
  }
}

std::optional<banned_texts::state> banned_texts::advance(state from, std::string_view bytes) const {
  for (const unsigned char byte : bytes)
    if ((from = step(from, byte)) == hit)
      return {};
  return from;
}

} // namespace troupe
