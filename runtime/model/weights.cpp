#include "runtime/model/model.hpp"

#include "kernels/cpu/cpu_backend.hpp"
#include "kernels/planned_memory.hpp"
#include "runtime/checkpoint/weight_values.hpp"
#include "runtime/model/unused_tensors.hpp"
#include "runtime/support/error.hpp"

#include <algorithm>
#include <map>
#include <set>

namespace troupe {

namespace {

using kernels::dtype;
using kernels::quantization;

/// A tensor that a configuration asks for.
struct wanted {
  std::string name;
  std::vector<std::size_t> shape;
};

/// Names and shapes of one layer's tensors, or of the rest, as Hugging Face's checkpoints have them.
class tensor_names {
public:
  explicit tensor_names(const model_config& config)
    : hidden_(size(config.hidden)),
      ffn_(size(config.ffn)),
      q_(size(config.heads) * size(config.head_dim)),
      kv_(size(config.kv_heads) * size(config.head_dim)),
      config_(config) {}

  wanted embedding() const { return {"model.embed_tokens.weight", {size(config_.vocab), hidden_}}; }
  wanted final_norm() const { return {"model.norm.weight", {hidden_}}; }
  wanted head() const { return config_.tied ? embedding() : wanted{"lm_head.weight", {size(config_.vocab), hidden_}}; }

  wanted norm(int layer, const char* name) const { return {prefix(layer) + name + ".weight", {hidden_}}; }
  wanted head_norm(int layer, const char* name) const {
    return {prefix(layer) + "self_attn." + name + ".weight", {size(config_.head_dim)}};
  }

  /// Matrices that one op multiplies with. Their biases, where there are any, are as long as their first dimension.
  std::vector<wanted> qkv(int layer) const {
    const auto p = prefix(layer) + "self_attn.";
    return {{p + "q_proj.weight", {q_, hidden_}},
            {p + "k_proj.weight", {kv_, hidden_}},
            {p + "v_proj.weight", {kv_, hidden_}}};
  }
  std::vector<wanted> o(int layer) const { return {{prefix(layer) + "self_attn.o_proj.weight", {hidden_, q_}}}; }
  std::vector<wanted> gate_up(int layer) const {
    const auto p = prefix(layer) + "mlp.";
    return {{p + "gate_proj.weight", {ffn_, hidden_}}, {p + "up_proj.weight", {ffn_, hidden_}}};
  }
  std::vector<wanted> down(int layer) const { return {{prefix(layer) + "mlp.down_proj.weight", {hidden_, ffn_}}}; }

  static std::vector<wanted> biases(const std::vector<wanted>& matrices) {
    std::vector<wanted> result;
    for (const auto& m : matrices)
      result.push_back({m.name.substr(0, m.name.rfind('.')) + ".bias", {m.shape[0]}});
    return result;
  }

  /// Everything, once.
  std::vector<wanted> all() const {
    std::vector<wanted> result{embedding(), final_norm()};
    if (!config_.tied)
      result.push_back(head());
    auto add = [&](const std::vector<wanted>& matrices, bool bias) {
      result.insert(result.end(), matrices.begin(), matrices.end());
      if (bias)
        std::ranges::copy(biases(matrices), std::back_inserter(result));
    };
    for (int layer = 0; layer < config_.layers; ++layer) {
      result.push_back(norm(layer, "input_layernorm"));
      result.push_back(norm(layer, "post_attention_layernorm"));
      if (config_.qk_norm)
        for (const char* name : {"q_norm", "k_norm"})
          result.push_back(head_norm(layer, name));
      add(qkv(layer), config_.qkv_bias);
      add(o(layer), config_.o_bias);
      add(gate_up(layer), config_.mlp_bias);
      add(down(layer), config_.mlp_bias);
    }
    return result;
  }

private:
  static std::size_t size(int n) { return static_cast<std::size_t>(n); }
  static std::string prefix(int layer) { return "model.layers." + std::to_string(layer) + "."; }

