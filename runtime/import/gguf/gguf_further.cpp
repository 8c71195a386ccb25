#include "runtime/import/gguf/gguf_further.hpp"

#include "runtime/checkpoint/rewritten_checkpoint.hpp"
#include "runtime/import/gguf/gguf_experts.hpp"
#include "runtime/model/config_limits.hpp"
#include "runtime/support/types.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

namespace troupe {

namespace {

using namespace config_limits;

/// Rows of a table that must be there.
std::size_t rows_of(const architecture_keys& keys, const char* name) {
  const auto* table = keys.tensor(name);
  if (!table || table->info.shape.size() != 2)
    throw failure(errc::bad_file, keys.file().name() + ": tensor `" + name + "` is missing or not a matrix");
  return table->info.shape[0];
}

void describe_encoder(const architecture_keys& keys, model_config& model) {
  model.encoder = model.embedding_norm = model.tied = true;
  if (keys.tensor("token_types.weight"))
    model.token_types = static_cast<int>(std::min<std::size_t>(rows_of(keys, "token_types.weight"), 1 << 10));
}

void describe_sums(const architecture_keys& keys, model_config& model) {
  describe_encoder(keys, model);
  model.norms = norm_place::sum;
  model.norm_bias = true;
  model.final_norm = false;
  model.mlp_bias = keys.tensor("blk.0.ffn_up.bias") != nullptr;
}

/// Which layers have a window, by a list or a period: all but the first of as many, or the last.
void slide(const architecture_keys& keys, model_config& model, int window, int period, bool last = false) {
  constexpr std::string_view key = "attention.sliding_window_pattern";
  const auto listed = keys.booleans(key);
  if (listed && listed->size() != as_size(model.layers))
    throw failure(errc::bad_file,
                  keys.label(key) + " has " + std::to_string(listed->size()) + " elements, expected one for each of " +
                    std::to_string(model.layers) + " layers");
  if (!listed)
    period = keys.integer(key, 1, max_layers).value_or(period);
  for (int i = 0; i < model.layers; ++i)
    model.windows[as_size(i)] = (listed ? (*listed)[as_size(i)] : (i + (last ? 1 : 0)) % period != 0) ? window : 0;
}

/// The last layers read K and V of the last earlier one of their kind.
void share_keys(const architecture_keys& keys, model_config& model, int usual) {
  const int layers = model.layers, shared = keys.integer("attention.shared_kv_layers", 0, layers).value_or(usual),
            first = layers - shared;
  for (int i = 0; shared > 0 && i < layers; ++i) {
    int from = std::min(i, first - 1);
    while (i >= first && from >= 0 && model.slides(from) != model.slides(i))
      --from;
    if (from < 0)
      throw failure(errc::bad_file,
                    keys.label("attention.shared_kv_layers") + " leaves no layer whose K and V layer " +
                      std::to_string(i) + " could read");
    model.kv_layers.push_back(i < first ? i : from);
  }
}

/// Of MLPs, by their tensors.
void read_widths(const architecture_keys& keys, model_config& model) {
  for (int i = 0; i < model.layers; ++i) {
    const auto* up = keys.tensor("blk." + std::to_string(i) + ".ffn_up.weight");
    model.ffns.push_back(up && up->info.shape.size() == 2
                           ? static_cast<int>(std::min<std::size_t>(up->info.shape[0], max_ffn))
                           : model.ffn);
  }
  model.ffn = std::ranges::max(model.ffns);
  if (std::ranges::min(model.ffns) == model.ffn)
    model.ffns.clear();
}

rope_config rope_of_windows(const architecture_keys& keys, double fallback) {
  rope_config rope;
  rope.theta = keys.number("rope.freq_base_swa", 1.000001, 1e30).value_or(fallback);
  return rope;
}

} // namespace

/// Also RoBERTa's and XLM-RoBERTa's, whose positions are stored from the first on.
void describe_bert(const architecture_keys& keys, model_config& model) {
  describe_sums(keys, model);
  model.gated = false;
  model.act = {kernels::activation_type::gelu};
  model.positions = position_type::learned;
  model.position_rows = rows_of(keys, "position_embd.weight");
  model.max_context = static_cast<int>(std::min<std::size_t>(as_size(model.max_context), model.position_rows));
}

/// Jina's third embeddings: a RoBERTa that rotates.
void describe_jina_bert(const architecture_keys& keys, model_config& model) {
  describe_sums(keys, model);
  model.gated = false;
  model.act = {kernels::activation_type::gelu};
}

void describe_nomic_bert(const architecture_keys& keys, model_config& model) {
  describe_sums(keys, model);
  if (keys.integer("expert_count", 0, max_experts).value_or(0) > 0)
    throw failure(errc::unsupported, keys.label("expert_count") + ": encoders with experts are not supported");
}

/// Files count the positions of both sides in a window.
void describe_modern_bert(const architecture_keys& keys, model_config& model) {
  describe_encoder(keys, model);
  model.skips_first_norm = true;
  model.act = {kernels::activation_type::gelu};
  slide(keys, model, model.windows.front() / 2 + 1, 3);
  model.local_rope = rope_of_windows(keys, 10000);
}

/// What keys do not say is as in the models that Google published.
void describe_gemma3n(const architecture_keys& keys, model_config& model) {
  constexpr float usual_cutoff = 1.6448534f; // above which are 5 % of normally distributed gates
  constexpr std::size_t usual_cut = 10;      // layers
  model.act = {kernels::activation_type::gelu_tanh};
  model.embedding_scale = std::sqrt(static_cast<float>(model.hidden));
  model.norms = norm_place::both;
  model.attention_scale = 1;
  model.qk_norm = model.value_norm = true;
  slide(keys, model, model.windows.front(), 5, true);
  model.local_rope = rope_of_windows(keys, 10000);
  if (!keys.number("rope.freq_base", 1.000001, 1e30))
    model.rope.theta = 1000000;
  model.logit_cap = static_cast<float>(keys.number("final_logit_softcapping", 1e-3, 1e9).value_or(30));
  model.layer_inputs = keys.integer("embedding_length_per_layer_input", 1, max_hidden).value_or(256);
  if (std::int64_t{model.layer_inputs} * model.layers > max_ffn)
    throw failure(errc::unsupported,
                  keys.label("embedding_length_per_layer_input") + " is " + std::to_string(model.layer_inputs) +
                    " for each of " + std::to_string(model.layers) + " layers, supported are " +
                    std::to_string(max_ffn) + " in all");
  const auto rows = rows_of(keys, "per_layer_token_embd.weight");
  if (rows < as_size(model.vocab))
    model.layer_input_rows = static_cast<int>(rows);
  share_keys(keys, model, std::max(0, model.layers - 20));
  read_widths(keys, model);
  constexpr std::string_view cutoffs = "activation_sparsity_scale";
  const auto* listed = keys.file().metadata().find(keys.full(cutoffs));
  if (listed && listed->type == gguf_type::array) {
    model.gate_cutoffs = *keys.file().metadata().floats(keys.full(cutoffs));
    if (model.gate_cutoffs.size() != as_size(model.layers) ||
        std::ranges::any_of(model.gate_cutoffs, [](float c) { return std::isnan(c) || c > 100; }))
      throw failure(errc::bad_file,
                    keys.label(cutoffs) + " must hold a number for each of " + std::to_string(model.layers) +
                      " layers");
  } else if (model.layers > static_cast<int>(usual_cut)) {
    model.gate_cutoffs.assign(as_size(model.layers), -std::numeric_limits<float>::infinity());
    std::fill_n(model.gate_cutoffs.begin(), usual_cut, usual_cutoff);
  }
  if (std::ranges::none_of(model.gate_cutoffs, [](float c) { return std::isfinite(c); }))
    model.gate_cutoffs.clear();
  auto& altup = model.altup;
  altup.streams = keys.integer("altup.num_inputs", 2, 16).value_or(4);
  altup.active = keys.integer("altup.active_idx", 0, altup.streams - 1).value_or(0);
  altup.laurel = static_cast<int>(std::min<std::size_t>(rows_of(keys, "blk.0.laurel_l.weight"), 1 << 14));
}

/// Keys give the heads of full layers, and under other names those of layers with a window.
void describe_gemma4(const architecture_keys& keys, model_config& model) {
  model.act = {kernels::activation_type::gelu_tanh};
  model.embedding_scale = std::sqrt(static_cast<float>(model.hidden));
  model.norms = norm_place::both;
  model.attention_scale = 1;
  model.qk_norm = model.value_norm = model.layer_scales = true;
  slide(keys, model, model.windows.front(), 6);
  const int layers = model.layers;
  model.local_head_dim = keys.integer("attention.key_length_swa", 2, max_head_dim).value_or(model.head_dim);
  if (model.local_head_dim % 2 != 0 || model.local_head_dim > model.head_dim)
    throw failure(errc::unsupported,
                  keys.label("attention.key_length_swa") + " is " + std::to_string(model.local_head_dim) +
                    ", supported are even numbers up to the " + std::to_string(model.head_dim) + " of other layers");
  model.local_kv_heads = model.full_kv_heads = model.kv_heads;
  const auto* listed = keys.file().metadata().find(keys.full("attention.head_count_kv"));
  if (listed && listed->type == gguf_type::array) {
    const auto heads = *keys.file().metadata().integers(keys.full("attention.head_count_kv"));
    if (heads.size() != as_size(layers))
      throw failure(errc::bad_file,
                    keys.label("attention.head_count_kv") + " must hold a number for each of " +
                      std::to_string(layers) + " layers");
    for (int i = 0; i < layers; ++i)
      (model.slides(i) ? model.local_kv_heads : model.full_kv_heads) = heads[as_size(i)];
    for (int i = 0; i < layers; ++i)
      if (const int own = model.kv_heads_of(i); own != heads[as_size(i)] || own < 1 || model.heads % own != 0)
        throw failure(errc::unsupported,
                      keys.label("attention.head_count_kv") +
                        " must be the same for all layers of a kind, and divide " + std::to_string(model.heads));
  }
  model.local_rope = rope_of_windows(keys, 10000);
  if (!keys.number("rope.freq_base", 1.000001, 1e30))
    model.rope.theta = 1000000;
  if (const auto cap = keys.number("final_logit_softcapping", 0, 1e9); cap && *cap > 0)
    model.logit_cap = static_cast<float>(*cap);
  model.layer_inputs = keys.integer("embedding_length_per_layer_input", 0, max_hidden).value_or(0);
  share_keys(keys, model, 0);
  read_widths(keys, model);
  if (keys.integer("expert_count", 0, max_experts).value_or(0) == 0)
    return;
  auto& experts = model.experts;
  experts.count = keys.size("expert_count", max_experts);
  experts.chosen = std::min(keys.size("expert_used_count", max_experts), experts.count);
  experts.ffn = keys.size("expert_feed_forward_length", max_ffn);
  experts.shared_ffn = model.ffn;
  experts.renormalise = experts.apart = true;
  model.sparse.assign(as_size(layers), true);
  if (!model.ffns.empty() || std::int64_t{experts.count} * layers > max_layer_experts)
    throw failure(errc::unsupported,
                  keys.label("expert_count") +
                    ": so many experts, or MLPs of two widths beside "
                    "them, are not supported");
}

void describe_apertus(const architecture_keys&, model_config& model) {
  model.gated = false;
  model.qk_norm = true;
  model.mlp_bias = false;
  model.act = {kernels::activation_type::xielu, 0.8f, -1e-6f, 0.5f, 0.8f};
}

/// Where some layers have a window, every fourth, from the first on, has none and does not rotate.
void describe_smallthinker(const architecture_keys& keys, model_config& model) {
  const int window = model.windows.front();
  slide(keys, model, window, 4);
  for (int i = 0; window > 0 && i < model.layers; ++i)
    model.unrotated.push_back(i % 4 == 0);
  model.act = {kernels::activation_type::relu};
  auto& experts = model.experts;
  experts.scores = router_scores::sigmoid;
  describe_routed_experts(keys, model, true);
  experts.early = true;
  experts.renormalise = experts.scores == router_scores::sigmoid;
  if (!experts.renormalise)
    experts.scores = router_scores::chosen;
}

// -- tensors ----------------------------------------------------------------------------------------------------------

namespace {

/// A number for each layer, as a tensor.
class number_tensor {
public:
  number_tensor(float value, std::string where)
    : info_{tensor_type::f32, {1}, sizeof(float)},
      value_(std::make_shared<const float>(value)),
      where_(std::move(where)) {}

