// Texts that must not occur in others: Aho and Corasick's automaton over bytes. Immutable; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace troupe {

class banned_texts {
public:
  static constexpr std::size_t most_texts = 4096, most_bytes = 64 << 10;

  /// Throws failure(bad_request) if there are too many, or one is empty.
  explicit banned_texts(const std::vector<std::string>& texts);

  using state = std::uint32_t;            // 0: nothing of any text is there
  static constexpr state hit = ~state{0}; // one of the texts is complete
  state step(state from, unsigned char byte) const;
  /// Nothing: `bytes` complete one of the texts.
  std::optional<state> advance(state from, std::string_view bytes) const;

private:
  struct node {
    state fallback = 0; // of the longest proper suffix
    bool complete = false;
  };

  std::vector<node> nodes_;
  std::unordered_map<std::uint64_t, state> edges_; // by node and byte
};

} // namespace troupe
