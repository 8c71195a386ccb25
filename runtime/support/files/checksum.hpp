// Detects accidental damage, not tampering: XXH3 of fixed-size chunks, then of their sums. With a secret key it also
// detects data made by somebody who cannot read the secret.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

struct XXH3_state_s;

namespace troupe {

class checksum {
public:
  /// Bytes per chunk. Chunks have sums of their own, so that several threads can share the work.
  static constexpr std::size_t chunk = 1 << 20;

  checksum();

  /// Appends bytes of the stream.
  void add(std::span<const std::byte> bytes);

  /// Appends a whole chunk by its sum. Only the last chunk may be shorter, and no `add` may have ended within a chunk.
  void add_chunk(std::uint64_t sum);

  /// The sum of one chunk. A secret has at least 136 bytes.
  static std::uint64_t of_chunk(std::span<const std::byte> bytes);
  static std::uint64_t of_chunk(std::span<const std::byte> bytes, std::span<const std::byte> secret);

  /// The checksum of everything added.
  std::uint64_t value() const;

private:
  struct free_state {
    void operator()(XXH3_state_s* state) const;
  };

  std::unique_ptr<XXH3_state_s, free_state> current_; // of the unfinished chunk
  std::size_t in_chunk_ = 0;                          // bytes of the unfinished chunk
  std::uint64_t sum_ = 0;                             // of the finished chunks
};

} // namespace troupe
