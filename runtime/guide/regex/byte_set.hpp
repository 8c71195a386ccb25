// A set of byte values: the labels of regular expressions and of automata. A plain value.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace troupe::guides {

class byte_set {
public:
  constexpr byte_set() = default;
  constexpr explicit byte_set(const std::array<std::uint64_t, 4>& words) : words_(words) {}
  static constexpr byte_set of(unsigned char byte) { return range(byte, byte); }
  /// [low, high]
  static constexpr byte_set range(unsigned low, unsigned high) {
    byte_set s;
    for (unsigned b = low; b <= high; ++b)
      s.words_[b >> 6] |= std::uint64_t(1) << (b & 63);
    return s;
  }
  static constexpr byte_set all() { return ~byte_set(); }

  constexpr bool has(unsigned char b) const { return words_[b >> 6] >> (b & 63) & 1; }
  constexpr void add(unsigned char b) { words_[b >> 6] |= std::uint64_t(1) << (b & 63); }
  constexpr bool empty() const { return (words_[0] | words_[1] | words_[2] | words_[3]) == 0; }
  constexpr int count() const {
    return std::popcount(words_[0]) + std::popcount(words_[1]) + std::popcount(words_[2]) + std::popcount(words_[3]);
  }
  /// The lowest member of a set that is not empty.
  constexpr unsigned char first() const {
    unsigned w = 0;
    while (words_[w] == 0)
      ++w;
    return static_cast<unsigned char>(w * 64 + static_cast<unsigned>(std::countr_zero(words_[w])));
  }
  template <class F>
  constexpr void for_each(F visit) const {
    for (unsigned w = 0; w < 4; ++w)
      for (auto rest = words_[w]; rest != 0; rest &= rest - 1)
        visit(static_cast<unsigned char>(w * 64 + static_cast<unsigned>(std::countr_zero(rest))));
  }

  constexpr byte_set operator~() const {
    byte_set s;
    for (unsigned w = 0; w < 4; ++w)
      s.words_[w] = ~words_[w];
    return s;
  }
  constexpr byte_set& operator|=(const byte_set& o) {
    for (unsigned w = 0; w < 4; ++w)
      words_[w] |= o.words_[w];
    return *this;
  }
  constexpr byte_set& operator&=(const byte_set& o) {
    for (unsigned w = 0; w < 4; ++w)
      words_[w] &= o.words_[w];
    return *this;
  }
  friend constexpr byte_set operator|(byte_set a, const byte_set& b) { return a |= b; }
  friend constexpr byte_set operator&(byte_set a, const byte_set& b) { return a &= b; }
  friend constexpr bool operator==(const byte_set&, const byte_set&) = default;

  constexpr const std::array<std::uint64_t, 4>& words() const { return words_; }

private:
  std::array<std::uint64_t, 4> words_{};
};

} // namespace troupe::guides
