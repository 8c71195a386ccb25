// What the parts of a decoder share: weights, backend, the rows of the step at hand with their residual stream, scratch
// rows, and the ways in which a layer's product reaches the residual. A decoder makes one; its thread uses it.
#pragma once

#include "kernels/ops.hpp"
#include "runtime/checkpoint/packed/weight_pager.hpp"
#include "runtime/model/decoder/decoder_sizes.hpp"
#include "runtime/model/decoder/weights.hpp"
#include "runtime/support/types.hpp"
#include "runtime/techniques/products.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace troupe::kernels {
class low_rank_products; // kernels/low_rank.hpp
}

namespace troupe {

/// What else is done to what attention or an MLP gives, ahead of the residual.
class branch_change {
public:
  virtual ~branch_change() = default;

  /// f32 [rows, hidden], as `branch`; valid until the next call.
  virtual kernels::tensor changed(const kernels::tensor& branch) = 0;
};

class decoder_step {
public:
  /// For steps of up to `max_rows` rows and positions below `max_context`.
  decoder_step(std::shared_ptr<const model_weights> weights, kernels::backend& backend, int max_rows, int max_context);

  decoder_step(const decoder_step&) = delete; // parts borrow it
  decoder_step& operator=(const decoder_step&) = delete;

  /// Begins a step of so many rows. Throws failure(internal) if they are more than it was made for.
  void begin(std::size_t rows);

  /// Sets what is added to products until the next call; null: nothing. Throws failure(internal) if the backend cannot.
  void add_to_products(added_products* added);

  const model_config& config() const { return weights->config; }
  const layer_weights& layer(int i) const { return weights->layer(i); }
  std::size_t rows() const { return rows_; }
  int max_rows() const { return max_rows_; }
  int max_context() const { return max_context_; }

  /// Null for no bytes.
  kernels::buffer allocate(std::size_t bytes) const { return bytes == 0 ? nullptr : backend.allocate(bytes); }

  // Rows that all parts use, in turn.
  kernels::tensor residual() const; // f32 [rows, hidden]
  kernels::tensor branch() const;   // f32 [rows, hidden]: what is changed before it is added to the residual
  kernels::tensor normed() const { return normed(rows_); } // compute type [rows, hidden]: what layers read
  kernels::tensor normed(std::size_t rows) const;
  kernels::tensor attended(std::size_t rows,
                           std::size_t cols) const;              // compute type: what attention or recurrence gives
  kernels::tensor ffn(std::size_t rows, std::size_t cols) const; // compute type: what an MLP is in its middle

  /// Brings the head's matrix into memory, if it is not there yet.
  void enter_head() { walk.enter(weights->layers.size()); }

  /// to = norm of `rows` of `from`, null: of all; without weights a copy. `eps` 0: the model's.
  void normalise(const kernels::tensor& to, const kernels::tensor& from, const norm_weights& norm,
                 const std::int32_t* rows = nullptr, float eps = 0);

  /// out (+)= in · wᵀ + bias, and what is added to that product of layer `i`.
  void multiply(int i, product_site site, const kernels::tensor& out, const kernels::tensor& in,
                const kernels::matrix& w, const kernels::buffer& bias, kernels::store how);

  /// out = what layer `i` activates of the product with `mlp.gate_up`, and of what is added to it.
  void activate(int i, const kernels::tensor& out, const kernels::tensor& in);

  /// residual += the product of a site of layer `i`, changed, normalised and scaled as the model asks.
  void add_branch(int i, product_site site, const kernels::tensor& in, const kernels::matrix& w,
                  const kernels::buffer& bias, const norm_weights& norm, float scale = 1);

  /// residual += branch, changed, normalised and scaled as the model asks.
  void add_changed(const kernels::tensor& branch, const norm_weights& norm, float scale = 1);

  std::vector<token_id> tokens; // of the step's rows, in a part that embeds them
  const std::shared_ptr<const model_weights> weights;
  kernels::backend& backend;
  weight_walk walk;             // through weights that are in a file
  const activation_sizes bytes; // of the parts' buffers
  branch_change* change = nullptr;

private:
  /// What requests add to a product, or the layer itself.
  std::span<const kernels::row_group> added_at(int i, product_site site);

  int max_rows_;
  int max_context_;
  std::size_t rows_ = 0;
  kernels::buffer residual_, normed_, attended_, ffn_, branch_; // see activation_sizes
  kernels::low_rank_products* low_rank_;                        // the backend's, if it has them
  added_products* added_ = nullptr;
  kernels::row_group pairs_; // of a layer, for all rows
  std::vector<std::int32_t> all_rows_;
};

} // namespace troupe
