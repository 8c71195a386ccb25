// Layers of multi-token prediction that a checkpoint has behind its own. They guess a token from the hidden state two
// positions before it and the token between (https://arxiv.org/abs/2412.19437, section 2.2). Embedding and head are the
// model's. Opened with a model's tensors; used by runtime/techniques/speculation/mtp_runner.
#pragma once

#include "runtime/checkpoint/checkpoint.hpp"
#include "runtime/model/decoder/memory_estimate.hpp"
#include "runtime/model/decoder/weights.hpp"
#include "runtime/model/model_config.hpp"
#include "runtime/model/tensor_names.hpp"

#include <memory>
#include <optional>
#include <set>
#include <string>

namespace troupe {

struct mtp_layers {
  model_config config;      // with a span of these layers alone, behind those of the model
  float norm_offset = 0;    // added to the weights of their own norms
  bool chains_norm = false; // the next guess reads what the last norm gave; else what the last layer gave
};

/// Presents such layers as those behind the model's, where they have names of their own ("mtp.layers.0.").
std::unique_ptr<const checkpoint> rename_mtp_layers(std::unique_ptr<const checkpoint> stored,
                                                    const model_config& model);

/// What `stored`, renamed, has of them; nothing if there are none, or none that are supported. `of_gguf`: the file is
/// one, whose norms are stored as they are multiplied with. Looks at headers.
std::optional<mtp_layers> find_mtp_layers(const checkpoint& stored, const model_config& model, bool of_gguf = false);

/// Whether all their tensors are there, in their shapes. `tensors`: as presented.
bool has_all(const checkpoint& tensors, const mtp_layers& layers);

/// Their tensors beside those of the layers' own, as presented: token norm, state norm, joined, final norm.
std::vector<wanted_tensor> tensors_around(const mtp_layers& layers);

/// The configuration of model and layers together, for the arrangement of all their tensors.
model_config with_mtp_layers(const model_config& model, const std::optional<mtp_layers>& layers);

struct mtp_weights {
  std::shared_ptr<const model_weights> layers;
  norm_weights token_norm, state_norm, final_norm;
  std::unique_ptr<const kernels::matrix> joined; // [hidden, 2 hidden]: of the token's embedding, then the state, normed
  bool chains_norm = false;
  std::size_t bytes = 0;
};

/// Throws as load_weights.
std::shared_ptr<const mtp_weights> load_mtp_weights(const checkpoint& tensors, const mtp_layers& layers,
                                                    kernels::backend& backend, precision precision,
                                                    const progress_fn& progress = {});

/// Bytes of the weights beside those of the layers, which have an estimate of their own. Throws as `require_tensor`.
std::size_t mtp_weight_bytes(const checkpoint& tensors, const mtp_layers& layers, precision precision,
                             const kernels::backend& backend);

/// The names of all their tensors.
std::set<std::string> tensors_used(const mtp_layers& layers);

} // namespace troupe
