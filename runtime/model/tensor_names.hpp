// The tensors that a configuration asks for: names, as Hugging Face's checkpoints of Llama and its relatives have them,
// and shapes, in one table. Families with other names are presented under these (runtime/model/families).
#pragma once

#include "runtime/checkpoint/checkpoint.hpp"
#include "runtime/model/model_config.hpp"
#include "runtime/support/types.hpp"

#include <cstddef>
#include <set>
#include <string>
#include <vector>

namespace troupe {

struct wanted_tensor {
  std::string name;
  std::vector<std::size_t> shape;
};

/// Refers to the configuration, which must outlive it.
class tensor_names {
public:
  explicit tensor_names(const model_config& config) : config_(config), hidden_(as_size(config.hidden)) {}

  wanted_tensor embedding() const { return {"model.embed_tokens.weight", {as_size(config_.vocab), hidden_}}; }
  wanted_tensor positions() const { return {"model.position_embeddings.weight", {config_.position_rows, hidden_}}; }
  wanted_tensor token_types() const {
    return {"model.token_type_embeddings.weight", {as_size(config_.token_types), hidden_}};
  }
  wanted_tensor embedding_norm() const { return {"model.embedding_norm.weight", {hidden_}}; }
  wanted_tensor final_norm() const { return {"model.norm.weight", {hidden_}}; }
  wanted_tensor head() const {
    return config_.tied ? embedding() : wanted_tensor{"lm_head.weight", {as_size(config_.vocab), hidden_}};
  }
  wanted_tensor head_bias() const { return {"lm_head.bias", {as_size(config_.vocab)}}; }

  // Norms of a layer, of what attention and MLP read and give. Their biases are called ".bias" instead of ".weight".
  wanted_tensor input_norm(int layer) const { return {prefix(layer) + "input_layernorm.weight", {hidden_}}; }
  wanted_tensor post_norm(int layer) const;
  wanted_tensor attention_norm(int layer) const {
    return {prefix(layer) + "post_attention_layernorm.weight", {hidden_}};
  }
  wanted_tensor mlp_norm(int layer) const { return {prefix(layer) + "post_feedforward_layernorm.weight", {hidden_}}; }
  wanted_tensor q_norm(int layer) const {
    return {prefix(layer) + "self_attn.q_norm.weight",
            {config_.qk_norm_whole ? q_width(layer) : as_size(config_.head_dim_of(layer))}};
  }
  wanted_tensor k_norm(int layer) const {
    return {prefix(layer) + "self_attn.k_norm.weight",
            {config_.qk_norm_whole ? kv_width(layer) : as_size(config_.head_dim_of(layer))}};
  }
  std::vector<wanted_tensor> qk_norms(int layer) const; // those that the layer has weights of
  wanted_tensor sinks(int layer) const {
    return {prefix(layer) + "self_attn.sinks", {as_size(config_.heads_of(layer))}};
  }

  const model_config& config() const { return config_; }

  // Shared blocks: the norm of what attention reads, the matrix behind the MLP, and for each product the pairs of matrices
  // that the layer adds to it, [rank, inputs], [outputs, rank]: of gate and up together, or of q, k and v in turn.
  wanted_tensor joined_norm(int layer) const {
    return {block_prefix(layer) + "joined_layernorm.weight", {as_size(config_.attention_input())}};
  }
  wanted_tensor block_output(int layer) const {
    return {prefix(layer) + "shared_block.linear.weight", {hidden_, hidden_}};
  }
  std::vector<wanted_tensor> gate_up_pairs(int layer) const;
  std::vector<wanted_tensor> qkv_pairs(int layer) const;

  wanted_tensor distances(int layer) const {
    return {prefix(layer) + "self_attn.distances",
            {as_size(config_.distances.width), as_size(config_.distance_extent_of(layer))}};
  }

  // Matrices that one op multiplies with. Behind q, k and v comes attn_gate or distance_proj, if there is one.
  std::vector<wanted_tensor> qkv(int layer) const;
  std::vector<wanted_tensor> o(int layer) const;

