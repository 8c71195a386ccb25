// Finds the first occurrence of a text in one that comes piece by piece (Knuth, Morris and Pratt). Immutable; where the
// search stands is a number that its user keeps.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace troupe::guides {

class text_finder {
public:
  explicit text_finder(std::string text) : text_(std::move(text)), border_(text_.size() + 1, 0) {
    for (std::size_t i = 1, b = 0; i < text_.size(); ++i) {
      while (b > 0 && text_[i] != text_[b])
        b = border_[b];
      b += text_[i] == text_[b];
      border_[i + 1] = b;
    }
  }

  const std::string& text() const { return text_; }
  bool empty() const { return text_.empty(); }

  /// How far `bytes` brings the search, if `matched` bytes of the text were found: whether they contain its end, and
  /// where; or else how many bytes are found then.
  struct progress {
    bool found = false;
    std::size_t at = 0;
  };
  progress search(std::size_t matched, std::string_view bytes) const {
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      while (matched > 0 && bytes[i] != text_[matched])
        matched = border_[matched];
      matched += bytes[i] == text_[matched];
      if (matched == text_.size())
        return {true, i + 1};
    }
    return {false, matched};
  }

private:
  std::string text_;
  std::vector<std::size_t> border_; // of each prefix: its longest proper suffix that is a prefix
};

} // namespace troupe::guides
