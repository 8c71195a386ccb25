#include "runtime/model/decoder/weight_reader.hpp"

#include "kernels/cpu/cpu_backend.hpp"
#include "runtime/checkpoint/packed/packed_cache.hpp"
#include "runtime/checkpoint/weight_values.hpp"
#include "runtime/support/error.hpp"
#include "runtime/support/types.hpp"

#include <algorithm>

namespace troupe {

weight_reader::weight_reader(const checkpoint& tensors, kernels::backend& backend, precision precision,
                             const model_config& config, const progress_fn& progress, packed_cache* cache)
  : tensors_(tensors),
    backend_(backend),
    storable_(backend.storable()),
    compute_(precision.compute),
    config_(config),
    groups_(packed_groups(config, precision)),
    progress_(progress),
    cache_(cache) {
  for (const auto& w : tensor_names(config).all())
    total_ += require_tensor(tensors, w).bytes;
}

std::unique_ptr<const kernels::matrix> weight_reader::table(const wanted_tensor& w, tensor_data& memory) {
  memory = tensors_.read(w.name);
  auto result = backend_.load_table(stored(w, memory));
  bytes_ += result->bytes;
  report(w);
  return result;
}

std::unique_ptr<const kernels::matrix> weight_reader::matrix(const packed_group& group) {
  auto result = cache_ ? restored(group) : nullptr;
  if (!result)
    result = packed(group);
  bytes_ += result->bytes;
  std::ranges::for_each(group.stacked, [&](const wanted_tensor& w) { report(w); });
  return result;
}

/// From the cache; null if it does not have it.
std::unique_ptr<const kernels::matrix> weight_reader::restored(const packed_group& group) const {
  const auto in_file = cache_->find(group.name());
  if (!in_file)
    return nullptr;
  return storable_->restore(describe(tensors_, group), compute_, group.how, group.gated, in_file);
}

std::unique_ptr<const kernels::matrix> weight_reader::packed(const packed_group& group) {
  std::vector<tensor_data> data; // freed once packed
  std::vector<kernels::stored_matrix> parts;
  for (const auto& w : group.stacked)
    parts.push_back(stored(w, data.emplace_back(tensors_.read(w.name))));
  read_ahead(group);
  std::unique_ptr<const kernels::matrix> result = group.gated
    ? backend_.pack_gate_up(parts[0], parts[1], compute_, group.how)
    : backend_.pack(parts, compute_, group.how);
  if (!cache_)
    return result;
  if (const auto in_file = cache_->add(group.name(), storable_->bytes_of(*result)))
    return storable_->restore(describe(tensors_, group), compute_, group.how, group.gated, in_file);
  return result;
}

/// Has the disk work while a group is packed: on the next one.
void weight_reader::read_ahead(const packed_group& group) {
  const auto this_one = std::ranges::find(groups_.begin() + static_cast<std::ptrdiff_t>(next_), groups_.end(),
                                          group.name(), &packed_group::name);
  if (this_one == groups_.end())
    return;
  next_ = static_cast<std::size_t>(this_one - groups_.begin()) + 1;
  if (next_ < groups_.size())
    for (const auto& w : groups_[next_].stacked)
      tensors_.prefetch(w.name);
}

kernels::stored_matrix weight_reader::stored(const wanted_tensor& w, const tensor_data& data) const {
  auto result = describe(tensors_, w);
  result.data = data.get();
  return result;
}

kernels::buffer weight_reader::vector(const std::vector<wanted_tensor>& parts) {
  std::vector<float> values;
  for (const auto& w : parts) {
    append(values, w);
    report(w);
  }
  return upload(values);
}

kernels::buffer weight_reader::bias(const std::vector<wanted_tensor>& matrices, bool present) {
  return present ? vector(tensor_names::biases(matrices)) : nullptr;
}

norm_weights weight_reader::norm(const wanted_tensor& weight, bool plain) {
  if (plain || config_.plain_norm) {
    if (!ones_)
      ones_ = backend_.upload(std::vector<float>(as_size(config_.hidden), 1));
    return {ones_, nullptr};
  }
  return {vector({weight}), bias({weight}, config_.norm_bias)};
}

kernels::buffer weight_reader::upload(const std::vector<float>& values) {
  bytes_ += values.size() * sizeof(float);
  return backend_.upload(values);
}

void weight_reader::append(std::vector<float>& to, const wanted_tensor& w) const {
  const auto data = tensors_.read(w.name);
  const auto count = w.shape[0];
  to.resize(to.size() + count);
  to_floats(*weight_format_of(tensors_.find(w.name)->type), data.get(), count, &to[to.size() - count]);
}

void weight_reader::append_matrix(std::vector<float>& to, const wanted_tensor& w) {
  if (has_blocks(tensors_.find(w.name)->type))
    throw failure(errc::unsupported,
                  tensors_.where(w.name) + ": tensor " + shown(w.name) + " is quantised, which it must not be");
  append(to, {w.name, {w.shape[0] * w.shape[1]}});
  report(w);
}

float weight_reader::host_number(const wanted_tensor& w) {
  std::vector<float> value;
  append(value, w);
  report(w);
  return value.front();
}

void weight_reader::report(const wanted_tensor& w) {
  if (!done_names_.insert(w.name).second) // a tied head was counted as the table
    return;
  done_ += tensors_.find(w.name)->bytes;
  if (progress_)
    progress_(done_, total_);
}

} // namespace troupe
