// What config.json files of DeepSeek and its relatives share: latent attention, and experts chosen within groups, beside
// shared ones. Every function throws failure(bad_file | unsupported) naming file and key.
#pragma once

#include "runtime/model/model_config.hpp"
#include "runtime/support/json/json_reader.hpp"

#include <initializer_list>
#include <string_view>

namespace troupe::families {

using json::reader;

struct latent_defaults {
  int q_rank = 1536, kv_rank = 512, plain = 128, rotated = 64, value = 128;
  int positions = 4096;
  bool any_kv_heads = false; // what the configuration says of them is not looked at
};

/// The heads' sizes and positions. YaRN with `mscale_all_dim` scales the scores, too.
void read_latent_attention(const reader& config, model_config& model, const latent_defaults& defaults);

struct mixture_keys {
  const char* shared = "n_shared_experts";
  const char* dense = "first_k_dense_replace"; // layers without experts, at the beginning
  const char* scale = "routed_scaling_factor";
};

/// The experts, which layers have any (as the key `dense` or `mlp_layer_types` says), and the scale of their weights.
void read_experts_of_groups(const reader& config, model_config& model, int default_count, int default_chosen,
                            int default_ffn, int default_shared, int default_dense, const mixture_keys& keys = {});

void read_groups(const reader& config, model_config& model, int default_groups, int default_chosen);

/// A sigmoid, and a correction for the choice only. `scores`: what `scoring_func` may call it.
void read_corrected_router(const reader& config, model_config& model, bool renormalise,
                           std::initializer_list<std::string_view> scores = {"sigmoid"});

/// A learned indexer. `pairs`: how checkpoints of the family rotate its heads, unless they say so.
void read_indexer(const reader& config, model_config& model, int default_heads, bool pairs);

/// Which layers take the choice of the one before: `indexer_types`, else `index_topk_pattern`, else every layer but one
/// in `index_topk_freq`.
void read_shared_choices(const reader& config, model_config& model);

} // namespace troupe::families
