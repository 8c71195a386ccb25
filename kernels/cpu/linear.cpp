#include "kernels/cpu/linear.hpp"

#include "kernels/cpu/tensor_rows.hpp"
#include "kernels/formats/codebooks.hpp"

#include <algorithm>
#include <cstring>
#include <unistd.h>

namespace troupe::kernels {

namespace {

constexpr std::size_t tile_register_rows =
  16; // as fast as fewer rows, so tiles are filled; other tiles share rows evenly
constexpr std::size_t min_rows_per_linear_task = 64;
constexpr int max_rows_with_sums = 256; // of a task with f32 activations, which fit in L2 with its sums

/// The L2 size that `target::task_rows` is given for. A larger L2 is used as if it had this size.
constexpr std::size_t max_cache = std::size_t(1) << 20;

/// The L2 size of a core, at most `max_cache`.
std::size_t l2_bytes() {
#if defined(_SC_LEVEL2_CACHE_SIZE)
  if (const long bytes = sysconf(_SC_LEVEL2_CACHE_SIZE); bytes > 0)
    return std::min(static_cast<std::size_t>(bytes), max_cache);
#endif
  return max_cache;
}

/// Whether activations in bf16 are multiplied as f32.
bool widened(const linear_op& op, const tensor& in) { return in.type == dtype::bf16 && !in_pairs(op.kind); }

/// A row of floats in padded blocks of K.
void arrange_floats(const target& kernels, const linear_op& op, std::uint32_t* to, const tensor& in, const char* from) {
  const std::size_t row_bytes = in.cols * size_of(in.type);
  for (std::size_t first = 0; first < op.words; first += k_block, to += op.activation_block) {
    if (widened(op, in)) {
      kernels.widen(weight_kind::bf16, reinterpret_cast<float*>(to), from + first * size_of(in.type),
                    std::min(k_block, in.cols - first));
      continue;
    }
    const std::size_t bytes = std::min(k_block * 4, row_bytes - first * 4);
    if (bytes % 4 != 0) // the odd last input is paired with zero
      to[bytes / 4] = 0;
    std::memcpy(to, from + first * 4, bytes);
  }
}

/// A row of int8 groups in blocks, `stride` words from one group to the next.
void arrange_groups(const target& kernels, const linear_op& op, std::uint32_t* to, std::size_t stride, const tensor& in,
                    const char* from) {
  constexpr std::size_t block_inputs = group_block * group_inputs;
  alignas(64) float wide[block_inputs];
  for (std::size_t first = 0; first < in.cols; first += block_inputs, to += op.activation_block) {
    const std::size_t inputs = std::min(block_inputs, in.cols - first);
    const std::size_t groups = ceil_div(inputs, group_inputs);
    kernels.widen(exact_kind(in.type), wide, from + first * size_of(in.type), inputs);
    std::fill(wide + inputs, wide + groups * group_inputs, 0.0f);
    kernels.quantise(op.kind, to, stride, wide, groups);
  }
}

} // namespace

std::size_t cache_for_tasks(std::size_t wanted) { return wanted != 0 ? std::min(wanted, max_cache) : l2_bytes(); }

linear_task linear_plan::task(std::size_t first_panel, std::size_t count, std::size_t row_task) const {
  linear_task task;
  task.first_panel = first_panel;
  task.panels = std::min(count, panels - first_panel);
  task.first_tile = op.row_tiles * row_task / row_tasks;
  task.tiles = op.row_tiles * (row_task + 1) / row_tasks - task.first_tile;
  return task;
}

std::size_t linear_plan::sums(std::size_t task_panels) const {
  return ceil_div(op.row_tiles, row_tasks) * op.tile_rows * task_panels * panel_columns;
}

std::size_t linear_plan::activation_words() const {
  return ceil_div(op.words, is_grouped(op.kind) ? group_block : k_block) * op.activation_block;
}

linear_plan plan_linear(const target& kernels, std::size_t cache, const packed_matrix& weights, std::size_t rows) {
  linear_plan plan;
  auto& op = plan.op;
  op.weights = weights.data.get();
  op.kind = weights.kind;
  op.pruned = weights.pruned;
  op.gated = weights.gated;
  op.words = weights.words;
  op.scale_words = weights.scale_words;
  op.codebook = codebook_of(weights.kind);
  op.cached = cache / 2 / sizeof(std::uint32_t);
  op.rows = rows;
  op.outputs = weights.outputs;
  const bool pairs = in_pairs(weights.kind);
  const std::size_t tile_rows = weights.quantised() ? kernels.quantised_rows(weights.kind)
    : pairs && !weights.pruned                      ? kernels.pair_rows
                                                    : kernels.linear_rows;
  op.row_tiles = ceil_div(rows, tile_rows);
  op.tile_rows = tile_rows == tile_register_rows ? std::min(tile_rows, rows) : ceil_div(rows, op.row_tiles);
  op.activation_block = weights.quantised() ? op.row_tiles * op.tile_rows * group_block * activation_record
                                            : rows * activation_stride;

  plan.panels = weights.panels;
  plan.panel_columns = weights.panel_columns();
  plan.max_panels = (op.row_tiles == 1 ? panel_outputs : outputs_per_linear_task) / plan.panel_columns;
  const int task_rows = weights.quantised() || pairs ? kernels.task_rows
                                                     : std::min(kernels.task_rows, max_rows_with_sums);
  plan.row_tasks = ceil_div(rows, std::max(task_rows * cache / max_cache, min_rows_per_linear_task));
  return plan;
}

bool used_in_place(const linear_op& op, const tensor& in) {
  return !is_grouped(op.kind) && op.rows == 1 && !widened(op, in) && (in.type == dtype::f32 || in.cols % 2 == 0);
}

void arrange_row(const target& kernels, const linear_op& op, std::uint32_t* words, std::size_t row, const tensor& in,
                 std::size_t from) {
  const auto* x = static_cast<const char*>(row_of(in, from));
  if (!is_grouped(op.kind))
    return arrange_floats(kernels, op, words + row * activation_stride, in, x);
  const std::size_t stride = op.tile_rows * activation_record;
  words += row / op.tile_rows * group_block * stride + row % op.tile_rows * activation_record;
  arrange_groups(kernels, op, words, stride, in, x);
}

std::size_t linear_scratch_bytes(const target& kernels, std::size_t cache, int threads, const planned_steps& steps) {
  std::size_t words = 0, sums = 0, grouped_words = 0, grouped_sums = 0;
  const auto raise = [](std::size_t& to, std::size_t size) { to = std::max(to, size); };
  for (const auto& m : steps.matrices) {
    const auto stack = shape_stack(m.stacked, steps.compute, m.how, m.gated, kernels);
    for (const auto* part : parts_of(*stack)) {
      const auto plan = plan_linear(kernels, cache, *part, std::max(m.rows, std::size_t(1)));
      if (m.chosen == 0) {
        raise(words, plan.activation_words());
        raise(sums, plan.sums(plan.max_panels));
        continue;
      }
      // All rows once, and for each expert that a row chooses. Groups that do not fill their tiles at most double that.
      raise(grouped_words, (1 + 2 * m.chosen) * plan.activation_words());
      // The sums of one group, and of all rows, to which they are added.
      raise(grouped_sums, 2 * plan.sums(outputs_per_linear_task / plan.panel_columns));
    }
  }
  return (words + grouped_words) * sizeof(std::uint32_t) +
    (sums + grouped_sums) * sizeof(float) * static_cast<std::size_t>(threads);
}

cpu_linear::cpu_linear(const target& kernels, thread_pool& pool, std::size_t cache)
  : kernels_(kernels), pool_(pool), cache_(cache_for_tasks(cache)), sparse_(pool) {
  scratch_.resize(pool_.size());
}

bool cpu_linear::keep_nonzero(linear_op& op, const tensor& in, const packed_matrix& weights) {
  if (op.row_tiles != 1)
    return false;
  const std::size_t group = in_pairs(op.kind) ? kernels_.pair_group : 1;
  const auto kept = sparse_.find(in, weights, group);
  if (kept.places == nullptr)
    return false;
  op.kept = kept.places;
  op.kept_words = kept.count;
  op.activations = kept.activations;
  skipped_bytes_ += (op.words - kept.needed) * (weights.bytes / op.words);
  return true;
}

void cpu_linear::run(const tensor& out, const tensor& in, const packed_matrix& weights, const float* bias, store how,
                     const activation& act, const row_addend* addends, std::size_t first_addend) {
  expect(in.type == weights.compute && in.cols == weights.inputs,
         "linear: in must be of the type and columns that the weights were packed for");
  expect(out.cols == weights.outputs && out.rows == in.rows, "linear: out must be [rows of in, outputs]");
  if (in.rows == 0)
    return;
  auto plan = plan_linear(kernels_, cache_, weights, in.rows);
  auto& op = plan.op;
  op.add = how == store::add;
  op.act = act;
  op.out_bf16 = out.type == dtype::bf16;
  op.bias = bias;
  op.addends = addends;
  op.bf16_addends = in.type == dtype::bf16;
  op.first_addend = first_addend;
  op.out = out.data;
  op.out_stride = out.stride;
  if (!weights.quantised() && !weights.pruned && keep_nonzero(op, in, weights)) {
    // What is left of the activations is packed already.
  } else if (used_in_place(op, in)) {
    op.activations = static_cast<const std::uint32_t*>(in.data);
    op.activation_block = k_block;
  } else {
    auto* words = activations_.reserve(plan.activation_words());
    op.activations = words;
    for_rows(pool_, in.rows, [&](std::size_t r) { arrange_row(kernels_, op, words, r, in, r); });
  }

  const std::size_t fair = plan.panels / (4 * pool_.size()); // so that threads finish together
  const std::size_t panels = std::clamp(fair, std::size_t(1), plan.max_panels);
  for (auto& memory : scratch_)
    memory.reserve(plan.sums(panels));
  pool_.parallel_for(ceil_div(plan.panels, panels) * plan.row_tasks, [&](std::size_t i, int thread) {
    kernels_.linear(op, plan.task(i / plan.row_tasks * panels, panels, i % plan.row_tasks),
                    scratch_[thread].reserve(0));
  });
}

} // namespace troupe::kernels
