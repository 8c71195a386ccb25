#include "kernels/cuda/cuda_backend.hpp"

#include "kernels/cuda/device_scratch.hpp"
#include "kernels/cuda/grouped_products.hpp"
#include "kernels/gaussian_gates.hpp"
#include "kernels/planned_steps.hpp"
#include "kernels/recurrent.hpp"
#include "kernels/sharded/sharded_cache.hpp"
#include "kernels/sharded/sharded_matrix.hpp"

#include <algorithm>
#include <deque>

namespace troupe::kernels::cuda {

namespace {

void require(bool holds, const char* message) {
  if (!holds)
    throw std::invalid_argument(message);
}

/// A GPU of the group. Its parts of an op are queued on its own stream.
struct device_rank {
  /// With its device in use.
  device_rank(int device, std::unique_ptr<cuda_backend> backend) : device(device), backend(std::move(backend)) {}

  int device;
  std::unique_ptr<cuda_backend> backend;
  event done;
  device_scratch in, out, bias, qkv, attended; // copies of what the first GPU has, and what goes back there
  tensor rotated;                              // what was rotated last, in `qkv`
};

std::size_t row_bytes_of(const tensor& t) { return t.cols * size_of(t.type); }

void copy_tensor(const stream& on, const tensor& to, const tensor& from) {
  copy_rows(on, to.data, to.stride * size_of(to.type), from.data, from.stride * size_of(from.type), row_bytes_of(from),
            from.rows);
}

/// Rows without gaps.
tensor packed_rows(device_scratch& memory, dtype type, std::size_t rows, std::size_t cols) {
  return {memory.reserve(std::max<std::size_t>(rows * cols, 1) * size_of(type)), type, rows, cols, cols};
}

class device_ranks final : public cuda_backend, public recurrent_ops, public gaussian_gates {
public:
  device_ranks(const cuda_options& options, int count) {
    for (int i = 0; i < count; ++i) {
      auto own = options;
      own.device = options.device + i;
      auto backend = make_cuda_backend(own); // selects the device
      for (int other = 0; other < count; ++other)
        if (other != i)
          map_device(options.device + other);
      ranks_.emplace_back(own.device, std::move(backend));
    }
    first();
  }

  ~device_ranks() override {
    try {
      for (const auto& r : ranks_)
        r.backend->queue().synchronise(); // their work uses each other's memory
    } catch (const device_error&) {       // a device has failed, so nothing is in flight
    }
    while (!ranks_.empty()) // each is destroyed before those in whose memory it works
      ranks_.pop_back();
  }

  std::string description() const override {
    return ranks_[0].backend->description() + ", " + std::to_string(ranks_.size()) +
      " ranks on cuda:" + std::to_string(ranks_.front().device) + " to cuda:" + std::to_string(ranks_.back().device);
  }

  const stream& queue() const override { return ranks_[0].backend->queue(); }
  const stream& copy_queue() const override { return ranks_[0].backend->copy_queue(); }
  bool deterministic() const override { return ranks_[0].backend->deterministic(); }

  // Tokens and rows of logits are of ops that the first GPU alone runs.
  void stage(const step_inputs& inputs) override {
    ranks_[0].backend->stage(inputs);
    auto rows = inputs.rows;
    rows.recurrent = nullptr;
    on_others([&](device_rank& r, std::size_t) { r.backend->stage({{}, rows, {}, false}); });
  }

  void begin_step(const std::int32_t* slot_tokens) override {
    ranks_[0].backend->begin_step(slot_tokens);
    on_others([](device_rank& r, std::size_t) { r.backend->begin_step(nullptr); });
  }

  std::vector<std::uint64_t> launch_shape() const override { return {}; } // a recording has one device's launches

  std::uint64_t memory_moves() const override {
    std::uint64_t moves = 0;
    for (const auto& r : ranks_)
      moves += r.backend->memory_moves();
    return moves + grouped_.growths();
  }

  std::vector<const softmax_counts*> softmax() const override {
    std::vector<const softmax_counts*> all;
    for (const auto& r : ranks_)
      for (const auto* counts : r.backend->softmax())
        all.push_back(counts);
    return all;
  }

