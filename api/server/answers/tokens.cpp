#include "api/openai/fields/known_fields.hpp"
#include "api/openai/openai_request.hpp"
#include "api/server/answers/answers.hpp"
#include "api/server/answers/request_of.hpp"
#include "runtime/support/json/json_object.hpp"
#include "runtime/support/text/utf8.hpp"
#include "runtime/techniques/watermark/technique.hpp"
#include "runtime/techniques/watermark/watermark_fields.hpp"

#include <array>

namespace troupe {

namespace {

constexpr auto tokenize_fields = std::to_array<std::string_view>(
  {"model", "prompt", "messages", "add_special_tokens", "tools", "tool_choice", "chat_template_kwargs", "documents",
   "reasoning_effort", "thinking", "verbosity", "add_generation_prompt", "continue_final_message", "user"});
constexpr auto detokenize_fields = std::to_array<std::string_view>({"model", "tokens", "skip_special_tokens", "user"});
constexpr auto detection_fields = std::to_array<std::string_view>({"model", "text", "tokens", "watermark", "user"});

} // namespace

reply tokenize(const call& c) {
  const request_of asked(c);
  const auto [ids, notes] = parse_tokenize(asked.body, *asked.model, c.stop);
  auto result = reply::json(json_object().raw("tokens", json_ids(ids)).number("count", ids.size()).str());
  result.notes = notes_on_members(asked.body, asked.model->unknown, tokenize_fields);
  result.notes.insert(result.notes.end(), notes.begin(), notes.end());
  return result;
}

reply detokenize(const call& c) {
  const request_of asked(c);
  const auto text = parse_detokenize(asked.body, *asked.model);
  auto result = reply::json(json_object().text("prompt", to_utf8(text)).str());
  result.notes = notes_on_members(asked.body, asked.model->unknown, detokenize_fields);
  return result;
}

/// What clients that tokenise over HTTP must know besides, as vLLM's.
reply tell_tokenizer(const call& c) {
  const auto model = c.models.first();
  if (!model->encode)
    throw failure(errc::not_found, "this model has no tokenizer");
  const auto text = [](const std::optional<std::string>& token) { return token ? json_text(to_utf8(*token)) : "null"; };
  return reply::json(json_object()
                       .raw("bos_token", text(model->bos_token))
                       .raw("eos_token", text(model->eos_token))
                       .number("model_max_length", model->max_context)
                       .str());
}

reply detect_mark(const call& c) {
  const request_of asked(c);
  check_model_name(asked.body, *asked.model);
  const auto& model = *asked.model;
  std::function<std::vector<token_id>(std::string_view)> encode;
  if (model.encode)
    encode = [&](std::string_view text) { return model.encode(text, false); };
  const auto detection = watermarks::read_detection(asked.body, model.techniques, model.vocab_size, most_detokenised,
                                                    encode);
  auto result = reply::json(
    watermarks::detection_object(*detection.mark, watermarks::detect(*detection.mark, detection.tokens)));
  result.notes = notes_on_members(asked.body, asked.model->unknown, detection_fields);
  return result;
}

} // namespace troupe
