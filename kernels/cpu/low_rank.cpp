#include "kernels/cpu/low_rank.hpp"

#include "kernels/cpu/tensor_rows.hpp"
#include "kernels/formats/bf16.hpp"

namespace troupe::kernels {

namespace {

constexpr std::size_t rows_per_task = 32;
constexpr std::size_t tasks_per_thread = 8;

std::size_t values_of_word(dtype compute) { return compute == dtype::bf16 ? 2 : 1; }

void put(dtype compute, void* to, std::size_t place, float value) {
  if (compute == dtype::bf16)
    static_cast<std::uint16_t*>(to)[place] = to_bf16(value);
  else
    static_cast<float*>(to)[place] = value;
}

std::size_t round_up(std::size_t n, std::size_t step) { return ceil_div(n, step) * step; }

} // namespace

std::unique_ptr<const matrix> pack_low_rank_pairs(std::span<const low_rank_pair> pairs, std::size_t inputs,
                                                  std::size_t outputs, dtype compute) {
  expect(compute == dtype::f32 || compute == dtype::bf16, "pack_low_rank: values are f32 or bf16");
  auto packed = std::make_unique<packed_low_rank>();
  packed->inputs = inputs;
  packed->outputs = outputs;
  packed->compute = compute;
  const auto per_word = values_of_word(compute), line = low_rank_line * per_word;

  // Where each pair's ranks begin: at whole words.
  std::vector<std::size_t> first_ranks;
  std::size_t end = 0;
  for (const auto& p : pairs) {
    expect(p.first_output >= end && p.outputs <= outputs - p.first_output,
           "pack_low_rank: pairs must be in order, within the outputs");
    end = p.first_output + p.outputs;
    first_ranks.push_back(packed->ranks);
    packed->ranks += round_up(p.rank, per_word);
  }
  packed->ranks = round_up(packed->ranks, low_rank_tile);

  const auto lines = ceil_div(inputs, line);
  const auto a_bytes = packed->ranks * lines * low_rank_line * sizeof(std::uint32_t);
  packed->a = allocate_zeroed(a_bytes);
  for (std::size_t i = 0; i < pairs.size(); ++i)
    for (std::size_t r = 0; r < pairs[i].rank; ++r) {
      const auto rank = first_ranks[i] + r;
      for (std::size_t k = 0; k < inputs; ++k)
        put(compute, packed->a.get(),
            ((rank / low_rank_tile * lines + k / line) * low_rank_tile + rank % low_rank_tile) * line + k % line,
            pairs[i].a[r * inputs + k]);
    }

  // A block multiplies the ranks of all pairs that it has outputs of: usually one.
  std::size_t words = 0;
  packed->blocks.resize(ceil_div(outputs, low_rank_outputs) + 1);
  for (std::size_t n = 0; n < packed->blocks.size(); ++n) {
    std::size_t first = packed->ranks, last = 0;
    for (std::size_t i = 0; i < pairs.size(); ++i)
      if (pairs[i].first_output < (n + 1) * low_rank_outputs &&
          pairs[i].first_output + pairs[i].outputs > n * low_rank_outputs) {
        first = std::min(first, first_ranks[i]);
        last = std::max(last, first_ranks[i] + round_up(pairs[i].rank, per_word));
      }
    if (last > first)
      packed->blocks[n] = {static_cast<std::uint32_t>(words), static_cast<std::uint16_t>(first / per_word),
                           static_cast<std::uint16_t>((last - first) / per_word)};
    words += packed->blocks[n].words;
  }
  const auto b_bytes = words * low_rank_outputs * sizeof(std::uint32_t);
  packed->b = allocate_zeroed(std::max(b_bytes, std::size_t(1)));
  for (std::size_t i = 0; i < pairs.size(); ++i)
    for (std::size_t o = 0; o < pairs[i].outputs; ++o) {
      const auto output = pairs[i].first_output + o;
      const auto& block = packed->blocks[output / low_rank_outputs];
      for (std::size_t r = 0; r < pairs[i].rank; ++r) {
        const auto value = first_ranks[i] + r - block.first * per_word;
        const auto word = block.offset + value / per_word;
        put(compute, packed->b.get(),
            (word * low_rank_outputs + output % low_rank_outputs) * per_word + value % per_word,
            pairs[i].b[o * pairs[i].rank + r]);
      }
    }
  packed->bytes = a_bytes + b_bytes;
  return packed;
}

const row_addend* cpu_low_rank::prepare(const tensor& in, std::size_t outputs, std::span<const row_group> groups) {
  if (groups.empty())
    return nullptr;
  addends_.assign(in.rows, {});
  std::size_t words = 0, tiles = 0;
  for (const auto& g : groups) {
    const auto& w = dynamic_cast<const packed_low_rank&>(*g.w);
    expect(in.type == w.compute && in.cols == w.inputs && outputs == w.outputs,
           "low-rank products: pairs must be packed for the type and the columns of the product");
    words += g.rows.size() * w.ranks / values_of_word(w.compute);
    tiles += ceil_div(g.rows.size(), rows_per_task) * (w.ranks / low_rank_tile);
  }
  auto* low = low_.reserve(words);
  const auto most = std::max(tiles / (tasks_per_thread * static_cast<std::size_t>(pool_.size())), std::size_t(1));
  tasks_.clear();
  for (const auto& g : groups) {
    const auto& w = dynamic_cast<const packed_low_rank&>(*g.w);
    const auto row_words = w.ranks / values_of_word(w.compute);
    for (std::size_t first = 0; first < g.rows.size(); first += rows_per_task) {
      const auto rows = g.rows.subspan(first, std::min(rows_per_task, g.rows.size() - first));
      const low_rank_op op{w.a.get(),
                           in.type == dtype::bf16,
                           in.cols,
                           in.data,
                           in.stride * size_of(in.type),
                           rows.data(),
                           rows.size(),
                           low,
                           row_words};
      for (std::size_t tile = 0; tile < w.ranks / low_rank_tile; tile += most)
        tasks_.push_back({op, tile, std::min(most, w.ranks / low_rank_tile - tile)});
      for (const auto row : rows) {
        addends_[static_cast<std::size_t>(row)] = {low, w.blocks.data(), static_cast<const std::uint32_t*>(w.b.get())};
        low += row_words;
      }
    }
  }
  pool_.parallel_for(
    tasks_.size(), [&](std::size_t i, int) { kernels_.low_rank(tasks_[i].op, tasks_[i].first_tile, tasks_[i].tiles); });
  return addends_.data();
}

} // namespace troupe::kernels
