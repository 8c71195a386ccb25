// Which chains of blocks a replica was sent, and so probably has cached: the last ones used, as many blocks as it has
// room for. Owned by the router; single-threaded.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

namespace troupe {

class prefix_memory {
public:
  /// What one block takes: its entry and its node in the index.
  static constexpr std::size_t bytes_each = 64;

  /// `blocks` at most, and no more than fit `bytes`.
  prefix_memory(std::size_t blocks, std::size_t bytes);

  /// How many blocks at the beginning of the chain it has.
  std::size_t known(std::span<const std::uint64_t> chain) const;

  /// The chain is used now. Its beginning stays longest.
  void use(std::span<const std::uint64_t> chain);

  std::size_t size() const { return index_.size(); }

private:
  using place = std::uint32_t;
  static constexpr place none = ~place{0};

  struct entry {
    std::uint64_t hash = 0;
    place older = none, newer = none;
  };

  void unlink(place at);
  void link_newest(place at);

  std::size_t most_;
  std::vector<entry> entries_;
  std::unordered_map<std::uint64_t, place> index_;
  place oldest_ = none, newest_ = none;
};

} // namespace troupe
