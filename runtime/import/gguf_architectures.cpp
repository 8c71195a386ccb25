#include "runtime/import/gguf_architectures.hpp"

#include "runtime/import/gguf_experts.hpp"
#include "runtime/import/gguf_further.hpp"
#include "runtime/import/gguf_own.hpp"
#include "runtime/import/gguf_recurrent.hpp"
#include "runtime/model/config_limits.hpp"
#include "runtime/support/types.hpp"

#include <algorithm>
#include <array>
#include <cmath>

namespace troupe {

namespace {

using namespace config_limits;
using enum kernels::activation_type;

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

constexpr std::array architectures{
  gguf_architecture{.name = "llama", .family = "llama", .describe = describe_llama},
  gguf_architecture{.name = "qwen2", .family = "qwen2"},
  gguf_architecture{.name = "qwen3", .family = "qwen3", .describe = describe_qwen3},
  gguf_architecture{.name = "apertus", .family = "apertus", .describe = describe_apertus},
  gguf_architecture{.name = "bert", .family = "bert", .layer_norm = true, .describe = describe_bert},
  gguf_architecture{.name = "gemma3n", .family = "gemma3n_text", .describe = describe_gemma3n},
  gguf_architecture{.name = "gemma4", .family = "gemma4_text", .describe = describe_gemma4},
  gguf_architecture{.name = "gemma-embedding", .family = "gemma3_text", .describe = describe_gemma_embedding},
  gguf_architecture{
    .name = "jina-bert-v3", .family = "jina_embeddings_v3", .layer_norm = true, .describe = describe_jina_bert},
  gguf_architecture{
    .name = "modern-bert", .family = "modernbert", .layer_norm = true, .describe = describe_modern_bert},
  gguf_architecture{.name = "nomic-bert", .family = "nomic_bert", .layer_norm = true, .describe = describe_nomic_bert},
  gguf_architecture{.name = "arcee", .family = "arcee", .pairs = true, .describe = describe_arcee},
  gguf_architecture{.name = "chatglm", .family = "glm", .partial = true, .pairs = true},
  gguf_architecture{
    .name = "cohere2", .family = "cohere2", .layer_norm = true, .pairs = true, .describe = describe_cohere2},
  gguf_architecture{
    .name = "command-r", .family = "cohere", .layer_norm = true, .pairs = true, .describe = describe_cohere},
  gguf_architecture{
    .name = "deepseek2", .family = "deepseek_v3", .latent = true, .pairs = true, .describe = describe_deepseek2},
  gguf_architecture{.name = "dots1", .family = "dots1", .describe = describe_corrected},
  gguf_architecture{.name = "ernie4_5", .family = "ernie4_5", .pairs = true},
  gguf_architecture{.name = "ernie4_5-moe", .family = "ernie4_5_moe", .pairs = true, .describe = describe_ernie_moe},
  gguf_architecture{.name = "exaone4", .family = "exaone4", .describe = describe_exaone4},
  gguf_architecture{.name = "falcon", .family = "falcon", .layer_norm = true, .describe = describe_falcon},
  gguf_architecture{.name = "gemma", .family = "gemma", .describe = describe_gemma},
  gguf_architecture{.name = "gemma2", .family = "gemma2", .describe = describe_gemma2},
  gguf_architecture{.name = "gemma3", .family = "gemma3_text", .describe = describe_gemma3},
  gguf_architecture{.name = "glm4", .family = "glm4", .partial = true, .pairs = true, .describe = describe_glm4},
  gguf_architecture{.name = "glm4moe", .family = "glm4_moe", .partial = true, .describe = describe_corrected},
  gguf_architecture{.name = "falcon-h1", .family = "falcon_h1", .describe = describe_falcon_h1},
  gguf_architecture{.name = "granitehybrid",
                    .family = "granitemoehybrid",
                    .partial = true,
                    .pairs = true,
                    .describe = describe_granite_hybrid},
  gguf_architecture{.name = "kimi-linear", .family = "kimi_linear", .latent = true, .describe = describe_kimi_linear},
  gguf_architecture{.name = "lfm2", .family = "lfm2", .describe = describe_lfm2},
  gguf_architecture{.name = "lfm2moe", .family = "lfm2_moe", .describe = describe_lfm2moe},
  gguf_architecture{.name = "mamba2", .family = "mamba2", .attends = false, .describe = describe_mamba2},
  gguf_architecture{.name = "nemotron_h", .family = "nemotron_h", .describe = describe_nemotron_h},
  gguf_architecture{.name = "nemotron_h_moe", .family = "nemotron_h", .describe = describe_nemotron_h},
  gguf_architecture{.name = "qwen35", .family = "qwen3_5_text", .partial = true, .describe = describe_qwen35},
  gguf_architecture{.name = "qwen35moe", .family = "qwen3_5_moe_text", .partial = true, .describe = describe_qwen35moe},
  gguf_architecture{.name = "qwen3next", .family = "qwen3_next", .partial = true, .describe = describe_qwen3next},
  gguf_architecture{.name = "gpt-oss", .family = "gpt_oss", .describe = describe_gpt_oss},
  gguf_architecture{.name = "gpt2", .family = "gpt2", .layer_norm = true, .describe = describe_gpt2},
  gguf_architecture{
    .name = "gptneox", .family = "gpt_neox", .layer_norm = true, .partial = true, .describe = describe_gpt_neox},
  gguf_architecture{.name = "granite", .family = "granite", .pairs = true, .describe = describe_granite},
  gguf_architecture{.name = "granitemoe", .family = "granitemoe", .pairs = true, .describe = describe_granitemoe},
  gguf_architecture{.name = "hunyuan-dense", .family = "hunyuan_v1_dense", .describe = describe_hunyuan},
  gguf_architecture{.name = "hunyuan-moe", .family = "hunyuan_v1_moe", .describe = describe_hunyuan_moe},
  gguf_architecture{.name = "llama4", .family = "llama4_text", .pairs = true, .describe = describe_llama4},
  gguf_architecture{.name = "minimax-m2", .family = "minimax_m2", .partial = true, .describe = describe_minimax},
  gguf_architecture{.name = "mistral3", .family = "llama", .describe = describe_mistral3},
  gguf_architecture{
    .name = "mistral4", .family = "mistral4", .latent = true, .pairs = true, .describe = describe_mistral4},
  gguf_architecture{
    .name = "nemotron", .family = "nemotron", .layer_norm = true, .partial = true, .describe = describe_nemotron},
  gguf_architecture{.name = "olmo2", .family = "olmo2", .describe = describe_olmo2},
  gguf_architecture{.name = "phi2", .family = "phi", .layer_norm = true, .partial = true, .describe = describe_phi2},
  gguf_architecture{.name = "phi3", .family = "phi3", .partial = true},
  gguf_architecture{.name = "qwen2moe", .family = "qwen2_moe", .describe = describe_qwen2moe},
  gguf_architecture{.name = "qwen2vl", .family = "qwen2"},
  gguf_architecture{.name = "qwen3moe", .family = "qwen3_moe", .describe = describe_qwen3moe},
  gguf_architecture{.name = "qwen3vl", .family = "qwen3", .describe = describe_qwen3},
  gguf_architecture{.name = "qwen3vlmoe", .family = "qwen3_moe", .describe = describe_qwen3moe},
  gguf_architecture{.name = "seed_oss", .family = "seed_oss"},
  gguf_architecture{.name = "smallthinker", .family = "smallthinker", .describe = describe_smallthinker},
  gguf_architecture{.name = "smollm3", .family = "smollm3", .pairs = true, .describe = describe_smollm3},
  gguf_architecture{
    .name = "stablelm", .family = "stablelm", .layer_norm = true, .partial = true, .describe = describe_stablelm},
  gguf_architecture{.name = "starcoder2", .family = "starcoder2", .layer_norm = true, .describe = describe_starcoder2},
  gguf_architecture{.name = own_architecture, .family = ""}, // of any family: gguf_own
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
  for (const auto& architecture : architectures) {
    if (architecture.name == *name)
      return architecture;
    known += (known.empty() ? "" : ", ") + std::string(architecture.name);
  }
  throw failure(errc::unsupported, file.metadata().label(key) + " is " + shown(*name) + ", supported are " + known);
}

} // namespace troupe
