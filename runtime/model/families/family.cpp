#include "runtime/model/families/family.hpp"

#include "runtime/model/families/lineages.hpp"
#include "runtime/support/types.hpp"

#include <array>

namespace troupe {

namespace {

using namespace troupe::families;

constexpr std::array list{
  family{"llama", read_llama},
  family{"mistral", read_mistral},
  family{"qwen2", read_qwen2},
  family{"qwen3", read_qwen3},
  family{"afmoe", read_afmoe, arrange_afmoe},
  family{"apertus", read_apertus, arrange_apertus},
  family{"arcee", read_arcee},
  family{"axk1", read_axk1, arrange_axk1},
  family{"bert", read_bert, arrange_bert},
  family{"bloom", read_bloom, arrange_bloom},
  family{"cohere", read_cohere, arrange_cohere, head_order::pairs},
  family{"cohere2", read_cohere2, nullptr, head_order::pairs},
  family{"cohere2_moe", read_cohere2_moe, arrange_cohere2_moe, head_order::pairs},
  family{"deepseek_v2", read_deepseek_v2, arrange_deepseek},
  family{"deepseek_v3", read_deepseek_v3, arrange_deepseek},
  family{"deepseek_v32", read_deepseek_v32, arrange_indexed},
  family{"bamba", read_bamba, arrange_bamba},
  family{"dots1", read_dots1, arrange_shared_experts},
  family{"ernie4_5", read_ernie4_5, nullptr, head_order::pairs},
  family{"ernie4_5_moe", read_ernie4_5_moe, arrange_ernie4_5_moe, head_order::pairs},
  family{"exaone4", read_exaone4},
  family{"exaone_moe", read_exaone_moe, arrange_exaone_moe},
  family{"falcon", read_falcon, arrange_falcon},
  family{"falcon_h1", read_falcon_h1, arrange_falcon_h1},
  family{"gemma", read_gemma, arrange_gemma},
  family{"gemma2", read_gemma2, arrange_gemma},
  family{"gemma3_text", read_gemma3, arrange_gemma},
  family{"gemma3n_text", read_gemma3n},
  family{"gemma4_text", read_gemma4, arrange_gemma4},
  family{"glm", read_glm, arrange_glm, head_order::pairs},
  family{"glm4", read_glm4, arrange_glm, head_order::pairs},
  family{"glm4_moe", read_glm4_moe, arrange_shared_experts},
  family{"glm4_moe_lite", read_glm4_moe_lite, arrange_latent},
  family{"glm_moe_dsa", read_glm_moe_dsa, arrange_indexed},
  family{"gpt2", read_gpt2, arrange_gpt2},
  family{"gpt_bigcode", read_gpt_bigcode, arrange_gpt_bigcode},
  family{"gpt_neox", read_gpt_neox, arrange_gpt_neox},
  family{"gpt_oss", read_gpt_oss, arrange_gpt_oss},
  family{"gptj", read_gptj, arrange_gptj, head_order::pairs},
  family{"granite", read_granite},
  family{"granite_swa", read_granite_swa},
  family{"granitemoe", read_granitemoe, arrange_granitemoe},
  family{"hy_v3", read_hy_v3, arrange_hy_v3},
  family{"hunyuan_v1_dense", read_hunyuan_dense, arrange_hunyuan},
  family{"hunyuan_v1_moe", read_hunyuan_moe, arrange_hunyuan},
  family{"llama4_text", read_llama4, arrange_llama4, head_order::pairs},
  family{"mellum", read_mellum},
  family{"mimo_v2_flash", read_mimo_v2_flash, arrange_mimo_v2_flash},
  family{"minicpm3", read_minicpm3, arrange_latent},
  family{"minimax_m2", read_minimax_m2, arrange_minimax_m2},
  family{"ministral3", read_ministral3},
  family{"mistral4", read_mistral4, arrange_deepseek},
  family{"granitemoehybrid", read_granite_hybrid, arrange_granite_hybrid},
  family{"internlm3", read_internlm3},
  family{"jina_embeddings_v3", read_jina_v3, arrange_jina_v3},
  family{"kimi_linear", read_kimi_linear, arrange_kimi_linear},
  family{"lfm2", read_lfm2, arrange_lfm2},
  family{"lfm2_moe", read_lfm2_moe, arrange_lfm2},
  family{"lfm3", read_lfm3, arrange_lfm3},
  family{"mamba2", read_mamba2, arrange_mamba2},
  family{"mixtral", read_mixtral, arrange_mixtral},
  family{"modernbert", read_modernbert, arrange_modernbert},
  family{"mpt", read_mpt, arrange_mpt},
  family{"muse_glimmer_text", read_muse_glimmer, arrange_muse_glimmer},
  family{"nanochat", read_nanochat, arrange_nanochat, head_order::exchanged},
  family{"nemotron", read_nemotron, arrange_nemotron},
  family{"nemotron_h", read_nemotron_h, arrange_nemotron_h},
  family{"nomic_bert", read_nomic, arrange_nomic},
  family{"olmo2", read_olmo2},
  family{"olmoe", read_olmoe, arrange_qwen3_moe},
  family{"olmo3", read_olmo3},
  family{"opt", read_opt, arrange_opt},
  family{"phi", read_phi, arrange_phi},
  family{"phi3", read_phi3, arrange_phi3},
  family{"phimoe", read_phimoe, arrange_mixtral},
  family{"qwen2_moe", read_qwen2_moe},
  family{"qwen3_moe", read_qwen3_moe, arrange_qwen3_moe},
  family{"qwen3_5_moe_text", read_qwen3_5_moe, arrange_qwen_hybrid},
  family{"qwen3_5_text", read_qwen3_5, arrange_qwen_hybrid},
  family{"qwen3_next", read_qwen3_next, arrange_qwen_hybrid},
  family{"roberta", read_roberta, arrange_bert},
  family{"seed_oss", read_seed_oss},
  family{"smallthinker", read_smallthinker, arrange_smallthinker},
  family{"smollm3", read_smollm3},
  family{"solar_open", read_solar_open, arrange_shared_experts},
  family{"stablelm", read_stablelm},
  family{"starcoder2", read_starcoder2, arrange_starcoder2},
  family{"step3p5", read_step3p5, arrange_step3p5},
  family{"youtu", read_youtu, arrange_latent},
  family{"xlm-roberta", read_roberta, arrange_bert},
};

/// `rows` of heads of `order.size()` each, with each head in `order`.
row_order reordered(const row_order& rows, std::size_t count, const std::vector<std::uint32_t>& order) {
  std::vector<std::uint32_t> result(count);
  for (std::size_t i = 0; i < count; ++i) {
    const auto from = i / order.size() * order.size() + order[i % order.size()];
    result[i] = rows ? rows->at(from) : static_cast<std::uint32_t>(from);
  }
  return std::make_shared<const std::vector<std::uint32_t>>(std::move(result));
}

} // namespace

std::span<const family> all_families() { return list; }

head_order head_order_of(const model_config& model) {
  for (const auto& family : list)
    if (family.name == model.family)
      return family.heads;
  return head_order::halves;
}

const family& family_of(const json::reader& config) {
  const auto type = config.string("model_type");
  if (!type)
    throw failure(errc::bad_file, config.label("model_type") + " is missing");
  std::string known;
  for (const auto& family : list) {
    if (family.name == *type)
      return family;
    known += (known.empty() ? "" : ", ") + std::string(family.name);
  }
  throw failure(errc::unsupported, config.label("model_type") + " is `" + *type + "`, supported are " + known);
}

void arrange_rotation(const model_config& model, arrangement& to) {
  if (model.latent || model.positions != position_type::rotary)
    return;
  std::map<std::pair<row_order, std::pair<std::size_t, bool>>, row_order> known; // layers of a kind are alike
  const auto reorder = [&](const std::string& name, std::size_t rows, const std::vector<std::uint32_t>& order,
                           bool local) {
    auto& part = to.tensors[name];
    if (part.name.empty()) {
      part.name = name;
      part.of_rows = rows;
    }
    auto& done = known[{part.rows, {rows, local}}];
    part.rows = done ? done : done = reordered(part.rows, rows, order);
  };
  for (int layer = 0; layer < model.layers; ++layer) {
    const auto order = rotated_order(model.rope_of(layer), model.head_dim_of(layer));
    if (!model.parts_of(layer).attention || order.empty())
      continue;
    const bool local = model.slides(layer);
    const auto dim = as_size(model.head_dim_of(layer));
    const auto prefix = "model.layers." + std::to_string(layer) + ".self_attn.";
    for (const auto& [name, heads] :
         {std::pair("q", model.heads_of(layer)), std::pair("k", model.kv_heads_of(layer))}) {
      const auto rows = as_size(heads) * dim;
      reorder(prefix + name + "_proj.weight", rows, order, local);
      if (model.qkv_bias)
        reorder(prefix + name + "_proj.bias", rows, order, local);
      if (model.qk_norm)
        reorder(prefix + name + "_norm.weight", model.qk_norm_whole ? rows : dim, order, local);
    }
  }
}

std::unique_ptr<const checkpoint> arrange_tensors(std::unique_ptr<const checkpoint> stored, const model_config& model) {
  arrangement how;
  for (const auto& family : list)
    if (family.name == model.family && family.arrange)
      family.arrange(model, *stored, how);
  arrange_rotation(model, how);
  return arrange(std::move(stored), how);
}

} // namespace troupe