  buffer allocate(std::size_t bytes) override { return ranks_[0].backend->allocate(bytes); }
  buffer upload(std::span<const float> values) override { return ranks_[0].backend->upload(values); }

  std::unique_ptr<kv_cache> make_kv_cache(const kv_shape& shape) override {
    for (int i = 0; i < shape.layers; ++i)
      require(static_cast<std::size_t>(shape.layer(i).heads) >= ranks_.size(),
              "GPUs share a model by KV heads: there must be at least as many KV heads as GPUs");
    auto cache = std::make_unique<sharded_cache>();
    cache->shape = shape;
    cache->parts.resize(ranks_.size());
    on_all([&](device_rank& r, std::size_t i) {
      auto own = shape;
      own.kv_heads = cache->kv_heads(i).count;
      for (std::size_t l = 0; l < own.own.size(); ++l)
        own.own[l].heads = cache->kv_heads(i, static_cast<int>(l)).count;
      cache->parts[i] = r.backend->make_kv_cache(own);
    });
    return cache;
  }

  std::unique_ptr<matrix> pack(std::span<const stored_matrix> stacked, dtype compute, quantization how) override {
    return shards(stacked, false, [&](device_rank& r, std::span<const stored_matrix> own) {
      return r.backend->pack(own, compute, how);
    });
  }

  std::unique_ptr<matrix> pack_gate_up(const stored_matrix& gate, const stored_matrix& up, dtype compute,
                                       quantization how) override {
    const stored_matrix both[] = {gate, up};
    return shards(both, true, [&](device_rank& r, std::span<const stored_matrix> own) {
      return r.backend->pack_gate_up(own[0], own[1], compute, how);
    });
  }

  /// Bytes on the first GPU, which has the largest shard and everything that is not divided. Plans of memory count
  /// these.
  std::size_t packed_bytes(std::span<const stored_matrix> stacked, dtype compute, quantization how,
                           bool gated) const override {
    const auto own = cut_stack(stacked, range(outputs_of(stacked, gated), 0), gated);
    return ranks_[0].backend->packed_bytes(own, compute, how, gated);
  }

  std::unique_ptr<matrix> load_table(const stored_matrix& table) override {
    return ranks_[0].backend->load_table(table);
  }
  std::size_t table_bytes(const stored_matrix& table) const override { return ranks_[0].backend->table_bytes(table); }

  std::size_t scratch_bytes(const planned_steps& steps) const override {
    const auto& s = steps.cache;
    return ranks_[0].backend->scratch_bytes(steps) +
      device_scratch::reserved(steps.rows * static_cast<std::size_t>(steps.heads + 2 * s.kv_heads) *
                               static_cast<std::size_t>(s.head_dim) * sizeof(float));
  }

  void embed(const tensor& out, const matrix& table, const std::int32_t* tokens) override {
    ranks_[0].backend->embed(out, table, tokens);
  }

  void rms_norm(const tensor& out, const tensor& x, const float* weight, float eps, const std::int32_t* rows) override {
    ranks_[0].backend->rms_norm(out, x, weight, eps, rows);
  }

  void linear(const tensor& out, const tensor& in, const matrix& w, const float* bias, store how) override {
    const auto& whole = dynamic_cast<const sharded_matrix&>(w);
    require(!whole.gated && out.cols == w.outputs,
            "linear: the weights must be packed by pack(), out must have their columns");
    product(out, in, whole, how, [&](device_rank& r, const tensor& to, const tensor& from, std::size_t i) {
      r.backend->linear(to, from, *whole.shards[i], bias != nullptr ? bias + whole.columns[i].first : nullptr, how);
    });
  }

  void linear_silu_gate(const tensor& out, const tensor& in, const matrix& gate_up, const float* bias) override {
    linear_activated(out, in, gate_up, {activation_type::silu}, true, bias);
  }

