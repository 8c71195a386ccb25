#include "api/server/websocket_frames.hpp"

#include "api/openai/openai_response.hpp"
#include "api/openai/token_logprobs.hpp"
#include "runtime/support/json_text.hpp"

namespace troupe {

namespace {

constexpr std::size_t longest_frame_id = 256;

bad_frame bad(std::string id, const std::string& message, std::string param) {
  return {std::move(id), {errc::bad_request, message, std::move(param)}};
}

std::string start_of(std::string_view type, std::string_view id) {
  return "{\"type\":\"" + std::string(type) + "\",\"id\":" + (id.empty() ? "null" : json_text(id));
}

std::string written(std::string_view id, const token_event& e, const served_model& model) {
  auto result = start_of("token", id) + ",\"index\":" + std::to_string(e.index) +
    ",\"position\":" + std::to_string(e.position) + ",\"text\":" + json_text(e.text) +
    ",\"token_ids\":" + json_ids(e.token_ids);
  if (!e.logprobs.empty())
    result += ",\"logprobs\":" + chat_logprobs(e.logprobs, model);
  return result += '}';
}

} // namespace

client_frame parse_frame(std::string_view text) {
  client_frame result;
  result.bytes = text.size();
  try {
    result.body = std::make_shared<const json::document>(json::document::parse(text, "the frame", errc::bad_request));
  } catch (const failure& f) {
    throw bad_frame{{}, f.what_failed()};
  }
  const auto root = result.body->root();
  if (!root.is_object())
    throw bad({}, "a frame must be a JSON object, not " + std::string(json::kind_of(root)), {});
  std::string_view id, type;
  const auto given_id = json::find(root, "id");
  if (!given_id || given_id->get(id) || id.empty() || id.size() > longest_frame_id)
    throw bad({}, "`id` must be a string of 1 to " + std::to_string(longest_frame_id) + " bytes", "id");
  result.id = id;
  const auto given_type = json::find(root, "type");
  if (!given_type || given_type->get(type) || (type != "generate" && type != "cancel"))
    throw bad(result.id, "`type` must be \"generate\" or \"cancel\"", "type");
  result.type = type == "generate" ? client_frame::kind::generate : client_frame::kind::cancel;
  return result;
}

generation_request parse_frame_body(const client_frame& frame, const served_model& model, const std::stop_token& stop) {
  const field_reader body(frame.body->root());
  const bool chat = body.has("messages");
  if (chat && body.has("prompt"))
    body.refuse("messages", "and `prompt` cannot both be given");
  if (body.boolean("echo").value_or(false))
    throw failure(errc::unsupported, "`echo` is not supported on WebSockets; `prompt_logprobs` is", "echo");
  auto request = parse_generation(chat ? dialect::chat : dialect::completions, body, model, stop);
  if (request.prompts.size() != 1)
    body.refuse("prompt", "must be one prompt: send a frame for each");
  return request;
}

std::string token_frame(std::string_view id, const token_event& e, const served_model& model) {
  return e.text.empty() && e.token_ids.empty() ? std::string() : written(id, e, model);
}

std::string token_frame(std::string_view id, const token_event& e, const output_deltas& deltas,
                        const served_model& model) {
  using kind = output_delta::kind;
  auto content = e;
  content.text.clear();
  std::string reasoning, calls;
  for (const auto& delta : deltas)
    if (delta.what == kind::content)
      content.text += delta.text;
    else if (delta.what == kind::reasoning)
      reasoning += delta.text;
    else
      calls += (calls.empty() ? "" : ",") + call_delta(delta);
  if (reasoning.empty() && calls.empty())
    return token_frame(id, content, model);
  auto result = written(id, content, model);
  result.pop_back();
  if (!reasoning.empty())
    result += ",\"reasoning_content\":" + json_text(reasoning);
  if (!calls.empty())
    result += ",\"tool_calls\":[" + calls + ']';
  return result += '}';
}

std::string prompt_frame(std::string_view id, std::size_t position, const std::vector<sampled_token>& tokens,
                         const served_model& model) {
  std::vector<token_id> ids;
  for (const auto& token : tokens)
    ids.push_back(token.id);
  return start_of("prompt", id) + ",\"position\":" + std::to_string(position) + ",\"token_ids\":" + json_ids(ids) +
    ",\"logprobs\":" + chat_logprobs(tokens, model, position == 0) + '}';
}

std::string done_frame(std::string_view id, const done_event& done, bool ranked, const std::vector<std::size_t>& calls,
                       usage used) {
  auto result = start_of("done", id) + ",\"choices\":[";
  bool first = true;
  for (const auto& choice : done.choices) {
    result += (first ? "" : ",") + ("{\"index\":" + std::to_string(choice.index)) + ",\"finish_reason\":\"" +
      std::string(name_of(choice.reason, choice.index < calls.size() ? calls[choice.index] : 0)) + '"' +
      (ranked ? json_ranking(choice) : "") + '}';
    first = false;
  }
  used.add(done);
  return result + "],\"usage\":" + used.json() + ",\"timings\":{\"queue_ms\":" + json_number(done.queue_ms) +
    ",\"prefill_ms\":" + json_number(done.prefill_ms) + ",\"decode_ms\":" + json_number(done.decode_ms) +
    ",\"cached_tokens\":" + std::to_string(done.cached_tokens) +
    ",\"draft_n\":" + std::to_string(done.accepted_guesses + done.rejected_guesses) +
    ",\"draft_n_accepted\":" + std::to_string(done.accepted_guesses) + "}}";
}

std::string error_frame(std::string_view id, const error& why) {
  return start_of("error", id) + ",\"error\":" + error_object(why) + '}';
}

} // namespace troupe
