// Sixteen 32-bit integers in four NEON registers, and dots of codes. Included by int_simd.hpp, within its namespaces.
#pragma once

struct ivec {
  uint8x16_t q[4];
};

template <class Op>
[[gnu::always_inline]] inline ivec each_int(Op op) {
  return {{op(0), op(1), op(2), op(3)}};
}

[[gnu::always_inline]] inline ivec load_ints(const void* p) {
  return each_int([=](int i) { return vld1q_u8(static_cast<const std::uint8_t*>(p) + 16 * i); });
}
[[gnu::always_inline]] inline void store_ints(void* p, const ivec& x) {
  for (int i = 0; i < 4; ++i)
    vst1q_u8(static_cast<std::uint8_t*>(p) + 16 * i, x.q[i]);
}
[[gnu::always_inline]] inline ivec broadcast_word(const std::uint32_t* p) {
  std::uint32_t word;
  std::memcpy(&word, p, 4);
  return each_int([=](int) { return vreinterpretq_u8_u32(vdupq_n_u32(word)); });
}
[[gnu::always_inline]] inline vec as_floats(const ivec& x) {
  return each([&](int i) { return vreinterpretq_f32_u8(x.q[i]); });
}
[[gnu::always_inline]] inline ivec low_halves(const ivec& x) {
  return each_int([&](int i) { return vandq_u8(x.q[i], vdupq_n_u8(15)); });
}
[[gnu::always_inline]] inline ivec high_halves(const ivec& x) {
  return each_int([&](int i) { return vshrq_n_u8(x.q[i], 4); });
}
/// The bits of `mask` in bytes that are moved down by `shift` bits (up if negative).
[[gnu::always_inline]] inline ivec bits_of(const ivec& x, int shift, int mask) {
  return each_int([&](int i) {
    return vandq_u8(vshlq_u8(x.q[i], vdupq_n_s8(static_cast<std::int8_t>(-shift))),
                    vdupq_n_u8(static_cast<std::uint8_t>(mask)));
  });
}
[[gnu::always_inline]] inline ivec joined(const ivec& x, const ivec& y) {
  return each_int([&](int i) { return vorrq_u8(x.q[i], y.q[i]); });
}
/// Entries of a table of 16 bytes at places 0 to 15.
[[gnu::always_inline]] inline ivec looked_up(const std::uint8_t* table, const ivec& places) {
  const auto entries = vld1q_u8(table);
  return each_int([&](int i) { return vqtbl1q_u8(entries, places.q[i]); });
}
/// codes | the bits of `mask` in `high`, moved from bit `position` of each byte to bit 4.
[[gnu::always_inline]] inline ivec add_high_bits(const ivec& codes, const ivec& high, int position, int mask) {
  return joined(codes, bits_of(high, position - 4, mask));
}
[[gnu::always_inline]] inline vec load_bytes(const std::int8_t* p) {
  const auto bytes = vld1q_s8(p);
  const auto low = vmovl_s8(vget_low_s8(bytes)), high = vmovl_s8(vget_high_s8(bytes));
  return {{vcvtq_f32_s32(vmovl_s16(vget_low_s16(low))), vcvtq_f32_s32(vmovl_s16(vget_high_s16(low))),
           vcvtq_f32_s32(vmovl_s16(vget_low_s16(high))), vcvtq_f32_s32(vmovl_s16(vget_high_s16(high)))}};
}
/// Sixteen numbers in E4M3 times 2^-8, exactly. Moved up by 7 bits, all but their signs are such a number in f16.
[[gnu::always_inline]] inline vec load_e4m3(const std::int8_t* p) {
  const auto bytes = vld1q_s8(p);
  const auto halves = [](int16x8_t words) {
    return vreinterpretq_f16_s16(vandq_s16(vshlq_n_s16(words, 7), vdupq_n_s16(static_cast<std::int16_t>(0xbfff))));
  };
  const auto low = halves(vmovl_s8(vget_low_s8(bytes))), high = halves(vmovl_s8(vget_high_s8(bytes)));
  return {{vcvt_f32_f16(vget_low_f16(low)), vcvt_f32_f16(vget_high_f16(low)), vcvt_f32_f16(vget_low_f16(high)),
           vcvt_f32_f16(vget_high_f16(high))}};
}

// Codes of less than 8 bits are also signed bytes. Without I8MM there is no product of signed and unsigned bytes: wide
// codes are made signed, which moves the code of weight 0 from 128 to 0.
using wide_codes = ivec;

#if defined(__ARM_FEATURE_MATMUL_INT8)

inline constexpr bool wide_codes_are_signed = false;
[[gnu::always_inline]] inline ivec signed_wide(const ivec& codes) { return codes; }
[[gnu::always_inline]] inline int32x4_t dot_quad(int32x4_t sum, uint8x16_t codes, uint8x16_t x) {
  return vusdotq_s32(sum, codes, vreinterpretq_s8_u8(x));
}

#else

inline constexpr bool wide_codes_are_signed = true;
[[gnu::always_inline]] inline ivec signed_wide(const ivec& codes) {
  return each_int([&](int i) { return veorq_u8(codes.q[i], vdupq_n_u8(128)); });
}
[[gnu::always_inline]] inline int32x4_t dot_quad(int32x4_t sum, uint8x16_t codes, uint8x16_t x) {
  const auto c = vreinterpretq_s8_u8(codes), s = vreinterpretq_s8_u8(x);
#if defined(__ARM_FEATURE_DOTPROD)
  return vdotq_s32(sum, c, s);
#else
  // Inputs are at least -127, so the sum of two products fits 16 bits.
  const auto low = vmull_s8(vget_low_s8(c), vget_low_s8(s)), high = vmull_high_s8(c, s);
  return vpadalq_s16(sum, vpaddq_s16(low, high));
#endif
}

#endif

[[gnu::always_inline]] inline wide_codes prepare_wide(const ivec& codes) { return codes; }
[[gnu::always_inline]] inline ivec dot(const ivec& sum, const ivec& codes, const ivec& x) {
  return each_int(
    [&](int i) { return vreinterpretq_u8_s32(dot_quad(vreinterpretq_s32_u8(sum.q[i]), codes.q[i], x.q[i])); });
}
