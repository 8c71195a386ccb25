// Blocks of kinds that become bytes before they are multiplied: entries of codebooks are looked up, 16 outputs at a
// time, and levels and signs become weights by a table. Only for the target units.
#pragma once

#include "kernels/cpu/isa/quantised_tiles.hpp"

namespace troupe::kernels {
namespace {

#if defined(__AVX512F__)

/// Entries at 16 places.
inline ivec entries_at(const std::uint32_t* entries, const std::uint16_t* places) {
  const auto words = _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(places)));
  return {_mm512_i32gather_epi32(words, entries, 4)};
}
inline ivec entries_at(const std::uint32_t* entries, const unsigned char* places) {
  const auto words = _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(places)));
  return {_mm512_i32gather_epi32(words, entries, 4)};
}

#elif defined(__AVX2__)

/// Entries at 16 places, by loads: they take less time than a gather, and much less where gathers are slowed down for
/// security's sake.
template <class Place>
inline ivec entries_at(const std::uint32_t* entries, const Place* places) {
  const auto half = [=](const Place* p) {
    const auto word = [=](int i) { return static_cast<int>(entries[p[i]]); };
    return _mm256_setr_epi32(word(0), word(1), word(2), word(3), word(4), word(5), word(6), word(7));
  };
  return {half(places), half(places + 8)};
}

#else

/// Entries at 16 places.
template <class Place>
inline ivec entries_at(const std::uint32_t* entries, const Place* places) {
  std::uint32_t words[lanes];
  for (int i = 0; i < lanes; ++i)
    words[i] = entries[places[i]];
  return load_ints(words);
}

#endif

/// 16 places, of which `bits` bits from `shift` on of the bytes at `high` are above the lower bytes.
inline void make_places(std::uint16_t* to, const unsigned char* low, const unsigned char* high, int shift, int bits) {
#if defined(__AVX2__)
  const auto words = [](const unsigned char* p) {
    return _mm256_cvtepu8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  };
  const auto mask = _mm256_set1_epi16(static_cast<short>(((1 << bits) - 1) << 8));
  const auto above = _mm256_and_si256(_mm256_slli_epi16(words(high), 8 - shift), mask);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm256_or_si256(words(low), above));
#else
  for (int i = 0; i < lanes; ++i)
    to[i] = static_cast<std::uint16_t>(low[i] | (high[i] >> shift & ((1 << bits) - 1)) << 8);
#endif
}

/// A block of a kind with a codebook. `change` is applied to the codes.
template <weight_kind Kind, class Change>
inline void expand_codes(const std::uint32_t* codebook, unpacked_block& to, const unsigned char* block,
                         std::size_t groups, const Change& change) {
  constexpr auto layout = layout_of(Kind);
  constexpr auto shape = shape_of(Kind);
  constexpr int n = quantised_panel_outputs, entries = shape.entries();
  const unsigned char* header = block;
  const vec one = broadcast(1);
  for (std::size_t group = 0; group < groups; ++group, block += layout.group_bytes) {
    if (group % super_groups == 0) {
      header = block;
      block += layout.header_bytes;
    }
    alignas(64) std::int8_t scales[2][64]; // of the halves
    const ivec nibbles = load_ints(block);
    store_ints(scales[0], low_halves(nibbles));
    store_ints(scales[1], high_halves(nibbles));
    const unsigned char *low = block + n, *high = low + entries * n;
    std::uint16_t places[entries][n]; // made before they are used: what was just stored is loaded late
    if constexpr (shape.high_bits > 0) {
#pragma GCC unroll 8
      for (int e = 0; e < entries; ++e)
        for (int first = 0; first < n; first += lanes)
          make_places(&places[e][first], low + e * n + first, high + e * shape.high_bits / 8 * n + first,
                      e * shape.high_bits % 8, shape.high_bits);
      asm("" : "+m"(places)); // or GCC would take each from a register
    }
    const auto levels_of = [&](int e, int v) {
      if constexpr (shape.high_bits > 0)
        return entries_at(codebook, &places[e][v * lanes]);
      else
        return entries_at(codebook, low + e * n + v * lanes);
    };
    for (int v = 0; v < quantised_vectors; ++v) {
      const ivec signs = load_ints(shape.signs ? block + (1 + entries + shape.high_bytes()) * n + v * 64 : block);
      const auto put = [&](int line, ivec levels) {
        if constexpr (shape.signs)
          levels = joined(levels, bits_of(signs, line - 3, 8));
        store_ints(to.codes[group][line][v], change(looked_up(shape.values, levels)));
      };
#pragma GCC unroll 8
      for (int e = 0; e < entries; ++e) {
        const ivec levels = levels_of(e, v);
        if constexpr (shape.weights == 4) {
          put(e, levels);
        } else {
          put(2 * e, low_halves(levels));
          put(2 * e + 1, high_halves(levels));
        }
      }
      const vec d = load_f16(reinterpret_cast<const std::uint16_t*>(header) + v * lanes) * broadcast(layout.unit);
      for (int part = 0; part < layout.parts; ++part) {
        const vec s = load_bytes(scales[part] + v * lanes);
        store(&to.factors[group][part][v * lanes], d * (s + s + one));
      }
    }
  }
}

/// A block of any kind that becomes bytes.
template <class Change>
inline void expand_block(weight_kind kind, const std::uint32_t* codebook, unpacked_block& to,
                         const unsigned char* block, std::size_t groups, const Change& change) {
  switch (kind) {
    case weight_kind::q1: return unpack<weight_kind::q1>(to, block, groups, change);
    case weight_kind::tq2: return unpack<weight_kind::tq2>(to, block, groups, change);
    case weight_kind::nv4: return unpack<weight_kind::nv4>(to, block, groups, change);
    case weight_kind::iq1: return expand_codes<weight_kind::iq1>(codebook, to, block, groups, change);
    case weight_kind::iq2_xxs: return expand_codes<weight_kind::iq2_xxs>(codebook, to, block, groups, change);
    case weight_kind::iq2_xs:
    case weight_kind::iq2_s: return expand_codes<weight_kind::iq2_s>(codebook, to, block, groups, change);
    case weight_kind::iq3_xxs: return expand_codes<weight_kind::iq3_xxs>(codebook, to, block, groups, change);
    default: return expand_codes<weight_kind::iq3_s>(codebook, to, block, groups, change);
  }
}

} // namespace
} // namespace troupe::kernels
