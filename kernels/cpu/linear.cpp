#include "kernels/cpu/linear.hpp"

#include "kernels/cpu/tensor_rows.hpp"
#include "kernels/formats/weight_groups.hpp"

#include <algorithm>
#include <cstring>
#include <unistd.h>

namespace troupe::kernels {

namespace {

constexpr std::size_t outputs_per_linear_task = 256;
constexpr std::size_t tile_register_rows =
  16; // as fast as fewer rows, so tiles are filled; other tiles share rows evenly
constexpr std::size_t min_rows_per_linear_task = 64;
constexpr int max_rows_with_sums = 256; // of a task with f32 activations, which fit in L2 with its sums

/// The L2 size that `target::task_rows` is given for. A larger L2 is used as if it had this size.
constexpr std::size_t max_cache = std::size_t(1) << 20;

/// Words of K in a hundred that may be left for the rest to be worth skipping: of a few rows, and of more, which wait
/// for the arithmetic, too.
constexpr std::size_t most_kept_percent = 75, most_kept_of_many = 40, few_rows = 4;

/// Words after which a list that gets too long is given up.
constexpr std::size_t first_look = 512;

/// A word of activations: an f32, a bf16 widened to it, or a pair of bf16, the last of which may lack its second.
std::uint32_t activation_word(const tensor& in, std::size_t row, std::size_t k, bool pairs) {
  std::uint32_t word = 0;
  if (in.type == dtype::f32) {
    std::memcpy(&word, row_of<float>(in, row) + k, sizeof word);
    return word;
  }
  const auto* halves = row_of<std::uint16_t>(in, row);
  if (!pairs)
    return std::uint32_t{halves[k]} << 16;
  return halves[2 * k] | (2 * k + 1 < in.cols ? std::uint32_t{halves[2 * k + 1]} << 16 : 0);
}

/// Neither 0 nor -0, in both halves or as a whole.
bool is_nonzero(std::uint32_t word, bool pairs) { return (word & (pairs ? 0x7fff7fff : 0x7fffffff)) != 0; }

template <class T>
std::size_t zeros_of(const T* values, std::size_t n) {
  constexpr T sign = T{1} << (8 * sizeof(T) - 1);
  std::size_t zeros = 0;
  for (std::size_t i = 0; i < n; ++i)
    zeros += static_cast<T>(values[i] & ~sign) == 0;
  return zeros;
}

/// Whether enough of the first row's inputs are zero for a closer look. One pass over them, which costs nothing beside
/// their weights.
bool looks_sparse(const tensor& in) {
  const auto zeros = in.type == dtype::f32 ? zeros_of(row_of<std::uint32_t>(in, 0), in.cols)
                                           : zeros_of(row_of<std::uint16_t>(in, 0), in.cols);
  return zeros * 100 > in.cols * (100 - most_kept_percent);
}

/// The L2 size of a core, at most `max_cache`.
std::size_t l2_bytes() {
#if defined(_SC_LEVEL2_CACHE_SIZE)
  if (const long bytes = sysconf(_SC_LEVEL2_CACHE_SIZE); bytes > 0)
    return std::min(static_cast<std::size_t>(bytes), max_cache);
#endif
  return max_cache;
}

} // namespace

cpu_linear::cpu_linear(const target& kernels, thread_pool& pool, std::size_t cache)
  : kernels_(kernels), pool_(pool), cache_(cache != 0 ? std::min(cache, max_cache) : l2_bytes()) {
  scratch_.resize(pool_.size());
}

void cpu_linear::arrange_activations(linear_op& op, const tensor& in) {
  const bool widened = in.type == dtype::bf16 && op.kind != weight_kind::bf16_pairs;
  if (in.rows == 1 && !widened && (in.type == dtype::f32 || in.cols % 2 == 0)) {
    op.activations = static_cast<const std::uint32_t*>(in.data);
    op.activation_block = k_block;
    return;
  }
  const std::size_t blocks = ceil_div(op.words, k_block);
  op.activation_block = in.rows * activation_stride;
  auto* words = activations_.reserve(blocks * op.activation_block);
  op.activations = words;
  const std::size_t row_bytes = in.cols * size_of(in.type);
  for_rows(pool_, in.rows, [&](std::size_t r) {
    const char* from = static_cast<const char*>(row_of(in, r));
    for (std::size_t block = 0; block < blocks; ++block) {
      auto* to = words + block * op.activation_block + r * activation_stride;
      if (widened) {
        const std::size_t first = block * k_block;
        kernels_.widen(weight_kind::bf16, reinterpret_cast<float*>(to), from + first * size_of(in.type),
                       std::min(k_block, in.cols - first));
        continue;
      }
      const std::size_t offset = block * k_block * 4;
      const std::size_t bytes = std::min(k_block * 4, row_bytes - offset);
      if (bytes % 4 != 0) // the odd last input is paired with zero
        to[bytes / 4] = 0;
      std::memcpy(to, from + offset, bytes);
    }
  });
}

bool cpu_linear::keep_nonzero(linear_op& op, const tensor& in) {
  const bool pairs = op.kind == weight_kind::bf16_pairs;
  // Tile instructions add 16 words at a time.
  if (op.row_tiles != 1 || (pairs && kernels_.pair_rows != kernels_.linear_rows) || !looks_sparse(in))
    return false;
  const auto limit = in.rows <= few_rows ? most_kept_percent : most_kept_of_many;
  auto* kept = kept_.reserve(op.words);
  std::size_t count = 0;
  for (std::size_t k = 0; k < op.words; ++k) {
    kept[count] = static_cast<std::uint32_t>(k);
    bool any = false;
    for (std::size_t r = 0; r < in.rows && !any; ++r)
      any = is_nonzero(activation_word(in, r, k, pairs), pairs);
    count += any;
    if (k == first_look && count * 100 > first_look * (limit + 10))
      return false;
  }
  if (count * 100 > op.words * limit)
    return false;
  op.kept = kept;
  op.kept_words = count;
  auto* words = activations_.reserve(std::max(in.rows * count, std::size_t(1)));
  op.activations = words;
  for (std::size_t r = 0; r < in.rows; ++r)
    for (std::size_t i = 0; i < count; ++i)
      *words++ = activation_word(in, r, kept[i], pairs);
  return true;
}

void cpu_linear::quantise_activations(linear_op& op, const tensor& in) {
  constexpr std::size_t block_inputs = group_block * group_inputs;
  const std::size_t stride = op.tile_rows * activation_record;
  op.activation_block = op.row_tiles * group_block * stride;
  auto* words = activations_.reserve(ceil_div(op.words, group_block) * op.activation_block);
  op.activations = words;
  const auto type = exact_kind(in.type);
  for_rows(pool_, in.rows, [&](std::size_t r) {
    alignas(64) float wide[block_inputs];
    const char* from = static_cast<const char*>(row_of(in, r));
    for (std::size_t first = 0; first < in.cols; first += block_inputs) {
      const std::size_t inputs = std::min(block_inputs, in.cols - first);
      const std::size_t groups = ceil_div(inputs, group_inputs);
      kernels_.widen(type, wide, from + first * size_of(in.type), inputs);
      std::fill(wide + inputs, wide + groups * group_inputs, 0.0f);
      auto* to = words + first / block_inputs * op.activation_block + r / op.tile_rows * group_block * stride;
      kernels_.quantise(op.kind, to + r % op.tile_rows * activation_record, stride, wide, groups);
    }
  });
}

void cpu_linear::run(const tensor& out, const tensor& in, const packed_matrix& weights, const float* bias, store how,
                     const activation& act) {
  expect(in.type == weights.compute && in.cols == weights.inputs,
         "linear: in must be of the type and columns that the weights were packed for");
  expect(out.cols == weights.outputs && out.rows == in.rows, "linear: out must be [rows of in, outputs]");
  if (in.rows == 0)
    return;
  linear_op op;
  op.weights = weights.data.get();
  op.kind = weights.kind;
  op.gated = weights.gated;
  op.add = how == store::add;
  op.act = act;
  op.out_bf16 = out.type == dtype::bf16;
  op.words = weights.words;
  op.cached = cache_ / 2 / sizeof(std::uint32_t);
  op.rows = in.rows;
  const bool pairs = weights.kind == weight_kind::bf16_pairs;
  const std::size_t tile_rows = weights.quantised() ? kernels_.quantised_rows(weights.kind)
    : pairs                                         ? kernels_.pair_rows
                                                    : kernels_.linear_rows;
  op.row_tiles = ceil_div(in.rows, tile_rows);
  op.tile_rows = tile_rows == tile_register_rows ? std::min(tile_rows, in.rows) : ceil_div(in.rows, op.row_tiles);
  op.outputs = weights.outputs;
  op.bias = bias;
  op.out = out.data;
  op.out_stride = out.stride;
  if (weights.quantised())
    quantise_activations(op, in);
  else if (!keep_nonzero(op, in))
    arrange_activations(op, in);

  const std::size_t columns = weights.panel_columns();
  const std::size_t fair = weights.panels / (4 * pool_.size()); // so that threads finish together
  const std::size_t max_panels = (op.row_tiles == 1 ? panel_outputs : outputs_per_linear_task) / columns;
  const std::size_t panels = std::clamp(fair, std::size_t(1), max_panels);
  const std::size_t panel_tasks = ceil_div(weights.panels, panels);
  const int task_rows = weights.quantised() || pairs ? kernels_.task_rows
                                                     : std::min(kernels_.task_rows, max_rows_with_sums);
  const std::size_t fitting = std::max(task_rows * cache_ / max_cache, min_rows_per_linear_task);
  const std::size_t row_tasks = ceil_div(in.rows, fitting);
  const std::size_t max_rows = ceil_div(op.row_tiles, row_tasks) * tile_rows;
  for (auto& memory : scratch_)
    memory.reserve(max_rows * panels * columns);
  pool_.parallel_for(panel_tasks * row_tasks, [&](std::size_t i, int thread) {
    const std::size_t rows = i % row_tasks;
    linear_task task;
    task.first_panel = i / row_tasks * panels;
    task.panels = std::min(panels, weights.panels - task.first_panel);
    task.first_tile = op.row_tiles * rows / row_tasks;
    task.tiles = op.row_tiles * (rows + 1) / row_tasks - task.first_tile;
    kernels_.linear(op, task, scratch_[thread].reserve(0));
  });
}

} // namespace troupe::kernels
