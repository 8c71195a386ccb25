// Sixteen 32-bit integers in SVE registers, and dots of codes. Included by int_simd.hpp, within its namespaces.
#pragma once

struct ivec {
  sve_bytes q[sve_parts];
};

template <class Op>
[[gnu::always_inline]] inline ivec each_int(Op op) {
  ivec to;
#pragma GCC unroll 4
  for (int i = 0; i < sve_parts; ++i)
    to.q[i] = op(i);
  return to;
}

inline constexpr int sve_length = __ARM_FEATURE_SVE_BITS / 8; // bytes

[[gnu::always_inline]] inline svbool_t all_bytes() { return svptrue_b8(); }

[[gnu::always_inline]] inline ivec load_ints(const void* p) {
  return each_int([=](int i) { return svld1_u8(all_bytes(), static_cast<const std::uint8_t*>(p) + sve_length * i); });
}
[[gnu::always_inline]] inline void store_ints(void* p, const ivec& x) {
#pragma GCC unroll 4
  for (int i = 0; i < sve_parts; ++i)
    svst1_u8(all_bytes(), static_cast<std::uint8_t*>(p) + sve_length * i, x.q[i]);
}
[[gnu::always_inline]] inline ivec broadcast_word(const std::uint32_t* p) {
  std::uint32_t word;
  std::memcpy(&word, p, 4);
  return each_int([=](int) { return svreinterpret_u8_u32(svdup_n_u32(word)); });
}
[[gnu::always_inline]] inline vec as_floats(const ivec& x) {
  return each([&](int i) { return svreinterpret_f32_u8(x.q[i]); });
}
[[gnu::always_inline]] inline ivec low_halves(const ivec& x) {
  return each_int([&](int i) { return svand_n_u8_x(all_bytes(), x.q[i], 15); });
}
[[gnu::always_inline]] inline ivec high_halves(const ivec& x) {
  return each_int([&](int i) { return svlsr_n_u8_x(all_bytes(), x.q[i], 4); });
}
/// The bits of `mask` in bytes that are moved down by `shift` bits (up if negative).
[[gnu::always_inline]] inline ivec bits_of(const ivec& x, int shift, int mask) {
  return each_int([&](int i) {
    const auto moved = shift > 0 ? svlsr_n_u8_x(all_bytes(), x.q[i], static_cast<std::uint8_t>(shift))
                                 : svlsl_n_u8_x(all_bytes(), x.q[i], static_cast<std::uint8_t>(-shift));
    return svand_n_u8_x(all_bytes(), moved, static_cast<std::uint8_t>(mask));
  });
}
[[gnu::always_inline]] inline ivec joined(const ivec& x, const ivec& y) {
  return each_int([&](int i) { return svorr_u8_x(all_bytes(), x.q[i], y.q[i]); });
}
/// Entries of a table of 16 bytes at places 0 to 15.
[[gnu::always_inline]] inline ivec looked_up(const std::uint8_t* table, const ivec& places) {
  const auto entries = svld1rq_u8(all_bytes(), table);
  return each_int([&](int i) { return svtbl_u8(entries, places.q[i]); });
}
/// codes | the bits of `mask` in `high`, moved from bit `position` of each byte to bit 4.
[[gnu::always_inline]] inline ivec add_high_bits(const ivec& codes, const ivec& high, int position, int mask) {
  return joined(codes, bits_of(high, position - 4, mask));
}
[[gnu::always_inline]] inline vec load_bytes(const std::int8_t* p) {
  return each([=](int i) { return svcvt_f32_s32_x(all_words(), svld1sb_s32(all_words(), p + i * sve_lanes)); });
}
/// Sixteen numbers in E4M3 times 2^-8, exactly. Moved up by 7 bits, all but their signs are such a number in f16.
[[gnu::always_inline]] inline vec load_e4m3(const std::int8_t* p) {
  return each([=](int i) __attribute__((always_inline)) { // a half in each word, whose upper half does not matter
    const auto moved = svlsl_n_s32_x(all_words(), svld1sb_s32(all_words(), p + i * sve_lanes), 7);
    return svcvt_f32_f16_x(all_words(), svreinterpret_f16_s32(svand_n_s32_x(all_words(), moved, ~0x4000)));
  });
}

inline constexpr bool wide_codes_are_signed = false;
using wide_codes = ivec;
[[gnu::always_inline]] inline ivec signed_wide(const ivec& codes) { return codes; }
[[gnu::always_inline]] inline wide_codes prepare_wide(const ivec& codes) { return codes; }
[[gnu::always_inline]] inline ivec dot(const ivec& sum, const ivec& codes, const ivec& x) {
  return each_int([&](int i) __attribute__((always_inline)) {
    return svreinterpret_u8_s32(svusdot_s32(svreinterpret_s32_u8(sum.q[i]), codes.q[i], svreinterpret_s8_u8(x.q[i])));
  });
}
