#include "runtime/scheduling/prefix_salt.hpp"

#include <random>

#include <xxhash.h>

namespace troupe {

namespace {

std::uint64_t random_number() {
  std::random_device device;
  return std::uint64_t{device()} << 32 | device();
}

} // namespace

std::uint64_t client_salt(std::string_view text) {
  static const std::uint64_t seed = random_number(), secret = random_number();
  return text.empty() ? 0 : salted(secret, XXH3_64bits_withSeed(text.data(), text.size(), seed) | 1);
}

} // namespace troupe
