// Linear layers with quantised weights and activations. Each group of 32 inputs has exact integer dots, one rounding
// for the product with the weights' scale and one for the sum, in ascending order of groups. So rows, tiles, threads
// and the instructions of the dots cannot change a bit. Only for the target units.
#pragma once

#include "kernels/cpu/isa/expanded_blocks.hpp"
#include "kernels/cpu/isa/linear_store.hpp"
#include "kernels/cpu/isa/quantise.hpp"
#include "kernels/cpu/isa/quantised_tiles.hpp"
#if defined(__AMX_INT8__)
#include "kernels/cpu/isa/amx/quantised.hpp"
#endif

namespace troupe::kernels {
namespace {

#if !defined(__AMX_INT8__)
struct quantised_scratch {
  unpacked_block weights;
};
#endif

/// The most rows of a tile.
template <weight_kind Kind>
constexpr int quantised_tile_rows() {
#if defined(__AMX_INT8__)
  if (in_amx_tiles<Kind>)
    return amx_rows;
#endif
  return register_rows<Kind>;
}

/// Calls f.template operator()<Kind>() for a quantised kind. Those that become bytes differ only in their zeros and
/// parts then, so four stand for all.
template <class F>
inline auto with_kind(weight_kind kind, const F& f) {
  if (is_expanded(kind)) {
    const auto layout = layout_of(kind);
    if (layout.zero == 16)
      return layout.parts == 1 ? f.template operator()<weight_kind::iq3_s>()
                               : f.template operator()<weight_kind::iq1>();
    return layout.parts == 1 ? f.template operator()<weight_kind::iq3_xxs>()
                             : f.template operator()<weight_kind::iq2_s>();
  }
  switch (kind) {
    case weight_kind::q8: return f.template operator()<weight_kind::q8>();
    case weight_kind::q5: return f.template operator()<weight_kind::q5>();
    case weight_kind::q5_min: return f.template operator()<weight_kind::q5_min>();
    case weight_kind::q4: return f.template operator()<weight_kind::q4>();
    case weight_kind::q4_min: return f.template operator()<weight_kind::q4_min>();
    case weight_kind::q4_k: return f.template operator()<weight_kind::q4_k>();
    case weight_kind::q5_k: return f.template operator()<weight_kind::q5_k>();
    case weight_kind::q3_k: return f.template operator()<weight_kind::q3_k>();
    case weight_kind::q2_k: return f.template operator()<weight_kind::q2_k>();
    case weight_kind::iq4: return f.template operator()<weight_kind::iq4>();
    case weight_kind::iq4_k: return f.template operator()<weight_kind::iq4_k>();
    case weight_kind::mx4: return f.template operator()<weight_kind::mx4>();
    default: return f.template operator()<weight_kind::q6_k>();
  }
}

int quantised_rows(weight_kind kind) {
  return with_kind(kind, []<weight_kind Kind>() { return quantised_tile_rows<Kind>(); });
}

/// Codes of the multiplied kind as bytes, factors and minima as floats. `change` is applied to the codes.
template <weight_kind Kind, class Change>
inline void unpack_block(const linear_op& op, unpacked_block& to, const unsigned char* block, std::size_t groups,
                         const Change& change) {
  if constexpr (is_expanded(Kind))
    expand_block(op.kind, op.codebook, to, block, groups, change);
  else
    unpack<Kind>(to, block, groups, change);
}

/// All rows of the task, in tiles of op.tile_rows, times one block of one panel. c: [rows][32]. Calls `finish(row,
/// rows)` for rows with complete sums.
template <weight_kind Kind, class Finish>
inline void accumulate_block(const linear_op& op, float* c, bool fresh, const std::uint32_t* activations,
                             std::size_t rows, const unsigned char* block, std::size_t groups,
                             quantised_scratch& scratch, const Finish& finish) {
  const std::size_t tile_rows = op.tile_rows;
  const std::size_t bytes = layout_of(is_expanded(Kind) ? op.kind : Kind).bytes(groups);
  std::size_t done = 0;
#if defined(__AMX_INT8__)
  if constexpr (in_amx_tiles<Kind>)
    if (rows >= amx_rows) {
      done = rows / amx_rows * amx_rows;
      unpack_block<Kind>(op, scratch.weights, block, groups, signed_codes<layout_of(Kind).zero>);
      accumulate_amx(c, fresh, activations, done, block + bytes, bytes, groups, scratch);
      finish(0, done);
      if (done == rows)
        return;
    }
#endif
  constexpr std::size_t R = register_rows<Kind>;
  const auto for_chunks = [&](const auto& f) { // of rows that are multiplied together
    for (std::size_t tile = done; tile < rows; tile += tile_rows) {
      const std::size_t end = rows - tile < tile_rows ? rows : tile + tile_rows;
      for (std::size_t row = tile; row < end;) {
        const std::size_t left = end - row, count = left <= R ? left : left < 2 * R ? (left + 1) / 2 : R;
        f(activations + tile * activation_row + (row - tile) * activation_record, row, count);
        row += count;
      }
    }
  };
  const bool unpacks = is_expanded(Kind) || rows - done > 2 * R;
  std::size_t passes = 0; // over the block
  for_chunks([&](const std::uint32_t*, std::size_t, std::size_t count) {
    passes += static_cast<std::size_t>(quantised_vectors / quantised_tile_vectors(count));
  });
  further_weights further{block + bytes, (bytes / (passes * groups) + 64) & ~std::size_t(63), false}; // whole lines
  if (!unpacks && (passes == 1 || register_vectors == quantised_vectors))
    further = {block + fetch_distance, 0, true}; // the first pass prefetches all
  const auto run = [&](const auto& weights) {
    for_chunks([&](const std::uint32_t* records, std::size_t row, std::size_t count) {
      with_rows<R>(static_cast<int>(count), [&]<int Rows>() {
        constexpr int V = quantised_tile_vectors(Rows);
        for (int v = 0; v < quantised_vectors; v += V) {
          accumulate_groups<Rows, V>(c + row * quantised_panel_outputs + v * lanes, fresh, records,
                                     tile_rows * activation_record, weights, v, groups, further);
          further.from += groups * further.step;
          if (further.in_order || further.from >= block + 2 * bytes)
            further = {block, 0, false};
        }
      });
      finish(row, count);
    });
  };
  if (unpacks) {
    unpack_block<Kind>(op, scratch.weights, block, groups,
                       [](ivec codes) { return wide<Kind> ? signed_wide(codes) : codes; });
    run(unpacked_groups<Kind>(scratch.weights));
  } else if constexpr (!is_expanded(Kind)) {
    run(stored_groups<Kind>(block));
  }
}

/// Takes the blocks of K of several panels in turn, so that a panel's block stays in L1 for all rows, and the rows stay
/// in L2 for all panels. Sums are [panels][rows][32], each stored as soon as it is complete.
template <weight_kind Kind>
void accumulate_quantised(const linear_op& op, const linear_task& task, float* sums) {
  const auto layout = layout_of(is_expanded(Kind) ? op.kind : Kind);
  quantised_scratch scratch;
  const auto* weights = static_cast<const unsigned char*>(op.weights) + task.first_panel * layout.bytes(op.words);
  const std::size_t first_row = first_row_of(op, task.first_tile);
  const std::size_t rows = first_row_of(op, task.first_tile + task.tiles) - first_row;
#if defined(__AMX_INT8__)
  const amx_tiles configured(in_amx_tiles<Kind> && rows >= amx_rows);
#endif
  const std::size_t blocks = op.cached / (rows * activation_row) + 1;
  for (std::size_t first = 0; first < op.words; first += blocks * group_block)
    for (std::size_t panel = 0; panel < task.panels; ++panel)
      for (std::size_t k = first; k < op.words && k < first + blocks * group_block; k += group_block) {
        const std::size_t groups = op.words - k < group_block ? op.words - k : group_block;
        const auto* activations = op.activations + k / group_block * op.activation_block + first_row * activation_row;
        float* c = sums + panel * rows * quantised_panel_outputs;
        const bool last = k + groups == op.words;
        accumulate_block<Kind>(op, c, k == 0, activations, rows,
                               weights + panel * layout.bytes(op.words) + layout.bytes(k), groups, scratch,
                               [&](std::size_t row, std::size_t count) {
                                 if (last)
                                   store_panel<quantised_panel_outputs>(op, task.first_panel + panel, first_row + row,
                                                                        count, c + row * quantised_panel_outputs);
                               });
      }
}

void linear_quantised(const linear_op& op, const linear_task& task, float* sums) {
  with_kind(op.kind, [&]<weight_kind Kind>() { accumulate_quantised<Kind>(op, task, sums); });
}

} // namespace
} // namespace troupe::kernels
