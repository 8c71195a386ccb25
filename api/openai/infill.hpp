// Fills in the middle of a text: `suffix` of completions, and llama.cpp's /infill, which editors' plugins speak. The
// model must have been trained for it; the tokens it uses are served_model::infill. Pure; runs on worker threads.
#pragma once

#include "api/openai/answer_writer.hpp"
#include "api/service/served_model.hpp"
#include "runtime/sampling/sampling_params.hpp"
#include "runtime/support/json/field_reader.hpp"

#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <vector>

namespace troupe {

/// What stands behind the gap, and in other files.
struct infilling {
  std::vector<token_id> suffix;
  std::vector<infill_context> others = {};

  /// The prompt that asks for what is between `prefix` and the suffix.
  std::vector<token_id> prompt(const served_model& model, std::span<const token_id> prefix) const;
};

/// `suffix` of a completion; nothing if it is absent or empty. Throws failure if the model cannot fill in, or beside
/// `echo`.
std::optional<infilling> read_suffix(const field_reader& body, const served_model& model, bool echo);

/// The ids and those that end what is filled in.
stop_id_set with_ends(const stop_id_set& ids, const infill_tokens& tokens);

/// POST /infill: `input_prefix`, `input_suffix`, `input_extra`, and llama.cpp's other fields of completions.
generation_job infill_job(const field_reader& body, std::shared_ptr<const served_model> model,
                          const std::stop_token& stop);

} // namespace troupe