  std::size_t hidden_, ffn_, q_, kv_;
  const model_config& config_;
};

const tensor_info& checked(const checkpoint& tensors, const wanted& w) {
  const auto* info = tensors.find(w.name);
  const auto where = tensors.where(w.name) + ": tensor " + shown(w.name);
  if (!info)
    throw failure(errc::bad_file, where + " is missing, expected with the shape " + to_string(w.shape));
  if (info->shape != w.shape)
    throw failure(errc::bad_file,
                  where + " has the shape " + to_string(info->shape) + ", expected " + to_string(w.shape));
  if (!weight_format_of(info->type))
    throw failure(errc::unsupported,
                  where + " is stored as " + std::string(to_string(info->type)) + ", supported are F32, F16 and BF16");
  return *info;
}

/// As a matrix, without its data; a vector is one row.
kernels::stored_matrix described(const checkpoint& tensors, const wanted& w) {
  const bool vector = w.shape.size() == 1;
  return {nullptr, *weight_format_of(checked(tensors, w).type), vector ? 1 : w.shape[0], w.shape.back()};
}

quantization quantization_of_head(quantization weights) {
  return weights == quantization::none ? weights : quantization::int8;
}

/// Matrices that are packed as one, and go by the name of the first.
struct packed_group {
  std::vector<wanted> stacked;
  quantization how = quantization::none;
  bool gated = false; // gate and up
};

/// All of a model.
std::vector<packed_group> packed_groups(const tensor_names& names, const model_config& config, precision numbers) {
  std::vector<packed_group> groups;
  for (int i = 0; i < config.layers; ++i) {
    groups.push_back({names.qkv(i), numbers.weights});
    groups.push_back({names.o(i), numbers.weights});
    groups.push_back({names.gate_up(i), numbers.weights, true});
    groups.push_back({names.down(i), numbers.weights});
  }
  groups.push_back({{names.head()}, quantization_of_head(numbers.weights)});
  return groups;
}

std::size_t packed_bytes(const checkpoint& tensors, const packed_group& group, precision numbers,
                         const kernels::backend& backend) {
  std::vector<kernels::stored_matrix> parts;
  for (const auto& w : group.stacked)
    parts.push_back(described(tensors, w));
  return backend.packed_bytes(parts, numbers.compute, group.how, group.gated);
}

kernels::planned_steps largest_steps(const checkpoint& tensors, const model_config& config, precision numbers,
                                     int max_rows, int max_context, int logit_rows) {
  const auto size = [](int n) { return static_cast<std::size_t>(n); };
  kernels::planned_steps steps;
  steps.compute = numbers.compute;
  steps.rows = size(max_rows);
  steps.logit_rows = steps.sequences = std::min(size(logit_rows), steps.rows);
  steps.context = size(max_context);
  steps.heads = config.heads;
  steps.cache = kv_shape_of(config, numbers, 0);
  const std::set<int> windows(config.windows.begin(), config.windows.end());
  steps.windows.assign(windows.begin(), windows.end());
  for (const auto& group : packed_groups(tensor_names(config), config, numbers)) {
    auto& m = steps.matrices.emplace_back();
    for (const auto& w : group.stacked)
      m.stacked.push_back(described(tensors, w));
    m.how = group.how;
    m.gated = group.gated;
    m.rows = steps.rows;
  }
  steps.matrices.back().rows = steps.logit_rows; // the head
  return steps;
}

class loader {
public:
  loader(const checkpoint& tensors, kernels::backend& backend, precision numbers, model_weights& to,
         const progress_fn& progress, packed_cache* cache)
    : tensors_(tensors),
      backend_(backend),
      storable_(dynamic_cast<const kernels::storable_matrices*>(&backend)),
      numbers_(numbers),
      to_(to),
      names_(to.config),
      progress_(progress),
      cache_(cache) {
    for (const auto& w : names_.all())
      total_ += checked(tensors, w).bytes;
  }

  void load() {
    const auto& config = to_.config;
    const auto table = names_.embedding();
    to_.embedding_memory = tensors_.read(table.name);
    to_.embedding = backend_.load_table(stored(table, to_.embedding_memory));
    to_.bytes += to_.embedding->bytes;
    step(table);
    for (int i = 0; i < config.layers; ++i) {
      auto& layer = to_.layers.emplace_back();
      layer.input_norm = vector({names_.norm(i, "input_layernorm")});
      layer.post_norm = vector({names_.norm(i, "post_attention_layernorm")});
      if (config.qk_norm) {
        layer.q_norm = vector({names_.head_norm(i, "q_norm")});
        layer.k_norm = vector({names_.head_norm(i, "k_norm")});
      }
      layer.qkv = matrix({names_.qkv(i), numbers_.weights});
      layer.qkv_bias = bias(names_.qkv(i), config.qkv_bias);
      layer.o = matrix({names_.o(i), numbers_.weights});
      layer.o_bias = bias(names_.o(i), config.o_bias);
      layer.gate_up = matrix({names_.gate_up(i), numbers_.weights, true});
      layer.gate_up_bias = bias(names_.gate_up(i), config.mlp_bias);
      layer.down = matrix({names_.down(i), numbers_.weights});
      layer.down_bias = bias(names_.down(i), config.mlp_bias);
    }
    to_.final_norm = vector({names_.final_norm()});
    to_.head = matrix({{names_.head()}, quantization_of_head(numbers_.weights)});
  }

private:
  kernels::stored_matrix stored(const wanted& w, const tensor_data& data) const {
    auto matrix = described(tensors_, w);
    matrix.data = data.get();
    return matrix;
  }

