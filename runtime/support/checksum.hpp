// A checksum that tells damage, not malice: XXH3 of chunks, and of their sums.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

struct XXH3_state_s;

namespace troupe {

class checksum {
public:
  /// Data are cut into chunks of so many bytes, of which each has a sum of its own: several threads can share the work.
  static constexpr std::size_t chunk = 1 << 20;

  checksum();

  /// More bytes of one stream of data.
  void add(std::span<const std::byte> bytes);

  /// A whole chunk of the stream, the last one may be shorter, by its sum; not after an `add` that ended within one.
  void add_chunk(std::uint64_t sum);

  /// Of one chunk, or the shorter end of the data.
  static std::uint64_t of_chunk(std::span<const std::byte> bytes);

  /// Of all that was added.
  std::uint64_t value() const;

private:
  struct free_state {
    void operator()(XXH3_state_s* state) const;
  };

  std::unique_ptr<XXH3_state_s, free_state> current_; // of the chunk that is not whole
  std::size_t in_chunk_ = 0;                          // its bytes
  std::uint64_t sum_ = 0;                             // of the whole ones
};

} // namespace troupe
