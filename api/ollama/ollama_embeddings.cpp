#include "api/ollama/ollama_embeddings.hpp"

#include "api/http/request_scope.hpp"
#include "api/ollama/ollama_request.hpp"
#include "api/openai/embeddings.hpp"
#include "api/openai/openai_request.hpp"
#include "runtime/support/json/json_object.hpp"
#include "runtime/support/text/utf8.hpp"

#include <algorithm>
#include <cmath>

namespace troupe {

namespace {

class ollama_vectors final : public answer_writer {
public:
  /// `single`: the answer of /api/embeddings.
  ollama_vectors(std::string model, std::size_t inputs, vector_form form, bool single)
    : model_(std::move(model)), vectors_(inputs), form_(form), single_(single) {}

  void withhold(const output_filter&) override {} // it says no text
  std::string take(std::size_t, const token_event&) override { return {}; }
  std::string take(std::size_t input, const done_event& e) override {
    vectors_[input] = json_floats(formed(e.embedding, form_));
    tokens_ += e.prompt_tokens;
    ms_ = std::max(ms_, e.queue_ms + e.prefill_ms + e.decode_ms); // inputs run side by side
    return {};
  }
  std::string end() override { return {}; }
  std::string fail(const error&) override { return {}; }

  std::string body() override {
    if (single_)
      return json_object().raw("embedding", vectors_.empty() ? "[]" : vectors_.front()).str();
    return json_object()
      .text("model", to_utf8(model_))
      .raw("embeddings", json_list(vectors_))
      .number("total_duration", std::llround(ms_ * 1e6))
      .number("load_duration", 0)
      .number("prompt_eval_count", tokens_)
      .str();
  }

private:
  std::string model_;
  std::vector<std::string> vectors_; // as JSON
  vector_form form_;
  bool single_;
  std::uint64_t tokens_ = 0;
  double ms_ = 0;
};

/// What both bodies share. Returns the model's name as given.
std::string check_common(const field_reader& body, const served_model& model) {
  auto name = ollama_model_name(body, model);
  require_embeddings(model);
  if (!model.encode)
    throw failure(errc::unsupported, "this model has no tokenizer: /v1/embeddings takes token ids", "model");
  return name;
}

} // namespace

generation_job ollama_embed_job(const field_reader& body, std::shared_ptr<const served_model> model,
                                const std::stop_token& stop) {
  auto name = check_common(body, *model);
  const bool cut = body.boolean("truncate").value_or(true);
  const vector_form form{true, read_dimensions(body, *model), model->dense};
  const std::string prompt(prompt_of(body, *model));
  generation_job job;
  job.keep_alive = read_keep_alive(body);
  job.notes = check_ollama_options(body, *model);
  for (const auto& given : body.texts("input", most_inputs).value_or(std::vector<std::string>())) {
    check(stop);
    const auto text = prompt + given;
    auto ids = cut ? model->encode_cut(text, static_cast<std::size_t>(model->max_context))
                   : encoded_prompt(body, "input", *model, text, true);
    job.prompts.push_back(embedding_of(std::move(ids), *model, "input"));
  }
  job.writer = std::make_unique<ollama_vectors>(std::move(name), job.prompts.size(), form, false);
  return job;
}

generation_job ollama_embedding_job(const field_reader& body, std::shared_ptr<const served_model> model) {
  auto name = check_common(body, *model);
  const auto given = body.text("prompt").value_or("");
  const auto text = given.empty() ? std::string() : std::string(prompt_of(body, *model)) + std::string(given);
  generation_job job;
  job.keep_alive = read_keep_alive(body);
  job.notes = check_ollama_options(body, *model);
  if (!text.empty())
    job.prompts.push_back(embedding_of(encoded_prompt(body, "prompt", *model, text, true), *model, "prompt"));
  job.writer = std::make_unique<ollama_vectors>(std::move(name), job.prompts.size(),
                                                vector_form{false, {}, model->dense}, true);
  return job;
}

} // namespace troupe
