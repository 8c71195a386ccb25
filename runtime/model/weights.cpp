#include "runtime/model/weights.hpp"

#include "kernels/cpu/cpu_backend.hpp"
#include "runtime/checkpoint/weight_values.hpp"
#include "runtime/model/packing.hpp"
#include "runtime/model/tensor_names.hpp"

#include <algorithm>
#include <set>

namespace troupe {

namespace {

class weight_loader {
public:
  weight_loader(const checkpoint& tensors, kernels::backend& backend, precision precision, model_weights& to,
                const progress_fn& progress, packed_cache* cache)
    : tensors_(tensors),
      backend_(backend),
      storable_(backend.storable()),
      precision_(precision),
      to_(to),
      names_(to.config),
      progress_(progress),
      cache_(cache) {
    for (const auto& w : names_.all())
      total_ += require_tensor(tensors, w).bytes;
  }

  void load() {
    const auto& config = to_.config;
    const auto table = names_.embedding();
    to_.embedding_memory = tensors_.read(table.name);
    to_.embedding = backend_.load_table(stored(table, to_.embedding_memory));
    to_.bytes += to_.embedding->bytes;
    report(table);
    for (int i = 0; i < config.layers; ++i) {
      auto& layer = to_.layers.emplace_back();
      layer.input_norm = vector({names_.input_norm(i)});
      layer.post_norm = vector({names_.post_norm(i)});
      if (config.qk_norm) {
        layer.q_norm = vector({names_.q_norm(i)});
        layer.k_norm = vector({names_.k_norm(i)});
      }
      layer.qkv = matrix(qkv_group(names_, i, precision_));
      layer.qkv_bias = bias(names_.qkv(i), config.qkv_bias);
      layer.o = matrix(o_group(names_, i, precision_));
      layer.o_bias = bias(names_.o(i), config.o_bias);
      layer.gate_up = matrix(gate_up_group(names_, i, precision_));
      layer.gate_up_bias = bias(names_.gate_up(i), config.mlp_bias);
      layer.down = matrix(down_group(names_, i, precision_));
      layer.down_bias = bias(names_.down(i), config.mlp_bias);
    }
    to_.final_norm = vector({names_.final_norm()});
    to_.head = matrix(head_group(names_, precision_));
  }

private:
  kernels::stored_matrix stored(const wanted_tensor& w, const tensor_data& data) const {
    auto matrix = describe(tensors_, w);
    matrix.data = data.get();
    return matrix;
  }

  std::unique_ptr<const kernels::matrix> matrix(const packed_group& group) {
    auto result = cache_ ? restored(group) : nullptr;
    if (!result)
      result = packed(group);
    to_.bytes += result->bytes;
    std::ranges::for_each(group.stacked, [&](const wanted_tensor& w) { report(w); });
    return result;
  }

  /// From the cache; null if it does not have it.
  std::unique_ptr<const kernels::matrix> restored(const packed_group& group) {
    const auto bytes = cache_->find(group.name());
    if (!bytes)
      return nullptr;
    return storable_->restore(describe(tensors_, group), precision_.compute, group.how, group.gated, bytes);
  }

  std::unique_ptr<const kernels::matrix> packed(const packed_group& group) {
    std::vector<tensor_data> data; // freed once packed
    std::vector<kernels::stored_matrix> parts;
    for (const auto& w : group.stacked)
      parts.push_back(stored(w, data.emplace_back(tensors_.read(w.name))));
    auto result = group.gated ? backend_.pack_gate_up(parts[0], parts[1], precision_.compute, group.how)
                              : backend_.pack(parts, precision_.compute, group.how);
    if (cache_)
      cache_->add(group.name(), storable_->bytes_of(*result));
    return result;
  }

  /// One f32 vector of all `parts`, in order.
  kernels::buffer vector(const std::vector<wanted_tensor>& parts) {
    std::vector<float> values;
    for (const auto& w : parts) {
      append(values, w);
      report(w);
    }
    to_.bytes += values.size() * sizeof(float);
    return backend_.upload(values);
  }

  kernels::buffer bias(const std::vector<wanted_tensor>& matrices, bool present) {
    return present ? vector(tensor_names::biases(matrices)) : nullptr;
  }

  void append(std::vector<float>& to, const wanted_tensor& w) const {
    const auto data = tensors_.read(w.name);
    const auto row = stored(w, data);
    to.resize(to.size() + row.cols);
    to_floats(row.format, row.data, row.cols, &to[to.size() - row.cols]);
  }

  void report(const wanted_tensor& w) {
    if (!done_names_.insert(w.name).second) // a tied head was counted as the table
      return;
    done_ += tensors_.find(w.name)->bytes;
    if (progress_)
      progress_(done_, total_);
  }

  const checkpoint& tensors_;
  kernels::backend& backend_;
  const kernels::storable_matrices* storable_; // not null if cache_ is not
  troupe::precision precision_;
  model_weights& to_;
  tensor_names names_;
  const progress_fn& progress_;
  packed_cache* cache_; // or null
  std::set<std::string> done_names_;
  std::size_t done_ = 0;
  std::size_t total_ = 0;
};

} // namespace

std::shared_ptr<const model_weights> load_weights(const checkpoint& tensors, const model_config& config,
                                                  kernels::backend& backend, precision precision,
                                                  const progress_fn& progress, packed_cache* cache) {
  const auto weights = std::make_shared<model_weights>();
  weights->config = config;
  weights->compute = precision.compute;
  weight_loader(tensors, backend, precision, *weights, progress, cache).load();
  if (cache)
    cache->finish();
  return weights;
}

} // namespace troupe
