#include "runtime/support/files/checksum.hpp"

#include <xxhash.h>

#include <algorithm>
#include <new>

namespace troupe {

namespace {

std::uint64_t with_chunk(std::uint64_t before, std::uint64_t sum) {
  return XXH3_64bits_withSeed(&sum, sizeof sum, before);
}

} // namespace

void checksum::free_state::operator()(XXH3_state_s* state) const { XXH3_freeState(state); }

checksum::checksum() : current_(XXH3_createState()) {
  if (!current_)
    throw std::bad_alloc();
  XXH3_64bits_reset(current_.get());
}

std::uint64_t checksum::of_chunk(std::span<const std::byte> bytes) { return XXH3_64bits(bytes.data(), bytes.size()); }

std::uint64_t checksum::of_chunk(std::span<const std::byte> bytes, std::span<const std::byte> secret) {
  return XXH3_64bits_withSecret(bytes.data(), bytes.size(), secret.data(), secret.size());
}

void checksum::add(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const auto part = bytes.first(std::min(bytes.size(), chunk - in_chunk_));
    XXH3_64bits_update(current_.get(), part.data(), part.size());
    in_chunk_ += part.size();
    bytes = bytes.subspan(part.size());
    if (in_chunk_ == chunk) {
      add_chunk(XXH3_64bits_digest(current_.get()));
      XXH3_64bits_reset(current_.get());
      in_chunk_ = 0;
    }
  }
}

void checksum::add_chunk(std::uint64_t sum) { sum_ = with_chunk(sum_, sum); }

std::uint64_t checksum::value() const {
  return in_chunk_ == 0 ? sum_ : with_chunk(sum_, XXH3_64bits_digest(current_.get()));
}

} // namespace troupe
