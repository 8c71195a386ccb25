#include "kernels/cuda/device/linear/linear.hpp"

#include "kernels/cuda/device/activations.hpp"
#include "kernels/cuda/device/launch.hpp"
#include "kernels/cuda/device/linear/fp8.hpp"
#include "kernels/cuda/device/linear/weight_fragments.hpp"

namespace troupe::kernels::cuda {

namespace {

using weights = weight_kind;

constexpr bool has_minima(weight_kind kind) {
  const auto scales = layout_of(kind).scales;
  return scales == scale_layout::with_minima || scales == scale_layout::factors_and_minima;
}

/// Chunks that a warp has in registers: one that is multiplied, the others on their way. A chunk (1 KiB of 4-bit codes,
/// 4 KiB of bf16) is too small to hide the latency of memory, 4-bit ones even two at a time if few blocks run.
template <weight_kind Kind, int Columns>
constexpr int chunks_at_once() {
  return layout_of(Kind).code_bits == 4 && (Columns == 1 || (Columns == 2 && !has_minima(Kind))) ? 3 : 2;
}

/// A block has 16 outputs and 8 * Columns rows. Its warps process chunks of inputs in turn; their sums are added in
/// order, so that the sum of an output and a row does not depend on the other rows. `Whole`: inputs are whole chunks,
/// and activations may be read 16 bytes at a time.
template <weight_kind Kind, int Columns, bool Whole>
struct flat_kernel {
  static constexpr const char* name = "linear_flat";
  static constexpr unsigned threads = 256;
  static constexpr unsigned warps = threads / warp_lanes;
  /// Three blocks of few rows; but bf16's chunks, and minima, need more registers than that leaves.
  static constexpr unsigned least_blocks = Columns == 1 && Kind != weights::bf16 && !has_minima(Kind) ? 3 : 2;
  static constexpr bool waits = true; // weights are loaded before the kernels that make the activations are done
  static constexpr int block_rows = 8 * Columns;
  static constexpr std::size_t shared_bytes = warps * tile_outputs * block_rows * sizeof(float);
  linear_params p;

  TROUPE_DEVICE void operator()() const {
    float sums[Columns][4] = {};
    add_chunks(sums);
    auto* shared = reinterpret_cast<float*>(simt::shared()); // [warps][rows][16 outputs]
    const unsigned g = simt::lane() / 4, t = simt::lane() % 4;
    for (int c = 0; c < Columns; ++c)
      for (int i = 0; i < 4; ++i)
        shared[(simt::warp() * block_rows + 8 * c + 2 * t + i % 2) * tile_outputs + g + i / 2 * 8] = sums[c][i];
    simt::sync_block();
    const int outputs = p.gated ? tile_outputs / 2 : tile_outputs;
    for (int i = static_cast<int>(simt::thread()); i < outputs * block_rows; i += threads)
      finish(shared, i / outputs, i % outputs);
  }

  using row_pointers = const std::uint16_t* [Columns];

  /// Where the codes of the block's tile are.
  TROUPE_DEVICE auto tile_of_block() const {
    if constexpr (is_grouped(Kind))
      return typename weight_chunk<Kind>::source(p, simt::block_x());
    else
      return 0;
  }

  /// Adds the warp's chunks.
  TROUPE_DEVICE void add_chunks(float (&sums)[Columns][4]) const {
    constexpr int at_once = chunks_at_once<Kind, Columns>();
    row_pointers rows; // of activations; beyond the last row, whose products are not stored, the last
    for (int c = 0; c < Columns; ++c) {
      const std::size_t row = std::size_t(simt::block_y()) * block_rows + 8 * c + simt::lane() / 4;
      rows[c] = static_cast<const std::uint16_t*>(p.in) + (row < p.rows ? row : p.rows - 1) * p.in_stride;
    }
    const auto chunks = static_cast<unsigned>(p.chunks);
    weight_chunk<Kind> w[at_once];
    const auto load = [&, tile = tile_of_block()](weight_chunk<Kind>& to, unsigned chunk) {
      if constexpr (is_grouped(Kind))
        to.load(tile, chunk);
      else
        to.template load<Whole>(p, simt::block_x(), chunk);
    };
#pragma unroll
    for (int i = 0; i < at_once; ++i)
      if (simt::warp() + i * warps < chunks)
        load(w[i], simt::warp() + i * warps);
    simt::wait_for_previous();
    for (unsigned first = simt::warp(); first < chunks; first += at_once * warps)
#pragma unroll
      for (int i = 0; i < at_once; ++i) {
        const unsigned chunk = first + i * warps, next = chunk + at_once * warps;
        if (chunk >= chunks)
          break;
        if constexpr (is_grouped(Kind))
          add_codes(w[i], rows, static_cast<int>(chunk) * chunk_inputs, sums);
        else if constexpr (Kind == weights::fp8)
          add_fp8(w[i], rows, std::size_t(chunk) * chunk_inputs, sums);
        else
          add_floats(w[i], rows, std::size_t(chunk) * chunk_inputs, sums);
        if (next < chunks)
          load(w[i], next);
      }
  }

