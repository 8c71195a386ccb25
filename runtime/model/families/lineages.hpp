// The readers and arrangements of all families, for the list in family.cpp, and what their arrangements are made of.
#pragma once

#include "runtime/checkpoint/arranged_checkpoint.hpp"
#include "runtime/model/model_config.hpp"
#include "runtime/support/json/json_reader.hpp"

#include <initializer_list>
#include <map>
#include <string>
#include <string_view>
#include <utility>

namespace troupe::families {

using json::reader;

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

  /// Names of a layer: as presented and as stored.
  std::string presented(int layer, std::string_view rest) const;
  std::string stored(int layer, std::string_view rest) const;

  /// `count` rows from `first` on, `step` apart.
  row_order rows(std::size_t first, std::size_t count, std::size_t step = 1);

private:
  void both(const std::string& stem, const std::string& stored, const stored_part& how);

  const model_config& model_;
  arrangement& to_;
  std::string stored_layers_;
  std::map<std::pair<std::size_t, std::pair<std::size_t, std::size_t>>, row_order> ranges_;
  row_order fused_[3]; // of grouped q, k and v
};

void read_llama(const reader&, model_config&);
void read_mistral(const reader&, model_config&);
void read_smollm3(const reader&, model_config&);
void read_ministral3(const reader&, model_config&);
void read_seed_oss(const reader&, model_config&);
void read_arcee(const reader&, model_config&);
void read_apertus(const reader&, model_config&);
void arrange_apertus(const model_config&, const checkpoint&, arrangement&);
void read_granite(const reader&, model_config&);
void read_granite_swa(const reader&, model_config&);
void read_internlm3(const reader&, model_config&);
void read_granitemoe(const reader&, model_config&);
void arrange_granitemoe(const model_config&, const checkpoint&, arrangement&);

void read_qwen2(const reader&, model_config&);
void read_qwen3(const reader&, model_config&);
void read_qwen2_moe(const reader&, model_config&);
void read_qwen3_moe(const reader&, model_config&);
void arrange_qwen3_moe(const model_config&, const checkpoint&, arrangement&);

void read_bert(const reader&, model_config&);
void read_roberta(const reader&, model_config&);
void arrange_bert(const model_config&, const checkpoint&, arrangement&);
void read_jina_v3(const reader&, model_config&);
void arrange_jina_v3(const model_config&, const checkpoint&, arrangement&);
void read_nomic(const reader&, model_config&);
void arrange_nomic(const model_config&, const checkpoint&, arrangement&);
void read_modernbert(const reader&, model_config&);
void arrange_modernbert(const model_config&, const checkpoint&, arrangement&);

void read_cohere(const reader&, model_config&);
void arrange_cohere(const model_config&, const checkpoint&, arrangement&);
void read_cohere2(const reader&, model_config&);
void read_cohere2_moe(const reader&, model_config&);
void arrange_cohere2_moe(const model_config&, const checkpoint&, arrangement&);
void read_bloom(const reader&, model_config&);
void arrange_bloom(const model_config&, const checkpoint&, arrangement&);
void read_nanochat(const reader&, model_config&);
void arrange_nanochat(const model_config&, const checkpoint&, arrangement&);
void read_exaone4(const reader&, model_config&);
void read_exaone_moe(const reader&, model_config&);
void arrange_exaone_moe(const model_config&, const checkpoint&, arrangement&);
void read_hy_v3(const reader&, model_config&);
void arrange_hy_v3(const model_config&, const checkpoint&, arrangement&);
void read_mellum(const reader&, model_config&);
void read_glm4_moe_lite(const reader&, model_config&);
void read_youtu(const reader&, model_config&);
void read_minicpm3(const reader&, model_config&);
void arrange_latent(const model_config&, const checkpoint&, arrangement&);
void read_gptj(const reader&, model_config&);
void arrange_gptj(const model_config&, const checkpoint&, arrangement&);
void read_mpt(const reader&, model_config&);
void arrange_mpt(const model_config&, const checkpoint&, arrangement&);
void read_muse_glimmer(const reader&, model_config&);
void arrange_muse_glimmer(const model_config&, const checkpoint&, arrangement&);
void read_solar_open(const reader&, model_config&);
void read_afmoe(const reader&, model_config&);
void arrange_afmoe(const model_config&, const checkpoint&, arrangement&);
void read_llama4(const reader&, model_config&);
void arrange_llama4(const model_config&, const checkpoint&, arrangement&);
void read_ernie4_5(const reader&, model_config&);
void read_ernie4_5_moe(const reader&, model_config&);
void arrange_ernie4_5_moe(const model_config&, const checkpoint&, arrangement&);
void read_hunyuan_dense(const reader&, model_config&);
void read_hunyuan_moe(const reader&, model_config&);
void arrange_hunyuan(const model_config&, const checkpoint&, arrangement&);
void read_gemma3n(const reader&, model_config&);
void read_gemma4(const reader&, model_config&);
void arrange_gemma4(const model_config&, const checkpoint&, arrangement&);