  void linear_activated(const tensor& out, const tensor& in, const matrix& w, const activation& act, bool gated,
                        const float* bias) override {
    const auto& whole = dynamic_cast<const sharded_matrix&>(w);
    require(whole.gated == gated && out.cols == w.outputs,
            "linear_activated: the weights must be packed for it, out must have their columns");
    product(out, in, whole, store::set, [&](device_rank& r, const tensor& to, const tensor& from, std::size_t i) {
      const auto [first, count] = whole.columns[i];
      const float* part = bias != nullptr ? bias + first : nullptr;
      if (bias != nullptr && gated) { // gate's part, then up's
        float* own = r.bias.reserve<float>(2 * count * sizeof(float));
        copy_on_device(r.backend->queue(), own, bias + first, count * sizeof(float));
        copy_on_device(r.backend->queue(), own + count, bias + whole.outputs + first, count * sizeof(float));
        part = own;
      }
      r.backend->linear_activated(to, from, *whole.shards[i], act, gated, part);
    });
  }

  void rope_write_kv(const tensor& qkv, int heads, const head_norm& norm, const rope_rows& rope, kv_cache& cache,
                     int layer, const batch& step) override {
    auto& whole = dynamic_cast<sharded_cache&>(cache);
    const auto [kv_heads, head_dim, values] = whole.shape.layer(layer);
    const int group = heads / kv_heads;
    const auto dim = static_cast<std::size_t>(head_dim);
    const bool queries_only = qkv.cols == static_cast<std::size_t>(heads) * dim;
    together([&, kv_heads = kv_heads](device_rank& r, std::size_t i) {
      const auto kv = whole.kv_heads(i, layer);
      const auto q = static_cast<std::size_t>(kv.count * group),
                 count = queries_only ? 0 : static_cast<std::size_t>(kv.count);
      const auto own = packed_rows(r.qkv, dtype::f32, qkv.rows, (q + 2 * count) * dim);
      const auto bring = [&](std::size_t to, int from, std::size_t n) {
        copy_tensor(r.backend->queue(), columns_of(own, {to * dim, n * dim}),
                    columns_of(qkv, {static_cast<std::size_t>(from) * dim, n * dim}));
      };
      bring(0, kv.first * group, q);
      if (!queries_only) {
        bring(q, heads + kv.first, count);
        bring(q + count, heads + kv_heads + kv.first, count);
      }
      r.backend->rope_write_kv(own, static_cast<int>(q), norm, rope, *whole.parts[i], layer, step);
      r.rotated = own;
    });
  }

  // Attends with the queries that rope_write_kv rotated last, which have stayed on their GPUs.
  void attention(const tensor& out, const tensor& qkv, int heads, float scale, int window, const kv_cache& cache,
                 int layer, const batch& step) override {
    shaped_attention(out, qkv, heads, {scale, window}, cache, layer, step);
  }

  void shaped_attention(const tensor& out, const tensor& qkv, int heads, const attention_scores& scores,
                        const kv_cache& cache, int layer, const batch& step) override {
    const auto& whole = dynamic_cast<const sharded_cache&>(cache);
    const auto shape = whole.shape.layer(layer);
    const int group = heads / shape.heads;
    const auto dim = static_cast<std::size_t>(shape.dim);
    together([&](device_rank& r, std::size_t i) {
      require(r.rotated.rows == qkv.rows, "attention: the rows must be those that were rotated last");
      const auto kv = whole.kv_heads(i, layer);
      const auto q = static_cast<std::size_t>(kv.count * group);
      auto own = scores;
      own.slopes = scores.slopes != nullptr ? scores.slopes + kv.first * group : nullptr;
      own.sinks = scores.sinks != nullptr ? scores.sinks + kv.first * group : nullptr;
      const auto to = packed_rows(r.attended, out.type, out.rows, q * dim);
      r.backend->shaped_attention(to, r.rotated, static_cast<int>(q), own, *whole.parts[i], layer, step);
      copy_tensor(r.backend->queue(), columns_of(out, {static_cast<std::size_t>(kv.first * group) * dim, q * dim}), to);
    });
  }

  // What is not divided, by the first GPU; grouped products as others.

