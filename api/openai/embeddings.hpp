// POST /v1/embeddings: OpenAI's request and answer. The vectors are pooled by the engine, as the checkpoint says; here
// they are shortened, normalised and written. Pure; parsing runs on worker threads.
#pragma once

#include "api/openai/answer_writer.hpp"
#include "api/service/served_model.hpp"
#include "runtime/engine/generation.hpp"
#include "runtime/support/json/field_reader.hpp"

#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

namespace troupe {

/// Inputs of one request.
inline constexpr std::size_t most_inputs = 1024;

/// What becomes of a pooled vector.
struct vector_form {
  bool normalise = true;                         // to length 1
  std::optional<std::size_t> dimensions = {};    // only the first so many
  std::shared_ptr<const pooled_head> dense = {}; // that it passes before all that; null: none
};

/// Throws failure(unsupported) if the model has no embeddings.
void require_embeddings(const served_model& model);

/// What goes ahead of texts: the prompt that `prompt_name` names, or the checkpoint's usual one. Throws failure naming
/// the field.
std::string_view prompt_of(const field_reader& body, const served_model& model);
/// The prompt of that name; empty: none. Throws as `prompt_of`.
std::string_view prompt_named(const std::string& name, const served_model& model);

/// A request for the embedding of `prompt`. Throws failure naming `field` if the prompt is empty or does not fit.
generation embedding_of(std::vector<token_id> prompt, const served_model& model, std::string_view field);

/// The `dimensions` of a body. Throws failure unless the model has so many.
std::optional<std::size_t> read_dimensions(const field_reader& body, const served_model& model);

std::vector<float> formed(std::span<const float> pooled, const vector_form& form);

/// "[0.5,-0.25]", with the shortest digits that read back as the same floats.
std::string json_floats(std::span<const float> values);

/// Throws failure naming the field.
generation_job embedding_job(const field_reader& body, std::shared_ptr<const served_model> model,
                             const std::stop_token& stop);

} // namespace troupe
