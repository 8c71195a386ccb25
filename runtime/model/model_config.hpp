// A model's configuration: sizes, biases, windows and positions, as data that configures the one decoder graph, and the
// defaults for generation that its authors recommend. Read once at load, immutable afterwards.
#pragma once

#include "runtime/checkpoint/quantised_checkpoint.hpp"
#include "runtime/model/rope.hpp"
#include "runtime/sampling/sampling_params.hpp"
#include "runtime/support/types.hpp"

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace troupe {

namespace json {
class document;
}

struct model_config {
  std::string family; // llama, mistral, qwen2 or qwen3
  int vocab = 0;
  int hidden = 0;
  int layers = 0;
  int heads = 0;
  int kv_heads = 0; // divides heads
  int head_dim = 0; // even; heads * head_dim may differ from hidden
  int ffn = 0;
  bool qkv_bias = false;
  bool o_bias = false;
  bool mlp_bias = false;
  bool qk_norm = false; // RMS norm of each head's q and k
  bool tied = false;    // the head is the embedding matrix
  float norm_eps = 1e-6f;
  std::vector<int> windows; // [layers]: positions that a token attends to, its own included; 0: all
  int max_context = 0;      // tokens, rope scaling included
  rope_config rope;

  bool operator==(const model_config&) const = default;
};

/// What `generation_config.json` says. Requests override it.
struct generation_defaults {
  std::vector<token_id> stops; // end of sequence; falls back to config.json's `eos_token_id`
  bool sample = false;
  sampling_params sampling;         // for requests that say nothing; within the ranges of sampling_table.hpp
  std::vector<std::string> remarks; // one line per value that was out of range, for the log
};

/// Reads a `config.json` as transformers 4 or 5 writes it. Absent keys take transformers' defaults, but sizes are
/// required. `dtype` (`torch_dtype`) is not read: the tensors have types of their own. Throws failure(bad_file |
/// unsupported) naming the file and the key.
model_config parse_model_config(const json::document& config);

/// Reads a `generation_config.json`; null if there is none.
generation_defaults parse_generation_config(const json::document* generation, const json::document& config);

/// All configuration files of a checkpoint's folder. Only config.json is required.
struct checkpoint_config {
  model_config model;
  generation_defaults generation;
  std::optional<quantised_storage> quantised;
};
checkpoint_config read_config(const std::filesystem::path& folder);

} // namespace troupe