  bool has_family_ops() const override { return true; }
  void layer_norm(const tensor& out, const tensor& x, const float* weight, const float* bias, float eps,
                  const std::int32_t* rows) override {
    ranks_[0].backend->layer_norm(out, x, weight, bias, eps, rows);
  }
  void scale(const tensor& x, float factor, float soft_cap) override { ranks_[0].backend->scale(x, factor, soft_cap); }
  void clamp(const tensor& x, float limit) override { ranks_[0].backend->clamp(x, limit); }
  void add_rows(const tensor& to, const tensor& x, float factor, const std::int32_t* rows,
                const float* factors) override {
    ranks_[0].backend->add_rows(to, x, factor, rows, factors);
  }
  void multiply_rows(const tensor& to, const tensor& x) override { ranks_[0].backend->multiply_rows(to, x); }
  void gather_rows(const tensor& to, const tensor& from, const std::int32_t* rows) override {
    ranks_[0].backend->gather_rows(to, from, rows);
  }
  void mean_squares(float* to, const tensor& x) override {
    dynamic_cast<gaussian_gates&>(*ranks_[0].backend).mean_squares(to, x);
  }
  void gate_gaussian(const tensor& out, const tensor& gate, const tensor& up, float deviations) override {
    dynamic_cast<gaussian_gates&>(*ranks_[0].backend).gate_gaussian(out, gate, up, deviations);
  }
  void embed_add(const tensor& to, const matrix& table, const std::int32_t* rows) override {
    ranks_[0].backend->embed_add(to, table, rows);
  }
  void grouped_activated(const tensor& out, const tensor& in, std::span<const row_group> groups, const activation& act,
                         bool gated) override {
    grouped_.activated(out, in, groups, act, gated);
  }
  void grouped_sum(const tensor& to, const tensor& in, std::span<const row_group> groups, store how) override {
    grouped_.sum(to, in, groups, how);
  }

  std::unique_ptr<state_cache> make_state_cache(const state_shape& shape) override {
    return recurrence().make_state_cache(shape);
  }
  int states_of_a_decoder(int rows) const override { return recurrence().states_of_a_decoder(rows); }
  void convolve(const tensor& out, const tensor& in, const convolution& how, state_cache& states, int layer) override {
    recurrence().convolve(out, in, how, states, layer);
  }
  void recur(const tensor& out, const tensor& in, const tensor& rates, const tensor& betas, const recurrence& how,
             state_cache& states, int layer) override {
    recurrence().recur(out, in, rates, betas, how, states, layer);
  }
  void gate(const tensor& out, const tensor& x, const tensor& gate, const gated_rows& how) override {
    recurrence().gate(out, x, gate, how);
  }
  void multiply(const tensor& out, const tensor& a, const tensor& b) override { recurrence().multiply(out, a, b); }
  void copy_states(state_cache& states, std::span<const state_copy> copies) override {
    recurrence().copy_states(states, copies);
  }

  void copy_blocks(kv_cache& cache, std::span<const block_copy> copies) override {
    copy_blocks_on(queue(), cache, copies);
  }

  void copy_blocks_on(const stream& on, kv_cache& cache, std::span<const block_copy> copies) override {
    auto& whole = dynamic_cast<sharded_cache&>(cache);
    ranks_[0].backend->copy_blocks_on(on, *whole.parts[0], copies);
    event before;
    before.record(on);
    on_others([&](device_rank& r, std::size_t i) {
      wait_for(r.backend->queue(), before);
      r.backend->copy_blocks(*whole.parts[i], copies);
      r.done.record(r.backend->queue());
      wait_for(on, r.done);
    });
  }

  void copy_tokens(kv_cache& cache, int layer, std::span<const token_copy> copies) override {
    auto& whole = dynamic_cast<sharded_cache&>(cache);
    if (!copies.empty())
      together([&](device_rank& r, std::size_t i) { r.backend->copy_tokens(*whole.parts[i], layer, copies); });
  }

