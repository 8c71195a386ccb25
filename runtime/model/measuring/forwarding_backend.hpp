// A backend that passes all ops of a decoder on to another backend. Observers derive from it and override what they
// look at. Used by the other backend's thread.
#pragma once

#include "kernels/compressed_attention.hpp"
#include "kernels/distance_attention.hpp"
#include "kernels/gaussian_gates.hpp"
#include "kernels/gram_ops.hpp"
#include "kernels/low_rank.hpp"
#include "kernels/ops.hpp"
#include "kernels/recurrent.hpp"
#include "kernels/sparse_attention.hpp"

#include <memory>
#include <span>
#include <string>

namespace troupe {

class forwarding_backend : public kernels::backend,
                           public kernels::recurrent_ops,
                           public kernels::gaussian_gates,
                           public kernels::gram_ops,
                           public kernels::sparse_attention,
                           public kernels::distance_attention,
                           public kernels::compressed_attention {
public:
  explicit forwarding_backend(kernels::backend& inner) : inner_(inner) {}

  std::string description() const override { return inner_.description(); }
  kernels::buffer allocate(std::size_t bytes) override { return inner_.allocate(bytes); }
  kernels::buffer upload(std::span<const float> values) override { return inner_.upload(values); }
  std::unique_ptr<kernels::kv_cache> make_kv_cache(const kernels::kv_shape& shape) override {
    return inner_.make_kv_cache(shape);
  }
  std::unique_ptr<kernels::matrix> pack(std::span<const kernels::stored_matrix> stacked, kernels::dtype compute,
                                        kernels::quantization how) override {
    return inner_.pack(stacked, compute, how);
  }
  std::unique_ptr<kernels::matrix> pack_gate_up(const kernels::stored_matrix& gate, const kernels::stored_matrix& up,
                                                kernels::dtype compute, kernels::quantization how) override {
    return inner_.pack_gate_up(gate, up, compute, how);
  }
  std::unique_ptr<kernels::matrix> load_table(const kernels::stored_matrix& table) override {
    return inner_.load_table(table);
  }

  void embed(const kernels::tensor& out, const kernels::matrix& table, const std::int32_t* tokens) override {
    inner_.embed(out, table, tokens);
  }
  void rms_norm(const kernels::tensor& out, const kernels::tensor& x, const float* weight, float eps,
                const std::int32_t* rows) override {
    inner_.rms_norm(out, x, weight, eps, rows);
  }
  void linear(const kernels::tensor& out, const kernels::tensor& in, const kernels::matrix& w, const float* bias,
              kernels::store how) override {
    inner_.linear(out, in, w, bias, how);
  }
  void linear_silu_gate(const kernels::tensor& out, const kernels::tensor& in, const kernels::matrix& w,
                        const float* bias) override {
    inner_.linear_silu_gate(out, in, w, bias);
  }
  void rope_write_kv(const kernels::tensor& qkv, int heads, const kernels::head_norm& norm,
                     const kernels::rope_rows& rope, kernels::kv_cache& cache, int layer,
                     const kernels::batch& step) override {
    inner_.rope_write_kv(qkv, heads, norm, rope, cache, layer, step);
  }
  void attention(const kernels::tensor& out, const kernels::tensor& qkv, int heads, float scale, int window,
                 const kernels::kv_cache& cache, int layer, const kernels::batch& step) override {
    inner_.attention(out, qkv, heads, scale, window, cache, layer, step);
  }
  bool has_family_ops() const override { return inner_.has_family_ops(); }
  void layer_norm(const kernels::tensor& out, const kernels::tensor& x, const float* weight, const float* bias,
                  float eps, const std::int32_t* rows) override {
    inner_.layer_norm(out, x, weight, bias, eps, rows);
  }
  void linear_activated(const kernels::tensor& out, const kernels::tensor& in, const kernels::matrix& w,
                        const kernels::activation& act, bool gated, const float* bias) override {
    inner_.linear_activated(out, in, w, act, gated, bias);
  }
  void shaped_attention(const kernels::tensor& out, const kernels::tensor& qkv, int heads,
                        const kernels::attention_scores& scores, const kernels::kv_cache& cache, int layer,
                        const kernels::batch& step) override {
    inner_.shaped_attention(out, qkv, heads, scores, cache, layer, step);
  }
  void attend_by_distance(const kernels::tensor& out, const kernels::tensor& qkv, int heads,
                          const kernels::attention_scores& scores, const kernels::distance_scores& distances,
                          const kernels::kv_cache& cache, int layer, const kernels::batch& step) override {
    dynamic_cast<kernels::distance_attention&>(inner_).attend_by_distance(out, qkv, heads, scores, distances, cache,
                                                                          layer, step);
  }
  void scale(const kernels::tensor& x, float factor, float soft_cap) override { inner_.scale(x, factor, soft_cap); }
  void clamp(const kernels::tensor& x, float limit) override { inner_.clamp(x, limit); }
  void add_rows(const kernels::tensor& to, const kernels::tensor& x, float factor, const std::int32_t* rows,
                const float* factors) override {
    inner_.add_rows(to, x, factor, rows, factors);
  }
  void multiply_rows(const kernels::tensor& to, const kernels::tensor& x) override { inner_.multiply_rows(to, x); }
  void gather_rows(const kernels::tensor& to, const kernels::tensor& from, const std::int32_t* rows) override {
    inner_.gather_rows(to, from, rows);
  }
  void grouped_activated(const kernels::tensor& out, const kernels::tensor& in,
                         std::span<const kernels::row_group> groups, const kernels::activation& act,
                         bool gated) override {
    inner_.grouped_activated(out, in, groups, act, gated);
  }
  void grouped_sum(const kernels::tensor& to, const kernels::tensor& in, std::span<const kernels::row_group> groups,
                   kernels::store how) override {
    inner_.grouped_sum(to, in, groups, how);
  }
  void embed_add(const kernels::tensor& to, const kernels::matrix& table, const std::int32_t* rows) override {
    inner_.embed_add(to, table, rows);
  }
  void copy_blocks(kernels::kv_cache& cache, std::span<const kernels::block_copy> copies) override {
    inner_.copy_blocks(cache, copies);
  }
  void copy_tokens(kernels::kv_cache& cache, int layer, std::span<const kernels::token_copy> copies) override {
    inner_.copy_tokens(cache, layer, copies);
  }
  void download(float* to, const kernels::tensor& from) override { inner_.download(to, from); }

  // Only for models that need them; the other backend then has them.
  void mean_squares(float* to, const kernels::tensor& x) override { gates().mean_squares(to, x); }
  void gate_gaussian(const kernels::tensor& out, const kernels::tensor& gate, const kernels::tensor& up,
                     float deviations) override {
    gates().gate_gaussian(out, gate, up, deviations);
  }

  void choose_positions(kernels::position_choice& to, const kernels::tensor& queries, const kernels::tensor& weights,
                        int heads, const kernels::kv_cache& cache, int layer, const kernels::batch& step) override {
    choices().choose_positions(to, queries, weights, heads, cache, layer, step);
  }
  void attend_chosen(const kernels::tensor& out, const kernels::tensor& qkv, int heads,
                     const kernels::attention_scores& scores, const kernels::position_choice& chosen,
                     const kernels::kv_cache& cache, int layer, const kernels::batch& step) override {
    choices().attend_chosen(out, qkv, heads, scores, chosen, cache, layer, step);
  }

  void make_entries(const kernels::entry_making& how, kernels::kv_cache& cache, int from, int to,
                    const kernels::batch& step) override {
    entries().make_entries(how, cache, from, to, step);
  }
  void choose_entries(kernels::position_choice& to, const kernels::tensor& queries, const kernels::tensor& weights,
                      int heads, int rate, const kernels::kv_cache& cache, int layer,
                      const kernels::batch& step) override {
    entries().choose_entries(to, queries, weights, heads, rate, cache, layer, step);
  }
  void attend_entries(const kernels::tensor& out, const kernels::tensor& q, int heads,
                      const kernels::attention_scores& scores, const kernels::entry_view& seen,
                      const kernels::kv_cache& cache, const kernels::batch& step) override {
    entries().attend_entries(out, q, heads, scores, seen, cache, step);
  }
  void undo_rotation(const kernels::tensor& out, const kernels::tensor& x, int heads, int pairs, const float* angles,
                     const kernels::batch& step) override {
    entries().undo_rotation(out, x, heads, pairs, angles, step);
  }

  // Only for models with recurrent layers; the other backend then has them.
  std::unique_ptr<kernels::state_cache> make_state_cache(const kernels::state_shape& shape) override {
    return recurrence().make_state_cache(shape);
  }
  int states_of_a_decoder(int rows) const override {
    return dynamic_cast<const kernels::recurrent_ops&>(inner_).states_of_a_decoder(rows);
  }
  void convolve(const kernels::tensor& out, const kernels::tensor& in, const kernels::convolution& how,
                kernels::state_cache& states, int layer) override {
    recurrence().convolve(out, in, how, states, layer);
  }
  void recur(const kernels::tensor& out, const kernels::tensor& in, const kernels::tensor& rates,
             const kernels::tensor& betas, const kernels::recurrence& how, kernels::state_cache& states,
             int layer) override {
    recurrence().recur(out, in, rates, betas, how, states, layer);
  }
  void gate(const kernels::tensor& out, const kernels::tensor& x, const kernels::tensor& gate,
            const kernels::gated_rows& how) override {
    recurrence().gate(out, x, gate, how);
  }
  void multiply(const kernels::tensor& out, const kernels::tensor& a, const kernels::tensor& b) override {
    recurrence().multiply(out, a, b);
  }
  void recall_tokens(std::int32_t* to, const std::int32_t* tokens, std::size_t rows, kernels::state_cache& states,
                     int index) override {
    grams().recall_tokens(to, tokens, rows, states, index);
  }
  void convolve_spread(const kernels::tensor& out, const kernels::tensor& in, const kernels::convolution& how,
                       kernels::state_cache& states, int index) override {
    grams().convolve_spread(out, in, how, states, index);
  }
  void take_agreed(const kernels::tensor& out, const kernels::tensor& a, const kernels::tensor& b,
                   const kernels::tensor& value, float scale) override {
    grams().take_agreed(out, a, b, value, scale);
  }
  void copy_states(kernels::state_cache& states, std::span<const kernels::state_copy> copies) override {
    recurrence().copy_states(states, copies);
  }
  void export_states(const kernels::state_cache& states, std::span<const kernels::state_export> out) override {
    recurrence().export_states(states, out);
  }
  void import_states(kernels::state_cache& states, std::span<const kernels::state_import> in) override {
    recurrence().import_states(states, in);
  }

protected:
  kernels::gaussian_gates& gates() { return dynamic_cast<kernels::gaussian_gates&>(inner_); }
  kernels::gram_ops& grams() { return dynamic_cast<kernels::gram_ops&>(inner_); }
  kernels::compressed_attention& entries() { return dynamic_cast<kernels::compressed_attention&>(inner_); }
  kernels::sparse_attention& choices() { return dynamic_cast<kernels::sparse_attention&>(inner_); }
  kernels::recurrent_ops& recurrence() { return dynamic_cast<kernels::recurrent_ops&>(inner_); }

  kernels::backend& inner_;
};

/// The same in front of a backend that has products of low rank, as models may need.
class forwarding_products : public forwarding_backend, public kernels::low_rank_products {
public:
  using forwarding_backend::forwarding_backend;

  std::unique_ptr<const kernels::matrix> pack_low_rank(std::span<const kernels::low_rank_pair> pairs,
                                                       std::size_t inputs, std::size_t outputs, kernels::dtype compute,
                                                       bool gated) override {
    return products().pack_low_rank(pairs, inputs, outputs, compute, gated);
  }
  void linear_plus(const kernels::tensor& out, const kernels::tensor& in, const kernels::matrix& w, const float* bias,
                   kernels::store how, std::span<const kernels::row_group> groups) override {
    products().linear_plus(out, in, w, bias, how, groups);
  }
  void linear_activated_plus(const kernels::tensor& out, const kernels::tensor& in, const kernels::matrix& w,
                             const kernels::activation& act, bool gated, const float* bias,
                             std::span<const kernels::row_group> groups) override {
    products().linear_activated_plus(out, in, w, act, gated, bias, groups);
  }

private:
  kernels::low_rank_products& products() { return dynamic_cast<kernels::low_rank_products&>(inner_); }
};

} // namespace troupe
