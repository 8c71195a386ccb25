// What the config.json files of families with recurrent layers share: which layers are recurrent, and the sizes of
// Mamba 2. Every function throws failure(bad_file | unsupported) naming file and key.
#pragma once

#include "runtime/model/families/config_reading.hpp"
#include "runtime/model/families/lineages.hpp"

#include <optional>
#include <string>
#include <vector>

namespace troupe::families {

/// A list of one word for each layer, with the older words replaced by those of transformers 5 ("linear_attention",
/// "full_attention", "mlp", "moe", "conv"). Nothing if the key is absent.
std::optional<std::vector<std::string>> read_layer_words(const reader& config, const char* key);

/// Sets `parts` by such words, one for each layer. Layers have an MLP, too, unless `alone`.
void set_layer_parts(const reader& config, model_config& model, const char* key, const std::vector<std::string>& words,
                     bool alone = false);

/// Names of keys.
struct mamba_keys {
  const char* heads = "mamba_n_heads";
  const char* head_dim = "mamba_d_head"; // or "auto"
  const char* groups = "mamba_n_groups";
  const char* state = "mamba_d_state";
  const char* taps = "mamba_d_conv";
  const char* expand = "mamba_expand";
  const char* conv_bias = "mamba_conv_bias";
  const char* bias = "mamba_proj_bias";
  int default_heads = 128, default_groups = 1, default_state = 256;
  std::optional<int> inner = {}; // values of all heads; else `expand` * hidden
};

struct hybrid_rules {
  const char* ffn = "intermediate_size"; // null: all layers have experts
  int default_kv_heads = 4;
  double default_partial = 0.25; // of heads are rotated
  bool indexed = false;          // attention may be called "indexed_attention"
};

/// Gated DeltaNets, and attention with an output gate in other layers, as Qwen 3.5 and its relatives have them.
void read_qwen_hybrid(const reader& config, model_config& model, const hybrid_rules& rules);
/// Its experts, beside a gated shared one.
void read_qwen_hybrid_experts(const reader& config, model_config& model, int default_count, int default_chosen);

/// Mamba 2, normed behind its gate by groups.
void read_mamba(const reader& config, model_config& model, const mamba_keys& keys = {});

/// Sizes of a model of Mamba's layers alone, whose configuration states no limit of positions.
void read_mixers_alone(const reader& config, model_config& model, bool tied);

/// A norm in front of each mixer or MLP, and names without "model.".
void rename_backbone(const model_config& model, tensor_arranger& tensors, arrangement& to);

/// Divides the values of Mamba 1 into equal heads, which threads share.
void divide_values(recurrent_config& recurrent, int inner);

/// `time_step_limit`, where it is there.
void read_time_steps(const reader& config, model_config& model);

/// Refuses more than any real model has, which a file can state without holding it.
void bound_recurrence(const std::string& file, const model_config& model);

/// Presents the tensors of Mamba 2: `stem` is "mamba." or "mixer.".
void arrange_mamba(const model_config& model, tensor_arranger& tensors, int layer, const std::string& stem);

/// Presents convolution, decay, dt_bias and norm, and the last product, stored behind `stem`.
void arrange_recurrence(const model_config& model, tensor_arranger& tensors, int layer, const std::string& stem);

} // namespace troupe::families
