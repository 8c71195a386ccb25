#include "kernels/cuda/weights.hpp"

#include "kernels/cuda/rows.hpp"

#include <algorithm>
#include <cstring>

namespace troupe::kernels::cuda {

namespace {

constexpr std::size_t stride_unit = 32; // inputs to which rows of floats are padded

void expect(bool holds, const char* message) {
  if (!holds)
    throw std::invalid_argument(message);
}

struct source_row {
  const void* data = nullptr; // null: padding
  weight_format format = weight_format::f32;
};

/// Packed row -> stored row.
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

/// `n` inputs from `first`, a multiple of 32.
void widen(const source_row& row, std::size_t first, std::size_t n, float* to) {
  if (is_float(row.format)) {
    for (std::size_t i = 0; i < n; ++i)
      to[i] = element(row, first + i);
    return;
  }
  for (std::size_t i = 0; i < n; i += group_inputs)
    dequantise(stored_group(row.format, row.data, (first + i) / group_inputs), to + i);
}

std::uint16_t to_bf16(float x) {
  std::uint32_t bits;
  std::memcpy(&bits, &x, 4);
  if (x != x)
    return static_cast<std::uint16_t>(bits >> 16 | 0x40);
  return static_cast<std::uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/// The kind in which a matrix stays quantised; else bf16, which stands for floats.
weight_kind kind_of(const stored_matrix& m, quantization how) {
  switch (m.format) {
    case weight_format::q8_0:
    case weight_format::q5_0: return weight_kind::q8;
    case weight_format::q5_1: return weight_kind::q8_min;
    case weight_format::q4_0: return weight_kind::q4;
    case weight_format::q4_1: return weight_kind::q4_min;
    case weight_format::q4_k: return weight_kind::q4_k;
    case weight_format::q5_k: return weight_kind::q5_k;
    case weight_format::q6_k: return weight_kind::q6_k;
    default: break;
  }
  return how == quantization::int8   ? weight_kind::q8
         : how == quantization::int4 ? weight_kind::q4_min
                                     : weight_kind::bf16;
}

/// Of floats for f32 activations: as stored where all are stored alike, else f32.
weight_kind wide_kind(std::span<const stored_matrix> stacked) {
  const auto format = stacked.front().format;
  const bool same = std::ranges::all_of(stacked, [&](const auto& m) { return m.format == format; });
  return same && is_float(format) ? static_cast<weight_kind>(format) : weight_kind::f32;
}

buffer upload(const stream& on, const std::vector<std::uint8_t>& bytes) {
  auto memory = allocate(bytes.size());
  copy_to_device(on, memory.get(), bytes.data(), bytes.size());
  on.synchronise();
  return memory;
}

/// Where weights lie as the device wants them, but for the distance between rows, they are copied as they are.
bool copy_floats(const stream& on, weight_part& part, std::span<const stored_matrix> stacked,
                 std::size_t element_bytes) {
  const auto format = static_cast<weight_format>(part.kind);
  if (!std::ranges::all_of(stacked, [&](const auto& m) { return m.format == format; }))
    return false;
  if (part.gated && (part.stride != part.inputs || part.outputs % 8 != 0))
    return false;
  auto* to = static_cast<char*>(part.codes.get());
  const std::size_t from_row = part.inputs * element_bytes, to_row = part.stride * element_bytes;
  for (const auto& m : stacked) {
    if (part.gated) {
      copy_rows(on, to, 16 * to_row, m.data, 8 * from_row, 8 * from_row, m.rows / 8);
      to += 8 * to_row;
    } else {
      copy_rows(on, to, to_row, m.data, from_row, from_row, m.rows);
      to += m.rows * to_row;
    }
  }
  on.synchronise();
  return true;
}

void pack_floats(const stream& on, weight_part& part, std::span<const stored_matrix> stacked) {
  const std::size_t size = part.kind == weight_kind::f32 ? 4 : 2;
  part.stride = (part.inputs + stride_unit - 1) / stride_unit * stride_unit;
  part.codes = allocate(part.tiles * tile_outputs * part.stride * size);
  if (copy_floats(on, part, stacked, size))
    return;
  const row_map rows(stacked, part.gated);
  std::vector<float> wide(part.stride);
  std::vector<std::uint8_t> tile(tile_outputs * part.stride * size);
  for (std::size_t i = 0; i < part.tiles; ++i) {
    std::ranges::fill(tile, 0);
    for (std::size_t r = 0; r < tile_outputs; ++r) {
      const auto row = rows[i * tile_outputs + r];
      if (row.data == nullptr)
        continue;
      auto* to = tile.data() + r * part.stride * size;
      if (part.kind == weight_kind::f16) {
        std::memcpy(to, row.data, part.inputs * 2);
        continue;
      }
      widen(row, 0, part.inputs, wide.data());
      for (std::size_t k = 0; k < part.inputs; ++k) {
        const auto narrow = to_bf16(wide[k]);
        std::memcpy(to + k * size, part.kind == weight_kind::f32 ? static_cast<const void*>(&wide[k]) : &narrow, size);
      }
    }
    copy_to_device(on, static_cast<char*>(part.codes.get()) + i * tile.size(), tile.data(), tile.size());
    on.synchronise();
  }
}

weight_group group_of(const source_row& row, std::size_t index, std::size_t inputs, quantization how) {
  if (!is_float(row.format))
    return stored_group(row.format, row.data, index);
  float wide[group_inputs] = {};
  const std::size_t first = index * group_inputs;
  widen(row, first, std::min(group_inputs, inputs - first), wide);
  return how == quantization::int8 ? quantise_int8(wide) : quantise_int4(wide);
}

/// One group of row r of a tile, into the tile's chunk.
void place(weight_kind kind, const weight_group& group, std::size_t r, std::size_t index, std::uint8_t* codes,
           std::uint8_t* scales) {
  const std::size_t half = r / 8, g = r % 8;
  for (std::size_t i = 0; i < group_inputs; ++i) {
    const std::size_t t = i % 16 / 4, step = i / 16, within = i % 4, lane = 4 * g + t;
    if (code_bits(kind) == 8) {
      constexpr std::size_t byte_of[] = {0, 2, 1, 3};
      const std::size_t word = ((half * 2 + index / 2) * 32 + lane) * 4 + index % 2 * 2 + step;
      codes[4 * word + byte_of[within]] = static_cast<std::uint8_t>(group.codes[i] - group.zero);
    } else {
      const std::size_t word = (half * 32 + lane) * 4 + index, nibble = step * 2 + within / 2 + within % 2 * 4;
      codes[4 * word + nibble / 2] |= static_cast<std::uint8_t>(group.codes[i] << nibble % 2 * 4);
    }
  }
  const auto put = [&](std::size_t at, const void* from, std::size_t bytes) { std::memcpy(scales + at, from, bytes); };
  switch (kind) {
    case weight_kind::q8:
    case weight_kind::q4: return put((r * 4 + index) * 2, &group.d, 2);
    case weight_kind::q8_min:
    case weight_kind::q4_min:
      put((r * 4 + index) * 4, &group.d, 2);
      return put((r * 4 + index) * 4 + 2, &group.m, 2);
    default: break;
  }
  put(r * 4, &group.d, 2);
  put(r * 4 + 2, &group.m, 2);
  if (kind == weight_kind::q6_k) {
    put(64 + index / 2 * 64 + r * 4 + index % 2 * 2, group.scales, 2);
  } else {
    put(64 + r * 4 + index, group.scales, 1);
    put(128 + r * 4 + index, &group.minimum, 1);
  }
}

void pack_codes(const stream& on, weight_part& part, std::span<const stored_matrix> stacked, quantization how) {
  const row_map rows(stacked, part.gated);
  const std::size_t chunks = part.chunks(), code_bytes = tile_outputs * chunk_inputs * code_bits(part.kind) / 8;
  std::vector<std::uint8_t> codes(part.tiles * chunks * code_bytes),
    scales(part.tiles * chunks * scale_bytes(part.kind));
  for (std::size_t row = 0; row < part.tiles * tile_outputs; ++row) {
    const auto from = rows[row];
    if (from.data == nullptr)
      continue;
    for (std::size_t group = 0; group * group_inputs < part.inputs; ++group) {
      const std::size_t chunk = row / tile_outputs * chunks + group / chunk_groups;
      place(part.kind, group_of(from, group, part.inputs, how), row % tile_outputs, group % chunk_groups,
            codes.data() + chunk * code_bytes, scales.data() + chunk * scale_bytes(part.kind));
    }
  }
  part.codes = upload(on, codes);
  part.scales = upload(on, scales);
}

} // namespace

std::unique_ptr<device_matrix> pack_weights(const stream& on, std::span<const stored_matrix> stacked, dtype compute,
                                            quantization how, bool gated) {
  expect(!stacked.empty(), "no matrix to pack");
  expect(compute != dtype::f16, "matrices are packed for f32 or bf16, not for f16");
  for (const auto& m : stacked) {
    expect(m.cols == stacked.front().cols, "matrices that are packed together must have the same number of inputs");
    expect(m.cols % block_inputs(m.format) == 0, "a matrix in blocks must have whole blocks of inputs");
  }
  expect(!gated || (stacked.size() == 2 && stacked[0].rows == stacked[1].rows),
         "gate and up must have the same number of outputs");
  auto to = std::make_unique<device_matrix>();
  to->inputs = stacked.front().cols;
  to->compute = compute;
  to->gated = gated;
  const auto kind = [&](const stored_matrix& m) {
    return compute == dtype::f32 ? weight_kind::bf16 : kind_of(m, how);
  };
  for (std::size_t first = 0, i = 0; i < stacked.size(); ++i) {
    const bool alike = gated || (i + 1 < stacked.size() && kind(stacked[i + 1]) == kind(stacked[first]));
    if (alike && i + 1 < stacked.size())
      continue;
    const auto same = stacked.subspan(first, i + 1 - first);
    weight_part part;
    part.first = to->outputs;
    part.inputs = to->inputs;
    part.gated = gated;
    for (const auto& m : same)
      part.outputs += m.rows;
    if (gated)
      part.outputs /= 2;
    part.tiles = (part.outputs * (gated ? 2 : 1) + tile_outputs - 1) / tile_outputs;
    if (gated) // rows of both lie in tiles of 8
      part.tiles = (part.outputs + 7) / 8;
    const bool differ = gated && kind(same[0]) != kind(same[1]);
    part.kind = compute == dtype::f32 ? wide_kind(same) : differ ? weight_kind::bf16 : kind(same.front());
    if (is_quantised(part.kind))
      pack_codes(on, part, same, how);
    else
      pack_floats(on, part, same);
    const std::size_t size = part.kind == weight_kind::f32 ? 4 : 2;
    const std::size_t chunks = part.tiles * part.chunks();
    to->bytes += is_quantised(part.kind) ? chunks * (std::size_t(256) * code_bits(part.kind) + scale_bytes(part.kind))
                                         : part.tiles * tile_outputs * part.stride * size;
    to->outputs += part.outputs;
    to->parts.push_back(std::move(part));
    first = i + 1;
  }
  return to;
}

std::unique_ptr<device_table> pack_table(const stream& on, const stored_matrix& table) {
  expect(table.cols % block_inputs(table.format) == 0, "load_table: the columns must fill the format's blocks");
  auto to = std::make_unique<device_table>();
  to->outputs = table.rows;
  to->inputs = table.cols;
  to->grouped = !is_float(table.format);
  if (!to->grouped) {
    to->type = dtype_of(table.format);
    to->bytes = table.rows * row_bytes(table.format, table.cols);
    to->data = allocate(to->bytes);
    copy_to_device(on, to->data.get(), table.data, to->bytes);
    on.synchronise();
    return to;
  }
  const std::size_t groups = table.cols / group_inputs;
  to->bytes = table.rows * groups * sizeof(table_group);
  to->data = allocate(to->bytes);
  std::vector<table_group> row(groups);
  for (std::size_t r = 0; r < table.rows; ++r) {
    for (std::size_t i = 0; i < groups; ++i) {
      const auto from = stored_group(table.format, table.row(r), i);
      const float d = from_f16(from.d);
      row[i].scales[0] = d * from.scales[0];
      row[i].scales[1] = d * from.scales[1];
      row[i].minimum = from_f16(from.m) * from.minimum;
      for (std::size_t k = 0; k < group_inputs; ++k)
        row[i].codes[k] = static_cast<std::int8_t>(from.codes[k] - from.zero);
    }
    copy_to_device(on, static_cast<table_group*>(to->data.get()) + r * groups, row.data(),
                   groups * sizeof(table_group));
    on.synchronise();
  }
  return to;
}

} // namespace troupe::kernels::cuda