  // Latent attention: qkv makes the latents; these come behind.
  wanted_tensor latent_q_norm(int layer) const {
    return {prefix(layer) + "self_attn.q_a_layernorm.weight", {as_size(config_.latent.q_rank)}};
  }
  wanted_tensor latent_kv_norm(int layer) const {
    return {prefix(layer) + "self_attn.kv_a_layernorm.weight", {as_size(config_.latent.kv_rank)}};
  }
  wanted_tensor latent_q(int layer) const {
    const auto& latent = config_.latent;
    return {prefix(layer) + "self_attn.q_b_proj.weight",
            {as_size(config_.heads) * as_size(latent.plain + latent.rotated), as_size(latent.q_rank)}};
  }
  // From queries to the space of latents.
  wanted_tensor latent_key(int layer, int head) const {
    return {prefix(layer) + "self_attn.latent_key." + std::to_string(head) + ".weight",
            {as_size(config_.latent.kv_rank), as_size(config_.latent_plain_of(layer))}};
  }
  wanted_tensor latent_value(int layer, int head) const {
    return {prefix(layer) + "self_attn.latent_value." + std::to_string(head) + ".weight",
            {as_size(config_.latent.value), as_size(config_.latent.kv_rank)}};
  }
  // Its indexer: queries of the queries' latent; the key and its layer norm; weights of the heads.
  wanted_tensor index_q(int layer) const {
    const auto& indexer = config_.indexer;
    return {prefix(layer) + "self_attn.indexer.wq_b.weight",
            {as_size(indexer.heads) * as_size(indexer.dim),
             indexer.reads_hidden || indexer.plain()
               ? hidden_
               : as_size(config_.compressed ? config_.compressed.q_rank : config_.latent.q_rank)}};
  }
  wanted_tensor index_key(int layer) const {
    return {prefix(layer) + "self_attn.indexer.wk.weight", {as_size(config_.indexer.dim), hidden_}};
  }
  wanted_tensor index_norm(int layer) const {
    return {prefix(layer) + "self_attn.indexer.k_norm.weight", {as_size(config_.indexer.dim)}};
  }
  wanted_tensor index_head_norm(int layer) const { // plain ones: RMS norm of each head's queries
    return {prefix(layer) + "self_attn.indexer.q_norm.weight", {as_size(config_.indexer.dim)}};
  }
  wanted_tensor index_weights(int layer) const {
    return {prefix(layer) + "self_attn.indexer.weights_proj.weight", {as_size(config_.indexer.heads), hidden_}};
  }
  wanted_tensor index_query_norm(int layer) const { // layer norm of what queries are made of
    return {prefix(layer) + "self_attn.indexer.q_input_norm.weight", {hidden_}};
  }
  // Attention over compressed keys: qkv makes the queries' latent and the key, o reads what groups of heads give.
  wanted_tensor compressed_q_norm(int layer) const {
    return {prefix(layer) + "self_attn.q_a_layernorm.weight", {as_size(config_.compressed.q_rank)}};
  }
  wanted_tensor compressed_kv_norm(int layer) const {
    return {prefix(layer) + "self_attn.kv_norm.weight", {as_size(config_.head_dim)}};
  }
  wanted_tensor compressed_q(int layer) const {
    return {prefix(layer) + "self_attn.q_b_proj.weight",
            {as_size(config_.heads) * as_size(config_.head_dim), as_size(config_.compressed.q_rank)}};
  }
  wanted_tensor compressed_group(int layer, int group) const {
    return {prefix(layer) + "self_attn.o_a_proj." + std::to_string(group) + ".weight",
            {as_size(config_.compressed.group_rank),
             as_size(config_.heads) * as_size(config_.head_dim) / as_size(config_.compressed.groups)}};
  }
  // What entries are made of: products that give keys and gates; the gates' biases; the norm. Those of keys of the
  // indexer likewise.
  std::vector<wanted_tensor> entries(int layer) const {
    return entries_of(layer, "self_attn.compressor.", config_.head_dim);
  }
  std::vector<wanted_tensor> index_entries(int layer) const {
    return entries_of(layer, "self_attn.indexer.compressor.", config_.indexer.dim);
  }
  wanted_tensor expert_table(int layer) const { // whole numbers
    return {prefix(layer) + "mlp.gate.tid2eid", {as_size(config_.vocab), as_size(config_.experts.chosen)}};
  }
  wanted_tensor frequencies() const { return {"model.rotary_emb.alpha", {as_size(config_.latent.rotated) / 2}}; }
  // Numbers of heads by which queries grow, [heads]: scale, bias; those of an indexer.
  std::vector<wanted_tensor> head_growth(int layer) const;
  std::vector<wanted_tensor> index_growth(int layer) const;
  std::vector<wanted_tensor> gate_up(int layer) const { return mlp(layer, "mlp.", as_size(config_.ffn_of(layer))); }
  std::vector<wanted_tensor> down(int layer) const {
    return {{block_prefix(layer) + "mlp.down_proj.weight", {hidden_, as_size(config_.ffn_of(layer))}}};
  }