  /// `first`: input that the chunk begins with.
  TROUPE_DEVICE void add_floats(const weight_chunk<Kind>& w, const row_pointers& rows, std::size_t first,
                                float (&sums)[Columns][4]) const {
    const std::size_t k = first + 8 * (simt::lane() % 4);
#pragma unroll
    for (int group = 0; group < chunk_groups; ++group) {
      if (!Whole && first + 32 * group >= p.stride)
        return;
      const words4 &a = w.w[group][0], &b = w.w[group][1];
#pragma unroll
      for (int c = 0; c < Columns; ++c) {
        const words4 x = eight(rows[c], k + 32 * group);
        simt::mma(sums[c], {a.x, b.x, a.y, b.y}, {x.x, x.y});
        simt::mma(sums[c], {a.z, b.z, a.w, b.w}, {x.z, x.w});
      }
    }
  }

  /// Scales are applied in `total`.
  TROUPE_DEVICE void add_fp8(const weight_chunk<Kind>& w, const row_pointers& rows, std::size_t first,
                             float (&sums)[Columns][4]) const {
    const std::size_t k = first + 16 * (simt::lane() % 4);
#pragma unroll
    for (int i = 0; i < weight_chunk<Kind>::halves; ++i)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        std::uint32_t a[2][4];
#pragma unroll
        for (int j = 0; j < 2; ++j)
#pragma unroll
          for (int pair = 0; pair < 2; ++pair) {
            a[j][2 * pair] = fp8_pair(word_of(w.w[i][0], 2 * half + j), pair);
            a[j][2 * pair + 1] = fp8_pair(word_of(w.w[i][1], 2 * half + j), pair);
          }
#pragma unroll
        for (int c = 0; c < Columns; ++c) {
          const words4 x = eight(rows[c], k + 64 * i + 8 * half);
          simt::mma(sums[c], a[0], {x.x, x.y});
          simt::mma(sums[c], a[1], {x.z, x.w});
        }
      }
  }

  TROUPE_DEVICE void add_codes(const weight_chunk<Kind>& w, const row_pointers& rows, int first,
                               float (&sums)[Columns][4]) const {
    using fragments = weight_chunk<Kind>;
    const int k = first + 4 * static_cast<int>(simt::lane() % 4);
#pragma unroll
    for (int group = 0; group < chunk_groups; ++group) {
      group_operand a;
      w.operand(group, a);
#pragma unroll
      for (int c = 0; c < Columns; ++c) {
        const words2 x = four(rows[c], k + 32 * group), y = four(rows[c], k + 32 * group + 16);
        float part[4];
        simt::product(part, a.step[0], {x.x, x.y});
        if constexpr (fragments::scale_per_step) {
          add_scaled(sums[c], part, w.scale(0, group, 0), w.scale(1, group, 0));
          simt::product(part, a.step[1], {y.x, y.y});
        } else {
          simt::mma(part, a.step[1], {y.x, y.y});
        }
        add_scaled(sums[c], part, w.scale(0, group, 1), w.scale(1, group, 1));
        if constexpr (fragments::has_minimum) {
          constexpr std::uint32_t one = 0x3f803f80u;
          float inputs[4];
          simt::product(inputs, {one, one, one, one}, {x.x, x.y});
          simt::mma(inputs, {one, one, one, one}, {y.x, y.y});
          add_scaled(sums[c], inputs, w.minimum(0, group), w.minimum(1, group));
        }
      }
    }
  }

  TROUPE_DEVICE static void add_scaled(float (&sums)[4], const float (&part)[4], float upper, float lower) {
    sums[0] = simt::fused(upper, part[0], sums[0]);
    sums[1] = simt::fused(upper, part[1], sums[1]);
    sums[2] = simt::fused(lower, part[2], sums[2]);
    sums[3] = simt::fused(lower, part[3], sums[3]);
  }

