// The families of models: how each one's config.json or GGUF metadata becomes the description of a decoder
// (model_config), and how its checkpoints store the tensors. One file per family or lineage in this folder;
// `lineages.hpp` lists them.
#pragma once

#include "runtime/checkpoint/arranged_checkpoint.hpp"
#include "runtime/model/families/gguf_architecture.hpp"
#include "runtime/model/model_config.hpp"
#include "runtime/support/json/json_reader.hpp"

#include <span>
#include <string_view>

namespace troupe {

/// How a family's classifiers score pooled states: a layer over them, whose tensors have one of two names, and labels.
struct classifier_form {
  const char* dense[2] = {};
  const char* labels = "classifier";
  const char* norm = nullptr; // behind the first layer, of which configurations tell more
};

struct family {
  std::string_view name; // `model_type`

  /// Reads sizes, positions and all that differs from a llama. `model` has its family's name.
  void (*read)(const json::reader& config, model_config& model);

  /// Adds the tensors whose names or layouts differ from tensor_names'; null: none do. Of `stored`, only the headers.
  void (*arrange)(const model_config& model, const checkpoint& stored, arrangement& to) = nullptr;

  /// How its models are written in GGUF files, the usual architecture first; without a name: there is none.
  gguf_architecture gguf[2] = {};

  enum trait : unsigned {
    // What models are, which readers may change:
    layer_norm = 1U << 0U,  // with biases
    shared_norm = 1U << 1U, // attention and MLP are parallel, and read the same norm
    norms_both = 1U << 2U,
    norms_after = 1U << 3U,
    norms_sums = 1U << 4U, // an encoder's
    normed_heads = 1U << 5U,
    normed_whole = 1U << 6U,
    normed_behind = 1U << 7U,
    ungated = 1U << 8U,
    sigmoid = 1U << 9U, // scores of experts
    chosen = 1U << 10U, // likewise
    renormalises = 1U << 11U,
    // What their folders are:
    paired_heads = 1U << 12U,    // neighbouring dimensions of q and k rotate together, not those half a head apart,
    exchanged_heads = 1U << 13U, // or these the other way round. For adapters, which do not go through `arrange`
    parts_predict = 1U << 14U,   // layers of multi-token prediction are mixers or MLPs,
    shifted_predict = 1U << 15U, // multiply by 1 + the weights of their norms,
    chained_predict = 1U << 16U, // and go on from what the last norm gave (mtp_layers)
    ranks_by_answer = 1U << 17U, // models called rerankers score by how likely "yes" is
  };
  unsigned traits = 0;

  bool is(trait what) const { return (traits & what) != 0; }

  classifier_form classifier = {}; // of encoders
};

/// All of them, in the order of messages.
std::span<const family* const> all_families();

/// Null if there is none.
const family* find_family(std::string_view name);

/// Whether GGUF files of the architecture order the rows of q and k for rotating neighbours.
bool gguf_has_pairs(std::string_view architecture);

bool has_trait(const model_config& model, family::trait trait);

/// Applies a family's traits to a configuration that is about to be read.
void apply_traits(const family& of, model_config& model);

/// Throws failure(bad_file | unsupported) if `model_type` is missing or unknown.
const family& family_of(const json::reader& config);

/// Presents a folder's tensors as the decoder wants them: by its family's names, with q and k in the order in which
/// kernels rotate. Throws as `arrange`.
std::unique_ptr<const checkpoint> arrange_tensors(std::unique_ptr<const checkpoint> stored, const model_config& model);

} // namespace troupe
