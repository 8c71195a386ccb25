#include "kernels/cuda/weight_packing.hpp"

#include "kernels/cuda/device/rows.hpp"
#include "kernels/formats/bf16.hpp"
#include "kernels/formats/f16.hpp"
#include "kernels/formats/quantise_groups.hpp"
#include "kernels/formats/weight_groups.hpp"

#include <algorithm>
#include <cstring>
#include <limits>

namespace troupe::kernels::cuda {

namespace {

struct source_row {
  const void* data = nullptr; // null: padding
  weight_format format = weight_format::f32;
};

/// Maps a packed row to its stored row.
class row_map {
public:
  row_map(std::span<const stored_matrix> stacked, bool gated) : stacked_(stacked), gated_(gated) {}

  source_row operator[](std::size_t row) const {
    if (!gated_)
      return find(row);
    const std::size_t output = row / 16 * 8 + row % 8;
    const auto& from = stacked_[row % 16 / 8];
    return output < from.rows ? source_row{from.row(output), from.format} : source_row{};
  }

private:
  source_row find(std::size_t row) const {
    for (const auto& m : stacked_) {
      if (row < m.rows)
        return {m.row(row), m.format};
      row -= m.rows;
    }
    return {};
  }

  std::span<const stored_matrix> stacked_;
  bool gated_;
};

float element(const source_row& row, std::size_t index) {
  if (row.format == weight_format::f32) {
    float x;
    std::memcpy(&x, static_cast<const char*>(row.data) + 4 * index, 4);
    return x;
  }
  std::uint16_t bits;
  std::memcpy(&bits, static_cast<const char*>(row.data) + 2 * index, 2);
  if (row.format == weight_format::f16)
    return from_f16(bits);
  const std::uint32_t wide = std::uint32_t(bits) << 16;
  float x;
  std::memcpy(&x, &wide, 4);
  return x;
}

/// `n` inputs in f32 from `first` on, a multiple of 32.
void widen(const source_row& row, std::size_t first, std::size_t n, float* to) {
  if (is_float(row.format)) {
    for (std::size_t i = 0; i < n; ++i)
      to[i] = element(row, first + i);
    return;
  }
  expand(row.format, row.data, first, n, to);
}

/// Fills the memory of a part by calls of fill_tile(tile, codes, scales), whose memory is zeroed.
template <class F>
void fill_tiles(uploader& to, weight_part& part, const F& fill_tile) {
  const std::size_t codes = code_bytes(part), scales = scale_bytes(part);
  part.codes = allocate(codes);
  part.scales = scales > 0 ? allocate(scales) : nullptr;
  const std::size_t tiles = std::max<std::size_t>(part.tiles, 1);
  const uploader::target targets[] = {{part.codes.get(), codes / tiles}, {part.scales.get(), scales / tiles}};
  to.upload(targets, part.tiles, [&](std::size_t first, std::size_t count, std::span<std::uint8_t* const> at) {
    for (std::size_t i = 0; i < count; ++i)
      fill_tile(first + i, at[0] + i * targets[0].unit_bytes, at[1] + i * targets[1].unit_bytes);
  });
}

void pack_floats(uploader& to, weight_part& part, std::span<const stored_matrix> stacked) {
  const std::size_t size = layout_of(part.kind).element_bytes;
  const row_map rows(stacked, part.gated);
  fill_tiles(to, part, [&](std::size_t tile, std::uint8_t* codes, std::uint8_t*) {
    std::vector<float> wide;
    for (std::size_t r = 0; r < tile_outputs; ++r) {
      const auto row = rows[tile * tile_outputs + r];
      auto* at = codes + r * part.stride * size;
      if (row.data == nullptr)
        continue;
      if (is_float(row.format) && traits_of(row.format).on_gpu == part.kind) {
        std::memcpy(at, row.data, part.inputs * size);
        continue;
      }
      wide.resize(part.inputs);
      widen(row, 0, part.inputs, wide.data());
      for (std::size_t k = 0; k < part.inputs; ++k) {
        const auto narrow = to_bf16(wide[k]);
        std::memcpy(at + k * size, part.kind == weight_kind::f32 ? static_cast<const void*>(&wide[k]) : &narrow, size);
      }
    }
  });
}

/// Codes and scale of one row. The scale of a row that is not finite is NaN.
void pack_fp8_row(const source_row& row, std::size_t inputs, std::uint8_t* codes, float& scale) {
  if (row.format == weight_format::fp8) {
    std::memcpy(&scale, row.data, sizeof scale);
    const auto* stored = static_cast<const std::uint8_t*>(row.data) + sizeof scale;
    for (std::size_t k = 0; k < inputs; ++k) {
      codes[fp8_place(k)] = stored[k];
      if ((stored[k] & 0x7f) == 0x7f)
        scale = std::numeric_limits<float>::quiet_NaN();
    }
    return;
  }
  std::vector<float> wide(inputs);
  widen(row, 0, inputs, wide.data());
  scale = fp8_scale(wide.data(), inputs);
  for (std::size_t k = 0; k < inputs; ++k)
    codes[fp8_place(k)] = to_fp8(wide[k], scale);
}

void pack_fp8(uploader& to, weight_part& part, std::span<const stored_matrix> stacked) {
  const row_map rows(stacked, part.gated);
  fill_tiles(to, part, [&](std::size_t tile, std::uint8_t* codes, std::uint8_t* scales) {
    for (std::size_t r = 0; r < tile_outputs; ++r)
      if (const auto row = rows[tile * tile_outputs + r]; row.data != nullptr) {
        float scale = 0;
        pack_fp8_row(row, part.inputs, codes + r * part.stride, scale);
        std::memcpy(scales + r * sizeof scale, &scale, sizeof scale);
      }
  });
}

weight_group group_of(const source_row& row, std::size_t index, std::size_t inputs, quantization how) {
  if (has_groups(row.format))
    return stored_group(row.format, row.data, index);
  float wide[group_inputs] = {};
  const std::size_t first = index * group_inputs;
  widen(row, first, std::min(group_inputs, inputs - first), wide);
  return how == quantization::int8 ? quantise_int8(wide) : quantise_int4(wide);
}

/// Stores a lane's code of 5 or 6 bits: of one of the 16 pairs of a row half, in the half `side` of its word.
void place_code(int bits, std::size_t half, std::size_t lane, std::size_t pair, std::size_t side, unsigned code,
                std::uint8_t* codes) {
  const std::size_t words = static_cast<std::size_t>(bits), whole = static_cast<std::size_t>(whole_codes(bits));
  const auto put = [&](std::size_t word, std::size_t shift, unsigned value) { // of the lane's 2 * bits words
    const std::size_t unit = word / 4, width = std::min<std::size_t>(4, 2 * words - 4 * unit);
    auto* at = codes + unit * warp_lanes * 16 + (lane * width + word % 4) * 4 + side * 2;
    const unsigned shifted = value << shift;
    at[0] = static_cast<std::uint8_t>(at[0] | shifted);
    at[1] = static_cast<std::uint8_t>(at[1] | shifted >> 8);
  };
  if (bits == 6) {
    const std::size_t first = words * half + pair / 8 * 3, j = pair % 8;
    if (j < 3 * whole)
      return put(first + j / whole, j % whole * 6, code);
    put(first + j - 6, 12, code & 15);
    return put(first + 2, 2 * j, code >> 4);
  }
  if (pair < 5 * whole)
    return put(words * half + pair / whole, pair % whole * 5, code);
  for (std::size_t i = 0; i < 5; ++i)
    put(words * half + i, 15, code >> i & 1);
}

/// Stores group `index` of row r of a tile in the tile's chunk. See weight_part for the layout.
void place(weight_kind kind, const weight_group& group, std::size_t r, std::size_t index, std::uint8_t* codes,
           std::uint8_t* scales) {
  const std::size_t half = r / 8, g = r % 8;
  const int bits = layout_of(kind).code_bits;
  for (std::size_t i = 0; i < group_inputs; ++i) {
    const std::size_t t = i % 16 / 4, step = i / 16, within = i % 4, lane = 4 * g + t;
    const int code = group.codes[i] - group.zero + layout_of(kind).zero;
    if (bits == 8) {
      constexpr std::size_t byte_of[] = {0, 2, 1, 3};
      const std::size_t word = ((half * 2 + index / 2) * 32 + lane) * 4 + index % 2 * 2 + step;
      codes[4 * word + byte_of[within]] = static_cast<std::uint8_t>(code);
    } else if (bits == 4) {
      const std::size_t word = (half * 32 + lane) * 4 + index, nibble = step * 2 + within / 2 + within % 2 * 4;
      codes[4 * word + nibble / 2] |= static_cast<std::uint8_t>(code << nibble % 2 * 4);
    } else {
      place_code(bits, half, lane, 4 * index + 2 * step + within / 2, within % 2, static_cast<unsigned>(code), codes);
    }
  }
  const auto put = [&](std::size_t at, const void* from, std::size_t bytes) { std::memcpy(scales + at, from, bytes); };
  switch (kind) {
    case weight_kind::q8:
    case weight_kind::q5:
    case weight_kind::q4: return put((r * 4 + index) * 2, &group.d, 2);
    case weight_kind::q5_min:
    case weight_kind::q4_min: put((r * 4 + index) * 4, &group.d, 2); return put((r * 4 + index) * 4 + 2, &group.m, 2);
    default: break;
  }
  const auto m = static_cast<std::uint16_t>(group.m ^ 0x8000);
  const auto minimum = static_cast<std::int8_t>(-group.minima[0]);
  put(r * 4, &group.d, 2);
  put(r * 4 + 2, &m, 2);
  if (layout_of(kind).scales == scale_layout::factors_and_halves) {
    put(64 + r * 8 + 2 * index, group.scales, 2);
  } else {
    put(64 + r * 8 + index, group.scales, 1);
    put(64 + r * 8 + 4 + index, &minimum, 1);
  }
}

void pack_codes(uploader& to, weight_part& part, std::span<const stored_matrix> stacked, quantization how) {
  const row_map rows(stacked, part.gated);
  fill_tiles(to, part, [&](std::size_t tile, std::uint8_t* codes, std::uint8_t* scales) {
    for (std::size_t r = 0; r < tile_outputs; ++r) {
      const auto from = rows[tile * tile_outputs + r];
      for (std::size_t group = 0; from.data != nullptr && group * group_inputs < part.inputs; ++group) {
        const std::size_t chunk = group / chunk_groups;
        place(part.kind, group_of(from, group, part.inputs, how), r, group % chunk_groups,
              codes + chunk * chunk_code_bytes(part.kind), scales + chunk * chunk_scale_bytes(part.kind));
      }
    }
  });
}

table_group table_group_of(const weight_group& from) {
  table_group to;
  to.scales[0] = scale_of(from, 0) * from.scales[0];
  to.scales[1] = scale_of(from, 1) * from.scales[1];
  to.minimum = from_f16(from.m) * from.minima[0];
  for (std::size_t k = 0; k < group_inputs; ++k)
    to.codes[k] = static_cast<std::int8_t>(from.codes[k] - from.zero);
  return to;
}

} // namespace

std::unique_ptr<device_matrix> pack_weights(uploader& to_device, std::span<const stored_matrix> stacked, dtype compute,
                                            quantization how, bool gated) {
  auto to = plan_weights(stacked, compute, how, gated);
  std::size_t first = 0;
  for (auto& part : to->parts) {
    const auto same = stacked.subspan(first, part.stored);
    if (is_grouped(part.kind))
      pack_codes(to_device, part, same, how);
    else if (part.kind == weight_kind::fp8)
      pack_fp8(to_device, part, same);
    else
      pack_floats(to_device, part, same);
    first += part.stored;
  }
  return to;
}

std::unique_ptr<device_table> pack_table(uploader& to_device, const stored_matrix& table) {
  auto to = plan_table(table);
  to->data = allocate(to->bytes);
  const uploader::target target[] = {{to->data.get(), to->row_bytes}};
  to_device.upload(target, table.rows, [&](std::size_t first, std::size_t count, std::span<std::uint8_t* const> at) {
    for (std::size_t r = 0; r < count; ++r) {
      auto* row = at[0] + r * to->row_bytes;
      const void* from = table.row(first + r);
      if (to->grouped)
        for (std::size_t i = 0; i < table.cols / group_inputs; ++i) {
          const auto group = table_group_of(stored_group(table.format, from, i));
          std::memcpy(row + i * sizeof group, &group, sizeof group);
        }
      else if (is_float(table.format))
        std::memcpy(row, from, to->row_bytes);
      else
        expand(table.format, from, 0, table.cols, reinterpret_cast<float*>(row));
    }
  });
  return to;
}

} // namespace troupe::kernels::cuda
