#include "kernels/sharded/sharded_backend.hpp"

#include "kernels/gaussian_gates.hpp"
#include "kernels/gram_ops.hpp"
#include "kernels/planned_steps.hpp"
#include "kernels/recurrent.hpp"
#include "kernels/sharded/rank_team.hpp"
#include "kernels/sharded/sharded_attention.hpp"
#include "kernels/sharded/sharded_linear.hpp"

namespace troupe::kernels {

namespace {

class sharded_backend final : public backend,
                              public storable_matrices,
                              public low_rank_products,
                              public activation_sparsity,
                              public gaussian_gates,
                              public block_transfer,
                              public recurrent_ops,
                              public gram_ops,
                              public sparse_attention,
                              public compressed_attention,
                              public distance_attention {
public:
  sharded_backend(std::vector<std::unique_ptr<backend>> ranks, const rank_leaders& leaders, std::size_t unit)
    : ranks_(std::move(ranks), leaders), linear_(ranks_, unit), attention_(ranks_) {}

  /// "cpu, avx512-bf16, 2 ranks of 1 thread"
  std::string description() const override {
    auto text = ranks_[0].device->description();
    text.insert(text.rfind(", ") + 2, std::to_string(ranks_.size()) + " ranks of ");
    const auto threads = [&](std::size_t i) { return ranks_[i].device->storable()->pool().size(); };
    if (const auto least = threads(ranks_.size() - 1); least != threads(0)) // the first ones have one more
      text.insert(text.rfind(", ") + text.substr(text.rfind(", ")).rfind(" of ") + 4, std::to_string(least) + " or ");
    return text;
  }

  // -- memory -------------------------------------------------------------------------------------------------------

  buffer allocate(std::size_t bytes) override { return ranks_.first().device->allocate(bytes); }
  buffer upload(std::span<const float> values) override { return ranks_.first().device->upload(values); }
  std::unique_ptr<kv_cache> make_kv_cache(const kv_shape& shape) override { return attention_.make_cache(shape); }

  // -- weights ------------------------------------------------------------------------------------------------------

  std::unique_ptr<matrix> pack(std::span<const stored_matrix> stacked, dtype compute, quantization how) override {
    return linear_.pack(stacked, compute, how, false);
  }

  std::unique_ptr<matrix> pack_gate_up(const stored_matrix& gate, const stored_matrix& up, dtype compute,
                                       quantization how) override {
    const stored_matrix both[] = {gate, up};
    return linear_.pack(both, compute, how, true);
  }

  std::size_t packed_bytes(std::span<const stored_matrix> stacked, dtype compute, quantization how,
                           bool gated) const override {
    return linear_.packed_bytes(stacked, compute, how, gated);
  }

  // A table is in the caller's memory: all ranks read it.
  std::unique_ptr<matrix> load_table(const stored_matrix& table) override {
    return ranks_.first().device->load_table(table);
  }
  std::size_t table_bytes(const stored_matrix& table) const override { return ranks_[0].device->table_bytes(table); }

  std::size_t scratch_bytes(const planned_steps& steps) const override {
    std::size_t bytes = attention_.scratch_bytes(steps.cache, steps.heads, steps.rows);
    for (std::size_t i = 0; i < ranks_.size(); ++i)
      bytes += ranks_[i].device->scratch_bytes(linear_.steps_of(steps, i));
    return bytes;
  }

  const storable_matrices* storable() const override { return this; }
  isa instruction_set() const override { return ranks_[0].device->storable()->instruction_set(); }
  int layout_version() const override { return ranks_[0].device->storable()->layout_version(); }
  thread_pool& pool() const override { return ranks_.leaders(); }
  int shards() const override { return static_cast<int>(ranks_.size()); }

  std::vector<std::span<const std::byte>> bytes_of(const matrix& packed) const override {
    return linear_.bytes_of(packed);
  }

  std::unique_ptr<matrix> restore(std::span<const stored_matrix> stacked, dtype compute, quantization how, bool gated,
                                  const buffer& bytes) const override {
    return linear_.restore(stacked, compute, how, gated, bytes);
  }

  // -- by rows ------------------------------------------------------------------------------------------------------

  void embed(const tensor& out, const matrix& table, const std::int32_t* tokens) override {
    ranks_.rows(out.rows, [&](rank& r, std::size_t first, std::size_t end) {
      r.device->embed(rows_of(out, first, end), table, tokens + first);
    });
  }

  void rms_norm(const tensor& out, const tensor& x, const float* weight, float eps, const std::int32_t* rows) override {
    ranks_.rows(out.rows, [&](rank& r, std::size_t first, std::size_t end) {
      const source from(x, rows, first, end);
      r.device->rms_norm(rows_of(out, first, end), from.x, weight, eps, from.rows);
    });
  }

  bool has_family_ops() const override { return true; }

  void layer_norm(const tensor& out, const tensor& x, const float* weight, const float* bias, float eps,
                  const std::int32_t* rows) override {
    ranks_.rows(out.rows, [&](rank& r, std::size_t first, std::size_t end) {
      const source from(x, rows, first, end);
      r.device->layer_norm(rows_of(out, first, end), from.x, weight, bias, eps, from.rows);
    });
  }

  void scale(const tensor& x, float factor, float soft_cap) override {
    ranks_.rows(x.rows, [&](rank& r, std::size_t first, std::size_t end) {
      r.device->scale(rows_of(x, first, end), factor, soft_cap);
    });
  }

  void clamp(const tensor& x, float limit) override {
    ranks_.rows(x.rows,
                [&](rank& r, std::size_t first, std::size_t end) { r.device->clamp(rows_of(x, first, end), limit); });
  }

  void add_rows(const tensor& to, const tensor& x, float factor, const std::int32_t* rows,
                const float* factors) override {
    ranks_.rows(x.rows, [&](rank& r, std::size_t first, std::size_t end) {
      const source into(to, rows, first, end);
      r.device->add_rows(into.x, rows_of(x, first, end), factor, into.rows,
                         factors != nullptr ? factors + first : nullptr);
    });
  }

  void multiply_rows(const tensor& to, const tensor& x) override {
    ranks_.rows(x.rows, [&](rank& r, std::size_t first, std::size_t end) {
      r.device->multiply_rows(rows_of(to, first, end), rows_of(x, first, end));
    });
  }

  void mean_squares(float* to, const tensor& x) override {
    ranks_.rows(x.rows, [&](rank& r, std::size_t first, std::size_t end) {
      dynamic_cast<gaussian_gates&>(*r.device).mean_squares(to + first, rows_of(x, first, end));
    });
  }

  void gate_gaussian(const tensor& out, const tensor& gate, const tensor& up, float deviations) override {
    ranks_.rows(out.rows, [&](rank& r, std::size_t first, std::size_t end) {
      dynamic_cast<gaussian_gates&>(*r.device).gate_gaussian(rows_of(out, first, end), rows_of(gate, first, end),
                                                             rows_of(up, first, end), deviations);
    });
  }

  void gather_rows(const tensor& to, const tensor& from, const std::int32_t* rows) override {
    ranks_.rows(to.rows, [&](rank& r, std::size_t first, std::size_t end) {
      const source own(from, rows, first, end);
      r.device->gather_rows(rows_of(to, first, end), own.x, own.rows);
    });
  }

  void embed_add(const tensor& to, const matrix& table, const std::int32_t* rows) override {
    ranks_.rows(to.rows, [&](rank& r, std::size_t first, std::size_t end) {
      r.device->embed_add(rows_of(to, first, end), table, rows + first);
    });
  }

  void drop_smallest(const tensor& x, float share, const matrix& w) override {
    ranks_.rows(x.rows, [&](rank& r, std::size_t first, std::size_t end) {
      r.sparsity.drop_smallest(rows_of(x, first, end), share, first_shard(w));
    });
  }

  bool skips_zeros(const matrix& w) const override { return ranks_[0].sparsity.skips_zeros(first_shard(w)); }

  std::size_t skipped_bytes() const override {
    std::size_t bytes = 0;
    for (std::size_t i = 0; i < ranks_.size(); ++i)
      bytes += ranks_[i].sparsity.skipped_bytes();
    return bytes;
  }

  std::size_t unread_values() const override {
    std::size_t bytes = 0;
    for (std::size_t i = 0; i < ranks_.size(); ++i)
      bytes += ranks_[i].sparsity.unread_values();
    return bytes;
  }

  // -- by columns ---------------------------------------------------------------------------------------------------

  void linear(const tensor& out, const tensor& in, const matrix& w, const float* bias, store how) override {
    linear_.plus(out, in, w, bias, how, {});
  }

  void linear_silu_gate(const tensor& out, const tensor& in, const matrix& gate_up, const float* bias) override {
    linear_.activated_plus(out, in, gate_up, {activation_type::silu}, true, bias, {});
  }

  void linear_activated(const tensor& out, const tensor& in, const matrix& w, const activation& act, bool gated,
                        const float* bias) override {
    linear_.activated_plus(out, in, w, act, gated, bias, {});
  }

  std::unique_ptr<const matrix> pack_low_rank(std::span<const low_rank_pair> pairs, std::size_t inputs,
                                              std::size_t outputs, dtype compute, bool gated) override {
    return linear_.pack_low_rank(pairs, inputs, outputs, compute, gated);
  }

  void linear_plus(const tensor& out, const tensor& in, const matrix& w, const float* bias, store how,
                   std::span<const row_group> groups) override {
    linear_.plus(out, in, w, bias, how, groups);
  }

  void linear_activated_plus(const tensor& out, const tensor& in, const matrix& w, const activation& act, bool gated,
                             const float* bias, std::span<const row_group> groups) override {
    linear_.activated_plus(out, in, w, act, gated, bias, groups);
  }

  void grouped_activated(const tensor& out, const tensor& in, std::span<const row_group> groups, const activation& act,
                         bool gated) override {
    linear_.grouped_activated(out, in, groups, act, gated);
  }

  void grouped_sum(const tensor& to, const tensor& in, std::span<const row_group> groups, store how) override {
    linear_.grouped_sum(to, in, groups, how);
  }

  // -- by heads -----------------------------------------------------------------------------------------------------

  void rope_write_kv(const tensor& qkv, int heads, const head_norm& norm, const rope_rows& rope, kv_cache& cache,
                     int layer, const batch& step) override {
    attention_.rope_write_kv(qkv, heads, norm, rope, dynamic_cast<sharded_cache&>(cache), layer, step);
  }

  void attention(const tensor& out, const tensor& qkv, int heads, float scale, int window, const kv_cache& cache,
                 int layer, const batch& step) override {
    shaped_attention(out, qkv, heads, {scale, window}, cache, layer, step);
  }

  void shaped_attention(const tensor& out, const tensor& qkv, int heads, const attention_scores& scores,
                        const kv_cache& cache, int layer, const batch& step) override {
    attention_.run(out, qkv, heads, scores, dynamic_cast<const sharded_cache&>(cache), layer, step);
  }

  void attend_by_distance(const tensor& out, const tensor& qkv, int heads, const attention_scores& scores,
                          const distance_scores& distances, const kv_cache& cache, int layer,
                          const batch& step) override {
    attention_.run(out, qkv, heads, scores, dynamic_cast<const sharded_cache&>(cache), layer, step, &distances);
  }

  void choose_positions(position_choice& to, const tensor& queries, const tensor& weights, int heads,
                        const kv_cache& cache, int layer, const batch& step) override {
    attention_.choose(to, queries, weights, heads, dynamic_cast<const sharded_cache&>(cache), layer, step);
  }

  void attend_chosen(const tensor& out, const tensor& qkv, int heads, const attention_scores& scores,
                     const position_choice& chosen, const kv_cache& cache, int layer, const batch& step) override {
    attention_.attend_chosen(out, qkv, heads, scores, chosen, dynamic_cast<const sharded_cache&>(cache), layer, step);
  }

  void make_entries(const entry_making& how, kv_cache& cache, int from, int to, const batch& step) override {
    attention_.make_entries(how, dynamic_cast<sharded_cache&>(cache), from, to, step);
  }

  void choose_entries(position_choice& to, const tensor& queries, const tensor& weights, int heads, int rate,
                      const kv_cache& cache, int layer, const batch& step) override {
    attention_.choose_entries(to, queries, weights, heads, rate, dynamic_cast<const sharded_cache&>(cache), layer,
                              step);
  }

  void attend_entries(const tensor& out, const tensor& q, int heads, const attention_scores& scores,
                      const entry_view& seen, const kv_cache& cache, const batch& step) override {
    attention_.attend_entries(out, q, heads, scores, seen, dynamic_cast<const sharded_cache&>(cache), step);
  }

  void undo_rotation(const tensor& out, const tensor& x, int heads, int pairs, const float* angles,
                     const batch& step) override {
    attention_.undo_rotation(out, x, heads, pairs, angles, step);
  }

  void copy_blocks(kv_cache& cache, std::span<const block_copy> copies) override {
    attention_.copy(dynamic_cast<sharded_cache&>(cache), copies);
  }

  void copy_tokens(kv_cache& cache, int layer, std::span<const token_copy> copies) override {
    attention_.copy_tokens(dynamic_cast<sharded_cache&>(cache), layer, copies);
  }

  void export_blocks(const kv_cache& cache, std::span<const block_export> blocks) override {
    attention_.export_blocks(dynamic_cast<const sharded_cache&>(cache), blocks);
  }

  void import_blocks(kv_cache& cache, std::span<const block_import> blocks) override {
    attention_.import_blocks(dynamic_cast<sharded_cache&>(cache), blocks);
  }

  void download(float* to, const tensor& from) override { ranks_.first().device->download(to, from); }

  // -- by the first rank alone --------------------------------------------------------------------------------------

  std::unique_ptr<state_cache> make_state_cache(const state_shape& shape) override {
    return recurrence().make_state_cache(shape);
  }

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

  void recall_tokens(std::int32_t* to, const std::int32_t* tokens, std::size_t rows, state_cache& states,
                     int index) override {
    grams().recall_tokens(to, tokens, rows, states, index);
  }

  void convolve_spread(const tensor& out, const tensor& in, const convolution& how, state_cache& states,
                       int index) override {
    grams().convolve_spread(out, in, how, states, index);
  }

  void take_agreed(const tensor& out, const tensor& a, const tensor& b, const tensor& value, float scale) override {
    grams().take_agreed(out, a, b, value, scale);
  }

  void copy_states(state_cache& states, std::span<const state_copy> copies) override {
    recurrence().copy_states(states, copies);
  }

  void export_states(const state_cache& states, std::span<const state_export> out) override {
    recurrence().export_states(states, out);
  }

  void import_states(state_cache& states, std::span<const state_import> in) override {
    recurrence().import_states(states, in);
  }

private:
  gram_ops& grams() { return dynamic_cast<gram_ops&>(*ranks_.first().device); }
  recurrent_ops& recurrence() { return dynamic_cast<recurrent_ops&>(*ranks_.first().device); }

  /// Where rows [first, end) of an op come from or go to: rows of a tensor in order, or those that a list names.
  struct source {
    source(const tensor& of, const std::int32_t* named, std::size_t first, std::size_t end)
      : x(named != nullptr ? of : rows_of(of, first, end)), rows(named != nullptr ? named + first : nullptr) {}

    tensor x;
    const std::int32_t* rows;
  };

  rank_team ranks_;
  sharded_linear linear_;
  sharded_attention attention_;
};

} // namespace

std::unique_ptr<backend> make_sharded_backend(std::vector<std::unique_ptr<backend>> ranks, const rank_leaders& leaders,
                                              std::size_t unit) {
  return std::make_unique<sharded_backend>(std::move(ranks), leaders, unit);
}

} // namespace troupe::kernels
