#include "api/openai/openai_response.hpp"

#include "api/openai/object_id.hpp"
#include "api/openai/token_logprobs.hpp"
#include "runtime/engine/context_length.hpp"
#include "runtime/support/text/utf8.hpp"

#include <algorithm>
#include <array>
#include <utility>

namespace troupe {

namespace {

struct error_kind {
  unsigned status;
  std::string_view type, code;
};

error_kind kind_of(errc code) {
  switch (code) {
    case errc::bad_request: return {400, "invalid_request_error", "invalid_value"};
    case errc::unsupported: return {400, "invalid_request_error", "unsupported_value"};
    case errc::not_found: return {404, "invalid_request_error", "not_found"};
    case errc::unauthorized: return {401, "invalid_request_error", "invalid_api_key"};
    case errc::too_large: return {413, "invalid_request_error", "request_too_large"};
    case errc::overloaded: return {429, "rate_limit_error", "rate_limit_exceeded"};
    case errc::unavailable: return {503, "server_error", "unavailable"};
    case errc::cancelled: return {499, "invalid_request_error", "cancelled"}; // one that clients do not try again
    case errc::timeout: return {504, "server_error", "timeout"};
    case errc::out_of_memory: return {503, "server_error", "out_of_memory"};
    case errc::device: return {500, "server_error", "device_error"};
    case errc::poisoned: return {500, "server_error", "poisoned"};
    case errc::bad_file: return {500, "server_error", "bad_file"};
    case errc::internal: return {500, "server_error", "internal_error"};
  }
  return {500, "server_error", "internal_error"};
}

std::vector<std::size_t> sizes_of(const std::vector<generation>& prompts) {
  std::vector<std::size_t> result;
  for (const auto& one : prompts)
    result.push_back(one.prompt.size());
  return result;
}

} // namespace

std::string_view name_of(finish_reason reason) {
  switch (reason) {
    case finish_reason::stop: return "stop";
    case finish_reason::length: return "length";
    case finish_reason::cancelled: return "cancelled";
    case finish_reason::timeout: return "timeout";
  }
  return "stop";
}

std::string_view name_of(finish_reason reason, std::size_t calls) {
  return calls > 0 && reason == finish_reason::stop ? "tool_calls" : name_of(reason);
}

unsigned status_of(errc code) { return kind_of(code).status; }

std::string_view code_of(const error& what) {
  const auto says = [&](std::string_view of_field) {
    return !what.param.empty() && what.message == '`' + what.param + "` " + std::string(of_field);
  };
  if (is_beyond_context(what))
    return "context_length_exceeded";
  if (what.code == errc::not_found && what.param == "model")
    return "model_not_found";
  if (what.code == errc::not_found && what.param == "previous_response_id")
    return "previous_response_not_found";
  if (what.code == errc::bad_request && says("is required"))
    return "missing_required_parameter";
  if (what.code == errc::unsupported && says("is not supported"))
    return "unsupported_parameter";
  return kind_of(what.code).code;
}

std::string error_object(const error& what) {
  const auto kind = kind_of(what.code);
  json_object result;
  result.text("message", to_utf8(what.message))
    .text("type", kind.type)
    .text_or_null("param", to_utf8(what.param))
    .text("code", code_of(what));
  if (what.retry_ms > 0)
    result.number("predicted_wait_ms", what.wait_ms);
  return result.str();
}

std::string error_body(const error& what) { return json_object().raw("error", error_object(what)).str(); }

void add_ranking(json_object& to, const choice_summary& one) {
  to.raw("cumulative_logprob", json_logprob(one.cumulative_logprob)).raw("score", json_logprob(one.score));
}

std::string sse(std::string_view data) {
  std::string result = "data: ";
  result += data;
  return result += "\n\n";
}

void usage::add(const done_event& done) {
  prompt_tokens += done.prompt_tokens;
  completion_tokens += done.completion_tokens;
  cached_tokens += done.cached_tokens;
  accepted_prediction += done.accepted_predicted;
  rejected_prediction += done.rejected_predicted;
}

std::string usage::json() const {
  return json_object()
    .number("prompt_tokens", prompt_tokens)
    .number("completion_tokens", completion_tokens)
    .number("total_tokens", prompt_tokens + completion_tokens)
    .object("prompt_tokens_details", json_object().number("cached_tokens", cached_tokens))
    .object("completion_tokens_details",
            json_object()
              .number("reasoning_tokens", reasoning_tokens)
              .number("accepted_prediction_tokens", accepted_prediction)
              .number("rejected_prediction_tokens", rejected_prediction))
    .str();
}

response_writer::response_writer(const generation_request& request, std::shared_ptr<const served_model> model)
  : model_(std::move(model)),
    output_(request.output),
    speaks_(request.speaks),
    stream_(request.stream),
    include_usage_(request.include_usage),
    running_usage_(request.running_usage),
    return_token_ids_(request.return_token_ids),
    logprobs_(request.prompts.front().sampling.logprobs),
    prompt_logprobs_(request.prompt_logprobs),
    ranked_(request.prompts.front().sampling.ranked()),
    n_(static_cast<std::size_t>(request.prompts.front().sampling.n)),
    prompt_sizes_(sizes_of(request.prompts)),
    echoes_(request.echoes),
    scored_(request.prompts.size()),
    id_(object_id(request.speaks == dialect::chat ? "chatcmpl-" : "cmpl-", 12)) {
  if (return_token_ids_)
    for (const auto& one : request.prompts)
      prompts_.push_back(one.prompt);
  // A stream's choices appear with their events; a whole response lists them all.
  if (!stream_)
    for (std::size_t i = 0; i < request.prompts.size() * n_; ++i)
      choices_[i];
  const bool chat = speaks_ == dialect::chat;
  head_.text("id", id_)
    .text("object",
          !chat       ? "text_completion"
            : stream_ ? "chat.completion.chunk"
                      : "chat.completion")
    .number("created", request_time())
    .text("model", name_in_answers(request, *model_));
}

response_writer::piece response_writer::next_piece(std::size_t prompt, const token_event& e) {
  auto& to = choices_[prompt * n_ + e.index];
  piece p;
  p.first = !std::exchange(to.started, true);
  const bool echo = p.first && !echoes_.empty();
  if (echo)
    p.text = echoes_[prompt];
  if (logprobs_ >= 0 && speaks_ == dialect::completions)
    p.offsets = text_offsets(to.characters + count_characters(p.text), e.logprobs, *model_);
  if (!to.parser)
    to.parser.emplace(output_, filter_);
  p.deltas = to.parser->feed(e.text, e.finish.has_value());
  p.calls = to.parser->calls();
  usage_.reasoning_tokens += to.parser->reasons() ? e.token_ids.size() : 0;
  if (!output_)
    for (const auto& delta : std::exchange(p.deltas, {}))
      p.text += delta.text;
  p.filtered = to.parser->filtered();
  if (p.filtered) { // nor are its tokens told
    filtered_ = true;
    p.offsets.clear();
    p.finish = finish_reason::stop;
  } else {
    p.ids = e.token_ids;
    p.logprobs = e.logprobs;
    p.finish = e.finish;
    p.stop = e.stop;
  }
  to.ended = p.finish.has_value();
  to.characters += count_characters(p.text);
  to.tokens += e.token_ids.size();
  return p;
}

std::string response_writer::logprobs_of(std::size_t prompt, const piece& p) const {
  completion_logprobs list(*model_, logprobs_);
  if (p.first && scores_echo())
    list.add_prompt(scored_.at(prompt), count_characters(echoes_[prompt]));
  for (std::size_t i = 0; i < p.logprobs.size(); ++i)
    list.add(p.logprobs[i], p.offsets[i]);
  return list.json();
}

std::string response_writer::prompt_logprobs(std::size_t prompt) const {
  return prompt_logprobs_json(scored_.at(prompt), prompt_logprobs_, *model_);
}

std::string response_writer::running_usage(std::size_t prompt, std::size_t index) const {
  const auto asked = prompt_sizes_[prompt], said = choices_.at(index).tokens;
  return json_object()
    .number("prompt_tokens", asked)
    .number("completion_tokens", said)
    .number("total_tokens", asked + said)
    .str();
}

std::string response_writer::choice_json(std::size_t index, const piece& p, bool whole) const {
  const bool completion = speaks_ == dialect::completions;
  json_object result;
  result.number("index", index);
  if (completion) {
    result.text("text", p.text).raw("logprobs", logprobs_ >= 0 ? logprobs_of(index / n_, p) : "null");
  } else {
    result.raw(whole ? "message" : "delta", message_of(p, whole));
    if (logprobs_ >= 0 && (whole || !p.logprobs.empty()))
      result.object("logprobs", json_object().raw("content", chat_logprobs(p.logprobs, *model_)).null("refusal"));
    else
      result.null("logprobs");
  }
  result.text_or_null("finish_reason", p.filtered ? content_filter : p.finish ? name_of(*p.finish, p.calls) : "");
  if (p.finish)
    result.text_or_null("stop_reason", to_utf8(p.stop));
  if (p.ranking)
    add_ranking(result, *p.ranking);
  if (completion && prompt_logprobs_ >= 0)
    result.raw("prompt_logprobs", prompt_logprobs(index / n_));
  if (return_token_ids_) {
    result.raw("token_ids", json_ids(p.ids));
    if (completion && (whole || p.first))
      result.raw("prompt_token_ids", json_ids(prompts_[index / n_]));
  }
  return result.str();
}

std::string response_writer::message_of(const piece& p, bool whole) const {
  if (whole && output_)
    return p.message.json();
  json_object result;
  if (whole)
    return result.text("role", "assistant").text("content", p.text).null("refusal").str();
  if (p.first)
    result.text("role", "assistant");
  if (!p.deltas.empty())
    add_delta(result, p.deltas.front());
  else if (p.first || !p.text.empty())
    result.text("content", p.text);
  return result.str();
}

bool response_writer::keep_scores(std::size_t prompt, const token_event& e) {
  auto& scored = scored_[prompt];
  if (scores_echo() || prompt_logprobs_ >= 0)
    scored.insert(scored.end(), e.prompt.begin(), e.prompt.end());
  const bool complete = !e.prompt.empty() && scored.size() == prompt_sizes_[prompt];
  return complete || e.prompt.empty() || !e.token_ids.empty() || e.finish;
}

std::string response_writer::chunk(std::size_t prompt, const token_event& e) {
  const auto index = prompt * n_ + e.index;
  if (!keep_scores(prompt, e) || choices_[index].filtered())
    return {};
  auto p = next_piece(prompt, e);
  if (ranked_ && p.finish) {
    choices_[index].all = std::move(p);
    return {};
  }
  return events_of(prompt, index, std::move(p));
}

std::string response_writer::events_of(std::size_t prompt, std::size_t index, piece p) const {
  if (!output_)
    return event_of(prompt, index, p);
  std::string result;
  const auto deltas = std::exchange(p.deltas, {});
  for (std::size_t i = 0; i + 1 < deltas.size(); ++i) {
    piece one;
    one.first = std::exchange(p.first, false);
    one.deltas = {deltas[i]};
    result += event_of(prompt, index, one);
  }
  if (!deltas.empty())
    p.deltas = {deltas.back()};
  const bool says_something = !p.deltas.empty() || p.first || p.finish || !p.logprobs.empty() || return_token_ids_;
  return says_something ? result + event_of(prompt, index, p) : result;
}

std::string response_writer::event_of(std::size_t prompt, std::size_t index, const piece& p) const {
  auto data = head_;
  data.list("choices", std::array{choice_json(index, p, false)});
  if (return_token_ids_ && speaks_ == dialect::chat && p.first)
    data.raw("prompt_token_ids", json_ids(prompts_[prompt]));
  if (include_usage_)
    data.raw("usage", running_usage_ ? running_usage(prompt, index) : "null");
  return sse(data.str());
}

std::string response_writer::last_chunks(std::size_t prompt) {
  std::string result;
  for (std::size_t index = prompt * n_; ranked_ && index < (prompt + 1) * n_; ++index)
    if (const auto found = choices_.find(index); found != choices_.end())
      result += events_of(prompt, index, found->second.all);
  return result;
}

std::string response_writer::last_chunks() const {
  std::string result;
  if (include_usage_)
    result = sse(json_object(head_)
                   .raw("choices", "[]")
                   .raw("usage", usage_.json())
                   .object("timings", timings_.json(usage_.completion_tokens))
                   .str());
  return result + sse("[DONE]");
}

bool response_writer::awaits_timings() const {
  return !include_usage_ && choices_.size() == prompt_sizes_.size() * n_ &&
    std::ranges::all_of(choices_, [](const auto& one) { return one.second.ended; });
}

std::string response_writer::with_timings(std::string events) const {
  constexpr std::string_view end = "}\n\n"; // of each event
  if (events.ends_with(end))
    events.insert(events.size() - end.size(), ",\"timings\":" + timings_.json(usage_.completion_tokens).str());
  return events;
}

void response_writer::add(std::size_t prompt, const token_event& e) {
  keep_scores(prompt, e);
  if (choices_[prompt * n_ + e.index].filtered())
    return;
  auto p = next_piece(prompt, e);
  auto& all = choices_[prompt * n_ + e.index].all;
  all.first = all.first || p.first;
  all.text += p.text;
  for (const auto& delta : p.deltas)
    all.message.add(delta);
  all.calls = p.calls;
  all.ids.insert(all.ids.end(), p.ids.begin(), p.ids.end());
  all.logprobs.insert(all.logprobs.end(), p.logprobs.begin(), p.logprobs.end());
  all.offsets.insert(all.offsets.end(), p.offsets.begin(), p.offsets.end());
  all.finish = p.finish;
  all.filtered = p.filtered;
  all.stop = p.stop;
}

void response_writer::add(std::size_t prompt, const done_event& done) {
  usage_.add(done);
  timings_.add(done);
  for (const auto& one : done.choices) {
    auto& choice = choices_[prompt * n_ + one.index];
    auto& all = choice.all;
    if (choice.filtered()) // how many more were generated depends on when it was stopped
      usage_.completion_tokens += choice.tokens - one.tokens;
    if (!all.finish)
      all.finish = one.reason;
    if (choice.parser && !stream_)
      for (const auto& delta : choice.parser->feed({}, true)) // unless its last event has come
        all.message.add(delta);
    all.filtered = choice.filtered();
    if (ranked_)
      all.ranking = one;
  }
}

bool response_writer::is_filtered(std::size_t prompt) const {
  bool filtered = false;
  for (std::size_t index = prompt * n_; filtered_ && index < (prompt + 1) * n_; ++index) {
    const auto found = choices_.find(index);
    if (found == choices_.end() || !found->second.ended)
      return false;
    filtered = filtered || found->second.filtered();
  }
  return filtered;
}

std::string response_writer::body() const {
  std::vector<std::string> all;
  for (const auto& [index, choice] : choices_)
    all.push_back(choice_json(index, choice.all, true));
  auto result = head_;
  result.list("choices", all).raw("usage", usage_.json()).object("timings", timings_.json(usage_.completion_tokens));
  if (speaks_ == dialect::chat && prompt_logprobs_ >= 0)
    result.raw("prompt_logprobs", prompt_logprobs(0));
  if (return_token_ids_ && speaks_ == dialect::chat)
    result.raw("prompt_token_ids", json_ids(prompts_[0]));
  return result.str();
}

} // namespace troupe
