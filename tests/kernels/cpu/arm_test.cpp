// Targets of ARM that round alike give the same bits: those of SVE for each length of registers, and NEON's.
#if defined(__aarch64__)

#include "kernels/cpu/dispatch.hpp"
#include "tests/kernels/recurrent_checks.hpp"

#include <numeric>

using namespace troupe::kernels;
using namespace troupe::kernels::testing;

namespace {

/// Those that this machine runs, beside `portable`, which does not fuse products and sums; in bf16 only those that
/// multiply pairs.
std::vector<isa> alike(dtype compute) {
  auto targets = available_isas();
  std::erase_if(targets, [&](isa target) {
    return target == isa::portable || (compute == dtype::bf16 && !find_target(target).pairs);
  });
  return targets;
}

numbers product(isa target, dtype compute, const stored_matrix& weights, std::size_t rows, quantization how) {
  const auto device = make_backend(target);
  const auto packed = device->pack({&weights, 1}, compute, how);
  generator random(7);
  numbers in(compute, random.normal(rows * weights.cols)), out(dtype::f32, rows * weights.rows);
  device->linear(out.rows(rows), in.rows(rows), *packed);
  return out;
}

/// The last rows' attention to more tokens than a partition has.
numbers attended(isa target, kv_type type) {
  constexpr int heads = 4, kv_heads = 2, dim = 24, tokens = 300, rows = 9;
  constexpr std::size_t columns = (heads + 2 * kv_heads) * dim;
  const auto device = make_backend(target);
  std::vector<std::int32_t> table((tokens + block_tokens - 1) / block_tokens);
  std::iota(table.begin(), table.end(), 0);
  const auto cache = device->make_kv_cache({1, kv_heads, dim, type, table.size()});
  generator random(5);
  const auto rope = random.normal(std::size_t(tokens) * dim);
  numbers qkv(dtype::f32, random.normal(tokens * columns)),
    out(type == kv_type::f32 ? dtype::f32 : dtype::bf16, std::size_t(rows) * heads * dim);
  const sequence_rows all{0, tokens, 0, 0}, last{0, rows, tokens - rows, 0};
  device->rope_write_kv(qkv.rows(tokens), heads, {}, rope.data(), *cache, 0, {{&all, 1}, table});
  auto q = qkv.rows(tokens);
  q.rows = rows;
  device->attention(out.rows(rows), q, heads, 0.2f, 0, *cache, 0, {{&last, 1}, table});
  return out;
}

/// What a gate with a norm makes of rows that are no multiple of a vector.
numbers gated(isa target) {
  constexpr std::size_t rows = 5, cols = 60;
  const auto device = make_backend(target);
  generator random(3);
  numbers x(dtype::bf16, random.normal(rows * cols)), gate(dtype::f32, random.normal(rows * cols, 2)),
    out(dtype::bf16, rows * cols);
  const auto weight = random.normal(cols);
  dynamic_cast<recurrent_ops&>(*device).gate(
    out.rows(rows), x.rows(rows), gate.rows(rows),
    {.norm = gate_norm::before, .weight = weight.data(), .eps = 1e-5f, .group = 20});
  return out;
}

} // namespace

TEST_CASE("targets of ARM that round alike give attention the same bits") {
  for (const kv_type type : {kv_type::f32, kv_type::bf16, kv_type::int8, kv_type::fp8}) {
    const auto targets = alike(type == kv_type::f32 ? dtype::f32 : dtype::bf16);
    for (std::size_t i = 1; i < targets.size(); ++i)
      CHECK_MESSAGE(attended(targets[i], type) == attended(targets[0], type), to_string(targets[i]), " and ",
                    to_string(targets[0]), ", ", to_string(type));
  }
}

TEST_CASE("targets of ARM give recurrent layers the same bits") {
  const auto targets = alike(dtype::f32);
  for (std::size_t i = 1; i < targets.size(); ++i) {
    CHECK_MESSAGE(gated(targets[i]) == gated(targets[0]), to_string(targets[i]));
    for (const auto& l : layers()) {
      generator random(7);
      const auto in = random_inputs(l, 40, random);
      const auto result = [&](isa target) {
        return recurrent_engine(l, make_backend(target), 1, 1, 0).step({{&in, 0, 40, 0, 0, 0}});
      };
      CHECK_MESSAGE(result(targets[i]) == result(targets[0]), to_string(targets[i]), ", ", l.name);
    }
  }
}

TEST_CASE("targets of ARM that round alike give products the same bits") {
  generator random;
  constexpr std::size_t outputs = 75, inputs = 768;
  for (const auto& traits : weight_formats) {
    if (is_pruned(traits.format))
      continue;
    for (const dtype compute : compute_types)
      for (const std::size_t rows : {std::size_t(1), std::size_t(9)}) {
        std::vector<std::uint8_t> stored(outputs * row_bytes(traits.format, inputs));
        if (is_float(traits.format)) {
          const auto values = random.normal(outputs * inputs, 0.1f);
          const numbers all(traits.format == weight_format::f32     ? dtype::f32
                              : traits.format == weight_format::f16 ? dtype::f16
                                                                    : dtype::bf16,
                            values);
          stored.assign(static_cast<const std::uint8_t*>(all.data()),
                        static_cast<const std::uint8_t*>(all.data()) + stored.size());
        } else if (is_fp8(traits.format)) {
          for (auto& byte : stored)
            byte = static_cast<std::uint8_t>(random.below(256) & ~1); // no NaN
          for (std::size_t at = 0; at < stored.size(); at += row_bytes(traits.format, inputs))
            for (std::size_t i = 0; i < inputs; ++i) {
              const float scale = 0.01f;
              std::memcpy(&stored[at + fp8_scale_offset(traits.format, i)], &scale, sizeof scale);
            }
        } else {
          for (auto& byte : stored)
            byte = static_cast<std::uint8_t>(random.below(256));
          for (std::size_t at = 0; at < stored.size(); at += block_bytes(traits.format)) {
            set_exponent(traits.format, &stored[at]);
            for (const std::size_t offset : f16_offsets(traits.format))
              stored[at + offset + 1] = static_cast<std::uint8_t>(stored[at + offset + 1] % 4 + 28); // finite
          }
        }
        const stored_matrix view{stored.data(), traits.format, outputs, inputs};
        const auto targets = alike(compute);
        for (std::size_t i = 1; i < targets.size(); ++i)
          CHECK_MESSAGE(product(targets[i], compute, view, rows, quantization::none) ==
                          product(targets[0], compute, view, rows, quantization::none),
                        to_string(targets[i]), " and ", to_string(targets[0]), ", ", to_string(traits.format), " with ",
                        to_string(compute), ", ", rows, " rows");
      }
  }
}

#endif
