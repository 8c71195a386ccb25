#include "api/server/wire/websocket_frames.hpp"

#include "api/openai/fields/known_fields.hpp"
#include "api/openai/openai_response.hpp"
#include "api/openai/token_logprobs.hpp"
#include "api/server/wire/reply.hpp"
#include "runtime/support/json/json_object.hpp"
#include "runtime/support/text/utf8.hpp"

#include <algorithm>
#include <array>
#include <utility>

namespace troupe {

namespace {

constexpr std::size_t longest_frame_id = 256;
/// What a frame has beside the fields of a request.
constexpr auto envelope = std::to_array<std::string_view>({"type", "id"});

using frame_type = std::pair<std::string_view, client_frame::kind>;
constexpr auto frame_types = std::to_array<frame_type>({{"generate", client_frame::kind::generate},
                                                        {"cancel", client_frame::kind::cancel},
                                                        {"watch", client_frame::kind::watch}});

bad_frame bad(std::string id, const std::string& message, std::string param) {
  return {std::move(id), {errc::bad_request, message, std::move(param)}};
}

json_object start_of(std::string_view type, std::string_view id) {
  json_object result;
  result.text("type", type).text_or_null("id", id);
  return result;
}

/// The ids of top_logprobs: with them a client can go on from another token than the one chosen.
std::string top_ids(const std::vector<sampled_token>& tokens) {
  std::vector<std::string> all;
  for (const auto& token : tokens) {
    std::vector<token_id> ids;
    for (const auto& other : token.top)
      ids.push_back(other.id);
    all.push_back(json_ids(ids));
  }
  return json_list(all);
}

json_object token_object(std::string_view id, const token_event& e, const served_model& model) {
  auto result = start_of("token", id);
  result.number("index", e.index)
    .number("position", e.position)
    .text("text", e.text)
    .raw("token_ids", json_ids(e.token_ids));
  if (!e.logprobs.empty())
    result.raw("logprobs", chat_logprobs(e.logprobs, model)).raw("top_token_ids", top_ids(e.logprobs));
  return result;
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
  const auto known = given_type && !given_type->get(type) ? std::ranges::find(frame_types, type, &frame_type::first)
                                                          : frame_types.end();
  if (known == frame_types.end())
    throw bad(result.id, "`type` must be \"generate\", \"cancel\" or \"watch\"", "type");
  result.type = known->second;
  return result;
}

std::chrono::milliseconds watch_interval(const client_frame& frame) {
  constexpr std::int64_t usual = 200, least = 50, most = 60'000;
  return std::chrono::milliseconds(
    field_reader(frame.body->root()).integer("interval_ms", least, most).value_or(usual));
}

std::optional<std::string> watched_model(const client_frame& frame) {
  const auto given = field_reader(frame.body->root()).text("model");
  return given ? std::optional(std::string(*given)) : std::nullopt;
}

std::string watch_done_frame(std::string_view id) { return start_of("done", id).str(); }

generation_request parse_frame_body(const client_frame& frame, const served_model& model, const std::stop_token& stop) {
  const field_reader body(frame.body->root());
  const bool chat = body.has("messages");
  if (chat && body.has("prompt"))
    body.refuse("messages", "and `prompt` cannot both be given");
  if (body.boolean("echo").value_or(false))
    refuse_field("echo", "is not supported on WebSockets; `prompt_logprobs` is", errc::unsupported);
  auto request = parse_generation(chat ? dialect::chat : dialect::completions, body, model, stop, envelope);
  if (request.prompts.size() != 1)
    body.refuse("prompt", "must be one prompt: send a frame for each");
  return request;
}

std::string token_frame(std::string_view id, const token_event& e, const served_model& model) {
  return e.text.empty() && e.token_ids.empty() ? std::string() : token_object(id, e, model).str();
}

std::string token_frame(std::string_view id, const token_event& e, const output_deltas& deltas,
                        const served_model& model) {
  using kind = output_delta::kind;
  auto content = e;
  content.text.clear();
  std::string reasoning;
  std::vector<std::string> calls;
  for (const auto& delta : deltas)
    if (delta.what == kind::content)
      content.text += delta.text;
    else if (delta.what == kind::reasoning)
      reasoning += delta.text;
    else
      calls.push_back(call_delta(delta));
  if (reasoning.empty() && calls.empty())
    return token_frame(id, content, model);
  auto result = token_object(id, content, model);
  if (!reasoning.empty())
    result.text("reasoning_content", reasoning);
  if (!calls.empty())
    result.list("tool_calls", calls);
  return result.str();
}

std::string prompt_frame(std::string_view id, std::size_t position, const std::vector<sampled_token>& tokens,
                         const served_model& model) {
  std::vector<token_id> ids;
  for (const auto& token : tokens)
    ids.push_back(token.id);
  return start_of("prompt", id)
    .number("position", position)
    .raw("token_ids", json_ids(ids))
    .raw("logprobs", chat_logprobs(tokens, model, position == 0))
    .str();
}

std::string done_frame(std::string_view id, const done_event& done, bool ranked, const std::vector<choice_end>& ends,
                       usage used, const std::vector<std::string>& notes) {
  std::vector<std::string> choices;
  for (const auto& choice : done.choices) {
    const auto end = choice.index < ends.size() ? ends[choice.index] : choice_end{};
    if (end.filtered) // how many more were generated depends on when it was stopped
      used.completion_tokens += end.tokens - choice.tokens;
    json_object one;
    one.number("index", choice.index)
      .text("finish_reason", end.filtered ? content_filter : name_of(choice.reason, end.calls));
    if (ranked)
      add_ranking(one, choice);
    choices.push_back(one.str());
  }
  used.add(done);
  auto result = start_of("done", id);
  result.list("choices", choices)
    .raw("usage", used.json())
    .object("timings",
            json_object()
              .number("queue_ms", done.queue_ms)
              .number("prefill_ms", done.prefill_ms)
              .number("decode_ms", done.decode_ms)
              .number("total_ms", done.total_ms)
              .raw("spent_ms", json_of(done.spent))
              .number("cached_tokens", done.cached_tokens)
              .number("draft_n", done.accepted_guesses + done.rejected_guesses)
              .number("draft_n_accepted", done.accepted_guesses));
  if (!notes.empty())
    result.raw("warnings", warnings_of_notes(notes));
  return result.str();
}

std::string error_frame(std::string_view id, const error& why, const std::optional<wait_parts>& spent) {
  auto result = start_of("error", id);
  result.raw("error", error_object(why));
  if (const auto seconds = reply::retry_after(why))
    result.number("retry_after", *seconds);
  if (spent)
    result.object("timings", json_object().number("total_ms", spent->total()).raw("spent_ms", json_of(*spent)));
  return result.str();
}

} // namespace troupe
