#include "kernels/cuda/cuda_backend.hpp"

#include "kernels/compressed_attention.hpp"
#include "kernels/cuda/device_group.hpp"
#include "kernels/cuda/divided_rows.hpp"
#include "kernels/cuda/expect.hpp"
#include "kernels/cuda/grouped_products.hpp"
#include "kernels/distance_attention.hpp"
#include "kernels/gaussian_gates.hpp"
#include "kernels/gram_ops.hpp"
#include "kernels/planned_steps.hpp"
#include "kernels/recurrent.hpp"
#include "kernels/sharded/sharded_cache.hpp"
#include "kernels/sharded/sharded_matrix.hpp"
#include "kernels/sparse_attention.hpp"

#include <algorithm>
#include <initializer_list>

namespace troupe::kernels::cuda {

namespace {

class device_ranks final : public cuda_backend,
                           public recurrent_ops,
                           public gram_ops,
                           public gaussian_gates,
                           public sparse_attention,
                           public compressed_attention,
                           public distance_attention,
                           private device_group {
public:
  device_ranks(const cuda_options& options, int count) {
    for (int i = 0; i < count; ++i) {
      auto own = options;
      own.device = options.device + i;
      auto backend = make_cuda_backend(own); // selects the device
      for (int other = 0; other < count; ++other)
        if (other != i)
          map_device(options.device + other);
      ranks.emplace_back(own.device, std::move(backend));
    }
    rows_.divide_from(select_device(ranks[0].device).divided_rows);
  }

  ~device_ranks() override {
    try {
      for (const auto& r : ranks)
        r.backend->queue().synchronise(); // their work uses each other's memory
    } catch (const device_error&) {       // a device has failed, so nothing is in flight
    }
    while (!ranks.empty()) // each is destroyed before those in whose memory it works
      ranks.pop_back();
  }

  std::string description() const override {
    return ranks[0].backend->description() + ", " + std::to_string(ranks.size()) +
      " ranks on cuda:" + std::to_string(ranks.front().device) + " to cuda:" + std::to_string(ranks.back().device);
  }

  const stream& queue() const override { return ranks[0].backend->queue(); }
  const stream& copy_queue() const override { return ranks[0].backend->copy_queue(); }
  bool deterministic() const override { return ranks[0].backend->deterministic(); }

  // Tokens and rows of logits are of ops that the first GPU alone runs.
  void stage(const step_inputs& inputs) override {
    ranks[0].backend->stage(inputs);
    auto rows = inputs.rows;
    rows.recurrent = nullptr;
    on_others([&](device_rank& r, std::size_t) { r.backend->stage({{}, rows, {}, false}); });
  }

  void begin_step(const std::int32_t* slot_tokens) override {
    rows_.forget();
    ranks[0].backend->begin_step(slot_tokens);
    on_others([](device_rank& r, std::size_t) { r.backend->begin_step(nullptr); });
  }

  std::vector<std::uint64_t> launch_shape() const override { return {}; } // a recording has one device's launches

  std::uint64_t memory_moves() const override {
    std::uint64_t moves = 0;
    for (const auto& r : ranks)
      moves += r.backend->memory_moves();
    return moves + grouped_.growths();
  }

  std::vector<const softmax_counts*> softmax() const override {
    std::vector<const softmax_counts*> all;
    for (const auto& r : ranks)
      for (const auto* counts : r.backend->softmax())
        all.push_back(counts);
    return all;
  }

  buffer allocate(std::size_t bytes) override { return ranks[0].backend->allocate(bytes); }
  buffer upload(std::span<const float> values) override { return ranks[0].backend->upload(values); }

  /// What cannot be divided by KV heads the first GPU has whole, and then it attends alone.
  std::unique_ptr<kv_cache> make_kv_cache(const kv_shape& shape) override {
    auto cache = std::make_unique<sharded_cache>();
    cache->shape = shape;
    if (!can_be_divided(shape, ranks.size())) {
      cache->parts.push_back(ranks[0].backend->make_kv_cache(shape));
      return cache;
    }
    cache->parts.resize(ranks.size());
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
    return ranks[0].backend->packed_bytes(own, compute, how, gated);
  }

  std::unique_ptr<matrix> load_table(const stored_matrix& table) override {
    return ranks[0].backend->load_table(table);
  }
  std::size_t table_bytes(const stored_matrix& table) const override { return ranks[0].backend->table_bytes(table); }

  std::size_t scratch_bytes(const planned_steps& steps) const override {
    const auto& s = steps.cache;
    return ranks[0].backend->scratch_bytes(steps) +
      device_scratch::reserved(steps.rows * static_cast<std::size_t>(steps.heads + 2 * s.kv_heads) *
                               static_cast<std::size_t>(s.head_dim) * sizeof(float));
  }

  void embed(const tensor& out, const matrix& table, const std::int32_t* tokens) override {
    alone({out}).embed(out, table, tokens);
  }

  void rms_norm(const tensor& out, const tensor& x, const float* weight, float eps, const std::int32_t* rows) override {
    const auto norm = [eps](cuda_backend& on, const tensor& to, const tensor& from, const float* w, const float*) {
      on.rms_norm(to, from, w, eps);
    };
    if (rows != nullptr || !rows_.norm(out, x, weight, nullptr, norm))
      alone({out, x}).rms_norm(out, x, weight, eps, rows);
  }

  void linear(const tensor& out, const tensor& in, const matrix& w, const float* bias, store how) override {
    const auto& whole = dynamic_cast<const sharded_matrix&>(w);
    expect(!whole.gated && out.cols == w.outputs,
           "linear: the weights must be packed by pack(), out must have their columns");
    product(out, in, whole, how, false, [&](device_rank& r, const tensor& to, const tensor& from, std::size_t i) {
      r.backend->linear(to, from, *whole.shards[i], bias != nullptr ? bias + whole.columns[i].first : nullptr, how);
    });
  }

  void linear_silu_gate(const tensor& out, const tensor& in, const matrix& gate_up, const float* bias) override {
    linear_activated(out, in, gate_up, {activation_type::silu}, true, bias);
  }

  void linear_activated(const tensor& out, const tensor& in, const matrix& w, const activation& act, bool gated,
                        const float* bias) override {
    const auto& whole = activated(out, w, gated);
    product(out, in, whole, store::set, true, [&](device_rank& r, const tensor& to, const tensor& from, std::size_t i) {
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

  void linear_biased(const tensor& out, const tensor& in, const matrix& w, const activation& act, bool gated,
                     const tensor& biases) override {
    const auto& whole = activated(out, w, gated);
    product(out, in, whole, store::set, true, [&](device_rank& r, const tensor& to, const tensor& from, std::size_t i) {
      const auto [first, count] = whole.columns[i];
      const std::size_t parts = gated ? 2 : 1; // gate's, then up's
      const auto own = packed_rows(r.bias, dtype::f32, from.rows, parts * count);
      for (std::size_t part = 0; part < parts; ++part)
        copy_tensor(r.backend->queue(), columns_of(own, {part * count, count}),
                    columns_of(biases, {part * whole.outputs + first, count}));
      r.backend->linear_biased(to, from, *whole.shards[i], act, gated, own);
    });
  }

  low_rank_layers& low_rank() override { return ranks[0].backend->low_rank(); }

  void rope_write_kv(const tensor& qkv, int heads, const head_norm& norm, const rope_rows& rope, kv_cache& cache,
                     int layer, const batch& step) override {
    auto& whole = dynamic_cast<sharded_cache&>(cache);
    if (!whole.divided())
      return alone({qkv}).rope_write_kv(qkv, heads, norm, rope, *whole.parts[0], layer, step);
    const auto [kv_heads, head_dim, values] = whole.shape.layer(layer);
    const int group = heads / kv_heads;
    const auto dim = static_cast<std::size_t>(head_dim);
    const bool queries_only = qkv.cols == static_cast<std::size_t>(heads) * dim;
    rows_.use(qkv);
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
      if (rope.angles == nullptr && norm.q != nullptr) // may be scaled there (attend_by_distance)
        copy_tensor(r.backend->queue(), columns_of(qkv, {static_cast<std::size_t>(kv.first * group) * dim, q * dim}),
                    columns_of(own, {0, q * dim}));
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
    attend(out, qkv, heads, scores, cache, layer,
           [&](device_rank& r, const tensor& to, const tensor& queries, column_range own, const attention_scores& how,
               const kv_cache& part) {
             r.backend->shaped_attention(to, queries, static_cast<int>(own.count), how, part, layer, step);
           });
  }

  // With the first GPU's queries, which have been scaled since.
  void attend_by_distance(const tensor& out, const tensor& qkv, int heads, const attention_scores& scores,
                          const distance_scores& distances, const kv_cache& cache, int layer,
                          const batch& step) override {
    const auto dim = static_cast<std::size_t>(cache.shape.layer(layer).dim),
               width = static_cast<std::size_t>(distances.width);
    attend(out, qkv, heads, scores, cache, layer,
           [&](device_rank& r, const tensor& to, const tensor& rotated, column_range own, const attention_scores& how,
               const kv_cache& part) {
             auto queries = columns_of(qkv, {own.first * dim, own.count * dim});
             auto mine = distances;
             mine.mixes = columns_of(distances.mixes, {own.first * width, own.count * width});
             if (&r != &ranks[0]) {
               const auto& on = r.backend->queue();
               const auto brought = columns_of(rotated, {0, queries.cols}),
                          mixes = packed_rows(r.in, dtype::f32, qkv.rows, mine.mixes.cols);
               copy_tensor(on, brought, queries);
               copy_tensor(on, mixes, mine.mixes);
               const auto bytes = width * distances.stride() * sizeof(float);
               auto* table = r.bias.reserve<float>(bytes);
               copy_on_device(on, table, distances.table, bytes);
               queries = brought;
               mine.mixes = mixes;
               mine.table = table;
             }
             dynamic_cast<distance_attention&>(*r.backend)
               .attend_by_distance(to, queries, static_cast<int>(own.count), how, mine, part, layer, step);
           });
  }

  // What is not divided, by the first GPU; grouped products as others. Layers of K alone are not.

  void choose_positions(position_choice& to, const tensor& queries, const tensor& weights, int heads,
                        const kv_cache& cache, int layer, const batch& step) override {
    sparse({queries, weights}).choose_positions(to, queries, weights, heads, undivided(cache), layer, step);
  }
  void attend_chosen(const tensor& out, const tensor& qkv, int heads, const attention_scores& scores,
                     const position_choice& chosen, const kv_cache& cache, int layer, const batch& step) override {
    sparse({out, qkv}).attend_chosen(out, qkv, heads, scores, chosen, undivided(cache), layer, step);
  }
  void make_entries(const entry_making& how, kv_cache& cache, int from, int to, const batch& step) override {
    compressed({}).make_entries(how, undivided(cache), from, to, step);
  }
  void choose_entries(position_choice& to, const tensor& queries, const tensor& weights, int heads, int rate,
                      const kv_cache& cache, int layer, const batch& step) override {
    compressed({queries, weights}).choose_entries(to, queries, weights, heads, rate, undivided(cache), layer, step);
  }
  void attend_entries(const tensor& out, const tensor& q, int heads, const attention_scores& scores,
                      const entry_view& seen, const kv_cache& cache, const batch& step) override {
    compressed({out, q}).attend_entries(out, q, heads, scores, seen, undivided(cache), step);
  }
  void undo_rotation(const tensor& out, const tensor& x, int heads, int pairs, const float* angles,
                     const batch& step) override {
    compressed({out, x}).undo_rotation(out, x, heads, pairs, angles, step);
  }

  bool has_family_ops() const override { return true; }
  void layer_norm(const tensor& out, const tensor& x, const float* weight, const float* bias, float eps,
                  const std::int32_t* rows) override {
    const auto norm = [eps](cuda_backend& on, const tensor& to, const tensor& from, const float* w, const float* b) {
      on.layer_norm(to, from, w, b, eps);
    };
    if (rows != nullptr || !rows_.norm(out, x, weight, bias, norm))
      alone({out, x}).layer_norm(out, x, weight, bias, eps, rows);
  }
  void scale(const tensor& x, float factor, float soft_cap) override { alone({x}).scale(x, factor, soft_cap); }
  void clamp(const tensor& x, float limit) override { alone({x}).clamp(x, limit); }
  void add_rows(const tensor& to, const tensor& x, float factor, const std::int32_t* rows,
                const float* factors) override {
    alone({to, x}).add_rows(to, x, factor, rows, factors);
  }
  void multiply_rows(const tensor& to, const tensor& x) override { alone({to, x}).multiply_rows(to, x); }
  void gather_rows(const tensor& to, const tensor& from, const std::int32_t* rows) override {
    alone({to, from}).gather_rows(to, from, rows);
  }
  void mean_squares(float* to, const tensor& x) override { gates({x}).mean_squares(to, x); }
  void gate_gaussian(const tensor& out, const tensor& gate, const tensor& up, float deviations) override {
    gates({out, gate, up}).gate_gaussian(out, gate, up, deviations);
  }
  void embed_add(const tensor& to, const matrix& table, const std::int32_t* rows) override {
    alone({to}).embed_add(to, table, rows);
  }
  void grouped_activated(const tensor& out, const tensor& in, std::span<const row_group> groups, const activation& act,
                         bool gated) override {
    grouped_.activated(out, in, groups, act, gated);
  }
  void grouped_sum(const tensor& to, const tensor& in, std::span<const row_group> groups, store how) override {
    grouped_.sum(to, in, groups, how);
  }

  std::unique_ptr<state_cache> make_state_cache(const state_shape& shape) override {
    return recurrence({}).make_state_cache(shape);
  }
  int states_of_a_decoder(int rows) const override {
    return dynamic_cast<const recurrent_ops&>(*ranks[0].backend).states_of_a_decoder(rows);
  }
  void convolve(const tensor& out, const tensor& in, const convolution& how, state_cache& states, int layer) override {
    recurrence({out, in}).convolve(out, in, how, states, layer);
  }
  void recur(const tensor& out, const tensor& in, const tensor& rates, const tensor& betas, const recurrence& how,
             state_cache& states, int layer) override {
    recurrence({out, in, rates, betas}).recur(out, in, rates, betas, how, states, layer);
  }
  void gate(const tensor& out, const tensor& x, const tensor& gate, const gated_rows& how) override {
    recurrence({out, x, gate}).gate(out, x, gate, how);
  }
  void multiply(const tensor& out, const tensor& a, const tensor& b) override {
    recurrence({out, a, b}).multiply(out, a, b);
  }
  void recall_tokens(std::int32_t* to, const std::int32_t* tokens, std::size_t rows, state_cache& states,
                     int index) override {
    grams({}).recall_tokens(to, tokens, rows, states, index);
  }
  void convolve_spread(const tensor& out, const tensor& in, const convolution& how, state_cache& states,
                       int index) override {
    grams({out, in}).convolve_spread(out, in, how, states, index);
  }
  void take_agreed(const tensor& out, const tensor& a, const tensor& b, const tensor& value, float scale) override {
    grams({out, a, b, value}).take_agreed(out, a, b, value, scale);
  }
  void copy_states(state_cache& states, std::span<const state_copy> copies) override {
    recurrence({}).copy_states(states, copies);
  }
  void export_states(const state_cache& states, std::span<const state_export> out) override {
    recurrence({}).export_states(states, out);
  }
  void import_states(state_cache& states, std::span<const state_import> in) override {
    recurrence({}).import_states(states, in);
  }

  void copy_blocks(kv_cache& cache, std::span<const block_copy> copies) override {
    copy_blocks_on(queue(), cache, copies);
  }

  void copy_blocks_on(const stream& on, kv_cache& cache, std::span<const block_copy> copies) override {
    auto& whole = dynamic_cast<sharded_cache&>(cache);
    ranks[0].backend->copy_blocks_on(on, *whole.parts[0], copies);
    if (!whole.divided())
      return;
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
    if (!whole.divided())
      alone({}).copy_tokens(*whole.parts[0], layer, copies);
    else if (!copies.empty())
      together([&](device_rank& r, std::size_t i) { r.backend->copy_tokens(*whole.parts[i], layer, copies); });
  }

  // A block in host memory: the parts of the GPUs one after another.
  void save_block(const stream& on, const kv_cache& cache, std::int32_t block, void* host) override {
    const auto& whole = dynamic_cast<const sharded_cache&>(cache);
    auto* to = static_cast<unsigned char*>(host);
    for (std::size_t i = 0; i < whole.parts.size(); to += whole.parts[i++]->shape.block_bytes())
      ranks[i].backend->save_block(on, *whole.parts[i], block, to);
  }

  void restore_block(const stream& on, kv_cache& cache, std::int32_t block, const void* host) override {
    auto& whole = dynamic_cast<sharded_cache&>(cache);
    const auto* from = static_cast<const unsigned char*>(host);
    for (std::size_t i = 0; i < whole.parts.size(); from += whole.parts[i++]->shape.block_bytes())
      ranks[i].backend->restore_block(on, *whole.parts[i], block, from);
  }

  void download(float* to, const tensor& from) override { alone({from}).download(to, from); }

  void settle(const tensor& result) override { rows_.settle(result); }

private:
  column_range range(std::size_t outputs, std::size_t rank) const {
    return columns_of(outputs, rank, ranks.size(), column_unit);
  }

  /// The first GPU, for an op that it runs alone with these tensors.
  cuda_backend& alone(std::initializer_list<tensor> with) {
    for (const auto& t : with)
      rows_.use(t);
    return *ranks[0].backend;
  }
  template <class Ops>
  Ops& ops(std::initializer_list<tensor> with) {
    return dynamic_cast<Ops&>(alone(with));
  }
  recurrent_ops& recurrence(std::initializer_list<tensor> with) { return ops<recurrent_ops>(with); }
  gram_ops& grams(std::initializer_list<tensor> with) { return ops<gram_ops>(with); }
  gaussian_gates& gates(std::initializer_list<tensor> with) { return ops<gaussian_gates>(with); }
  sparse_attention& sparse(std::initializer_list<tensor> with) { return ops<sparse_attention>(with); }
  compressed_attention& compressed(std::initializer_list<tensor> with) { return ops<compressed_attention>(with); }

  static kv_cache& undivided(const kv_cache& cache) {
    const auto& whole = dynamic_cast<const sharded_cache&>(cache);
    expect(!whole.divided(), "layers of K alone are not divided");
    return *whole.parts[0];
  }

  static const sharded_matrix& activated(const tensor& out, const matrix& w, bool gated) {
    const auto& whole = dynamic_cast<const sharded_matrix&>(w);
    expect(whole.gated == gated && out.cols == w.outputs,
           "linear_activated: the weights must be packed for it, out must have their columns");
    return whole;
  }

  /// Lets each GPU attend with its query heads, f(GPU, to, its queries, heads, scores, part of the cache); or the first one alone.
  template <class Attend>
  void attend(const tensor& out, const tensor& qkv, int heads, const attention_scores& scores, const kv_cache& cache,
              int layer, const Attend& f) {
    const auto& whole = dynamic_cast<const sharded_cache&>(cache);
    if (!whole.divided()) {
      alone({out, qkv});
      return f(ranks[0], out, qkv, {0, static_cast<std::size_t>(heads)}, scores, *whole.parts[0]);
    }
    const auto shape = whole.shape.layer(layer);
    const int group = heads / shape.heads;
    const auto dim = static_cast<std::size_t>(shape.dim);
    rows_.use(out);
    rows_.forget_columns();
    std::vector<tensor> parts(ranks.size());
    std::vector<column_range> columns(ranks.size());
    together([&](device_rank& r, std::size_t i) {
      expect(r.rotated.rows == qkv.rows, "attention: the rows must be those that were rotated last");
      const auto kv = whole.kv_heads(i, layer);
      const column_range q{static_cast<std::size_t>(kv.first * group), static_cast<std::size_t>(kv.count * group)};
      auto own = scores;
      own.slopes = scores.slopes != nullptr ? scores.slopes + q.first : nullptr;
      own.sinks = scores.sinks != nullptr ? scores.sinks + q.first : nullptr;
      const auto to = packed_rows(r.attended, out.type, out.rows, q.count * dim);
      f(r, to, r.rotated, q, own, *whole.parts[i]);
      columns[i] = {q.first * dim, q.count * dim};
      copy_tensor(r.backend->queue(), columns_of(out, columns[i]), to);
      parts[i] = to;
    });
    rows_.keep_columns(out, std::move(parts), std::move(columns));
  }

  template <class Pack>
  std::unique_ptr<matrix> shards(std::span<const stored_matrix> stacked, bool gated, const Pack& pack) {
    expect(!stacked.empty(), "no matrix to pack");
    auto to = std::make_unique<sharded_matrix>();
    to->inputs = stacked.front().cols;
    to->outputs = outputs_of(stacked, gated);
    to->gated = gated;
    to->shards.resize(ranks.size());
    on_all([&](device_rank& r, std::size_t i) {
      to->columns.push_back(range(to->outputs, i));
      if (to->columns[i].count > 0)
        to->shards[i] = pack(r, cut_stack(stacked, to->columns[i], gated));
    });
    to->bytes = to->shards[0]->bytes;
    return to;
  }

  /// The first GPU multiplies in place. The others copy the inputs, and their columns back, which with `keep` also stay
  /// with them. A product that is added to residual rows finds these where `rows_` has them.
  template <class Multiply>
  void product(const tensor& out, const tensor& in, const sharded_matrix& w, store how, bool keep,
               const Multiply& multiply) {
    if (keep)
      rows_.forget_columns();
    rows_.settle(in);
    const bool divided = how == store::add && rows_.add_to(out);
    if (!divided)
      rows_.use(out);
    std::vector<tensor> parts(ranks.size());
    together([&](device_rank& r, std::size_t i) {
      if (w.columns[i].count == 0 || in.rows == 0)
        return;
      const auto columns = columns_of(out, w.columns[i]);
      if (i == 0) {
        if (divided)
          rows_.bring(r, i, columns, w.columns[i]);
        multiply(r, columns, in, i);
        if (divided)
          rows_.take_back(r, i, columns, w.columns[i]);
        return;
      }
      const auto& on = r.backend->queue();
      const auto from = packed_rows(r.in, in.type, in.rows, in.cols),
                 to = packed_rows(keep ? r.activated : r.out, out.type, out.rows, columns.cols);
      rows_.gather(r, from, in);
      if (divided)
        rows_.bring(r, i, to, w.columns[i]);
      else if (how == store::add)
        copy_tensor(on, to, columns);
      multiply(r, to, from, i);
      if (divided)
        rows_.take_back(r, i, to, w.columns[i]);
      else
        copy_tensor(on, columns, to);
      parts[i] = to;
    });
    if (keep)
      rows_.keep_columns(out, std::move(parts), w.columns);
  }

  divided_rows rows_{*this};
  grouped_products grouped_{*this};
};

} // namespace

std::unique_ptr<cuda_backend> make_device_ranks(const cuda_options& options, int ranks) {
  return std::make_unique<device_ranks>(options, ranks);
}

} // namespace troupe::kernels::cuda
