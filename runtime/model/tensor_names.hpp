// The tensors that a configuration asks for: names, as Hugging Face's checkpoints of Llama and its relatives have them,
// and shapes. Families with other names are presented under these (runtime/model/families).
#pragma once

#include "runtime/checkpoint/checkpoint.hpp"
#include "runtime/model/model_config.hpp"

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
  explicit tensor_names(const model_config& config);

  wanted_tensor embedding() const;   // [vocab, hidden]
  wanted_tensor positions() const;   // learned: [position_rows, hidden]
  wanted_tensor token_types() const; // [token_types, hidden]
  wanted_tensor embedding_norm() const;
  wanted_tensor final_norm() const;
  wanted_tensor head() const; // the embedding for tied models
  wanted_tensor head_bias() const;

  // Norms of a layer. Their biases are called ".bias" instead of ".weight".
  wanted_tensor input_norm(int layer) const;     // of what attention reads
  wanted_tensor post_norm(int layer) const;      // of what the MLP reads
  wanted_tensor attention_norm(int layer) const; // of what attention gives
  wanted_tensor mlp_norm(int layer) const;       // of what the MLP gives
  wanted_tensor q_norm(int layer) const;
  wanted_tensor k_norm(int layer) const;
  std::vector<wanted_tensor> qk_norms(int layer) const; // those that the layer has weights of
  wanted_tensor sinks(int layer) const;                 // [heads]

  const model_config& config() const { return config_; }

  // Matrices that one op multiplies with. Behind q, k and v comes attn_gate, if there is one.
  std::vector<wanted_tensor> qkv(int layer) const;
  std::vector<wanted_tensor> o(int layer) const;

  // Latent attention: qkv makes the latents; these come behind.
  wanted_tensor latent_q_norm(int layer) const;          // [q_rank], if there is one
  wanted_tensor latent_kv_norm(int layer) const;         // [kv_rank]
  wanted_tensor latent_q(int layer) const;               // [heads * (plain + rotated), q_rank], if there is one
  wanted_tensor latent_key(int layer, int head) const;   // [kv_rank, plain], from queries to the space of latents
  wanted_tensor latent_value(int layer, int head) const; // [value, kv_rank]
  // Its indexer: queries of the queries' latent, [heads * dim, q_rank]; the key, [dim, hidden], and its layer norm, [dim];
  // weights of the heads, [heads, hidden].
  wanted_tensor index_q(int layer) const;
  wanted_tensor index_key(int layer) const;
  wanted_tensor index_norm(int layer) const;
  wanted_tensor index_weights(int layer) const;
  wanted_tensor index_query_norm(int layer) const; // layer norm of what queries are made of: [hidden]
  wanted_tensor frequencies() const;               // alpha, [rotated / 2]
  // Numbers of heads by which queries grow, [heads]: scale, bias; those of an indexer.
  std::vector<wanted_tensor> head_growth(int layer) const;
  std::vector<wanted_tensor> index_growth(int layer) const;
  std::vector<wanted_tensor> gate_up(int layer) const; // only up if there is no gate
  std::vector<wanted_tensor> down(int layer) const;

  // What layers get of each token beside the residual, `width` = layer_inputs of each.
  wanted_tensor layer_inputs() const;              // [vocab, layers * width]
  wanted_tensor layer_projection() const;          // [layers * width, hidden]
  wanted_tensor layer_projection_norm() const;     // [width]
  wanted_tensor input_gate(int layer) const;       // [width, hidden]
  wanted_tensor input_projection(int layer) const; // [hidden, width]
  wanted_tensor input_projection_norm(int layer) const;
  wanted_tensor layer_scale(int layer) const; // [1]

  // Alternating updates, of `streams` streams.
  wanted_tensor altup_in(int stream) const;           // [hidden, hidden], from the first stream, from 1 on
  wanted_tensor altup_out(int stream) const;          // likewise back
  wanted_tensor altup_router(int layer) const;        // [streams, hidden]
  wanted_tensor altup_router_norm(int layer) const;   // [hidden]
  wanted_tensor altup_prediction(int layer) const;    // [streams * streams, streams]
  wanted_tensor altup_correction(int layer) const;    // [streams, streams]
  wanted_tensor altup_output_scale(int layer) const;  // [hidden]
  std::vector<wanted_tensor> laurel(int layer) const; // [laurel, hidden], [hidden, laurel]
  wanted_tensor laurel_norm(int layer) const;         // [hidden]

  /// The parameters of an activation that is learned (xielu): [1] each.
  std::vector<wanted_tensor> activation(int layer) const;

  // A mixture of experts: [experts, hidden], and per expert as gate_up and down.
  wanted_tensor router(int layer) const;
  wanted_tensor router_correction(int layer) const; // [experts]
  std::vector<wanted_tensor> expert_gate_up(int layer, int expert) const;
  std::vector<wanted_tensor> expert_down(int layer, int expert) const;
  std::vector<wanted_tensor> shared_gate_up(int layer) const;
  std::vector<wanted_tensor> shared_down(int layer) const;
  wanted_tensor shared_gate(int layer) const; // [1, hidden]
  // Mixtures whose parts have norms of their own: norms of what router and experts read, and of what shared expert and
  // experts give; and scales, [experts].
  std::vector<wanted_tensor> mixture_norms(int layer) const;
  wanted_tensor expert_scales(int layer) const;

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
  /// The norms of a layer that the model has, of q and k left out.
  std::vector<wanted_tensor> layer_norms(int layer) const;
  std::size_t latent_queries() const; // what the first of qkv gives
  std::vector<wanted_tensor> mlp(int layer, const std::string& stem, std::size_t ffn) const;

  const model_config& config_;
  std::size_t q_width(int layer) const;
  std::size_t kv_width(int layer) const;

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
