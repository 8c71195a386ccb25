#include "runtime/scheduling/prefix_salt.hpp"

#include <atomic>
#include <random>

#include <xxhash.h>

namespace troupe {

namespace {

std::uint64_t random_number() {
  std::random_device device;
  return std::uint64_t{device()} << 32 | device();
}

/// Both random, for the process or for the place where prefixes are kept.
struct salt_secret {
  std::atomic<std::uint64_t> seed = random_number(), secret = random_number();
};

salt_secret& salts() {
  static salt_secret all;
  return all;
}

} // namespace

std::uint64_t client_salt(std::string_view text) {
  return text.empty() ? 0 : salted(salts().secret, XXH3_64bits_withSeed(text.data(), text.size(), salts().seed) | 1);
}

void set_client_salt_secret(const std::array<std::uint64_t, 2>& secret) {
  salts().seed = secret[0];
  salts().secret = secret[1];
}

} // namespace troupe
