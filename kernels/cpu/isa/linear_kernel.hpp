// Linear layers on one tile of work. Only for the target units.
#pragma once

#include "kernels/cpu/isa/linear_store.hpp"
#include "kernels/cpu/isa/pruned_kernel.hpp"
#include "kernels/cpu/isa/quantised_kernel.hpp"
#include "kernels/cpu/isa/tile.hpp"
#if defined(__AMX_BF16__)
#include "kernels/cpu/isa/amx/linear.hpp"
#endif

namespace troupe::kernels {
namespace {

/// Prefetch distance of weights, in bytes. Only the first row tile prefetches; later ones find the weights in L2.
inline constexpr std::size_t float_fetch_distance = 8192;

/// The words of a panel from `word` on: those that share scales, if it has several for an output.
template <class Operand>
inline const typename Operand::element* words_of_panel(const linear_op& op, std::size_t panel, std::size_t word = 0) {
  constexpr std::size_t word_bytes = panel_outputs * sizeof(typename Operand::element);
  std::size_t bytes = op.words * word_bytes, at = word * word_bytes;
  if constexpr (Operand::header_bytes != 0) {
    bytes = fp8_panel_bytes(op.scale_words, word_bytes, op.words);
    at = fp8_word_offset(op.scale_words, word_bytes, word);
  }
  const auto* from = static_cast<const char*>(op.weights) + panel * bytes + at;
  return reinterpret_cast<const typename Operand::element*>(from);
}

/// One panel and one row tile over one block of K. Weights are prefetched `ahead` words before their use.
template <class Operand>
inline void linear_block(const typename Operand::element* weights, const std::uint32_t* rows, int count,
                         std::size_t words, bool fresh, float* c, std::size_t c_stride, std::size_t ahead) {
  constexpr std::size_t line = 64 / sizeof(*weights);
  constexpr int most = Operand::widens ? rows_of_vectors(tile_vectors(1)) : tile_rows; // accumulate_widened takes more
  with_rows<most>(count, [&]<int R>() {
    constexpr int V = tile_vectors(R);
    for (std::size_t column = 0; column < panel_outputs; column += V * lanes)
      accumulate_tile<Operand, R, V>(
        c + column, c_stride, fresh, rows, activation_stride,
        words, [&](std::size_t k, auto& b) __attribute__((always_inline)) {
          const auto* from = weights + k * panel_outputs + column;
          for (std::size_t i = 0; ahead != 0 && i < V * lanes; i += line) // once per line
            __builtin_prefetch(from + i + ahead * panel_outputs);
          read_columns<Operand>(b, from);
        });
  });
}

/// Sums more rows, V vectors of a panel at a time, with the same bits. The first of several tiles widens the weights in
/// L1 for the others, for so many words of K at a time that they take 16 KiB and stay there with the activations of a
/// tile. Every pass over these words prefetches an equal share of the next ones, or of the next panel's, spread over
/// its words. `Scaled`: the words of K at a time are those that share scales, which multiply their sums.
template <class Operand, int V, bool Scaled = false>
void accumulate_widened(const linear_op& op, const linear_task& task, float* scratch) {
  using element = typename Operand::element;
  using wide = typename Operand::wide;
  constexpr std::size_t width = V * lanes, parts = panel_outputs / width;
  constexpr std::size_t most_words = Scaled ? k_block / 2 : k_block / V;
  const std::size_t widened_words = Scaled ? op.scale_words : most_words;
  alignas(64) typename wide::element widened[most_words * width];
  const std::size_t first_row = first_row_of(op, task.first_tile);
  const std::size_t c_stride = task.panels * panel_outputs;
  const std::size_t fetched = (panel_outputs * sizeof(element) - 1) / (parts * task.tiles) + 1; // bytes per word
  for (std::size_t k = 0; k < op.words; k += widened_words) {
    const std::size_t words = op.words - k < widened_words ? op.words - k : widened_words;
    const auto* activations = op.activations + k / k_block * op.activation_block + k % k_block;
    for (std::size_t panel = 0; panel < task.panels; ++panel) {
      const auto block_at = [&](std::size_t of, std::size_t word) {
        return words_of_panel<Operand>(op, task.first_panel + of, word);
      };
      const element* block = block_at(panel, k);
      [[maybe_unused]] const auto* scales = Scaled ? reinterpret_cast<const float*>(block) - panel_outputs : nullptr;
      const auto* next = reinterpret_cast<const char*>(panel + 1 < task.panels ? block_at(panel + 1, k)
                                                                               : block_at(0, k + widened_words));
      for (std::size_t part = 0; part < parts; ++part) {
        for (std::size_t i = 0; i < task.tiles; ++i, next += words * fetched) {
          const std::size_t row = first_row_of(op, task.first_tile + i);
          const auto* a = activations + row * activation_stride;
          float* c = scratch + (row - first_row) * c_stride + panel * panel_outputs + part * width;
          const auto fetch = [&](std::size_t word) {
            __builtin_prefetch(next + word * fetched, 0, 2);
            if constexpr (width * sizeof(element) > 64)
              if (fetched > 64)
                __builtin_prefetch(next + word * fetched + 64, 0, 2);
          };
          const int count = static_cast<int>(first_row_of(op, task.first_tile + i + 1) - row);
          with_rows<rows_of_vectors(V)>(count, [&]<int R>() {
            const auto accumulate = [&](const auto& columns) __attribute__((always_inline)) {
              if constexpr (Scaled)
                accumulate_scaled_tile<wide, R, V>(c, c_stride, k == 0, scales + part * width, a, activation_stride,
                                                   words, columns);
              else
                accumulate_tile<wide, R, V>(c, c_stride, k == 0, a, activation_stride, words, columns);
            };
            if (i == 0)
              accumulate([&](std::size_t word, auto& b) __attribute__((always_inline)) {
                fetch(word);
                read_columns<Operand>(b, block + word * panel_outputs + part * width);
                for (int v = 0; task.tiles > 1 && v < V; ++v)
                  wide::keep(widened + word * width + v * lanes, b[v]);
              });
            else
              accumulate([&](std::size_t word, auto& b) __attribute__((always_inline)) {
                fetch(word);
                read_columns<wide>(b, widened + word * width);
              });
          });
        }
      }
    }
  }
}

/// Prefetch distance of words that are kept: those between them are skipped, which the hardware does not foresee.
inline constexpr std::size_t kept_fetch_distance = 24;

/// The sums of accumulate_linear without the words of K whose activations are zero in all rows: their weights are not
/// read. What they would add is 0, and the others come in the same order, so the bits are the same, but for the sign of
/// sums that are 0. That holds for pairs, too, which flush subnormal sums to 0: a sum never is one.
template <class Operand>
void accumulate_kept(const linear_op& op, const linear_task& task, float* scratch) {
  using element = typename Operand::element;
  constexpr std::size_t line = 64 / sizeof(element);
  const std::size_t c_stride = task.panels * panel_outputs;
  for (std::size_t panel = 0; panel < task.panels; ++panel)
    with_rows(static_cast<int>(op.rows), [&]<int R>() {
      const element* weights = words_of_panel<Operand>(op, task.first_panel + panel);
      constexpr int V = tile_vectors(R);
      for (std::size_t column = 0; column < panel_outputs; column += V * lanes)
        accumulate_tile<Operand, R, V>(
          scratch + panel * panel_outputs + column, c_stride, true, op.activations, op.kept_words,
          op.kept_words, [&](std::size_t k, auto& b) __attribute__((always_inline)) {
            if (column == 0 && k + kept_fetch_distance < op.kept_words) {
              const auto* next = weights + op.kept[k + kept_fetch_distance] * panel_outputs;
              for (std::size_t i = 0; i < panel_outputs; i += line)
                __builtin_prefetch(next + i);
            }
            read_columns<Operand>(b, weights + op.kept[k] * panel_outputs + column);
          });
    });
}

/// The sums of accumulate_scaled without the words that are not kept, in the same way: what is kept of a block of K is
/// multiplied by its scales, which are finite.
template <class Operand>
void accumulate_kept_scaled(const linear_op& op, const linear_task& task, float* scratch) {
  constexpr std::size_t line = 64 / sizeof(typename Operand::element);
  const std::size_t c_stride = task.panels * panel_outputs;
  const auto block_of = [&](std::size_t i) { return op.kept[i] / op.scale_words; };
  for (std::size_t panel = 0; panel < task.panels; ++panel)
    with_rows(static_cast<int>(op.rows), [&]<int R>() {
      constexpr int V = tile_vectors(R);
      float* sums = scratch + panel * panel_outputs;
      for (int r = 0; r < R; ++r)
        for (std::size_t i = 0; i < panel_outputs; i += lanes)
          store(sums + r * c_stride + i, zero());
      for (std::size_t first = 0, end = 0; first < op.kept_words; first = end) {
        const std::size_t begin = block_of(first) * op.scale_words;
        while (end < op.kept_words && block_of(end) == block_of(first))
          ++end;
        const auto* weights = words_of_panel<Operand>(op, task.first_panel + panel, begin);
        const auto* scales = reinterpret_cast<const float*>(weights) - panel_outputs;
        for (std::size_t column = 0; column < panel_outputs; column += V * lanes)
          accumulate_scaled_tile<Operand, R, V>(
            sums + column, c_stride, false, scales + column, op.activations + first, op.kept_words,
            end - first, [&](std::size_t k, auto& b) __attribute__((always_inline)) {
              if (column == 0 && first + k + kept_fetch_distance < op.kept_words) {
                const auto* next = words_of_panel<Operand>(op, task.first_panel + panel,
                                                           op.kept[first + k + kept_fetch_distance]);
                for (std::size_t i = 0; i < panel_outputs; i += line)
                  __builtin_prefetch(next + i);
              }
              read_columns<Operand>(b, weights + (op.kept[first + k] - begin) * panel_outputs + column);
            });
      }
    });
}

/// Sums of fp8 with several scales for an output: those of the words that share one start at 0, and are multiplied by it
/// before they are added.
template <class Operand>
void accumulate_scaled(const linear_op& op, const linear_task& task, float* scratch) {
  if (op.kept != nullptr)
    return accumulate_kept_scaled<Operand>(op, task, scratch);
  switch (tile_vectors(static_cast<int>(op.tile_rows))) {
    case tile_vectors(tile_rows): return accumulate_widened<Operand, tile_vectors(tile_rows), true>(op, task, scratch);
    case 2 * tile_vectors(tile_rows):
      if constexpr (2 * tile_vectors(tile_rows) <= tile_vectors(1))
        return accumulate_widened<Operand, 2 * tile_vectors(tile_rows), true>(op, task, scratch);
      break;
    default:
      if constexpr (4 * tile_vectors(tile_rows) <= tile_vectors(1))
        return accumulate_widened<Operand, 4 * tile_vectors(tile_rows), true>(op, task, scratch);
  }
}

/// Blocks of K outside, row tiles inside: a block of the task's weights stays in L2 for all rows.
template <class Operand>
void accumulate_linear(const linear_op& op, const linear_task& task, float* scratch) {
  if (op.kept != nullptr)
    return accumulate_kept<Operand>(op, task, scratch);
  if constexpr (Operand::widens) {
    constexpr int few = tile_vectors(2), most = tile_vectors(tile_rows);
    const int vectors = tile_vectors(static_cast<int>(op.tile_rows));
    if (vectors == most)
      return accumulate_widened<Operand, most>(op, task, scratch);
    if constexpr (few != most && few * lanes < panel_outputs)
      if (vectors == few)
        return accumulate_widened<Operand, few>(op, task, scratch);
  }
  using element = typename Operand::element;
  constexpr std::size_t fetched_ahead = float_fetch_distance / (panel_outputs * sizeof(element));
  const std::size_t first_row = first_row_of(op, task.first_tile);
  const std::size_t c_stride = task.panels * panel_outputs;
  for (std::size_t k = 0; k < op.words; k += k_block) {
    const std::size_t words = op.words - k < k_block ? op.words - k : k_block;
    const auto* activations = op.activations + k / k_block * op.activation_block;
    for (std::size_t tile = task.first_tile; tile < task.first_tile + task.tiles; ++tile) {
      const std::size_t row = first_row_of(op, tile);
      const int count = static_cast<int>(first_row_of(op, tile + 1) - row);
      for (std::size_t panel = 0; panel < task.panels; ++panel)
        linear_block<Operand>(words_of_panel<Operand>(op, task.first_panel + panel) + k * panel_outputs,
                              activations + row * activation_stride, count, words, k == 0,
                              scratch + (row - first_row) * c_stride + panel * panel_outputs, c_stride,
                              tile == task.first_tile ? fetched_ahead : 0);
    }
  }
}

template <class Operand>
void accumulate_codes(const linear_op& op, const linear_task& task, float* scratch) {
  if (has_scale_blocks(op))
    accumulate_scaled<Operand>(op, task, scratch);
  else
    accumulate_linear<Operand>(op, task, scratch);
}

void linear(const linear_op& op, const linear_task& task, float* scratch) {
  if (op.pruned)
    return linear_pruned(op, task, scratch);
  switch (op.kind) {
    case weight_kind::f32: accumulate_linear<f32_operand>(op, task, scratch); break;
    case weight_kind::f16: accumulate_linear<f16_operand>(op, task, scratch); break;
    case weight_kind::bf16: accumulate_linear<bf16_operand>(op, task, scratch); break;
#if defined(__AVX512F__) && !defined(TROUPE_PAIRS)
    case weight_kind::bf16_halves: accumulate_linear<bf16_half_operand>(op, task, scratch); break;
#endif
#if defined(__AMX_BF16__)
    case weight_kind::bf16_pairs: return linear_pairs<pairs_in_tiles>(op, task, scratch);
    case weight_kind::fp8_pairs: return linear_pairs<codes_in_tiles>(op, task, scratch);
#elif defined(TROUPE_PAIRS)
    case weight_kind::bf16_pairs: accumulate_linear<pair_operand>(op, task, scratch); break;
#endif
#if defined(__AVX512BF16__) && !defined(__AMX_BF16__)
    case weight_kind::fp8_pairs: accumulate_codes<fp8_pair_operand>(op, task, scratch); break;
#endif
    case weight_kind::fp8: accumulate_codes<fp8_operand>(op, task, scratch); break;
    default: return linear_quantised(op, task, scratch);
  }
  store_linear(op, task, scratch);
}

} // namespace
} // namespace troupe::kernels
