// Activations to int8. GCC does not vectorise the loops over single numbers for ARM. Included by isa/quantise.hpp,
// within its namespaces.
#pragma once

#if defined(TROUPE_SVE) && __ARM_FEATURE_SVE_BITS > 128

/// The largest magnitude of 16 numbers as bits, which order NaN above all others.
inline std::uint32_t largest_magnitude(const float* from) {
  const auto magnitude = [=](int i) {
    return svand_n_u32_x(all_words(), svreinterpret_u32_f32(svld1_f32(all_words(), from + i * sve_lanes)), 0x7fffffff);
  };
  sve_words largest = magnitude(0);
#pragma GCC unroll 4
  for (int i = 1; i < sve_parts; ++i)
    largest = svmax_u32_x(all_words(), largest, magnitude(i));
  return svmaxv_u32(all_words(), largest);
}

/// codes = 16 numbers * inverse, to nearest even. Returns their sum.
inline std::int32_t make_codes(std::int8_t* codes, const float* from, float inverse) {
  const vec rounded = load(from) * broadcast(inverse) + broadcast(magic); // the integer is in the low bits
  const auto words = [&](int i) { return svreinterpret_s32_f32(rounded.q[i]); };
#pragma GCC unroll 4
  for (int i = 0; i < sve_parts; ++i)
    svst1b_s32(all_words(), codes + i * sve_lanes, words(i));
  svint32_t sums = svextb_s32_x(all_words(), words(0));
#pragma GCC unroll 4
  for (int i = 1; i < sve_parts; ++i)
    sums = svadd_s32_x(all_words(), sums, svextb_s32_x(all_words(), words(i)));
  return static_cast<std::int32_t>(svaddv_s32(all_words(), sums));
}

#else // the shortest registers of SVE are those of NEON, which narrows several at once

/// The largest magnitude of 16 numbers as bits, which order NaN above all others.
inline std::uint32_t largest_magnitude(const float* from) {
  const auto magnitude = [=](int i) {
    return vandq_u32(vreinterpretq_u32_f32(vld1q_f32(from + 4 * i)), vdupq_n_u32(0x7fffffff));
  };
  return vmaxvq_u32(vmaxq_u32(vmaxq_u32(magnitude(0), magnitude(1)), vmaxq_u32(magnitude(2), magnitude(3))));
}

/// codes = 16 numbers * inverse, to nearest even. Returns their sum.
inline std::int32_t make_codes(std::int8_t* codes, const float* from, float inverse) {
  const auto halves = [=](int i) { // the integers are in the low bits
    const auto rounded = vaddq_f32(vmulq_f32(vld1q_f32(from + 4 * i), vdupq_n_f32(inverse)), vdupq_n_f32(magic));
    return vreinterpretq_u16_f32(rounded);
  };
  const auto low = vuzp1q_u16(halves(0), halves(1)), high = vuzp1q_u16(halves(2), halves(3));
  const auto bytes = vreinterpretq_s8_u8(vuzp1q_u8(vreinterpretq_u8_u16(low), vreinterpretq_u8_u16(high)));
  vst1q_s8(codes, bytes);
  return vaddlvq_s8(bytes);
}

#endif
