// A checksum that tells damage, not malice: the rounds of XXH64 over eight lanes of 64 bits, which plain C++ does at
// the speed of memory. A change of any 8 bytes from a multiple of 8 on is noticed for certain.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace troupe {

class checksum {
public:
  /// Data are cut into chunks of so many bytes, of which each has a sum of its own: several threads can share the work.
  static constexpr std::size_t chunk = 1 << 20;
  /// What is added must come in multiples of so many bytes.
  static constexpr std::size_t stripe = 64;

  /// More bytes of one stream of data. Throws failure(internal) where they are not whole stripes.
  void add(std::span<const std::byte> bytes);

  /// A whole chunk of the stream, the last one may be shorter, by its sum; not after an `add` that ended within one.
  void add_chunk(std::uint64_t sum);

  /// Of one chunk, or the shorter end of the data.
  static std::uint64_t of_chunk(std::span<const std::byte> bytes);

  /// Of all that was added.
  std::uint64_t value() const;

private:
  using lanes = std::array<std::uint64_t, 8>;

  static constexpr lanes start{0x9ae16a3b2f90404f, 0xc2b2ae3d27d4eb4f, 0x165667b19e3779f9, 0x27d4eb2f165667c5,
                               0x85ebca77c2b2ae63, 0x2545f4914f6cdd1d, 0xd6e8feb86659fd93, 0xff51afd7ed558ccd};

  static void absorb(lanes& to, std::span<const std::byte> stripes);
  static std::uint64_t folded(const lanes& from);

  lanes current_ = start;    // of the chunk that is not whole
  std::size_t in_chunk_ = 0; // its bytes
  std::uint64_t sum_ = 0;    // of the whole ones
};

} // namespace troupe
