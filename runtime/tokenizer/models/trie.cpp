#include "runtime/tokenizer/models/trie.hpp"

#include <algorithm>

namespace troupe::tokenization {

trie::trie(std::vector<entry> entries) {
  std::erase_if(entries, [](const entry& e) { return e.text.empty(); });
  std::ranges::stable_sort(entries, {}, &entry::text);
  // Nodes are made breadth first, so that the children of one are neighbours.
  struct range {
    std::size_t begin, end; // of the entries below a node
    std::size_t depth;
  };
  std::vector<range> ranges{{0, entries.size(), 0}};
  nodes_.emplace_back();
  for (std::size_t at = 0; at < ranges.size(); ++at) {
    auto [begin, end, depth] = ranges[at];
    for (; begin < end && entries[begin].text.size() == depth; ++begin)
      nodes_[at].value = entries[begin].value;
    nodes_[at].first = static_cast<std::uint32_t>(nodes_.size());
    while (begin < end) {
      const char byte = entries[begin].text[depth];
      auto next = begin;
      while (next < end && entries[next].text[depth] == byte)
        ++next;
      nodes_.push_back({0, 0, static_cast<unsigned char>(byte), -1});
      ranges.push_back({begin, next, depth + 1});
      ++nodes_[at].children;
      begin = next;
    }
  }
  starts_.fill(0);
  for (std::uint32_t i = 0; i < nodes_[0].children; ++i)
    starts_[nodes_[nodes_[0].first + i].byte] = nodes_[0].first + i;
}

} // namespace troupe::tokenization