  const tensor_info& info() const { return info_; }
  tensor_data unpack() const { return value_; }
  const std::string& where() const { return where_; }

private:
  tensor_info info_;
  std::shared_ptr<const float> value_;
  std::string where_;
};

class checkpoint_with_numbers final : public rewritten_checkpoint<number_tensor> {
public:
  explicit checkpoint_with_numbers(std::unique_ptr<const checkpoint> stored)
    : rewritten_checkpoint(std::move(stored)) {}

  void add(const std::string& name, float value, std::string where) {
    matrices_.try_emplace(name, value, std::move(where));
  }

  std::vector<std::string> tensors() const override {
    auto names = stored_->tensors();
    append_names(names, matrices_);
    return names;
  }

  std::string where(std::string_view tensor) const override {
    const auto found = matrices_.find(tensor);
    return found == matrices_.end() ? stored_->where(tensor) : found->second.where();
  }
};

} // namespace

// ModernBERT's heads read the mean of all states unless a key says otherwise, the others' the first.
head_loader gguf_classifier(const gguf_file& file, const model_config& model) {
  if (!model.encoder || !file.tensors().contains("cls.output.weight"))
    return {};
  const bool dense = file.tensors().contains("cls.weight"), normed = file.tensors().contains("cls.norm.weight"),
             modern = model.family == "modernbert",
             scaled = file.metadata().string("troupe.head.scale").value_or("sigmoid") == "sigmoid";
  const architecture_keys keys(file, modern ? "modern-bert" : "bert");
  const auto how = modern && keys.integer("classifier.pooling_type", 0, 16).value_or(1) == 1 ? pooling::mean
                                                                                             : pooling::cls;
  return [=, hidden = as_size(model.hidden), eps = model.norm_eps](const checkpoint& tensors) {
    std::vector<pooled_layer> layers;
    if (dense) {
      layers.push_back(read_pooled_layer(tensors, "cls", hidden, hidden));
      layers.back().act = modern ? pooled_layer::activation::gelu : pooled_layer::activation::tanh;
      if (normed)
        read_pooled_norm(tensors, "cls.norm", eps, layers.back());
    }
    layers.push_back(read_pooled_layer(tensors, "cls.output", 0, hidden));
    return std::make_shared<const pooled_head>(how, std::move(layers),
                                               scaled ? score_scale::sigmoid : score_scale::none);
  };
}

std::unique_ptr<const checkpoint> with_activations(std::unique_ptr<const checkpoint> stored, const gguf_file& file,
                                                   const model_config& model) {
  if (model.act.type != kernels::activation_type::xielu)
    return stored;
  auto numbers = std::make_unique<checkpoint_with_numbers>(std::move(stored));
  for (const char* name : {"alpha_p", "alpha_n", "beta", "eps"}) {
    const auto key = std::string("xielu.") + name;
    const auto* found = file.metadata().find(key);
    const bool listed = found && found->type == gguf_type::array;
    const auto values = listed ? file.metadata().floats(key) : std::nullopt;
    const auto all = listed ? std::nullopt : file.metadata().number(key, -1e9, 1e9);
    if (listed && values->size() != as_size(model.layers))
      throw failure(errc::bad_file,
                    file.metadata().label(key) + " must hold a number for each of " + std::to_string(model.layers) +
                      " layers");
    if (!listed && !all)
      continue; // missed as a tensor, or not needed
    for (int i = 0; i < model.layers; ++i)
      numbers->add("model.layers." + std::to_string(i) + ".mlp.act_fn." + name,
                   listed ? (*values)[as_size(i)] : static_cast<float>(*all), file.name());
  }
  return numbers;
}

} // namespace troupe
