// Sixteen floats in four NEON registers. Included by simd.hpp, within its namespaces.
#pragma once

struct vec {
  float32x4_t q[4];
};

template <class Op> // always inlined: in large functions GCC would call each operation
[[gnu::always_inline]] inline vec each(Op op) {
  return {{op(0), op(1), op(2), op(3)}};
}

[[gnu::always_inline]] inline vec broadcast(float x) {
  return each([=](int) { return vdupq_n_f32(x); });
}
[[gnu::always_inline]] inline vec zero() { return broadcast(0); }
[[gnu::always_inline]] inline vec load(const float* p) {
  return each([=](int i) { return vld1q_f32(p + 4 * i); });
}
[[gnu::always_inline]] inline void store(float* p, const vec& x) {
  for (int i = 0; i < 4; ++i)
    vst1q_f32(p + 4 * i, x.q[i]);
}
[[gnu::always_inline]] inline vec operator+(const vec& x, const vec& y) {
  return each([&](int i) { return vaddq_f32(x.q[i], y.q[i]); });
}
[[gnu::always_inline]] inline vec operator-(const vec& x, const vec& y) {
  return each([&](int i) { return vsubq_f32(x.q[i], y.q[i]); });
}
[[gnu::always_inline]] inline vec operator*(const vec& x, const vec& y) {
  return each([&](int i) { return vmulq_f32(x.q[i], y.q[i]); });
}
[[gnu::always_inline]] inline vec operator/(const vec& x, const vec& y) {
  return each([&](int i) { return vdivq_f32(x.q[i], y.q[i]); });
}
[[gnu::always_inline]] inline vec fma(const vec& x, const vec& y, const vec& z) {
  return each([&](int i) { return vfmaq_f32(z.q[i], x.q[i], y.q[i]); });
}
/// The second operand if either is NaN, which FMAX would give back.
[[gnu::always_inline]] inline vec max(const vec& x, const vec& y) {
  return each([&](int i) { return vbslq_f32(vcgtq_f32(x.q[i], y.q[i]), x.q[i], y.q[i]); });
}
[[gnu::always_inline]] inline vec min(const vec& x, const vec& y) {
  return each([&](int i) { return vbslq_f32(vcltq_f32(x.q[i], y.q[i]), x.q[i], y.q[i]); });
}
/// x in the lanes [from, to), y elsewhere.
[[gnu::always_inline]] inline vec select(int from, int to, const vec& x, const vec& y) {
  return each([&](int i) {
    const int32x4_t lane{4 * i, 4 * i + 1, 4 * i + 2, 4 * i + 3};
    const auto mask = vandq_u32(vcgeq_s32(lane, vdupq_n_s32(from)), vcltq_s32(lane, vdupq_n_s32(to)));
    return vbslq_f32(mask, x.q[i], y.q[i]);
  });
}
/// x in the lanes where y is not less than z, else 0.
[[gnu::always_inline]] inline vec where_at_least(const vec& x, const vec& y, const vec& z) {
  return each([&](int i) { return vbslq_f32(vcltq_f32(y.q[i], z.q[i]), vdupq_n_f32(0), x.q[i]); });
}
/// Whether all of x are less than y.
[[gnu::always_inline]] inline bool all_less(const vec& x, const vec& y) {
  const auto low = vandq_u32(vcltq_f32(x.q[0], y.q[0]), vcltq_f32(x.q[1], y.q[1]));
  const auto high = vandq_u32(vcltq_f32(x.q[2], y.q[2]), vcltq_f32(x.q[3], y.q[3]));
  return vminvq_u32(vandq_u32(low, high)) != 0;
}
/// 2^i for `magic` = 1.5 * 2^23 + i, -126 <= i <= 127.
[[gnu::always_inline]] inline vec power_of_two(const vec& magic) {
  return each([&](int i) {
    const auto moved = vshlq_n_u32(vreinterpretq_u32_f32(magic.q[i]), 23);
    return vreinterpretq_f32_u32(vaddq_u32(moved, vdupq_n_u32(127u << 23)));
  });
}

[[gnu::always_inline]] inline vec load_f16(const std::uint16_t* p) {
  return each([=](int i) { return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p + 4 * i))); });
}
[[gnu::always_inline]] inline vec load_bf16(const std::uint16_t* p) {
  return each([=](int i) { return vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(p + 4 * i), 16)); });
}
/// Sixteen times to_bf16.
[[gnu::always_inline]] inline void store_bf16(std::uint16_t* p, const vec& x) {
  for (int i = 0; i < 4; ++i) {
    const auto bits = vreinterpretq_u32_f32(x.q[i]), high = vshrq_n_u32(bits, 16);
    const auto odd = vandq_u32(high, vdupq_n_u32(1));
    const auto rounded = vshrq_n_u32(vaddq_u32(vaddq_u32(bits, vdupq_n_u32(0x7fff)), odd), 16);
    const auto number = vceqq_f32(x.q[i], x.q[i]);
    vst1_u16(p + 4 * i, vmovn_u32(vbslq_u32(number, rounded, vorrq_u32(high, vdupq_n_u32(0x40)))));
  }
}
/// The low and the high half of 16 words as bf16.
[[gnu::always_inline]] inline vec even_bf16(const std::uint32_t* p) {
  return each([=](int i) { return vreinterpretq_f32_u32(vshlq_n_u32(vld1q_u32(p + 4 * i), 16)); });
}
[[gnu::always_inline]] inline vec odd_bf16(const std::uint32_t* p) {
  return each([=](int i) { return vreinterpretq_f32_u32(vandq_u32(vld1q_u32(p + 4 * i), vdupq_n_u32(0xffff0000))); });
}

#if defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC)

/// Sixteen pairs of bf16.
struct pairs16 {
  uint32x4_t q[4];
};
[[gnu::always_inline]] inline pairs16 load_pairs(const void* p) {
  const auto* words = static_cast<const std::uint8_t*>(p); // which need not be aligned
  return {{vreinterpretq_u32_u8(vld1q_u8(words)), vreinterpretq_u32_u8(vld1q_u8(words + 16)),
           vreinterpretq_u32_u8(vld1q_u8(words + 32)), vreinterpretq_u32_u8(vld1q_u8(words + 48))}};
}
[[gnu::always_inline]] inline pairs16 broadcast_pair(const void* p) {
  std::uint32_t pair;
  std::memcpy(&pair, p, 4);
  const auto all = vdupq_n_u32(pair);
  return {{all, all, all, all}};
}
/// to + the products of both halves, as BFDOT rounds them.
[[gnu::always_inline]] inline vec add_pairs_of(const vec& to, const pairs16& a, const pairs16& b) {
  return each(
    [&](int i) { return vbfdotq_f32(to.q[i], vreinterpretq_bf16_u32(a.q[i]), vreinterpretq_bf16_u32(b.q[i])); });
}

#endif
