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

// Each piece is hashed under what came before it.
void value_sum::add(std::span<const float> values) {
  add(values.size());
  sum_ = XXH3_64bits_withSeed(values.data(), values.size_bytes(), sum_);
}

void value_sum::add(std::uint64_t number) { sum_ = XXH3_64bits_withSeed(&number, sizeof number, sum_); }

std::uint64_t value_salt(std::string_view kind, std::uint64_t sum) {
  if (sum == 0)
    return 0;
  const auto seed = XXH3_64bits_withSeed(kind.data(), kind.size(), ~salts().seed.load());
  return salted(salts().secret, XXH3_64bits_withSeed(&sum, sizeof sum, seed) | 1);
}

void set_client_salt_secret(const std::array<std::uint64_t, 2>& secret) {
  salts().seed = secret[0];
  salts().secret = secret[1];
}

} // namespace troupe
