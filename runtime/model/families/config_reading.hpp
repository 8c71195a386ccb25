// What config.json files of many families share: keys of sizes, positions, windows, activations and experts. Every
// function throws failure(bad_file | unsupported) naming file and key.
#pragma once

#include "runtime/model/model_config.hpp"
#include "runtime/support/json/json_reader.hpp"

#include <initializer_list>
#include <string_view>
#include <vector>

namespace troupe::families {

using json::reader;

/// Names of keys, and transformers' defaults where they are absent.
struct size_rules {
  const char* hidden = "hidden_size";
  const char* layers = "num_hidden_layers";
  const char* heads = "num_attention_heads";
  const char* kv_heads = "num_key_value_heads"; // null: as many as heads
  const char* ffn = "intermediate_size";        // null: the family reads it
  int default_kv_heads = 0;                     // 0: as many as heads
  int default_head_dim = 0;                     // 0: hidden / heads
  const char* norm_eps = "rms_norm_eps";
  double default_norm_eps = 1e-6;
  bool tied = false; // default of `tie_word_embeddings`
  int most_head_dim = 256;
};

/// Sizes, the norm's epsilon, and whether the head is tied.
void read_sizes(const reader& config, model_config& model, const size_rules& rules = {});

struct position_rules {
  const char* context = "max_position_embeddings";
  int default_context = 2048;
  double theta = 10000;
  bool theta_by_layer = false; // `rope_theta` lists one for each layer, and `theta` is what came of it
  bool partial = false;        // parts of heads may be rotated
  double default_partial = 1;  // the part
  bool interleaved = false;
  bool whole = false; // `partial_rotary_factor` is of something else than the rotated heads
};

/// Rotary positions and the context.
void read_positions(const reader& config, model_config& model, const position_rules& rules = {});

/// Rotary positions and the context, with parameters of their own for layers with and without a window. Scaling applies
/// to those without; `local_theta` is for the others where `rope_parameters` does not say.
void read_layer_positions(const reader& config, model_config& model, const position_rules& rules, double local_theta);

/// Reads rotary positions from an object with `rope_type` and parameters, or none: rope_parameters of transformers 5,
/// rope_scaling of transformers 4. `positions`: of the configuration, before scaling.
rope_config read_rope(const reader& config, const std::optional<reader>& given, int head_dim, int positions,
                      const position_rules& rules);

/// `layer_rope_theta`: the base of each layer's rotation, where 0 is none; at most one for layers with a window, and one
/// for the others. False if the key is absent.
bool read_layer_thetas(const reader& config, model_config& model);

/// Rotation of a kind of layers ("full_attention"), perhaps proportional; `portion`: of the pairs of dimensions that
/// rotate, where `rope_parameters` says nothing of the kind.
rope_config read_proportional(const reader& config, const char* kind, double theta, double portion);

/// `llama_4_scaling_beta` of the parameters of positions; none: no growth.
query_growth read_growth(const reader& config);

/// Sets `max_context`, scaling included.
void set_context(model_config& model, int positions);

/// `layer_types`: whether each layer's attention slides. Nothing if the key is absent.
std::optional<std::vector<bool>> read_layer_types(const reader& config, int layers);

/// `mlp_layer_types`: whether each layer has experts ("sparse", else "dense"). Nothing if the key is absent.
std::optional<std::vector<bool>> read_mlp_types(const reader& config, int layers);

/// `sliding_window`, where null is none, which is 0.
int read_window(const reader& config, int fallback);

/// One window for all layers: `sliding_window`, where null is none.
void read_one_window(const reader& config, model_config& model, int fallback);

/// `sliding_window` for the layers that slide by `layer_types`, else all but every `period`-th, counted from `before`
/// layers ahead of the first.
void read_alternating_windows(const reader& config, model_config& model, int fallback, int period, int before = 0);

/// Windows of the Qwen lineage: `use_sliding_window`, then `layer_types`, else the layers from `max_window_layers` on.
void read_late_windows(const reader& config, model_config& model, int fallback);

/// `num_kv_shared_layers`: the last ones read K and V of the last earlier layer of their kind, with a window or
/// without.
void read_kv_sharing(const reader& config, model_config& model, int fallback);

/// An activation by transformers' name. `only_silu`: others are refused.
void read_activation(const reader& config, model_config& model, const char* key, const char* fallback,
                     bool only_silu = false);

/// Refuses a boolean key that is not `expected` where it is there.
void require(const reader& config, const char* key, bool expected);

/// Refuses a word that is not one of `known` where it is there.
void require_word(const reader& config, const char* key, std::initializer_list<std::string_view> known);

/// Refuses a number that is not `expected` where it is there.
void require_number(const reader& config, const char* key, int expected);

/// Number of experts, and of those that a row chooses.
void read_expert_counts(const reader& config, model_config& model, std::initializer_list<const char*> count_keys,
                        int default_count, int default_chosen);

/// Which layers have experts: `mlp_only_layers` and `decoder_sparse_step`.
void read_sparse_layers(const reader& config, model_config& model);

} // namespace troupe::families
