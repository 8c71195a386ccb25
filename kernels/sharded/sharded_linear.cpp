#include "kernels/sharded/sharded_linear.hpp"

#include "kernels/cpu/tensor_rows.hpp"
#include "kernels/planned_steps.hpp"

#include <algorithm>

namespace troupe::kernels {

namespace {

const sharded_matrix& sharded(const matrix& w) { return dynamic_cast<const sharded_matrix&>(w); }

/// Ranks that have columns: the first ones.
std::size_t ranks_with(const sharded_matrix& w) {
  return static_cast<std::size_t>(std::find(w.shards.begin(), w.shards.end(), nullptr) - w.shards.begin());
}

/// Adds a rank's part of a bias to `to`, which has room. Gate's and up's parts are brought together there; others stay
/// where they are.
const float* bias_of(const float* bias, const sharded_matrix& w, column_range range, std::vector<float>& to) {
  if (bias == nullptr || !w.gated)
    return bias == nullptr ? nullptr : bias + range.first;
  const auto before = to.size();
  for (const auto* half : {bias, bias + w.outputs})
    to.insert(to.end(), half + range.first, half + range.first + range.count);
  return to.data() + before;
}

/// The groups' low-rank pairs of a rank, without those that give its columns nothing.
std::span<const row_group> pairs_of(std::span<const row_group> groups, rank& r, std::size_t index) {
  r.groups.clear();
  for (auto g : groups) {
    g.w = dynamic_cast<const sharded_low_rank&>(*g.w).shards[index].get();
    if (g.w != nullptr)
      r.groups.push_back(g);
  }
  return r.groups;
}

/// The groups with a rank's shards, whose columns are the same in all.
std::span<const row_group> shards_of(std::span<const row_group> groups, rank& r, std::size_t index) {
  r.groups.clear();
  r.bias.clear();
  std::size_t biases = 0;
  for (const auto& g : groups)
    biases += g.bias != nullptr && sharded(*g.w).gated ? 2 * sharded(*g.w).columns[index].count : 0;
  r.bias.reserve(biases);
  for (auto g : groups) {
    const auto& w = sharded(*g.w);
    g.w = w.shards[index].get();
    g.bias = bias_of(g.bias, w, w.columns[index], r.bias);
    r.groups.push_back(g);
  }
  return r.groups;
}

} // namespace

const matrix& first_shard(const matrix& w) { return *sharded(w).shards.front(); }

std::unique_ptr<sharded_matrix> sharded_linear::shape(std::span<const stored_matrix> stacked, bool gated) const {
  if (stacked.empty())
    throw std::invalid_argument("no matrix to pack");
  auto to = std::make_unique<sharded_matrix>();
  to->inputs = stacked.front().cols;
  to->outputs = outputs_of(stacked, gated);
  to->gated = gated;
  for (std::size_t i = 0; i < ranks_.size(); ++i)
    to->columns.push_back(columns_of(to->outputs, i, ranks_.size(), unit_));
  to->shards.resize(ranks_.size());
  return to;
}

std::unique_ptr<matrix> sharded_linear::pack(std::span<const stored_matrix> stacked, dtype compute, quantization how,
                                             bool gated) {
  auto to = shape(stacked, gated);
  ranks_.each([&](rank& r, std::size_t i) {
    if (to->columns[i].count == 0)
      return;
    const auto own = cut_stack(stacked, to->columns[i], gated);
    to->shards[i] = gated ? r.device->pack_gate_up(own[0], own[1], compute, how) : r.device->pack(own, compute, how);
  });
  for (const auto& shard : to->shards)
    to->bytes += shard != nullptr ? shard->bytes : 0;
  return to;
}

std::size_t sharded_linear::packed_bytes(std::span<const stored_matrix> stacked, dtype compute, quantization how,
                                         bool gated) const {
  const auto shaped = shape(stacked, gated);
  std::size_t bytes = 0;
  for (std::size_t i = 0; i < ranks_.size(); ++i)
    if (shaped->columns[i].count > 0)
      bytes += ranks_[i].device->packed_bytes(cut_stack(stacked, shaped->columns[i], gated), compute, how, gated);
  return bytes;
}

std::vector<std::span<const std::byte>> sharded_linear::bytes_of(const matrix& packed) const {
  std::vector<std::span<const std::byte>> bytes;
  const auto& w = sharded(packed);
  for (std::size_t i = 0; i < ranks_with(w); ++i)
    std::ranges::copy(ranks_[i].device->storable()->bytes_of(*w.shards[i]), std::back_inserter(bytes));
  return bytes;
}

std::unique_ptr<matrix> sharded_linear::restore(std::span<const stored_matrix> stacked, dtype compute, quantization how,
                                                bool gated, const buffer& bytes) const {
  auto to = shape(stacked, gated);
  for (std::size_t i = 0; i < ranks_.size() && to->columns[i].count > 0; ++i) {
    const buffer own(bytes, static_cast<std::byte*>(bytes.get()) + to->bytes);
    to->shards[i] = ranks_[i].device->storable()->restore(cut_stack(stacked, to->columns[i], gated), compute, how,
                                                          gated, own);
    to->bytes += to->shards[i]->bytes;
  }
  return to;
}

std::unique_ptr<const matrix> sharded_linear::pack_low_rank(std::span<const low_rank_pair> pairs, std::size_t inputs,
                                                            std::size_t outputs, dtype compute, bool gated) {
  auto to = std::make_unique<sharded_low_rank>();
  to->inputs = inputs;
  to->outputs = outputs;
  to->shards.resize(ranks_.size());
  ranks_.each([&](rank& r, std::size_t i) {
    const auto range = columns_of(gated ? outputs / 2 : outputs, i, ranks_.size(), unit_);
    if (const auto own = cut_pairs(pairs, outputs, range, gated); !own.empty())
      to->shards[i] = r.low_rank.pack_low_rank(own, inputs, gated ? 2 * range.count : range.count, compute, gated);
  });
  for (const auto& shard : to->shards)
    to->bytes += shard != nullptr ? shard->bytes : 0;
  return to;
}

void sharded_linear::plus(const tensor& out, const tensor& in, const matrix& w, const float* bias, store how,
                          std::span<const row_group> groups) {
  const auto& whole = sharded(w);
  expect(!whole.gated && out.cols == w.outputs,
         "linear: the weights must be packed by pack(), out must have their columns");
  ranks_.each(ranks_with(whole), [&](rank& r, std::size_t i) {
    const auto range = whole.columns[i];
    r.low_rank.linear_plus(columns_of(out, range), in, *whole.shards[i], bias != nullptr ? bias + range.first : nullptr,
                           how, pairs_of(groups, r, i));
  });
}

void sharded_linear::activated_plus(const tensor& out, const tensor& in, const matrix& w, const activation& act,
                                    bool gated, const float* bias, std::span<const row_group> groups) {
  const auto& whole = sharded(w);
  expect(whole.gated == gated && out.cols == w.outputs,
         "linear_activated: the weights must be packed for it, out must have their columns");
  ranks_.each(ranks_with(whole), [&](rank& r, std::size_t i) {
    const auto range = whole.columns[i];
    r.bias.clear();
    r.low_rank.linear_activated_plus(columns_of(out, range), in, *whole.shards[i], act, gated,
                                     bias_of(bias, whole, range, r.bias), pairs_of(groups, r, i));
  });
}

void sharded_linear::grouped_activated(const tensor& out, const tensor& in, std::span<const row_group> groups,
                                       const activation& act, bool gated) {
  if (groups.empty())
    return;
  const auto& any = sharded(*groups.front().w);
  ranks_.each(ranks_with(any), [&](rank& r, std::size_t i) {
    r.device->grouped_activated(columns_of(out, any.columns[i]), in, shards_of(groups, r, i), act, gated);
  });
}

void sharded_linear::grouped_sum(const tensor& to, const tensor& in, std::span<const row_group> groups, store how) {
  if (groups.empty())
    return ranks_.first().device->grouped_sum(to, in, groups, how);
  const auto& any = sharded(*groups.front().w);
  ranks_.each(ranks_with(any), [&](rank& r, std::size_t i) {
    r.device->grouped_sum(columns_of(to, any.columns[i]), in, shards_of(groups, r, i), how);
  });
}

planned_steps sharded_linear::steps_of(const planned_steps& steps, std::size_t rank) const {
  auto own = steps;
  own.matrices.clear();
  for (const auto& m : steps.matrices) {
    auto cut = m;
    cut.stacked = cut_stack(m.stacked, columns_of(outputs_of(m.stacked, m.gated), rank, ranks_.size(), unit_), m.gated);
    if (!cut.stacked.empty() && cut.stacked.front().rows > 0)
      own.matrices.push_back(std::move(cut));
  }
  return own;
}

} // namespace troupe::kernels
