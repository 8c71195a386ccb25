#include "runtime/import/gguf/gguf_architectures.hpp"

#include "runtime/import/gguf/gguf_experts.hpp"
#include "runtime/import/gguf/gguf_further.hpp"
#include "runtime/import/gguf/gguf_own.hpp"
#include "runtime/import/gguf/gguf_recurrent.hpp"
#include "runtime/model/config_limits.hpp"
#include "runtime/support/types.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>

namespace troupe {

namespace {

using namespace config_limits;
using enum kernels::activation_type;
using enum gguf_architecture::form;

float number(const architecture_keys& keys, std::string_view key, float fallback) {
  return static_cast<float>(keys.number(key, 1e-9, 1e9).value_or(fallback));
}

void slide_all_but(model_config& model, int period) {
  for (int i = 0; i < model.layers; ++i)
    if ((i + 1) % period == 0)
      model.windows[as_size(i)] = 0;
}

/// Which layers have a window: all but every n-th, or those that a list names.
void slide_as_said(const architecture_keys& keys, model_config& model, int usual_period) {
  constexpr std::string_view key = "attention.sliding_window_pattern";
  const auto listed = keys.booleans(key);
  if (!listed)
    return slide_all_but(model, keys.integer(key, 1, max_layers).value_or(usual_period));
  if (listed->size() != as_size(model.layers))
    throw failure(errc::bad_file,
                  keys.label(key) + " has " + std::to_string(listed->size()) + " elements, expected one for each of " +
                    std::to_string(model.layers) + " layers");
  for (std::size_t i = 0; i < listed->size(); ++i)
    if (!(*listed)[i])
      model.windows[i] = 0;
}

void describe_llama(const architecture_keys& keys, model_config& model) {
  if (keys.integer("expert_count", 0, max_experts).value_or(0) == 0)
    return;
  model.family = "mixtral";
  model.rope.interleaved = true;
  describe_experts(keys, model);
  model.experts.renormalise = true;
}

/// Queries whose scores grow beyond the original context.
void describe_growth(const architecture_keys& keys, model_config& model) {
  const auto rate = keys.number("attention.temperature_scale", 0, 1e6).value_or(0);
  if (rate == 0)
    return;
  const double fallback = model.rope.original_context > 0 ? model.rope.original_context : model.max_context;
  model.growth = {static_cast<float>(rate),
                  keys.integer("attention.temperature_length", 1, max_positions).value_or(static_cast<int>(fallback))};
}

/// Mistral Small 3 as a part of a multimodal model; Ministral 3 besides scales queries by their positions.
void describe_mistral3(const architecture_keys& keys, model_config& model) {
  describe_llama(keys, model);
  describe_growth(keys, model);
  if (!model.growth)
    return;
  model.family = "ministral3";
  model.rope.interleaved = true;
  const auto multiplier = keys.number("rope.scaling.yarn_log_multiplier", 0, 1e6).value_or(0);
  if (model.rope.type == rope_type::yarn && multiplier > 0)
    model.rope.attention_factor = yarn_attention_factor(model.rope.factor, 1, multiplier);
}

void describe_qwen3(const architecture_keys&, model_config& model) { model.qk_norm = true; }

void describe_qwen2moe(const architecture_keys& keys, model_config& model) {
  describe_experts(keys, model);
  const auto* shared = keys.tensor("blk.0.ffn_up_shexp.weight");
  model.experts.shared_ffn = keys.integer("expert_shared_feed_forward_length", 1, max_ffn)
                               .value_or(shared ? static_cast<int>(shared->info.shape[0]) : model.ffn);
  model.experts.shared_gate = true;
}

void describe_qwen3moe(const architecture_keys& keys, model_config& model) {
  model.qk_norm = true;
  describe_experts(keys, model);
  model.experts.renormalise = true;
}

void describe_gpt_oss(const architecture_keys& keys, model_config& model) {
  model.attention_sinks = true;
  slide_as_said(keys, model, 2);
  model.act = {clamped_swiglu, 1.702f, 7};
  describe_experts(keys, model);
  model.experts.scores = router_scores::chosen;
  model.experts.bias = model.experts.router_bias = true;
  model.rope.truncate = false;
}

void describe_gemma(const architecture_keys&, model_config& model) {
  model.act = {gelu_tanh};
  model.embedding_scale = std::sqrt(static_cast<float>(model.hidden));
}

/// Scores of the largest models are scaled by the width of heads that `hidden` would make.
void scale_scores(model_config& model, int layers_of_largest) {
  model.attention_scale = 1 /
    std::sqrt(model.layers == layers_of_largest ? static_cast<float>(model.hidden) / static_cast<float>(model.heads)
                                                : static_cast<float>(model.head_dim));
}

void describe_gemma2(const architecture_keys& keys, model_config& model) {
  describe_gemma(keys, model);
  model.norms = norm_place::both;
  slide_as_said(keys, model, 2);
  scale_scores(model, 46);
  model.attention_cap = number(keys, "attn_logit_softcapping", 50);
  model.logit_cap = number(keys, "final_logit_softcapping", 30);
}

void describe_gemma3(const architecture_keys& keys, model_config& model) {
  describe_gemma(keys, model);
  model.norms = norm_place::both;
  model.qk_norm = true;
  slide_as_said(keys, model, 6);
  scale_scores(model, 62);
  if (!keys.number("rope.freq_base", 1.000001, 1e30))
    model.rope.theta = 1000000;
  rope_config local;
  local.theta = keys.number("rope.freq_base_swa", 1.000001, 1e30).value_or(10000);
  model.local_rope = local;
  if (keys.number("final_logit_softcapping", 0, 1e9))
    model.logit_cap = number(keys, "final_logit_softcapping", 0);
}

/// EmbeddingGemma: every token sees the whole text, or half of a window on each side.
void describe_gemma_embedding(const architecture_keys& keys, model_config& model) {
  for (int& window : model.windows)
    window = window > 0 ? window / 2 + 1 : 0;
  describe_gemma3(keys, model);
  model.encoder = model.tied = true;
  model.attention_scale = 1 / std::sqrt(static_cast<float>(model.head_dim));
}

void describe_olmo2(const architecture_keys& keys, model_config& model) {
  model.norms = norm_place::after;
  model.qk_norm = model.qk_norm_whole = true;
  if (model.windows.front() > 0) { // OLMo 3, which scales only full attention
    model.family = "olmo3";
    slide_as_said(keys, model, 4);
    if (model.rope.type != rope_type::plain) {
      rope_config local;
      local.theta = model.rope.theta;
      model.local_rope = local;
    }
  }
}

void describe_olmoe(const architecture_keys& keys, model_config& model) {
  model.qk_norm = model.qk_norm_whole = true;
  describe_experts(keys, model);
}

void describe_granite(const architecture_keys& keys, model_config& model) {
  model.embedding_scale = number(keys, "embedding_scale", 1);
  model.residual_scale = number(keys, "residual_scale", 1);
  model.logit_scale = 1 / number(keys, "logit_scale", 1);
  model.attention_scale = number(keys, "attention.scale", 0);
}

void describe_granitemoe(const architecture_keys& keys, model_config& model) {
  describe_granite(keys, model);
  describe_experts(keys, model);
  model.experts.scores = router_scores::chosen;
}

void describe_smollm3(const architecture_keys&, model_config& model) {
  for (int i = 0; i < model.layers; ++i)
    model.unrotated.push_back((i + 1) % 4 == 0);
}

void describe_ungated(const architecture_keys& keys, model_config& model, kernels::activation_type act) {
  model.gated = false;
  model.act = {act};
  model.mlp_bias = keys.tensor("blk.0.ffn_up.bias") != nullptr;
}

void describe_phi2(const architecture_keys& keys, model_config& model) {
  describe_ungated(keys, model, gelu_tanh);
  model.parallel = model.shared_norm = true;
}

void describe_starcoder2(const architecture_keys& keys, model_config& model) {
  describe_ungated(keys, model, gelu_tanh);
}

void describe_stablelm(const architecture_keys& keys, model_config& model) {
  model.parallel = model.shared_norm = keys.tensor("blk.0.ffn_norm.weight") == nullptr;
}

void describe_gpt2(const architecture_keys& keys, model_config& model) {
  describe_ungated(keys, model, gelu_tanh);
  model.positions = position_type::learned;
  const auto* table = keys.tensor("position_embd.weight");
  if (!table || table->info.shape.size() != 2)
    throw failure(errc::bad_file, keys.file().name() + ": tensor `position_embd.weight` is missing or not a matrix");
  model.position_rows = table->info.shape[0];
  model.max_context = static_cast<int>(std::min<std::size_t>(as_size(model.max_context), model.position_rows));
}

void describe_bloom(const architecture_keys& keys, model_config& model) {
  describe_ungated(keys, model, gelu_tanh);
  model.positions = position_type::alibi;
  model.embedding_norm = true;
}

void describe_gpt_neox(const architecture_keys& keys, model_config& model) {
  describe_ungated(keys, model, gelu);
  model.parallel = keys.boolean("use_parallel_residual").value_or(true);
}

void describe_falcon(const architecture_keys& keys, model_config& model) {
  describe_ungated(keys, model, gelu);
  model.parallel = true;
  model.shared_norm = keys.tensor("blk.0.attn_norm_2.weight") == nullptr;
}

void describe_nemotron(const architecture_keys& keys, model_config& model) {
  describe_ungated(keys, model, relu_squared);
}

void describe_glm4(const architecture_keys&, model_config& model) { model.norms = norm_place::both; }

void describe_cohere(const architecture_keys& keys, model_config& model) {
  model.parallel = model.shared_norm = true;
  model.logit_scale = number(keys, "logit_scale", 1);
  model.qk_norm = model.qk_norm_whole = model.qk_norm_layer = keys.tensor("blk.0.attn_q_norm.weight") != nullptr;
}

void describe_cohere2(const architecture_keys& keys, model_config& model) {
  describe_cohere(keys, model);
  slide_as_said(keys, model, 4);
  for (const int window : model.windows)
    model.unrotated.push_back(window == 0);
}

void describe_exaone4(const architecture_keys& keys, model_config& model) {
  model.norms = norm_place::after;
  model.qk_norm = true;
  if (model.windows.front() == 0)
    return;
  slide_as_said(keys, model, 4);
  for (const int window : model.windows)
    model.unrotated.push_back(window == 0);
}

void describe_ernie_moe(const architecture_keys& keys, model_config& model) {
  describe_routed_experts(keys, model, true);
}

void describe_hunyuan(const architecture_keys&, model_config& model) { model.qk_norm = model.qk_norm_behind = true; }

void describe_hunyuan_moe(const architecture_keys& keys, model_config& model) {
  describe_hunyuan(keys, model);
  describe_routed_experts(keys, model, true);
}

void describe_minimax(const architecture_keys& keys, model_config& model) {
  model.qk_norm = model.qk_norm_whole = true;
  model.experts.scores = router_scores::sigmoid;
  describe_routed_experts(keys, model, true);
}

void describe_arcee(const architecture_keys& keys, model_config& model) { describe_ungated(keys, model, relu_squared); }

/// GLM 4.5, dots.llm1: q/k norm as the file has it.
void describe_corrected(const architecture_keys& keys, model_config& model) {
  model.qk_norm = keys.tensor("blk.0.attn_q_norm.weight") != nullptr;
  model.experts.scores = router_scores::sigmoid;
  describe_routed_experts(keys, model, true);
}

void describe_mistral4(const architecture_keys& keys, model_config& model) {
  describe_deepseek2(keys, model);
  describe_growth(keys, model);
  model.family = "mistral4";
  model.experts.group_by_two = model.experts.groups > 1;
}

/// What files do not say is as in all of Llama 4's models.
void describe_llama4(const architecture_keys& keys, model_config& model) {
  describe_experts(keys, model);
  model.experts.scores = router_scores::sigmoid;
  model.experts.weigh_inputs = true;
  if (const auto* up = keys.tensor("blk." + std::to_string(model.layers - 1) + ".ffn_up_shexp.weight"))
    model.experts.shared_ffn = static_cast<int>(up->info.shape[0]);
  const int chunk = keys.integer("attention.chunk_size", 0, max_positions).value_or(8192);
  for (int i = 0; i < model.layers; ++i) {
    model.unrotated.push_back((i + 1) % 4 == 0);
    model.chunks.push_back(model.unrotated.back() ? 0 : chunk);
  }
  model.windows.assign(as_size(model.layers), 0);
  model.qk_norm = model.qk_norm_plain = model.qk_norm_rotated = model.experts.count != 128;
  model.growth = {static_cast<float>(keys.number("attention.temperature_scale", 0, 1e6).value_or(0.1)),
                  keys.integer("attention.temperature_length", 1, max_positions).value_or(8192), 1, true};
}

// The first row of an architecture says how its files are read, the first of a family how they are written.
constexpr gguf_architecture architectures[] = {
  {"llama", "llama", pairs | halves, describe_llama},
  {"llama", "mistral", pairs},
  {"llama", "mixtral", pairs},
  {"qwen2", "qwen2"},
  {"qwen3", "qwen3", 0, describe_qwen3},
  {"apertus", "apertus", 0, describe_apertus},
  {"bert", "bert", layer_norm, describe_bert},
  {"bert", "roberta"},
  {"bert", "xlm-roberta"},
  {"gemma3n", "gemma3n_text", 0, describe_gemma3n},
  {"gemma4", "gemma4_text", wide_heads, describe_gemma4},
  {"jina-bert-v3", "jina_embeddings_v3", layer_norm | fused_qkv, describe_jina_bert},
  {"modern-bert", "modernbert", layer_norm | fused_qkv | fused_up, describe_modern_bert},
  {"nomic-bert", "nomic_bert", layer_norm | fused_qkv, describe_nomic_bert},
  {"arcee", "arcee", pairs, describe_arcee},
  {"bloom", "bloom", layer_norm | fused_qkv, describe_bloom},
  {"chatglm", "glm", partial | pairs | fused_qkv | fused_up},
  {"cohere2", "cohere2", layer_norm | pairs, describe_cohere2},
  {"command-r", "cohere", layer_norm | pairs, describe_cohere},
  {"deepseek2", "deepseek_v3", latent | pairs, describe_deepseek2},
  {"deepseek2", "deepseek_v2"},
  {"deepseek2", "glm4_moe_lite"},
  {"dots1", "dots1", 0, describe_corrected},
  {"ernie4_5", "ernie4_5", pairs},
  {"ernie4_5-moe", "ernie4_5_moe", pairs | says_interval, describe_ernie_moe},
  {"exaone4", "exaone4", 0, describe_exaone4},
  {"falcon", "falcon", layer_norm | fused_qkv | two_norms, describe_falcon},
  {"gemma", "gemma", 0, describe_gemma},
  {"gemma2", "gemma2", 0, describe_gemma2},
  {"gemma3", "gemma3_text", 0, describe_gemma3},
  {"gemma-embedding", "gemma3_text", encodes, describe_gemma_embedding},
  {"glm4", "glm4", partial | pairs | fused_up, describe_glm4},
  {"glm4moe", "glm4_moe", partial | named_by_place, describe_corrected},
  {"falcon-h1", "falcon_h1", bare_norm | scaled, describe_falcon_h1},
  {"granitehybrid", "granitemoehybrid", partial | pairs | multiplies | says_rotation, describe_granite_hybrid},
  {"granitehybrid", "bamba", pairs | says_rotation},
  {"kimi-linear", "kimi_linear", latent, describe_kimi_linear},
  {"lfm2", "lfm2", 0, describe_lfm2},
  {"lfm2moe", "lfm2_moe", 0, describe_lfm2moe},
  {"mamba2", "mamba2", without_attention, describe_mamba2},
  {"nemotron_h", "nemotron_h", named_by_place | lists_mlps, describe_nemotron_h},
  {"nemotron_h_moe", "nemotron_h", with_experts, describe_nemotron_h},
  {"qwen35", "qwen3_5_text", partial | named_by_place | says_axes | values_in_turns, describe_qwen35},
  {"qwen35moe", "qwen3_5_moe_text", partial | named_by_place | says_axes | values_in_turns, describe_qwen35moe},
  {"qwen3next", "qwen3_next", partial | named_by_place | fused_rates, describe_qwen3next},
  {"gpt-oss", "gpt_oss", named_by_place | untruncated, describe_gpt_oss},
  {"gpt2", "gpt2", layer_norm | fused_qkv, describe_gpt2},
  {"gptneox", "gpt_neox", layer_norm | partial | fused_qkv | says_parallel, describe_gpt_neox},
  {"granite", "granite", pairs | multiplies, describe_granite},
  {"granitemoe", "granitemoe", pairs | multiplies, describe_granitemoe},
  {"hunyuan-dense", "hunyuan_v1_dense", 0, describe_hunyuan},
  {"hunyuan-moe", "hunyuan_v1_moe", 0, describe_hunyuan_moe},
  {"llama4", "llama4_text", pairs | says_interval, describe_llama4},
  {"minimax-m2", "minimax_m2", partial, describe_minimax},
  {"mistral3", "llama", pairs | halves, describe_mistral3},
  {"mistral3", "ministral3", pairs},
  {"mistral4", "mistral4", latent | pairs, describe_mistral4},
  {"nemotron", "nemotron", layer_norm | partial, describe_nemotron},
  {"olmo2", "olmo2", 0, describe_olmo2},
  {"olmo2", "olmo3"},
  {"olmoe", "olmoe", 0, describe_olmoe},
  {"phi2", "phi", layer_norm | partial | fused_qkv, describe_phi2},
  {"phi3", "phi3", partial | fused_qkv | fused_up},
  {"qwen2moe", "qwen2_moe", 0, describe_qwen2moe},
  {"qwen2vl", "qwen2"},
  {"qwen3moe", "qwen3_moe", 0, describe_qwen3moe},
  {"qwen3vl", "qwen3", 0, describe_qwen3},
  {"qwen3vlmoe", "qwen3_moe", 0, describe_qwen3moe},
  {"seed_oss", "seed_oss", named_by_place},
  {"smallthinker", "smallthinker", 0, describe_smallthinker},
  {"smollm3", "smollm3", pairs, describe_smollm3},
  {"stablelm", "stablelm", layer_norm | partial, describe_stablelm},
  {"starcoder", "gpt_bigcode", layer_norm | fused_qkv, describe_gpt2},
  {"starcoder2", "starcoder2", layer_norm, describe_starcoder2},
  {own_architecture, ""}, // of any family: gguf_own
};

} // namespace

const gguf_architecture& gguf_architecture_of(const gguf_file& file) {
  constexpr std::string_view key = "general.architecture";
  if (file.metadata().find("adapter.type"))
    throw failure(errc::unsupported, file.name() + ": is an adapter (LoRA), not a model; merge it into its base model");
  const auto name = file.metadata().string(key);
  if (!name)
    throw failure(errc::bad_file, file.metadata().label(key) + " is missing");
  if (*name == "clip")
    throw failure(errc::unsupported,
                  file.name() +
                    ": holds the encoders of a multimodal model (mmproj), not its text; name the file of the "
                    "text, which alone is supported");
  std::string known;
  std::string_view last;
  for (const auto& architecture : architectures) {
    if (architecture.name == *name)
      return architecture;
    if (architecture.name != last)
      known += (known.empty() ? "" : ", ") + std::string(architecture.name);
    last = architecture.name;
  }
  throw failure(errc::unsupported, file.metadata().label(key) + " is " + shown(*name) + ", supported are " + known);
}

const gguf_architecture* gguf_architecture_of_family(std::string_view family) {
  const auto* const found = std::ranges::find(architectures, family, &gguf_architecture::family);
  return family.empty() || found == std::end(architectures) ? nullptr : found;
}

std::string_view gguf_architecture_for(const model_config& model) {
  std::string_view found;
  for (const auto& row : architectures)
    if (row.family == model.family && !model.family.empty() &&
        (row.is(with_experts) ? model.experts.count > 0
           : row.is(encodes)  ? model.encoder
                              : found.empty()))
      found = row.name;
  return found;
}

} // namespace troupe
