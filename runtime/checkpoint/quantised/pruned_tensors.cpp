#include "runtime/checkpoint/quantised/pruned_tensors.hpp"

#include "kernels/formats/pruned_weights.hpp"
#include "runtime/checkpoint/quantised/made_checkpoint.hpp"

#include <bit>

namespace troupe {

namespace {

/// The format of pruned rows of such values.
tensor_type pruned_type(tensor_type values) {
  return values == tensor_type::f32 ? tensor_type::f32_24
    : values == tensor_type::f16    ? tensor_type::f16_24
                                    : tensor_type::bf16_24;
}

/// The four bits of a mask from weight `first` on, a multiple of 4.
unsigned four_bits(const std::uint8_t* row, std::size_t first) { return row[first / 8] >> first % 8 & 15u; }

} // namespace

std::vector<std::size_t> stored_shape(const checkpoint& stored, const std::string& anchor, const std::string& name) {
  const auto& info = require_part(stored, anchor, name, {tensor_type::i64});
  if (info.shape != std::vector<std::size_t>{2, 1})
    require_shape(stored, anchor, name, info, {2});
  std::int64_t sizes[2];
  const auto data = stored.read(name);
  std::memcpy(sizes, data.get(), sizeof sizes);
  constexpr std::int64_t most = std::int64_t(1) << 30;
  for (const auto size : sizes)
    if (size < 1 || size > most)
      refuse_part(stored, anchor, name, "says the size " + std::to_string(size) + ", expected 1 to 2^30");
  return {static_cast<std::size_t>(sizes[0]), static_cast<std::size_t>(sizes[1])};
}

pruned_tensor read_pruned(const checkpoint& stored, const std::string& mask) {
  const auto stem = mask.substr(0, mask.size() - pruned_mask_suffix.size());
  const auto values = stem + ".compressed", shape_name = stem + ".shape";
  if (stored.find(stem + ".row_offsets"))
    refuse_part(stored, mask, stem + ".row_offsets",
                "is there: weights that are zero anywhere (sparse-bitmask) are not supported, only 2 of every 4",
                errc::unsupported);
  const auto sizes = stored_shape(stored, mask, shape_name);
  const auto outputs = sizes[0], inputs = sizes[1];
  const auto& kept = require_part(
    stored, mask, values,
    {tensor_type::f32, tensor_type::bf16, tensor_type::f16, tensor_type::i8, tensor_type::f8_e4m3});
  if (inputs % 4 != 0)
    refuse_part(stored, mask, shape_name, "says " + std::to_string(inputs) + " inputs, expected a multiple of 4");
  require_shape(stored, mask, values, kept, {outputs, inputs / 2});
  require_shape(stored, mask, mask, require_part(stored, mask, mask, {tensor_type::u8}), {outputs, (inputs + 7) / 8});
  pruned_tensor result{stem.ends_with(".weight") ? stem : stem + ".weight", {}, {mask, values, shape_name}, {}};
  const auto type = kept.type;
  const auto size = size_of(type);
  const bool pairs = weight_format_of(type).has_value() && inputs % 8 == 0;
  auto& info = result.info;
  info.type = pairs ? pruned_type(type) : type;
  info.shape = sizes;
  info.bytes = pairs ? outputs * kernels::row_bytes(*weight_format_of(info.type), inputs) : outputs * inputs * size;
  result.make = [&stored, mask, values, info, size, pairs]() -> tensor_data {
    const auto bits = stored.read(mask), data = stored.read(values);
    const auto rows = info.shape[0], inputs = info.shape[1], row_bytes = info.bytes / rows;
    std::shared_ptr<std::byte[]> to(new std::byte[info.bytes]());
    for (std::size_t r = 0; r < rows; ++r) {
      const auto* row_bits = static_cast<const std::uint8_t*>(bits.get()) + r * ((inputs + 7) / 8);
      const auto* from = static_cast<const std::byte*>(data.get()) + r * (inputs / 2) * size;
      auto* row = to.get() + r * row_bytes;
      for (std::size_t first = 0; first < inputs; first += 4, from += 2 * size) {
        const auto four = four_bits(row_bits, first);
        if (std::popcount(four) != 2)
          refuse_part(stored, mask, mask,
                      "keeps " + std::to_string(std::popcount(four)) + " of the four weights from " +
                        std::to_string(first) + " on in row " + std::to_string(r) + ", expected 2");
        const int a = std::countr_zero(four), b = std::countr_zero(four & (four - 1));
        if (!pairs) {
          std::memcpy(row + (first + static_cast<std::size_t>(a)) * size, from, size);
          std::memcpy(row + (first + static_cast<std::size_t>(b)) * size, from + size, size);
          continue;
        }
        auto* block = row + first / 8 * (4 * size + 1); // weight_format.hpp has the layout
        const bool second = first % 8 != 0;
        std::memcpy(block + (second ? 2 * size : 0), from, 2 * size);
        block[4 * size] |= static_cast<std::byte>((a | b << 2) << (second ? 4 : 0));
      }
    }
    return to;
  };
  return result;
}

unsigned kept_of_four(std::span<const float> scores) {
  unsigned kept = 0;
  for (int n = 0; n < 2; ++n) {
    int best = -1;
    for (int i = 0; i < 4; ++i)
      if ((kept >> i & 1) == 0 &&
          (best < 0 || scores[static_cast<std::size_t>(i)] > scores[static_cast<std::size_t>(best)]))
        best = i;
    kept |= 1u << best;
  }
  return kept;
}

} // namespace troupe
