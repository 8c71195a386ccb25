#include "kernels/cuda/scratch_plan.hpp"

#include "kernels/cuda/attention_plan.hpp"
#include "kernels/cuda/device/common.hpp"
#include "kernels/cuda/device/recurrent/recurrent.hpp"
#include "kernels/cuda/device/unpack.hpp"
#include "kernels/cuda/device_scratch.hpp"
#include "kernels/cuda/grouped_products.hpp"
#include "kernels/cuda/linear_chooser.hpp"
#include "kernels/cuda/low_rank_layers.hpp"

namespace troupe::kernels::cuda {

namespace {

template <class... Sizes>
std::size_t reserved(Sizes... bytes) {
  return (device_scratch::reserved(bytes) + ...);
}

/// Scratch of linear layers that go through the library. 0: not allocated.
struct linear_bytes {
  std::size_t trial = 0, expanded = 0, products = 0, codes = 0, row_scales = 0;

  void cover(const weight_part& part, bool activated, std::size_t rows, std::size_t expanded_memory) {
    const auto raise = [](std::size_t& to, std::size_t bytes) { to = std::max(to, bytes); };
    if (rows <= linear_chooser::always_flat)
      return;
    const bool fp8 = part.kind == weight_kind::fp8;
    raise(trial, std::min(rows, linear_chooser::always_library - 1) * part.outputs * sizeof(float));
    if (is_grouped(part.kind) || fp8)
      raise(expanded, expanded_tiles(part, expanded_memory) * expanded_tile_bytes(part));
    if (part.gated || activated || fp8)
      raise(products, std::min(rows, product_scratch_rows) * part.tiles * tile_outputs * sizeof(float));
    if (fp8) {
      raise(codes, rows * part.stride);
      raise(row_scales, rows * sizeof(float));
    }
  }

  std::size_t all() const {
    std::size_t sum = 0;
    for (const auto bytes : {trial, expanded, products, codes, row_scales})
      sum += bytes > 0 ? device_scratch::reserved(bytes) : 0;
    return sum;
  }
};

int fewest_heads(const kv_shape& cache) {
  int heads = cache.kv_heads;
  for (const auto& own : cache.own)
    heads = std::min(heads, own.heads);
  return heads;
}

/// Scratch of mixtures of experts.
std::size_t grouped_bytes(const planned_steps& steps) {
  std::size_t rows = 0, chosen = 0, inputs = 0, outputs = 0;
  for (const auto& m : steps.matrices)
    if (m.chosen > 0) {
      rows = std::max(rows, m.rows);
      chosen = std::max(chosen, m.chosen);
      inputs = std::max(inputs, m.stacked.front().cols);
      outputs = std::max(outputs, m.stacked.front().rows);
    }
  return chosen > 0 ? grouped_products::scratch_bytes(rows, chosen, inputs, outputs) : 0;
}

/// Scratch of steps' inputs and of attention.
std::size_t step_bytes(const planned_steps& steps) {
  const bool entries = steps.choice.entry_tokens > 0;
  const std::size_t rows = steps.rows, sequences = std::min(steps.sequences, rows), // entries are behind tokens
    partitions = ceil_div<std::size_t>(std::max(steps.context, entries ? steps.choice.seen : 0), partition_tokens),
                    group = static_cast<std::size_t>(steps.heads / fewest_heads(steps.cache)),
                    state = static_cast<std::size_t>(steps.heads * state_floats(steps.cache.head_dim)) * sizeof(float);
  const auto most_slots = std::max<std::size_t>(1, state_memory / state);
  const auto slots = rows * (partitions + partition_quarters - 1), // with common quarters
    slabs = 2 * slots / most_slots + 1;                            // two consecutive slabs hold more than most_slots
  // In every slab and partition a sequence has at most one partly filled tile. Plans of repeatable steps pad tiles and
  // slots by up to a quarter.
  const auto tiles = (partitions + 1) * (rows * group / large_tile + sequences + slabs);
  const auto flash = rows * group / flash_tile + sequences;
  const std::size_t of_rows = rows * sizeof(attention_row), list = (3 * rows + slots) * sizeof(std::int32_t),
                    works = (tiles + tiles / 4 + flash) * sizeof(attention_work);
  const std::size_t tokens = rows * sizeof(std::int32_t), gathered = steps.logit_rows * sizeof(std::int32_t),
                    places = rows * sizeof(row_place), indices = tokens * std::max<std::size_t>(1, steps.looked_up),
                    factors = rows * sizeof(float),
                    tables = sequences * ceil_div<std::size_t>(steps.context, block_tokens) * sizeof(std::int32_t);
  // Snapshots at most at a few places of each sequence.
  const std::size_t runs = steps.recurrent ? sequences * (sizeof(state_run) + 8 * sizeof(state_save)) : 0;
  // Of rows that choose, and of the others; where there are entries, one plan has both.
  const auto plans = steps.windows.size() * (steps.choice.seen > 0 && !entries ? 2 : 1);
  const auto means = entries ? rows * std::max<std::size_t>(steps.cache.head_dim, steps.choice.dim) * sizeof(float) : 0;
  const auto scores = (steps.choice.dim > 0 ? steps.choice.choosers : 0) * partitions * partition_tokens *
    sizeof(float); // of a row
  const auto data = tokens + gathered + places + tables + runs + plans * (of_rows + list + works);
  const auto recalled = rows * steps.recalled * sizeof(std::int32_t);
  const auto chunks = data / (most_chunk_words * sizeof(std::uint32_t)) + 5 + 3 * plans;
  return reserved(indices, gathered, places, tables, indices, factors) + (runs > 0 ? reserved(runs) : 0) +
    (recalled > 0 ? reserved(recalled) : 0) + (means > 0 ? reserved(means) : 0) +
    (scores > 0 ? reserved(std::max(std::min(rows * scores, score_memory), scores)) : 0) +
    plans * reserved(of_rows, list, works) + step_stagings * reserved(data + chunks * sizeof(unpack_chunk)) +
    reserved(std::max(std::min(slots + slots / 4, most_slots), partitions) * state) +
    2 * reserved(sequences * sizeof(block_copy)) + reserved(sequences * block_tokens * sizeof(token_copy));
}

} // namespace

std::size_t expanded_tile_bytes(const weight_part& part) {
  return tile_outputs * part.chunks() * chunk_inputs * sizeof(std::uint16_t);
}

std::size_t expanded_tiles(const weight_part& part, std::size_t expanded_memory) {
  const auto most = std::max<std::size_t>(1, expanded_memory / expanded_tile_bytes(part));
  const auto pieces = std::max<std::size_t>(1, ceil_div(part.tiles, most));
  return ceil_div(part.tiles, pieces);
}

std::size_t scratch_bytes(const planned_steps& steps, bool library, std::size_t expanded_memory) {
  linear_bytes linear;
  if (library && steps.compute != dtype::f32)
    for (const auto& m : steps.matrices) {
      const auto packed = plan_weights(m.stacked, steps.compute, m.how, m.gated);
      for (const auto& part : packed->parts)
        linear.cover(part, m.activated, m.rows, expanded_memory);
    }
  const auto pairs = steps.added_ranks > 0
    ? low_rank_layers::scratch_bytes(steps.rows, steps.added_ranks, steps.added_outputs)
    : 0;
  return linear.all() + step_bytes(steps) + grouped_bytes(steps) + pairs;
}

} // namespace troupe::kernels::cuda
