#include "runtime/import/gguf/gguf_architectures.hpp"
#include "runtime/import/gguf/gguf_own.hpp"
#include "runtime/import/gguf_model.hpp"
#include "runtime/model/config_limits.hpp"
#include "runtime/model/families/family.hpp"
#include "runtime/model/families/gguf_reading.hpp"
#include "runtime/model/families/lineages.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace troupe {

namespace {

using namespace config_limits;

/// Divisors of the frequencies, per pair of dimensions: GGUF's form of Llama 3's scaling.
std::vector<float> read_divisors(const gguf_file& file, std::string_view name, int dims) {
  const auto found = file.tensors().find(name);
  if (found == file.tensors().end())
    return {};
  const auto where = file.name() + ": tensor " + shown(name);
  const auto& info = found->second.info;
  const auto count = static_cast<std::size_t>(dims / 2);
  if (info.type != tensor_type::f32 || info.shape != std::vector{count})
    throw failure(errc::bad_file,
                  where + " must be F32 of the shape " + to_string(std::vector{count}) + ", found " +
                    std::string(to_string(info.type)) + " " + to_string(info.shape));
  std::vector<float> result(count);
  std::memcpy(result.data(), file.bytes_of(found->second).data(), info.bytes);
  if (!std::ranges::all_of(result, [](float f) { return f > 0 && std::isfinite(f); }))
    throw failure(errc::bad_file, where + " must hold positive numbers");
  return result;
}

/// Whether positions have several axes, which are the same for text. Then llama.cpp rotates halves of heads in all
/// architectures.
bool has_axes(const architecture_keys& keys) {
  const auto sections = keys.file().metadata().integers(keys.full("rope.dimension_sections"));
  return sections && sections->size() > 1 && (*sections)[0] > 0 && (*sections)[1] > 0;
}

rope_config read_rope(const gguf_file& file, const architecture_keys& keys, const gguf_architecture& architecture,
                      int head_dim, int context) {
  rope_config rope;
  if (const auto rotated = keys.integer("rope.dimension_count", 0, max_latent_dim); rotated && *rotated != head_dim) {
    if (!architecture.is(gguf_architecture::partial) || *rotated < 2 || *rotated > head_dim || *rotated % 2 != 0)
      throw failure(errc::unsupported,
                    keys.label("rope.dimension_count") + " is " + std::to_string(*rotated) +
                      ", only heads that are rotated whole, here " + std::to_string(head_dim) + ", are supported");
    rope.dims = *rotated;
  }
  rope.interleaved = architecture.is(gguf_architecture::pairs) && !architecture.is(gguf_architecture::halves) &&
    !has_axes(keys);
  rope.theta = keys.number("rope.freq_base", 1.000001, 1e30).value_or(rope.theta);
  const int dims = rope.dims > 0 ? rope.dims : head_dim;
  rope.divisors = read_divisors(file, "rope_freqs.weight", dims);
  rope.short_divisors = read_divisors(file, "rope_factors_short.weight", dims);
  rope.long_divisors = read_divisors(file, "rope_factors_long.weight", dims);
  if (!rope.short_divisors.empty() && !rope.long_divisors.empty()) {
    rope.type = rope_type::longrope;
    rope.original_context = keys.integer("rope.scaling.original_context_length", 1, max_positions).value_or(context);
    rope.factor = std::max(1.0, context / rope.original_context);
    rope.attention_factor = keys.number("rope.scaling.attn_factor", 1e-6, 1e6).value_or(1);
    return rope;
  }
  const auto old_factor = keys.number("rope.scale_linear", 0, 1e6).value_or(0);
  const auto factor = keys.number("rope.scaling.factor", 0, 1e6).value_or(old_factor); // 0 means none
  const auto type = keys.string("rope.scaling.type").value_or(factor == 0 ? "none" : "linear");
  if (type == "none" || (type == "linear" && factor == 0))
    return rope;
  if (type != "linear" && type != "yarn")
    throw failure(errc::unsupported,
                  keys.label("rope.scaling.type") + " is " + shown(type) + ", supported are none, linear and yarn");
  if (factor < 1e-3)
    throw failure(errc::bad_file, keys.label("rope.scaling.factor") + " must be positive");
  rope.factor = factor;
  rope.type = type == "linear" ? rope_type::linear : rope_type::yarn;
  if (rope.type == rope_type::linear)
    return rope;
  rope.original_context = keys.integer("rope.scaling.original_context_length", 1, max_positions).value_or(context);
  const auto attention = keys.number("rope.scaling.attn_factor", 1e-6, 1e6).value_or(1);
  rope.attention_factor = attention * yarn_attention_factor(factor, std::nullopt, std::nullopt);
  rope.beta_fast = keys.number("rope.scaling.yarn_beta_fast", 1e-6, 1e9).value_or(rope.beta_fast);
  rope.beta_slow = keys.number("rope.scaling.yarn_beta_slow", 1e-6, 1e9).value_or(rope.beta_slow);
  return rope;
}

/// The length of the vocabulary, or the number that the file states.
int read_vocab(const gguf_file& file, const architecture_keys& keys) {
  if (const auto given = keys.integer("vocab_size", 1, max_vocab))
    return *given;
  const auto* tokens = file.metadata().find("tokenizer.ggml.tokens");
  if (!tokens || tokens->count == 0 || tokens->count > max_vocab)
    throw failure(errc::bad_file, keys.label("vocab_size") + " is missing, as is a list of tokens to count");
  return static_cast<int>(tokens->count);
}

/// A number, or the most of a list with one for each layer.
std::optional<int> most_of(const architecture_keys& keys, std::string_view key, int low, int high) {
  const auto* found = keys.file().metadata().find(keys.full(key));
  if (!found || found->type != gguf_type::array)
    return keys.integer(key, low, high);
  const auto listed = keys.file().metadata().integers(keys.full(key));
  const int most = listed->empty() ? 0 : std::ranges::max(*listed);
  if (most < low || most > high || std::ranges::min(*listed) < 0)
    throw failure(errc::unsupported,
                  keys.label(key) + " holds numbers up to " + std::to_string(most) + ", supported are " +
                    std::to_string(low) + " to " + std::to_string(high));
  return most;
}

void read_heads(const architecture_keys& keys, const gguf_architecture& architecture, model_config& model) {
  model.kv_heads = most_of(keys, "attention.head_count_kv", 1, max_heads).value_or(model.heads);
  if (model.heads % model.kv_heads != 0)
    throw failure(errc::bad_file,
                  keys.label("attention.head_count") + " must be a multiple of " +
                    shown(keys.full("attention.head_count_kv")) + ", found " + std::to_string(model.heads) + " and " +
                    std::to_string(model.kv_heads));
  const auto key_length = keys.integer("attention.key_length", 1, 1 << 16);
  if (!key_length && model.hidden % model.heads != 0)
    throw failure(errc::bad_file,
                  keys.label("embedding_length") + " must be a multiple of " +
                    shown(keys.full("attention.head_count")) + " where " + shown(keys.full("attention.key_length")) +
                    " is not given, found " + std::to_string(model.hidden) + " and " + std::to_string(model.heads));
  model.head_dim = key_length.value_or(model.hidden / model.heads);
  const int most = architecture.is(gguf_architecture::wide_heads) ? max_latent_dim : max_head_dim;
  if (model.head_dim % 2 != 0 || model.head_dim > most)
    throw failure(errc::unsupported,
                  keys.file().name() + ": heads of " + std::to_string(model.head_dim) +
                    " dimensions are not supported, only even numbers up to " + std::to_string(most));
  if (const auto values = keys.integer("attention.value_length", 1, 1 << 16); values && *values != model.head_dim)
    throw failure(errc::unsupported,
                  keys.label("attention.value_length") + " is " + std::to_string(*values) +
                    ", only as many as keys have, here " + std::to_string(model.head_dim) + ", are supported");
}

/// Heads that share a latent. Files with attn_kv_b in two parts describe attention in the absorbed form under the usual
/// keys, and the heads' own lengths under others.
void read_latent_heads(const architecture_keys& keys, model_config& model) {
  auto& latent = model.latent;
  latent.q_rank = keys.integer("attention.q_lora_rank", 0, max_hidden).value_or(0);
  latent.kv_rank = keys.size("attention.kv_lora_rank", max_hidden);
  latent.rotated = keys.size("rope.dimension_count", max_hidden);
  const auto length = [&](const std::string& key) {
    const auto own = keys.integer(key + "_mla", 1, max_hidden);
    return own ? *own : keys.size(key, max_hidden);
  };
  const int head = length("attention.key_length");
  latent.value = length("attention.value_length");
  latent.plain = head - latent.rotated;
  if (latent.plain < 1)
    throw failure(errc::bad_file,
                  keys.label("rope.dimension_count") + " is " + std::to_string(latent.rotated) +
                    ", expected fewer than the " + std::to_string(head) + " dimensions of a key");
  model.kv_heads = 1;
  model.head_dim = latent.kv_rank + latent.rotated;
  families::bound_latent_attention(model, keys.file().name());
  if (latent.kv_rank % 2 != 0 || latent.rotated % 2 != 0 || model.head_dim > max_latent_dim)
    throw failure(errc::unsupported,
                  keys.label("attention.kv_lora_rank") + " and " + shown(keys.full("rope.dimension_count")) + " are " +
                    std::to_string(latent.kv_rank) + " and " + std::to_string(latent.rotated) +
                    ", supported are even numbers up to " + std::to_string(max_latent_dim) + " together");
}

} // namespace

