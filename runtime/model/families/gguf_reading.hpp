// What families share in reading the metadata of GGUF files. Functions throw failure(bad_file | unsupported) naming the
// key.
#pragma once

#include "runtime/model/families/gguf_architecture.hpp"

#include <cstddef>
#include <span>
#include <string_view>

namespace troupe::families {

/// All that an architecture says beside the keys of every one, and what its family is (apply_traits).
void describe_gguf(const gguf_architecture& architecture, const architecture_keys& keys, model_config& model);

/// A multiplier, and its key.
struct gguf_multiplier {
  std::string_view key;
  float model_config::*value;
  float usual;           // if the key is missing
  bool reversed = false; // files have what is divided by
};
std::span<const gguf_multiplier> multipliers();

float number(const architecture_keys& keys, std::string_view key, float fallback);

/// Rows of a table that must be there.
std::size_t rows_of(const architecture_keys& keys, const char* name);

/// Whether a layer has a tensor.
bool has(const architecture_keys& keys, int layer, std::string_view name);

/// Which layers have a window, by a list or a period: all but the first of as many, or the last.
void slide(const architecture_keys& keys, model_config& model, int window, int period, bool last = false);

/// How layers with a window rotate.
rope_config rope_of_windows(const architecture_keys& keys);
/// The same, and the others as in Gemma 3 where no key says it.
void rotate_by_kind(const architecture_keys& keys, model_config& model);

/// Queries whose scores grow beyond the original context.
void describe_growth(const architecture_keys& keys, model_config& model);

/// Gemma 3n and 4: the last layers read K and V of the last earlier one of their kind.
void share_keys(const architecture_keys& keys, model_config& model, int usual);
/// The widths of their MLPs, by their tensors.
void read_widths(const architecture_keys& keys, model_config& model);

/// An encoder's tables and norms.
void describe_encoder(const architecture_keys& keys, model_config& model);

/// Experts: their number and sizes.
void describe_experts(const architecture_keys& keys, model_config& model);
/// With what later architectures say of them: a shared one, how scores are made, corrected and scaled.
void describe_routed_experts(const architecture_keys& keys, model_config& model, bool renormalise);
/// How scores become weights, and choose within groups: V2 takes a group for as good as its best expert, V3 as its two
/// best.
void describe_choice(const architecture_keys& keys, expert_config& experts, bool renormalise);
bool has_experts(const architecture_keys& keys);
/// How experts are gated, as files number it; `unsaid` where they do not.
enum class gguf_gating : std::uint8_t { unsaid, softmax, sigmoid };
gguf_gating gating_of(const architecture_keys& keys);

/// A size of a recurrence, and its key.
struct recurrent_size {
  std::string_view key;
  int recurrent_config::*value;
  int most;
  unsigned types; // bits of recurrent_type
  int usual = 0;  // if the key is missing; 0: it must be there

  bool is_of(recurrent_type type) const { return (types >> static_cast<unsigned>(type) & 1U) != 0; }
};
std::span<const recurrent_size> recurrent_sizes();

/// Reads those of a type. Of the types with heads of values, whose widths `ssm.inner_size` has together, that too.
void describe_recurrence(const architecture_keys& keys, model_config& model, recurrent_type type);
void describe_mamba(const architecture_keys& keys, model_config& model, bool beside);
/// What layers consist of, by the tensors that they have. `beside`: attention may be beside a recurrence.
void describe_parts(const architecture_keys& keys, model_config& model, std::string_view recurrent,
                    bool beside = false);
/// Whether the first layer with a recurrence has a tensor.
bool has_of_first(const architecture_keys& keys, const model_config& model, std::string_view name);

} // namespace troupe::families
