// Finds the text part of multimodal models: where the configuration keeps it, and which family it belongs to. Used by
// model_config; the tensors' names are in runtime/checkpoint/text_tensors.
#pragma once

#include "runtime/support/json/json.hpp"

#include <optional>
#include <string>

namespace troupe {

struct text_part {
  json::document config; // as a config.json of the text alone, with a family's `model_type`
  std::string whole;     // `model_type` of the multimodal model
};

/// Nothing if the configuration is of a family itself, or has no text that is known by its place. Keys that some
/// programs write around the text's own (quantisation, a tied head, ends of sequences) are in the result. Throws
/// failure(bad_file | unsupported) naming file and key.
std::optional<text_part> find_text(const json::document& config);

} // namespace troupe