void read_minimax_m2(const reader&, model_config&);
void arrange_minimax_m2(const model_config&, const checkpoint&, arrangement&);
void read_mixtral(const reader&, model_config&);
void arrange_mixtral(const model_config&, const checkpoint&, arrangement&);
void read_smallthinker(const reader&, model_config&);
void arrange_smallthinker(const model_config&, const checkpoint&, arrangement&);
void read_gpt_oss(const reader&, model_config&);
void arrange_gpt_oss(const model_config&, const checkpoint&, arrangement&);

void read_gemma(const reader&, model_config&);
void read_gemma2(const reader&, model_config&);
void read_gemma3(const reader&, model_config&);
void arrange_gemma(const model_config&, const checkpoint&, arrangement&);

void read_deepseek_v2(const reader&, model_config&);
void read_deepseek_v3(const reader&, model_config&);
void read_mimo_v2_flash(const reader&, model_config&);
void arrange_mimo_v2_flash(const model_config&, const checkpoint&, arrangement&);
void read_step3p5(const reader&, model_config&);
void arrange_step3p5(const model_config&, const checkpoint&, arrangement&);
void read_axk1(const reader&, model_config&);
void arrange_axk1(const model_config&, const checkpoint&, arrangement&);
void read_deepseek_v32(const reader&, model_config&);
void read_glm_moe_dsa(const reader&, model_config&);
void arrange_indexed(const model_config&, const checkpoint&, arrangement&);
void arrange_deepseek(const model_config&, const checkpoint&, arrangement&);
void read_mistral4(const reader&, model_config&);
void read_glm4_moe(const reader&, model_config&);
void read_dots1(const reader&, model_config&);
/// Experts alone.
void arrange_shared_experts(const model_config&, const checkpoint&, arrangement&);
/// Refuses more heads or rows than any real model has, which a file can state without holding them.
void bound_latent_attention(const model_config&, const std::string& file);
/// Its attention alone, for other formats of files.
void arrange_latent_attention(const model_config&, arrangement&);

void read_phi(const reader&, model_config&);
void arrange_phi(const model_config&, const checkpoint&, arrangement&);
void read_phi3(const reader&, model_config&);
void arrange_phi3(const model_config&, const checkpoint&, arrangement&);

void read_phimoe(const reader&, model_config&);

void read_olmo2(const reader&, model_config&);
void read_olmoe(const reader&, model_config&);
void read_olmo3(const reader&, model_config&);

void read_glm(const reader&, model_config&);
void read_glm4(const reader&, model_config&);
void arrange_glm(const model_config&, const checkpoint&, arrangement&);

void read_gpt2(const reader&, model_config&);
void arrange_gpt2(const model_config&, const checkpoint&, arrangement&);
void read_gpt_bigcode(const reader&, model_config&);
void arrange_gpt_bigcode(const model_config&, const checkpoint&, arrangement&);
void read_opt(const reader&, model_config&);
void arrange_opt(const model_config&, const checkpoint&, arrangement&);

void read_gpt_neox(const reader&, model_config&);
void arrange_gpt_neox(const model_config&, const checkpoint&, arrangement&);
void read_falcon(const reader&, model_config&);
void arrange_falcon(const model_config&, const checkpoint&, arrangement&);
void read_stablelm(const reader&, model_config&);
void read_starcoder2(const reader&, model_config&);
void arrange_starcoder2(const model_config&, const checkpoint&, arrangement&);
void read_nemotron(const reader&, model_config&);
void arrange_nemotron(const model_config&, const checkpoint&, arrangement&);

void read_lfm2(const reader&, model_config&);
void read_lfm2_moe(const reader&, model_config&);
void arrange_lfm2(const model_config&, const checkpoint&, arrangement&);
void read_lfm3(const reader&, model_config&);
void arrange_lfm3(const model_config&, const checkpoint&, arrangement&);
void read_qwen3_next(const reader&, model_config&);
void read_qwen3_5(const reader&, model_config&);
void read_qwen3_5_moe(const reader&, model_config&);
void arrange_qwen_hybrid(const model_config&, const checkpoint&, arrangement&);
/// Splits attention's `stored` matrix, which has each head's query, then its gate.
void split_attention_gate(const model_config&, tensor_arranger&, int layer, const std::string& stored);
/// Splits a recurrent layer's `stored` matrix, which has for each head of keys the betas, then the rates of its heads
/// of values.
void split_grouped_rates(const model_config&, tensor_arranger&, int layer, const std::string& stored);
void read_mamba2(const reader&, model_config&);
void arrange_mamba2(const model_config&, const checkpoint&, arrangement&);
void read_bamba(const reader&, model_config&);
void arrange_bamba(const model_config&, const checkpoint&, arrangement&);
void read_granite_hybrid(const reader&, model_config&);
void arrange_granite_hybrid(const model_config&, const checkpoint&, arrangement&);
void read_nemotron_h(const reader&, model_config&);
void arrange_nemotron_h(const model_config&, const checkpoint&, arrangement&);
void read_falcon_h1(const reader&, model_config&);
void arrange_falcon_h1(const model_config&, const checkpoint&, arrangement&);
void read_kimi_linear(const reader&, model_config&);
void arrange_kimi_linear(const model_config&, const checkpoint&, arrangement&);

} // namespace troupe::families
