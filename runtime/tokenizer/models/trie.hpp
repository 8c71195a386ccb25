// A set of texts, each with a value, in which all that start at a position of another text are found in one pass over
// its bytes. Immutable; 12 bytes per node.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

namespace troupe::tokenization {

class trie {
public:
  struct entry {
    std::string_view text;
    std::int32_t value; // not negative
  };

  trie() { starts_.fill(0); } // empty
  /// The last one of equal texts counts. Empty texts are ignored. The entries' texts are not needed afterwards.
  explicit trie(std::vector<entry> entries);

  bool empty() const { return nodes_.size() <= 1; }

  /// Calls f(length, value) for every text that `text` begins with, shorter ones first.
  template <class F>
  void prefixes(std::string_view text, const F& f) const {
    if (text.empty())
      return;
    std::uint32_t node = starts_[static_cast<unsigned char>(text[0])];
    for (std::size_t length = 1; node != 0; ++length) {
      if (nodes_[node].value >= 0)
        f(length, nodes_[node].value);
      if (length == text.size())
        return;
      node = child(node, static_cast<unsigned char>(text[length]));
    }
  }

private:
  struct node {
    std::uint32_t first = 0; // child; the others follow, ordered by byte
    std::uint16_t children = 0;
    unsigned char byte = 0;  // on the edge from the parent
    std::int32_t value = -1; // of the text that ends here; -1: none does
  };

  /// 0 if there is none.
  std::uint32_t child(std::uint32_t parent, unsigned char byte) const {
    std::uint32_t low = nodes_[parent].first, high = low + nodes_[parent].children;
    while (high - low > 1) {
      const auto middle = low + (high - low) / 2;
      (nodes_[middle].byte <= byte ? low : high) = middle;
    }
    return low < high && nodes_[low].byte == byte ? low : 0;
  }

  std::vector<node> nodes_; // 0: the root
  std::array<std::uint32_t, 256> starts_{};
};

} // namespace troupe::tokenization
