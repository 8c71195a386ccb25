// The list of all families, for family.cpp, and what their arrangements are made of.
#pragma once

#include "runtime/checkpoint/arranged_checkpoint.hpp"
#include "runtime/model/families/family.hpp"
#include "runtime/model/model_config.hpp"
#include "runtime/support/json/json_reader.hpp"

#include <initializer_list>
#include <map>
#include <string>
#include <string_view>
#include <utility>

namespace troupe::families {

using json::reader;
using enum gguf_architecture::form;
using enum family::trait;

/// Adds tensors to an arrangement. Stems are names without ".weight" and ".bias", which are both arranged.
class tensor_arranger {
public:
  /// `stored_layers`: the prefix of layers in the checkpoint, "transformer.h."; the number follows.
  tensor_arranger(const model_config& model, arrangement& to, std::string stored_layers = "model.layers.");

  void rename(std::string_view stem, std::string_view stored);
  void rename(int layer, std::string_view stem, std::string_view stored);
  void rename(int layer, std::initializer_list<std::pair<const char*, const char*>> stems) {
    for (const auto& [stem, stored] : stems)
      rename(layer, stem, stored);
  }

  /// Renames matrices that are stored [inputs, outputs].
  void transpose(int layer, std::string_view stem, std::string_view stored);

  enum class fusion {
    stacked, // all q, all k, all v
    grouped  // for each KV head: its q heads, k, v
  };

  /// q, k and v of one stored matrix.
  void split_qkv(int layer, std::string_view stored, fusion how, bool transposed = false);

  /// gate and up of one stored matrix, gate first.
  void split_gate_up(int layer, std::string_view stored);

  /// Experts of stored tensors [experts, 2 ffn, hidden], gate first, and [experts, hidden, ffn], or each transposed.
  void split_experts(int layer, const std::string& gate_up, const std::string& down, bool transposed = false);

  /// The MLP that all rows have beside the experts.
  void rename_shared_experts(int layer, const std::string& stored = "mlp.shared_experts");

  /// Adds `offset` to the weights (not the biases) of all norms.
  void shift_norms(float offset);

  /// One tensor, by its whole name.
  void add(int layer, const std::string& name, stored_part part);

  /// The same: `rows` of the stored tensor, of which it has `of_rows`, or (0) as many. Null: all.
  void take(int layer, const std::string& name, const std::string& from, row_order rows = nullptr,
            std::size_t of_rows = 0);

  /// Names of a layer: as presented and as stored.
  std::string presented(int layer, std::string_view rest) const;
  std::string stored(int layer, std::string_view rest) const;

  /// `count` rows from `first` on, `step` apart.
  row_order rows(std::size_t first, std::size_t count, std::size_t step = 1);

  /// Gates that are stored once for each head, presented as one for each dimension of its values.
  void repeat_gates(int layer, const std::string& stored);

private:
  void both(const std::string& stem, const std::string& stored, const stored_part& how);

  const model_config& model_;
  arrangement& to_;
  std::string stored_layers_;
  std::map<std::pair<std::size_t, std::pair<std::size_t, std::size_t>>, row_order> ranges_;
  row_order fused_[3]; // of grouped q, k and v
  row_order gates_[2]; // repeated, of layers without and with a window
};

// Used by several families:
void arrange_granitemoe(const model_config&, const checkpoint&, arrangement&);
void arrange_qwen3_moe(const model_config&, const checkpoint&, arrangement&);
void arrange_mixtral(const model_config&, const checkpoint&, arrangement&);
void arrange_qwen_hybrid(const model_config&, const checkpoint&, arrangement&);
void arrange_deepseek(const model_config&, const checkpoint&, arrangement&);
/// With the heads of an indexer.
void arrange_indexed(const model_config&, const checkpoint&, arrangement&);
/// Experts alone.
void arrange_shared_experts(const model_config&, const checkpoint&, arrangement&);
/// Refuses more heads or rows than any real model has, which a file can state without holding them.
void bound_latent_attention(const model_config&, const std::string& file);
/// Rows of `heads` heads of `plain` and `rotated` rows, with neighbouring pairs of the rotated ones as halves.
row_order rotated_last(std::size_t heads, std::size_t plain, std::size_t rotated, bool interleaved);
/// Rows of `heads` heads from row `first` on, each of whose rows have this order; null if it is empty.
row_order in_each_head(const std::vector<std::uint32_t>& order, int heads, int first = 0);
/// Rows of each of `heads` heads of an indexer, from row `first` on, in the order in which kernels rotate.
row_order index_rows(const model_config&, int first, int heads);
/// Its attention alone, for other formats of files.
void arrange_latent_attention(const model_config&, arrangement&);

/// All, in the order of messages: NAME is in the file of its lineage, as NAME_family.
// clang-format off
#define TROUPE_FAMILIES(of) \
  of(llama) of(mistral) of(qwen2) of(qwen3) of(afmoe) of(apertus) of(arcee) of(axk1) of(bert) of(bloom) of(cohere) \
  of(cohere2) of(cohere2_moe) of(deepseek_v2) of(deepseek_v3) of(deepseek_v32) of(deepseek_v4) of(bailing_hybrid) of(bamba) of(dots1) of(ernie4_5) \
  of(ernie4_5_moe) of(exaone4) of(exaone_moe) of(falcon) of(falcon_h1) of(gemma) of(gemma2) of(gemma3_text) \
  of(gemma3n_text) of(gemma4_text) of(glm) of(glm4) of(glm4_moe) of(glm4_moe_lite) of(glm_moe_dsa) of(gpt2) \
  of(gpt_bigcode) of(gpt_neox) of(gpt_oss) of(gptj) of(granite) of(granite_swa) of(granitemoe) of(hy_v3) of(hy_v4) \
  of(hunyuan_v1_dense) of(hunyuan_v1_moe) of(llama4_text) of(mellum) of(mimo_v2_flash) of(minicpm3) of(minimax_m2) of(minimax_m3_vl_text) \
  of(ministral3) of(mistral4) of(mistral_large4_text) of(granitemoehybrid) of(inkling_text) of(internlm3) of(jina_embeddings_v3) of(kimi_linear) of(lfm2) \
  of(lfm2_moe) of(lfm3) of(mamba) of(mamba2) of(falcon_mamba) of(jamba) of(laguna) of(longcat_flash) of(mixtral) of(modernbert) of(mpt) of(muse_glimmer_text) of(nanochat) \
  of(nemotron) of(nemotron_h) of(nomic_bert) of(olmo2) of(olmoe) of(olmo3) of(olmo_hybrid) of(opt) of(phi) of(phi3) of(phimoe) \
  of(qwen2_moe) of(qwen3_moe) of(qwen3_5_moe_text) of(qwen3_5_text) of(qwen3_next) of(qwen4_exp_text) of(roberta) of(seed_oss) \
  of(smallthinker) of(smollm3) of(solar_open) of(stablelm) of(starcoder2) of(step3p5) of(youtu) of(xlm_roberta) of(zamba2)
// clang-format on

#define TROUPE_DECLARE(name) extern const family name##_family;
TROUPE_FAMILIES(TROUPE_DECLARE)
#undef TROUPE_DECLARE

} // namespace troupe::families