  // What layers get of each token beside the residual, `width` = layer_inputs of each.
  wanted_tensor layer_inputs() const {
    return {"model.embed_tokens_per_layer.weight",
            {as_size(config_.layer_input_rows > 0 ? config_.layer_input_rows : config_.vocab),
             as_size(config_.layers) * as_size(config_.layer_inputs)}};
  }
  wanted_tensor layer_projection() const {
    return {"model.per_layer_model_projection.weight",
            {as_size(config_.layers) * as_size(config_.layer_inputs), hidden_}};
  }
  wanted_tensor layer_projection_norm() const {
    return {"model.per_layer_projection_norm.weight", {as_size(config_.layer_inputs)}};
  }
  wanted_tensor input_gate(int layer) const {
    return {prefix(layer) + "per_layer_input_gate.weight", {as_size(config_.layer_inputs), hidden_}};
  }
  wanted_tensor input_projection(int layer) const {
    return {prefix(layer) + "per_layer_projection.weight", {hidden_, as_size(config_.layer_inputs)}};
  }
  wanted_tensor input_projection_norm(int layer) const {
    return {prefix(layer) + "post_per_layer_input_norm.weight", {hidden_}};
  }
  wanted_tensor layer_scale(int layer) const { return {prefix(layer) + "layer_scalar", {1}}; }

  // Alternating updates: from the first stream to stream `stream`, from 1 on, and back.
  wanted_tensor altup_in(int stream) const {
    return {"model.altup_projections." + std::to_string(stream - 1) + ".weight", {hidden_, hidden_}};
  }
  wanted_tensor altup_out(int stream) const {
    return {"model.altup_unembed_projections." + std::to_string(stream - 1) + ".weight", {hidden_, hidden_}};
  }
  wanted_tensor altup_router(int layer) const {
    return {prefix(layer) + "altup.modality_router.weight", {as_size(config_.altup.streams), hidden_}};
  }
  wanted_tensor altup_router_norm(int layer) const { return {prefix(layer) + "altup.router_norm.weight", {hidden_}}; }
  wanted_tensor altup_prediction(int layer) const {
    const auto streams = as_size(config_.altup.streams);
    return {prefix(layer) + "altup.prediction_coefs.weight", {streams * streams, streams}};
  }
  wanted_tensor altup_correction(int layer) const {
    const auto streams = as_size(config_.altup.streams);
    return {prefix(layer) + "altup.correction_coefs.weight", {streams, streams}};
  }
  wanted_tensor altup_output_scale(int layer) const {
    return {prefix(layer) + "altup.correct_output_scale", {hidden_}};
  }
  std::vector<wanted_tensor> laurel(int layer) const; // [laurel, hidden], [hidden, laurel]
  wanted_tensor laurel_norm(int layer) const { return {prefix(layer) + "laurel.post_laurel_norm.weight", {hidden_}}; }

  // Hyper-connections: what mixes the streams for a part of a layer, and behind the last layer.
  std::vector<wanted_tensor> hyper_attention(int layer) const {
    return hyper(prefix(layer) + "attn_hyper_connection.", true);
  }
  std::vector<wanted_tensor> hyper_mlp(int layer) const { return hyper(prefix(layer) + "mlp_hyper_connection.", true); }
  std::vector<wanted_tensor> hyper_head() const { return hyper("model.hyper_connection_mixer.", false); }

  /// The parameters of an activation that is learned (xielu): [1] each.
  std::vector<wanted_tensor> activation(int layer) const;

