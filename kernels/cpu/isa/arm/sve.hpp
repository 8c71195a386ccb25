// Sixteen floats in one, two or four SVE registers of the length that the including unit is compiled for. Lanes never
// mix, so lengths cannot change a bit. Included by simd.hpp, within its namespaces.
#pragma once

#define TROUPE_SVE_LENGTH __attribute__((arm_sve_vector_bits(__ARM_FEATURE_SVE_BITS)))
typedef svfloat32_t sve_floats TROUPE_SVE_LENGTH;
typedef svuint32_t sve_words TROUPE_SVE_LENGTH;
typedef svuint8_t sve_bytes TROUPE_SVE_LENGTH;
#undef TROUPE_SVE_LENGTH

inline constexpr int sve_parts = 512 / __ARM_FEATURE_SVE_BITS, sve_lanes = lanes / sve_parts;

struct vec {
  sve_floats q[sve_parts];
};

template <class Op> // always inlined: in large functions GCC would call each operation
[[gnu::always_inline]] inline vec each(Op op) {
  vec to;
#pragma GCC unroll 4
  for (int i = 0; i < sve_parts; ++i)
    to.q[i] = op(i);
  return to;
}

[[gnu::always_inline]] inline svbool_t all_words() { return svptrue_b32(); }

[[gnu::always_inline]] inline vec broadcast(float x) {
  return each([=](int) { return svdup_n_f32(x); });
}
[[gnu::always_inline]] inline vec zero() { return broadcast(0); }
[[gnu::always_inline]] inline vec load(const float* p) {
  return each([=](int i) { return svld1_f32(all_words(), p + i * sve_lanes); });
}
[[gnu::always_inline]] inline void store(float* p, const vec& x) {
#pragma GCC unroll 4
  for (int i = 0; i < sve_parts; ++i)
    svst1_f32(all_words(), p + i * sve_lanes, x.q[i]);
}
[[gnu::always_inline]] inline vec operator+(const vec& x, const vec& y) {
  return each([&](int i) { return svadd_f32_x(all_words(), x.q[i], y.q[i]); });
}
[[gnu::always_inline]] inline vec operator-(const vec& x, const vec& y) {
  return each([&](int i) { return svsub_f32_x(all_words(), x.q[i], y.q[i]); });
}
[[gnu::always_inline]] inline vec operator*(const vec& x, const vec& y) {
  return each([&](int i) { return svmul_f32_x(all_words(), x.q[i], y.q[i]); });
}
[[gnu::always_inline]] inline vec operator/(const vec& x, const vec& y) {
  return each([&](int i) { return svdiv_f32_x(all_words(), x.q[i], y.q[i]); });
}
[[gnu::always_inline]] inline vec fma(const vec& x, const vec& y, const vec& z) {
  return each([&](int i) __attribute__((always_inline)) { return svmla_f32_x(all_words(), z.q[i], x.q[i], y.q[i]); });
}
/// The second operand if either is NaN, which FMAX would give back.
[[gnu::always_inline]] inline vec max(const vec& x, const vec& y) {
  return each([&](int i) { return svsel_f32(svcmpgt_f32(all_words(), x.q[i], y.q[i]), x.q[i], y.q[i]); });
}
[[gnu::always_inline]] inline vec min(const vec& x, const vec& y) {
  return each([&](int i) { return svsel_f32(svcmplt_f32(all_words(), x.q[i], y.q[i]), x.q[i], y.q[i]); });
}
/// x in the lanes [from, to), y elsewhere.
[[gnu::always_inline]] inline vec select(int from, int to, const vec& x, const vec& y) {
  return each([&](int i) {
    const auto lane = svindex_s32(i * sve_lanes, 1);
    const auto within = svcmpge_n_s32(svcmplt_n_s32(all_words(), lane, to), lane, from);
    return svsel_f32(within, x.q[i], y.q[i]);
  });
}
/// x in the lanes where y is not less than z, else 0.
[[gnu::always_inline]] inline vec where_at_least(const vec& x, const vec& y, const vec& z) {
  return each([&](int i) { return svsel_f32(svcmplt_f32(all_words(), y.q[i], z.q[i]), svdup_n_f32(0), x.q[i]); });
}
/// Whether all of x are less than y.
[[gnu::always_inline]] inline bool all_less(const vec& x, const vec& y) {
  int less = 0;
  for (int i = 0; i < sve_parts; ++i)
    less += static_cast<int>(svcntp_b32(all_words(), svcmplt_f32(all_words(), x.q[i], y.q[i])));
  return less == lanes;
}
/// 2^i for `magic` = 1.5 * 2^23 + i, -126 <= i <= 127.
[[gnu::always_inline]] inline vec power_of_two(const vec& magic) {
  return each([&](int i) {
    const auto moved = svlsl_n_u32_x(all_words(), svreinterpret_u32_f32(magic.q[i]), 23);
    return svreinterpret_f32_u32(svadd_n_u32_x(all_words(), moved, 127u << 23));
  });
}