  /// Four inputs from k on of a row, and eight; zeros beyond the inputs.
  template <class Index>
  TROUPE_DEVICE words2 four(const std::uint16_t* row, Index k) const {
    if constexpr (Whole) {
      return *reinterpret_cast<const words2*>(row + k);
    } else {
      std::uint32_t v[4];
#pragma unroll
      for (Index i = 0; i < 4; ++i)
        v[i] = static_cast<std::size_t>(k + i) < p.inputs ? row[k + i] : 0;
      return {v[0] | v[1] << 16, v[2] | v[3] << 16};
    }
  }
  TROUPE_DEVICE words4 eight(const std::uint16_t* row, std::size_t k) const {
    if constexpr (Whole) {
      return *reinterpret_cast<const words4*>(row + k);
    } else {
      const words2 x = four(row, k), y = four(row, k + 4);
      return {x.x, x.y, y.x, y.y};
    }
  }

  /// The sum of the warps for one output of the tile.
  TROUPE_DEVICE float total(const float* shared, int row, int output) const {
    float sum = 0;
    for (unsigned w = 0; w < warps; ++w)
      sum += shared[(w * block_rows + row) * tile_outputs + output];
    if constexpr (Kind == weights::fp8)
      sum *= static_cast<const float*>(p.scales)[std::size_t(simt::block_x()) * tile_outputs + output];
    return sum;
  }

  TROUPE_DEVICE std::uint16_t& narrow(std::size_t row, std::size_t output) const {
    return static_cast<std::uint16_t*>(p.out)[row * p.out_stride + output];
  }

  TROUPE_DEVICE void finish(const float* shared, int r, int i) const {
    const std::size_t row = std::size_t(simt::block_y()) * block_rows + r;
    const std::size_t output = std::size_t(simt::block_x()) * (p.gated ? 8 : 16) + i;
    if (row >= p.rows || output >= p.outputs)
      return;
    const float* bias = p.bias != nullptr ? p.bias + row * p.bias_stride + output : nullptr;
    const float sum = total(shared, r, i) + (bias != nullptr ? bias[0] : 0);
    if (p.gated) {
      const float up = total(shared, r, i + 8) + (bias != nullptr ? bias[p.bias_up] : 0);
      narrow(row, output) = simt::float_to_bf16(gated(p.act, sum, up));
    } else if (p.activated) {
      narrow(row, output) = simt::float_to_bf16(activated(p.act, sum));
    } else {
      float& to = static_cast<float*>(p.out)[row * p.out_stride + output];
      to = p.add ? to + sum : sum;
    }
  }
};

/// A warp per tile and chunk.
template <weight_kind Kind>
struct dequantise_kernel {
  static constexpr const char* name = "dequantise";
  static constexpr unsigned threads = 128;
  linear_params p;
  std::size_t tiles;
  std::uint16_t* to;
  std::size_t to_stride;

  TROUPE_DEVICE void operator()() const {
    const std::size_t at = std::size_t(simt::block_x()) * (threads / warp_lanes) + simt::warp();
    const std::size_t tile = at / p.chunks, chunk = at % p.chunks;
    if (tile >= tiles)
      return;
    weight_chunk<Kind> w;
    w.load({p, tile}, chunk);
#pragma unroll
    for (int group = 0; group < chunk_groups; ++group) {
      group_operand a;
      w.operand(group, a);
#pragma unroll
      for (int step = 0; step < 2; ++step)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const std::size_t row = tile * tile_outputs + simt::lane() / 4 + 8 * half;
          const std::size_t k = chunk * chunk_inputs + 32 * group + 16 * step + 4 * (simt::lane() % 4);
          const float scale = w.scale(half, group, step);
          float minimum = 0;
          if constexpr (weight_chunk<Kind>::has_minimum)
            minimum = w.minimum(half, group);
          const auto weight = [&](std::uint32_t code) { return scale * simt::bits_to_float(code) + minimum; };
          const std::uint32_t first = a.step[step][half], second = a.step[step][2 + half];
          if (k < p.inputs) // rounded twice, as on the host
            *reinterpret_cast<words2*>(to + row * to_stride + k) = {
              simt::float_to_bf16_pair(weight(first << 16), weight(first & 0xffff0000u)),
              simt::float_to_bf16_pair(weight(second << 16), weight(second & 0xffff0000u))};
        }
    }
  }
};

