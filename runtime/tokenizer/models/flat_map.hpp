// A hash map from 64-bit keys, filled once and then only read. Open addressing in one array: a look-up costs one cache
// miss, and BPE looks up every pair of neighbours of every new word.
#pragma once

#include <bit>
#include <cstdint>
#include <vector>

namespace troupe::tokenization {

template <class Value>
class flat_map {
public:
  /// With capacity for `count` keys, which is never exceeded.
  explicit flat_map(std::size_t count = 0)
    : slots_(std::bit_ceil(2 * count + 2)), shift_(64 - std::countr_zero(slots_.size())) {}

  /// Adds or overwrites. The key must not be `no_key`.
  void set(std::uint64_t key, const Value& value) {
    std::size_t i = start(key);
    while (slots_[i].key != no_key && slots_[i].key != key)
      i = next(i);
    slots_[i] = {key, value};
  }

  const Value* find(std::uint64_t key) const {
    std::size_t i = start(key);
    while (slots_[i].key != key) {
      if (slots_[i].key == no_key)
        return nullptr;
      i = next(i);
    }
    return &slots_[i].value;
  }

  static constexpr std::uint64_t no_key = ~std::uint64_t{0};

private:
  struct slot {
    std::uint64_t key = no_key;
    Value value{};
  };
  // Fibonacci hashing: the high bits of the product depend on all bits of the key.
  std::size_t start(std::uint64_t key) const { return (key * 0x9E3779B97F4A7C15u) >> shift_; }
  std::size_t next(std::size_t i) const { return (i + 1) & (slots_.size() - 1); }

  std::vector<slot> slots_;
  int shift_;
};

} // namespace troupe::tokenization