  // A block in host memory: the parts of the GPUs one after another.
  void save_block(const stream& on, const kv_cache& cache, std::int32_t block, void* host) override {
    const auto& whole = dynamic_cast<const sharded_cache&>(cache);
    auto* to = static_cast<unsigned char*>(host);
    for (std::size_t i = 0; i < ranks_.size(); to += whole.parts[i++]->shape.block_bytes())
      ranks_[i].backend->save_block(on, *whole.parts[i], block, to);
  }

  void restore_block(const stream& on, kv_cache& cache, std::int32_t block, const void* host) override {
    auto& whole = dynamic_cast<sharded_cache&>(cache);
    const auto* from = static_cast<const unsigned char*>(host);
    for (std::size_t i = 0; i < ranks_.size(); from += whole.parts[i++]->shape.block_bytes())
      ranks_[i].backend->restore_block(on, *whole.parts[i], block, from);
  }

  void download(float* to, const tensor& from) override { ranks_[0].backend->download(to, from); }

private:
  recurrent_ops& recurrence() const { return dynamic_cast<recurrent_ops&>(*ranks_[0].backend); }

  column_range range(std::size_t outputs, std::size_t rank) const {
    return columns_of(outputs, rank, ranks_.size(), column_unit);
  }

  void first() const { use_device(ranks_[0].device); }

  /// Calls f(rank, index) with the rank's device in use, for all but the first, whose device is then in use again.
  template <class F>
  void on_others(const F& f) {
    for (std::size_t i = 1; i < ranks_.size(); ++i) {
      use_device(ranks_[i].device);
      f(ranks_[i], i);
    }
    first();
  }
  template <class F>
  void on_all(const F& f) {
    f(ranks_[0], 0);
    on_others(f);
  }

  /// Lets all ranks queue their part behind everything that the first GPU has queued, and what it queues next wait for
  /// them.
  template <class F>
  void together(const F& f) {
    event before;
    before.record(queue());
    on_others([&](device_rank& r, std::size_t i) {
      wait_for(r.backend->queue(), before);
      f(r, i);
      r.done.record(r.backend->queue());
    });
    f(ranks_[0], 0);
    for (std::size_t i = 1; i < ranks_.size(); ++i)
      wait_for(queue(), ranks_[i].done);
  }

  template <class Pack>
  std::unique_ptr<matrix> shards(std::span<const stored_matrix> stacked, bool gated, const Pack& pack) {
    require(!stacked.empty(), "no matrix to pack");
    auto to = std::make_unique<sharded_matrix>();
    to->inputs = stacked.front().cols;
    to->outputs = outputs_of(stacked, gated);
    to->gated = gated;
    to->shards.resize(ranks_.size());
    on_all([&](device_rank& r, std::size_t i) {
      to->columns.push_back(range(to->outputs, i));
      if (to->columns[i].count > 0)
        to->shards[i] = pack(r, cut_stack(stacked, to->columns[i], gated));
    });
    to->bytes = to->shards[0]->bytes;
    return to;
  }

  /// The first GPU multiplies in place. The others copy the inputs, and their columns back.
  template <class Multiply>
  void product(const tensor& out, const tensor& in, const sharded_matrix& w, store how, const Multiply& multiply) {
    together([&](device_rank& r, std::size_t i) {
      if (w.columns[i].count == 0 || in.rows == 0)
        return;
      const auto columns = columns_of(out, w.columns[i]);
      if (i == 0)
        return multiply(r, columns, in, i);
      const auto& on = r.backend->queue();
      const auto from = packed_rows(r.in, in.type, in.rows, in.cols),
                 to = packed_rows(r.out, out.type, out.rows, columns.cols);
      copy_tensor(on, from, in);
      if (how == store::add)
        copy_tensor(on, to, columns);
      multiply(r, to, from, i);
      copy_tensor(on, columns, to);
    });
  }

  std::deque<device_rank> ranks_;
  grouped_products grouped_{*this};
};

} // namespace

std::unique_ptr<cuda_backend> make_device_ranks(const cuda_options& options, int ranks) {
  return std::make_unique<device_ranks>(options, ranks);
}

} // namespace troupe::kernels::cuda
