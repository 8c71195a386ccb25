#include "runtime/checksum.hpp"

#include "runtime/error.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

namespace troupe {

namespace {

/// The round of XXH64 (https://github.com/Cyan4973/xxHash/blob/dev/doc/xxhash_spec.md): one to one for a given state,
/// and for a given word.
std::uint64_t mixed(std::uint64_t state, std::uint64_t word) {
  return std::rotl(state + word * 0xc2b2ae3d27d4eb4f, 31) * 0x9e3779b185ebca87;
}

std::uint64_t word(const std::byte* words, std::size_t index) {
  std::uint64_t value;
  std::memcpy(&value, words + index * sizeof value, sizeof value);
  return value;
}

void check_whole(std::span<const std::byte> stripes) {
  if (stripes.size() % checksum::stripe != 0)
    throw failure(errc::internal, "a checksum is of whole stripes of " + std::to_string(checksum::stripe) + " bytes");
}

} // namespace

void checksum::absorb(lanes& to, std::span<const std::byte> stripes) {
  auto [a, b, c, d, e, f, g, h] = to; // kept in registers
  for (std::size_t at = 0; at < stripes.size(); at += stripe) {
    const auto* words = stripes.data() + at;
    a = mixed(a, word(words, 0));
    b = mixed(b, word(words, 1));
    c = mixed(c, word(words, 2));
    d = mixed(d, word(words, 3));
    e = mixed(e, word(words, 4));
    f = mixed(f, word(words, 5));
    g = mixed(g, word(words, 6));
    h = mixed(h, word(words, 7));
  }
  to = {a, b, c, d, e, f, g, h};
}

std::uint64_t checksum::folded(const lanes& from) {
  std::uint64_t sum = 0;
  for (const auto lane : from)
    sum = mixed(sum, lane);
  return sum;
}

std::uint64_t checksum::of_chunk(std::span<const std::byte> bytes) {
  check_whole(bytes);
  auto of_this = start;
  absorb(of_this, bytes);
  return folded(of_this);
}

void checksum::add(std::span<const std::byte> bytes) {
  check_whole(bytes);
  while (!bytes.empty()) {
    const auto part = bytes.first(std::min(bytes.size(), chunk - in_chunk_));
    absorb(current_, part);
    in_chunk_ += part.size();
    bytes = bytes.subspan(part.size());
    if (in_chunk_ == chunk) {
      add_chunk(folded(current_));
      current_ = start;
      in_chunk_ = 0;
    }
  }
}

void checksum::add_chunk(std::uint64_t sum) { sum_ = mixed(sum_, sum); }

std::uint64_t checksum::value() const { return in_chunk_ == 0 ? sum_ : mixed(sum_, folded(current_)); }

} // namespace troupe