model_config parse_gguf_config(const gguf_file& file) {
  const auto architecture = gguf_architecture_of(file);
  if (architecture.name == own_architecture)
    return parse_own_config(file);
  const architecture_keys keys(file, architecture.name);
  const bool latent = architecture.is(gguf_architecture::latent);
  model_config model;
  model.family = architecture.family;
  apply_traits(*find_family(architecture.family), model);
  const bool layer_norm = model.norm == norm_type::layer;
  model.vocab = read_vocab(file, keys);
  model.hidden = keys.size("embedding_length", max_hidden);
  model.layers = keys.size("block_count", max_layers);
  const auto further = keys.integer("nextn_predict_layers", 0, max_layers).value_or(0); // predict tokens after the next
  if (further >= model.layers)
    throw failure(errc::bad_file,
                  keys.label("nextn_predict_layers") + " is " + std::to_string(further) + ", expected fewer than the " +
                    std::to_string(model.layers) + " of " + shown(keys.full("block_count")));
  model.layers -= further;
  if (!architecture.is(gguf_architecture::without_attention)) {
    model.heads = keys.size("attention.head_count", max_heads);
    model.ffn = most_of(keys, "feed_forward_length", 1, max_ffn).value_or(0);
    if (model.ffn == 0)
      keys.size("feed_forward_length", max_ffn);
    if (latent)
      read_latent_heads(keys, model);
    else
      read_heads(keys, architecture, model);
  } else { // nothing of these
    model.heads = model.kv_heads = 1;
    model.head_dim = 2;
  }
  const auto* epsilon_key = layer_norm ? "attention.layer_norm_epsilon" : "attention.layer_norm_rms_epsilon";
  auto epsilon = keys.number(epsilon_key, 0, 1);
  if (!epsilon && !layer_norm) // as Nemotron H's files call it
    epsilon = keys.number("attention.layer_norm_epsilon", 0, 1);
  if (!epsilon)
    throw failure(errc::bad_file, keys.label(epsilon_key) + " is missing");
  model.norm_eps = static_cast<float>(*epsilon);
  const auto has = [&](std::string_view tensor) { return file.tensors().contains(tensor); };
  model.norm_bias = has("output_norm.bias");
  model.qkv_bias = has("blk.0.attn_q.bias") || has("blk.0.attn_qkv.bias");
  model.o_bias = has("blk.0.attn_output.bias");
  model.mlp_bias = has("blk.0.ffn_gate.bias");
  model.tied = !has("output.weight");
  model.head_bias = has("output.bias");
  model.windows.assign(static_cast<std::size_t>(model.layers),
                       keys.integer("attention.sliding_window", 0, max_positions).value_or(0));
  const int context = keys.size("context_length", max_positions);
  model.rope = read_rope(file, keys, architecture, latent ? model.latent.rotated : model.head_dim, context);
  // Some files give the context before YaRN's scaling.
  const double scaled = model.rope.type == rope_type::yarn ? model.rope.original_context * model.rope.factor : 0;
  model.max_context = static_cast<int>(std::clamp<double>(scaled, context, max_positions));
  families::describe_gguf(architecture, keys, model);
  return model;
}

} // namespace troupe