[[gnu::always_inline]] inline vec load_f16(const std::uint16_t* p) {
  return each([=](int i) { // a half in each word
    return svcvt_f32_f16_x(all_words(), svreinterpret_f16_u32(svld1uh_u32(all_words(), p + i * sve_lanes)));
  });
}
[[gnu::always_inline]] inline vec load_bf16(const std::uint16_t* p) {
  return each([=](int i) {
    return svreinterpret_f32_u32(svlsl_n_u32_x(all_words(), svld1uh_u32(all_words(), p + i * sve_lanes), 16));
  });
}
/// Sixteen times to_bf16.
[[gnu::always_inline]] inline void store_bf16(std::uint16_t* p, const vec& x) {
  const auto all = all_words();
#pragma GCC unroll 4
  for (int i = 0; i < sve_parts; ++i) {
    const auto bits = svreinterpret_u32_f32(x.q[i]), high = svlsr_n_u32_x(all, bits, 16);
    const auto odd = svand_n_u32_x(all, high, 1);
    const auto rounded = svlsr_n_u32_x(all, svadd_u32_x(all, svadd_n_u32_x(all, bits, 0x7fff), odd), 16);
    const auto nan = svcmpuo_f32(all, x.q[i], x.q[i]);
    svst1h_u32(all, p + i * sve_lanes, svsel_u32(nan, svorr_n_u32_x(all, high, 0x40), rounded));
  }
}
/// The low and the high half of 16 words as bf16.
[[gnu::always_inline]] inline vec even_bf16(const std::uint32_t* p) {
  return each([=](int i) {
    return svreinterpret_f32_u32(svlsl_n_u32_x(all_words(), svld1_u32(all_words(), p + i * sve_lanes), 16));
  });
}
[[gnu::always_inline]] inline vec odd_bf16(const std::uint32_t* p) {
  return each([=](int i) {
    return svreinterpret_f32_u32(svand_n_u32_x(all_words(), svld1_u32(all_words(), p + i * sve_lanes), 0xffff0000));
  });
}

/// Sixteen pairs of bf16.
struct pairs16 {
  sve_words q[sve_parts];
};
[[gnu::always_inline]] inline pairs16 load_pairs(const void* p) {
  pairs16 to;
#pragma GCC unroll 4
  for (int i = 0; i < sve_parts; ++i) // which need not be aligned
    to.q[i] = svreinterpret_u32_u8(svld1_u8(svptrue_b8(), static_cast<const std::uint8_t*>(p) + 4 * i * sve_lanes));
  return to;
}
[[gnu::always_inline]] inline pairs16 broadcast_pair(const void* p) {
  std::uint32_t pair;
  std::memcpy(&pair, p, 4);
  pairs16 to;
#pragma GCC unroll 4
  for (int i = 0; i < sve_parts; ++i)
    to.q[i] = svdup_n_u32(pair);
  return to;
}
/// to + the products of both halves, as BFDOT rounds them.
[[gnu::always_inline]] inline vec add_pairs_of(const vec& to, const pairs16& a, const pairs16& b) {
  return each(
    [&](int i) { return svbfdot_f32(to.q[i], svreinterpret_bf16_u32(a.q[i]), svreinterpret_bf16_u32(b.q[i])); });
}
