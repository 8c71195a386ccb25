#include "runtime/model/decoder/decoder_step.hpp"

#include "kernels/low_rank.hpp"
#include "runtime/model/decoder/decoder_tensors.hpp"

namespace troupe {

namespace {

using kernels::dtype;
using kernels::tensor;

activation_sizes sizes_for(const model_weights& weights, int max_rows, int max_context) {
  require_in_decoder(max_rows > 0 && max_context > 0, "needs at least one row and one position");
  return activation_bytes(weights.config, weights.compute, max_rows, max_context);
}

} // namespace

decoder_step::decoder_step(std::shared_ptr<const model_weights> of, kernels::backend& with, int max_rows,
                           int max_context)
  : weights(std::move(of)),
    backend(with),
    walk(walk_through(*weights, backend)),
    bytes(sizes_for(*weights, max_rows, max_context)),
    max_rows_(max_rows),
    max_context_(max_context),
    residual_(allocate(bytes.residual)),
    normed_(allocate(bytes.normed)),
    attended_(allocate(bytes.attended)),
    ffn_(allocate(bytes.ffn)),
    branch_(allocate(bytes.branch)),
    low_rank_(dynamic_cast<kernels::low_rank_products*>(&backend)) {}

void decoder_step::begin(std::size_t rows) {
  require_in_decoder(rows <= as_size(max_rows_), "more rows than it was made for");
  rows_ = rows;
}

void decoder_step::add_to_products(added_products* added) {
  require_in_decoder(!added || (low_rank_ && !config().shared_blocks), "products that nothing can be added to");
  added_ = added;
}

std::span<const kernels::row_group> decoder_step::added_at(int i, product_site site) {
  if (added_)
    return added_->at(i, site);
  const auto* block = layer(i).block.get();
  pairs_.w = !block                 ? nullptr
    : site == product_site::qkv     ? block->qkv_pairs.get()
    : site == product_site::gate_up ? block->gate_up_pairs.get()
                                    : nullptr;
  if (!pairs_.w)
    return {};
  require_in_decoder(low_rank_ != nullptr, "products of low rank on a backend without them");
  for (auto r = all_rows_.size(); r < rows_; ++r)
    all_rows_.push_back(static_cast<std::int32_t>(r));
  pairs_.rows = std::span(all_rows_).first(rows_);
  return {&pairs_, 1};
}

tensor decoder_step::residual() const { return buffer_rows(residual_, dtype::f32, rows_, as_size(config().hidden)); }

tensor decoder_step::branch() const { return buffer_rows(branch_, dtype::f32, rows_, as_size(config().hidden)); }

tensor decoder_step::normed(std::size_t rows) const {
  return buffer_rows(normed_, weights->compute, rows, as_size(config().hidden));
}

tensor decoder_step::attended(std::size_t rows, std::size_t cols) const {
  return buffer_rows(attended_, weights->compute, rows, cols);
}

tensor decoder_step::ffn(std::size_t rows, std::size_t cols) const {
  return buffer_rows(ffn_, weights->compute, rows, cols);
}

void decoder_step::normalise(const tensor& to, const tensor& from, const norm_weights& norm, const std::int32_t* rows,
                             float eps) {
  eps = eps > 0 ? eps : config().norm_eps;
  if (!norm.weight)
    backend.gather_rows(to, from, rows);
  else if (config().norm == norm_type::layer)
    backend.layer_norm(to, from, float_data(norm.weight), float_data(norm.bias), eps, rows);
  else
    backend.rms_norm(to, from, float_data(norm.weight), eps, rows);
}

void decoder_step::multiply(int i, product_site site, const tensor& out, const tensor& in, const kernels::matrix& w,
                            const kernels::buffer& bias, kernels::store how) {
  if (const auto added = added_at(i, site); added.empty())
    backend.linear(out, in, w, float_data(bias), how);
  else
    low_rank_->linear_plus(out, in, w, float_data(bias), how, added);
}

void decoder_step::activate(int i, const tensor& out, const tensor& in) {
  const auto& own = layer(i);
  const auto* bias = float_data(own.mlp.gate_up_bias);
  if (const auto added = added_at(i, product_site::gate_up); added.empty())
    backend.linear_activated(out, in, *own.mlp.gate_up, own.act, config().gated, bias);
  else
    low_rank_->linear_activated_plus(out, in, *own.mlp.gate_up, own.act, config().gated, bias, added);
}

void decoder_step::add_branch(int i, product_site site, const tensor& in, const kernels::matrix& w,
                              const kernels::buffer& bias, const norm_weights& norm, float scale) {
  const bool of_sum = config().norms == norm_place::sum;
  if ((!norm.weight || of_sum) && config().residual_scale * scale == 1 && change == nullptr) {
    multiply(i, site, residual(), in, w, bias, kernels::store::add);
    if (of_sum)
      normalise(residual(), residual(), norm);
    return;
  }
  multiply(i, site, branch(), in, w, bias, kernels::store::set);
  add_changed(branch(), norm, scale);
}

void decoder_step::add_changed(const tensor& branch, const norm_weights& norm, float scale) {
  const auto added = change != nullptr ? change->changed(branch) : branch;
  if (norm.weight)
    normalise(added, added, norm, nullptr, config().after_eps);
  backend.add_rows(residual(), added, config().residual_scale * scale);
}

} // namespace troupe
