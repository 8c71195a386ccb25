// Targets of ARM that round alike give the same bits: those of SVE for each length of registers, and NEON's.
#if defined(__aarch64__)

#include "kernels/cpu/dispatch.hpp"
#include "tests/kernels/support.hpp"

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

} // namespace

TEST_CASE("targets of ARM that round alike give products the same bits") {
  generator random;
  constexpr std::size_t outputs = 75, inputs = 768;
  for (const auto& traits : weight_formats) {
    if (!is_float(traits.format) && !has_groups(traits.format))
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