template <weight_kind Kind, int Columns>
void launch_flat(const stream& on, const weight_part& part, const linear_params& params) {
  const bool whole = params.inputs % chunk_inputs == 0 && params.in_stride % 8 == 0 &&
    reinterpret_cast<std::uintptr_t>(params.in) % 16 == 0;
  const auto start = [&](const auto& kernel) {
    const auto rows = ceil_div(params.rows, std::size_t(kernel.block_rows));
    launch(on, {static_cast<unsigned>(part.tiles), static_cast<unsigned>(rows)}, kernel.shared_bytes, kernel);
  };
  if (whole)
    start(flat_kernel<Kind, Columns, true>{params});
  else
    start(flat_kernel<Kind, Columns, false>{params});
}

template <weight_kind Kind>
void launch_for_rows(const stream& on, const weight_part& part, const linear_params& params) {
  if (params.rows <= 8)
    launch_flat<Kind, 1>(on, part, params);
  else if (params.rows <= 16)
    launch_flat<Kind, 2>(on, part, params);
  else
    launch_flat<Kind, 4>(on, part, params);
}

template <weight_kind Kind>
void launch_dequantise(const stream& on, const weight_part& part, std::uint16_t* to, std::size_t stride) {
  using kernel = dequantise_kernel<Kind>;
  const auto blocks = ceil_div(part.tiles * part.chunks(), std::size_t(kernel::threads / warp_lanes));
  launch(on, {static_cast<unsigned>(blocks)}, 0, kernel{params_of(part), part.tiles, to, stride});
}

} // namespace

linear_params params_of(const weight_part& part) {
  linear_params p;
  p.codes = part.codes.get();
  p.scales = part.scales.get();
  p.outputs = part.outputs;
  p.inputs = part.inputs;
  p.stride = part.stride;
  p.chunks = part.chunks();
  p.bias_up = part.outputs;
  p.gated = part.gated;
  return p;
}

void linear_flat(const stream& on, const weight_part& part, const linear_params& params) {
  switch (part.kind) {
    case weights::bf16: return launch_for_rows<weights::bf16>(on, part, params);
    case weights::fp8: return launch_for_rows<weights::fp8>(on, part, params);
    case weights::q8: return launch_for_rows<weights::q8>(on, part, params);
    case weights::q5: return launch_for_rows<weights::q5>(on, part, params);
    case weights::q5_min: return launch_for_rows<weights::q5_min>(on, part, params);
    case weights::q4: return launch_for_rows<weights::q4>(on, part, params);
    case weights::q4_min: return launch_for_rows<weights::q4_min>(on, part, params);
    case weights::q4_k: return launch_for_rows<weights::q4_k>(on, part, params);
    case weights::q5_k: return launch_for_rows<weights::q5_k>(on, part, params);
    case weights::q6_k: return launch_for_rows<weights::q6_k>(on, part, params);
    case weights::iq4_k: return launch_for_rows<weights::iq4_k>(on, part, params);
    default: break;
  }
  throw std::invalid_argument("linear_flat: the weights must be bf16 or quantised");
}

void dequantise_part(const stream& on, const weight_part& part, std::uint16_t* to, std::size_t stride) {
  switch (part.kind) {
    case weights::fp8: return dequantise_fp8(on, part, to, stride);
    case weights::q8: return launch_dequantise<weights::q8>(on, part, to, stride);
    case weights::q5: return launch_dequantise<weights::q5>(on, part, to, stride);
    case weights::q5_min: return launch_dequantise<weights::q5_min>(on, part, to, stride);
    case weights::q4: return launch_dequantise<weights::q4>(on, part, to, stride);
    case weights::q4_min: return launch_dequantise<weights::q4_min>(on, part, to, stride);
    case weights::q4_k: return launch_dequantise<weights::q4_k>(on, part, to, stride);
    case weights::q5_k: return launch_dequantise<weights::q5_k>(on, part, to, stride);
    case weights::q6_k: return launch_dequantise<weights::q6_k>(on, part, to, stride);
    case weights::iq4_k: return launch_dequantise<weights::iq4_k>(on, part, to, stride);
    default: break;
  }
  throw std::invalid_argument("dequantise_part: the weights must be quantised");
}

} // namespace troupe::kernels::cuda