  std::unique_ptr<const kernels::matrix> matrix(const packed_group& group) {
    auto result = cache_ ? kept(group) : nullptr;
    if (!result)
      result = packed(group);
    to_.bytes += result->bytes;
    std::ranges::for_each(group.stacked, [&](const wanted& w) { step(w); });
    return result;
  }

  /// Null where the cache does not have it.
  std::unique_ptr<const kernels::matrix> kept(const packed_group& group) {
    const auto bytes = cache_->find(group.stacked.front().name);
    if (!bytes)
      return nullptr;
    std::vector<kernels::stored_matrix> parts;
    for (const auto& w : group.stacked)
      parts.push_back(described(tensors_, w));
    return storable_->restore(parts, numbers_.compute, group.how, group.gated, bytes);
  }

  std::unique_ptr<const kernels::matrix> packed(const packed_group& group) {
    std::vector<tensor_data> data; // owns what is packed, and gives it back at the end
    std::vector<kernels::stored_matrix> parts;
    for (const auto& w : group.stacked)
      parts.push_back(stored(w, data.emplace_back(tensors_.read(w.name))));
    auto result = group.gated ? backend_.pack_gate_up(parts[0], parts[1], numbers_.compute, group.how)
                              : backend_.pack(parts, numbers_.compute, group.how);
    if (cache_)
      cache_->add(group.stacked.front().name, storable_->bytes_of(*result));
    return result;
  }

  /// One f32 vector of all `parts`, in order.
  kernels::buffer vector(const std::vector<wanted>& parts) {
    std::vector<float> values;
    for (const auto& w : parts) {
      append(values, w);
      step(w);
    }
    to_.bytes += values.size() * sizeof(float);
    return backend_.upload(values);
  }

  kernels::buffer bias(const std::vector<wanted>& matrices, bool there) {
    return there ? vector(tensor_names::biases(matrices)) : nullptr;
  }

  void append(std::vector<float>& to, const wanted& w) const {
    const auto data = tensors_.read(w.name);
    const auto row = stored(w, data);
    to.resize(to.size() + row.cols);
    to_floats(row.format, row.data, row.cols, &to[to.size() - row.cols]);
  }

  void step(const wanted& w) {
    if (!done_names_.insert(w.name).second) // a tied head, counted as the table
      return;
    done_ += tensors_.find(w.name)->bytes;
    if (progress_)
      progress_(done_, total_);
  }