  // A mixture of experts: [experts, hidden], and per expert as gate_up and down.
  wanted_tensor router(int layer) const {
    return {prefix(layer) + "mlp.gate.weight", {as_size(config_.experts.count), hidden_}};
  }
  wanted_tensor router_correction(int layer) const {
    return {prefix(layer) + "mlp.gate.e_score_correction_bias",
            {as_size(config_.experts.count - config_.experts.always)}};
  }
  std::vector<wanted_tensor> expert_gate_up(int layer, int expert) const {
    return mlp(layer, "mlp.experts." + std::to_string(expert) + ".", as_size(config_.experts.ffn));
  }
  std::vector<wanted_tensor> expert_down(int layer, int expert) const {
    return {{prefix(layer) + "mlp.experts." + std::to_string(expert) + ".down_proj.weight",
             {hidden_, as_size(config_.experts.ffn)}}};
  }
  std::vector<wanted_tensor> shared_gate_up(int layer) const {
    return mlp(layer, "mlp.shared_expert.", as_size(config_.experts.shared_ffn));
  }
  std::vector<wanted_tensor> shared_down(int layer) const {
    return {{prefix(layer) + "mlp.shared_expert.down_proj.weight", {hidden_, as_size(config_.experts.shared_ffn)}}};
  }
  wanted_tensor shared_gate(int layer) const { return {prefix(layer) + "mlp.shared_expert_gate.weight", {1, hidden_}}; }
  // Mixtures whose parts have norms of their own: norms of what router and experts read, and of what shared expert and
  // experts give; and scales, [experts].
  std::vector<wanted_tensor> mixture_norms(int layer) const;
  wanted_tensor expert_scales(int layer) const {
    return {prefix(layer) + "mlp.gate.expert_scale", {as_size(config_.experts.count)}};
  }

  /// The biases of such matrices, each as long as its matrix has rows.
  static std::vector<wanted_tensor> biases(const std::vector<wanted_tensor>& matrices);

  static wanted_tensor bias(const wanted_tensor& weight);

  /// Every tensor of the model, or of the part that the configuration describes, each once.
  std::vector<wanted_tensor> all() const;

  /// Names of the weights of all norms.
  std::vector<std::string> norms() const;

  /// Whether a tensor is a few numbers that stay in host memory.
  static bool on_host(const std::string& name);

private:
  static std::string prefix(int layer) { return "model.layers." + std::to_string(layer) + "."; }
  /// Of what layers may share.
  std::string block_prefix(int layer) const {
    return prefix(config_.shared_blocks ? config_.block_layer(layer) : layer);
  }
  /// The norms of a layer that the model has, of q and k left out.
  std::vector<wanted_tensor> layer_norms(int layer) const;
  std::vector<wanted_tensor> entries_of(int layer, const std::string& stem, int dim) const;
  std::size_t latent_queries() const; // what the first of qkv gives
  std::vector<wanted_tensor> mlp(int layer, const std::string& stem, std::size_t ffn) const;
  /// Without a rank: fn, base, scale. With one: the norm, products down and up and, if streams are `written`, of the
  /// weights by which they are.
  std::vector<wanted_tensor> hyper(const std::string& stem, bool written) const;

  std::size_t q_width(int layer) const {
    return as_size(config_.heads_of(layer)) * as_size(config_.head_dim_of(layer));
  }
  std::size_t kv_width(int layer) const {
    return as_size(config_.kv_heads_of(layer)) * as_size(config_.head_dim_of(layer));
  }

  const model_config& config_;
  std::size_t hidden_;
};

/// Names of the tensors that a model is computed from.
std::set<std::string> tensors_used(const model_config& config);

/// Finds one tensor. Throws failure(bad_file | unsupported) if it is missing, has another shape or a type that is
/// not supported, with a sentence that names the file, the tensor, what was found and what was expected.
const tensor_info& require_tensor(const checkpoint& tensors, const wanted_tensor& wanted);

/// Finds every tensor that the configuration asks for, then looks at those that it does not ask for
/// (unused_tensors.hpp). Throws as `require_tensor`. Returns sentences for the log: tensors that are harmlessly left
/// unused. `others`: tensors with another use.
std::vector<std::string> check_tensors(const checkpoint& tensors, const model_config& config,
                                       const std::set<std::string>& others = {});

} // namespace troupe