  const checkpoint& tensors_;
  kernels::backend& backend_;
  const kernels::storable_matrices* storable_; // there where cache_ is
  precision numbers_;
  model_weights& to_;
  tensor_names names_;
  const progress_fn& progress_;
  packed_cache* cache_; // or null
  std::set<std::string> done_names_;
  std::size_t done_ = 0;
  std::size_t total_ = 0;
};

} // namespace

dtype natural_compute(const checkpoint& tensors, quantization weights) {
  const auto* table = tensors.find("model.embed_tokens.weight");
  const auto in_blocks = [&](const std::string& name) { return has_blocks(tensors.find(name)->type); };
  const bool coarse = weights != quantization::none || (table && table->type == tensor_type::bf16) ||
    std::ranges::any_of(tensors.tensors(), in_blocks);
  return coarse ? dtype::bf16 : dtype::f32;
}

std::string weights_kind(const checkpoint& tensors, quantization weights) {
  std::map<tensor_type, std::size_t> bytes;
  for (const auto& name : tensors.tensors())
    if (const auto* info = tensors.find(name); info->shape.size() > 1)
      bytes[info->type] += info->bytes;
  const auto most = std::ranges::max_element(bytes, {}, [](const auto& entry) { return entry.second; });
  if (most == bytes.end())
    return "none";
  if (has_blocks(most->first) || weights == quantization::none)
    return std::string(to_string(most->first));
  return to_string(weights);
}

kernels::kv_shape kv_shape_of(const model_config& config, precision numbers, std::size_t blocks) {
  return {config.layers, config.kv_heads, config.head_dim, numbers.kv, blocks};
}

memory_need memory_needed(const checkpoint& tensors, const model_config& config, precision numbers,
                          const kernels::backend& backend, int max_rows, int max_context, int logit_rows) {
  const auto* own_memory = dynamic_cast<const kernels::planned_memory*>(&backend);
  const tensor_names names(config);
  const auto compute = numbers.compute;
  memory_need need;
  for (const auto& w : names.all())
    if (checked(tensors, w).shape.size() == 1)
      need.weights += w.shape[0] * sizeof(float);
  for (const auto& group : packed_groups(names, config, numbers))
    need.weights += packed_bytes(tensors, group, numbers, backend);
  need.weights += own_memory ? own_memory->table_bytes(described(tensors, names.embedding()))
                             : checked(tensors, names.embedding()).bytes;
  const auto size = [](int n) { return static_cast<std::size_t>(n); };
  const std::size_t q = size(config.heads) * size(config.head_dim), kv = size(config.kv_heads) * size(config.head_dim);
  const std::size_t row = size(config.hidden) * (sizeof(float) + size_of(compute)) + (q + 2 * kv) * sizeof(float) +
    (q + size(config.ffn)) * size_of(compute);
  need.activations = size(max_rows) * row + size(max_context) * size(config.head_dim) * sizeof(float);
  need.kv_block = kv_shape_of(config, numbers, 1).block_bytes();
  if (own_memory)
    need.activations += own_memory->scratch_bytes(
      largest_steps(tensors, config, numbers, max_rows, max_context, logit_rows));
  return need;
}

packed_contents packed_contents_of(const checkpoint& tensors, const model_config& config, precision numbers,
                                   const kernels::backend& backend) {
  const auto& storable = dynamic_cast<const kernels::storable_matrices&>(backend);
  packed_contents contents;
  contents.numbers = std::string(kernels::to_string(numbers.compute)) + " " + to_string(numbers.weights);
  contents.target = kernels::to_string(storable.instruction_set());
  contents.layout = storable.layout_version();
  for (const auto& group : packed_groups(tensor_names(config), config, numbers))
    contents.matrices.push_back({group.stacked.front().name, packed_bytes(tensors, group, numbers, backend)});
  return contents;
}

std::string what_quantisation_leaves(const checkpoint& tensors, const model_config& config, precision numbers) {
  if (numbers.weights == quantization::none)
    return {};
  std::size_t all = 0, floats = 0;
  for (const auto& group : packed_groups(tensor_names(config), config, numbers))
    for (const auto& w : group.stacked) {
      const auto type = checked(tensors, w).type;
      ++all;
      floats += !has_blocks(type) || type == tensor_type::fp8;
    }
  const auto option = std::string("`quantize` ") + to_string(numbers.weights);
  return floats == all ? std::string()
    : floats == 0      ? option + " changes nothing: all matrices are in blocks already"
                       : option + " is for " + std::to_string(floats) + " of " + std::to_string(all) +
      " matrices: the others are in blocks already";
}

std::set<std::string> tensors_used(const model_config& config) {
  std::set<std::string> used;
  for (const auto& w : tensor_names(config).all())
    used.insert(w.name);
  return used;
}

std::vector<std::string> check_tensors(const checkpoint& tensors, const model_config& config) {
  for (const auto& w : tensor_names(config).all())
    checked(tensors, w);
  return check_unused_tensors(tensors, config, tensors_used(config));
}

std::shared_ptr<const model_weights> load_weights(const checkpoint& tensors, const model_config& config,
                                                  kernels::backend& backend, precision numbers,
                                                  const progress_fn& progress, packed_cache* cache) {
  const auto weights = std::make_shared<model_weights>();
  weights->config = config;
  weights->compute = numbers.compute;
  loader(tensors, backend, numbers, *weights, progress, cache).load();
  if (cache)
    cache->finish();
  return weights;
}

} // namespace troupe
