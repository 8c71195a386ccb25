#include "api/openai/openai_response.hpp"

#include "runtime/support/json_text.hpp"
#include "runtime/support/utf8.hpp"

#include <charconv>
#include <cmath>
#include <ctime>
#include <random>

namespace troupe {

namespace {

std::string random_id() {
  thread_local std::random_device device;
  constexpr std::string_view digits = "0123456789abcdef";
  std::string result;
  for (int i = 0; i < 24; ++i)
    result += digits[device() % digits.size()];
  return result;
}

std::string bytes_of(token_id id, const served_model& model) {
  return model.token_bytes ? model.token_bytes(id) : std::string();
}

/// Whether the token is special and left out of the text.
bool is_hidden(token_id id, const served_model& model) {
  const std::span one(&id, 1);
  return model.decode && model.decode(one, true).empty() && !model.decode(one, false).empty();
}

std::string chat_token(token_id id, float logprob, const served_model& model) {
  const auto bytes = bytes_of(id, model);
  std::string result = "{\"token\":" + json_text(to_utf8(bytes)) + ",\"logprob\":" + json_logprob(logprob) +
    ",\"bytes\":[";
  for (std::size_t i = 0; i < bytes.size(); ++i)
    result += (i ? "," : "") + std::to_string(static_cast<unsigned char>(bytes[i]));
  return result + ']';
}

/// The spelling of a token in completions: its text, or `bytes:\xe2\x80` if that is not UTF-8.
std::string spelled(token_id id, const served_model& model) {
  const auto bytes = bytes_of(id, model);
  if (is_utf8(bytes))
    return bytes;
  constexpr std::string_view digits = "0123456789abcdef";
  std::string result = "bytes:";
  for (const unsigned char c : bytes) {
    result += "\\x";
    result += digits[c >> 4];
    result += digits[c & 15];
  }
  return result;
}

struct error_kind {
  unsigned status;
  std::string_view type, code;
};

error_kind kind_of(errc code) {
  switch (code) {
    case errc::bad_request: return {400, "invalid_request_error", "invalid_value"};
    case errc::unsupported: return {400, "invalid_request_error", "unsupported_value"};
    case errc::not_found: return {404, "invalid_request_error", "not_found"};
    case errc::unauthorized: return {401, "authentication_error", "invalid_api_key"};
    case errc::too_large: return {413, "invalid_request_error", "request_too_large"};
    case errc::overloaded: return {429, "rate_limit_error", "overloaded"};
    case errc::unavailable: return {503, "server_error", "unavailable"};
    case errc::cancelled: return {503, "server_error", "cancelled"};
    case errc::timeout: return {504, "server_error", "timeout"};
    case errc::out_of_memory: return {503, "server_error", "out_of_memory"};
    case errc::device: return {500, "server_error", "device_error"};
    case errc::bad_file: return {500, "server_error", "bad_file"};
    case errc::internal: return {500, "server_error", "internal_error"};
  }
  return {500, "server_error", "internal_error"};
}

} // namespace

std::string_view name_of(finish_reason reason) {
  switch (reason) {
    case finish_reason::stop: return "stop";
    case finish_reason::length: return "length";
    case finish_reason::cancelled: return "cancelled";
  }
  return "stop";
}

unsigned status_of(errc code) { return kind_of(code).status; }

std::string_view code_of(const error& what) {
  // OpenAI's clients tell a missing model from other misses by this code.
  return what.code == errc::not_found && what.param == "model" ? "model_not_found" : kind_of(what.code).code;
}

std::string error_object(const error& what) {
  const auto kind = kind_of(what.code);
  return "{\"message\":" + json_text(to_utf8(what.message)) + ",\"type\":" + json_text(kind.type) +
    ",\"param\":" + (what.param.empty() ? "null" : json_text(to_utf8(what.param))) +
    ",\"code\":" + json_text(code_of(what)) + '}';
}

std::string error_body(const error& what) { return "{\"error\":" + error_object(what) + '}'; }

std::string json_logprob(float value) {
  if (!std::isfinite(value))
    return "-9999.0";
  char buffer[32];
  return std::string(buffer, std::to_chars(buffer, buffer + sizeof buffer, value).ptr);
}

std::string json_logprob(double value) { return std::isfinite(value) ? json_number(value) : "-9999.0"; }

std::string json_ranking(const choice_summary& one) {
  return ",\"cumulative_logprob\":" + json_logprob(one.cumulative_logprob) + ",\"score\":" + json_logprob(one.score);
}

std::string sse(std::string_view data) {
  std::string result = "data: ";
  result += data;
  return result += "\n\n";
}

std::string chat_logprobs(const std::vector<sampled_token>& tokens, const served_model& model) {
  std::string result = "[";
  for (const auto& token : tokens) {
    if (result.size() > 1)
      result += ',';
    result += chat_token(token.id, token.logprob, model) + ",\"top_logprobs\":[";
    bool first = true;
    for (const auto& other : token.top) {
      result += (first ? "" : ",") + chat_token(other.id, other.logprob, model) + '}';
      first = false;
    }
    result += "]}";
  }
  return result += ']';
}

void usage::add(const done_event& done) {
  prompt_tokens += done.prompt_tokens;
  completion_tokens += done.completion_tokens;
  cached_tokens += done.cached_tokens;
}

std::string usage::json() const {
  return "{\"prompt_tokens\":" + std::to_string(prompt_tokens) +
    ",\"completion_tokens\":" + std::to_string(completion_tokens) +
    ",\"total_tokens\":" + std::to_string(prompt_tokens + completion_tokens) +
    ",\"prompt_tokens_details\":{\"cached_tokens\":" + std::to_string(cached_tokens) + "}}";
}

response_writer::response_writer(const generation_request& request, std::shared_ptr<const served_model> model)
  : model_(std::move(model)),
    speaks_(request.speaks),
    stream_(request.stream),
    include_usage_(request.include_usage),
    return_token_ids_(request.return_token_ids),
    want_logprobs_(request.prompts.front().sampling.logprobs >= 0),
    ranked_(request.prompts.front().sampling.ranked()),
    n_(static_cast<std::size_t>(request.prompts.front().sampling.n)),
    echoes_(request.echoes) {
  if (return_token_ids_)
    for (const auto& one : request.prompts)
      prompts_.push_back(one.prompt);
  // A stream's choices appear with their events; a whole response lists them all.
  if (!stream_)
    for (std::size_t i = 0; i < request.prompts.size() * n_; ++i)
      choices_[i];
  const bool chat = speaks_ == dialect::chat;
  const auto now = std::time(nullptr);
  head_ = "{\"id\":\"" + std::string(chat ? "chatcmpl-" : "cmpl-") + random_id() + "\",\"object\":\"" +
    (!chat       ? "text_completion"
       : stream_ ? "chat.completion.chunk"
                 : "chat.completion") +
    "\",\"created\":" + std::to_string(now) + ",\"model\":" + json_text(to_utf8(model_->id));
}

std::vector<std::size_t> response_writer::offsets_of(std::size_t start,
                                                     const std::vector<sampled_token>& tokens) const {
  std::vector<std::size_t> result;
  for (const auto& token : tokens) {
    result.push_back(start);
    if (!is_hidden(token.id, *model_))
      start += count_characters(bytes_of(token.id, *model_));
  }
  return result;
}

response_writer::piece response_writer::next_piece(std::size_t prompt, const token_event& e) {
  auto& to = choices_[prompt * n_ + e.index];
  piece p;
  p.first = !std::exchange(to.started, true);
  const bool echo = p.first && !echoes_.empty();
  if (echo)
    p.text = echoes_[prompt];
  if (want_logprobs_ && speaks_ == dialect::completions)
    p.offsets = offsets_of(to.characters + count_characters(p.text), e.logprobs);
  p.text += e.text;
  p.ids = e.token_ids;
  p.logprobs = e.logprobs;
  p.finish = e.finish;
  p.stop = e.stop;
  to.characters += count_characters(p.text);
  return p;
}

std::string response_writer::completion_logprobs(const piece& p) const {
  std::string tokens, values, tops, offsets;
  for (std::size_t i = 0; i < p.logprobs.size(); ++i) {
    const auto& token = p.logprobs[i];
    const std::string comma = i ? "," : "";
    const auto name = json_text(spelled(token.id, *model_));
    tokens += comma + name;
    values += comma + json_logprob(token.logprob);
    offsets += comma + std::to_string(p.offsets[i]);
    // The chosen token is always listed, so there may be one more than requested.
    std::string top;
    bool chosen = false;
    for (const auto& other : token.top) {
      chosen = chosen || other.id == token.id;
      top += (top.empty() ? "" : ",") + json_text(spelled(other.id, *model_)) + ':' + json_logprob(other.logprob);
    }
    if (!chosen)
      top += (top.empty() ? "" : ",") + name + ':' + json_logprob(token.logprob);
    tops += comma + '{' + top + '}';
  }
  return "{\"tokens\":[" + tokens + "],\"token_logprobs\":[" + values + "],\"top_logprobs\":[" + tops +
    "],\"text_offset\":[" + offsets + "]}";
}

std::string response_writer::prompt_ids(std::size_t prompt) const {
  return ",\"prompt_token_ids\":" + json_ids(prompts_[prompt]);
}

std::string response_writer::choice_json(std::size_t index, const piece& p, bool whole) const {
  std::string result = "{\"index\":" + std::to_string(index);
  if (speaks_ == dialect::completions) {
    result += ",\"text\":" + json_text(p.text);
    result += ",\"logprobs\":" + (want_logprobs_ ? completion_logprobs(p) : "null");
  } else {
    if (whole)
      result += ",\"message\":{\"role\":\"assistant\",\"content\":" + json_text(p.text) + ",\"refusal\":null}";
    else if (p.first)
      result += ",\"delta\":{\"role\":\"assistant\",\"content\":" + json_text(p.text) + '}';
    else
      result += ",\"delta\":{" + (p.text.empty() ? std::string() : "\"content\":" + json_text(p.text)) + '}';
    const bool list = want_logprobs_ && (whole || !p.logprobs.empty());
    result += ",\"logprobs\":";
    result += list ? "{\"content\":" + chat_logprobs(p.logprobs, *model_) + ",\"refusal\":null}" : "null";
  }
  result += ",\"finish_reason\":";
  result += p.finish ? json_text(name_of(*p.finish)) : "null";
  if (p.finish)
    result += ",\"stop_reason\":" + (p.stop.empty() ? "null" : json_text(to_utf8(p.stop)));
  if (p.ranking)
    result += json_ranking(*p.ranking);
  if (return_token_ids_) {
    result += ",\"token_ids\":" + json_ids(p.ids);
    if (speaks_ == dialect::completions && (whole || p.first))
      result += prompt_ids(index / n_);
  }
  return result += '}';
}

std::string response_writer::chunk(std::size_t prompt, const token_event& e) {
  const auto index = prompt * n_ + e.index;
  auto p = next_piece(prompt, e);
  if (ranked_ && e.finish) {
    choices_[index].all = std::move(p);
    return {};
  }
  return event_of(prompt, index, p);
}

std::string response_writer::event_of(std::size_t prompt, std::size_t index, const piece& p) const {
  auto data = head_ + ",\"choices\":[" + choice_json(index, p, false) + ']';
  if (return_token_ids_ && speaks_ == dialect::chat && p.first)
    data += prompt_ids(prompt);
  if (include_usage_)
    data += ",\"usage\":null";
  return sse(data + '}');
}

std::string response_writer::last_chunks(std::size_t prompt) {
  std::string result;
  for (std::size_t index = prompt * n_; ranked_ && index < (prompt + 1) * n_; ++index)
    if (const auto found = choices_.find(index); found != choices_.end())
      result += event_of(prompt, index, found->second.all);
  return result;
}

std::string response_writer::last_chunks() const {
  std::string result;
  if (include_usage_)
    result = sse(head_ + ",\"choices\":[],\"usage\":" + usage_.json() + '}');
  return result + sse("[DONE]");
}

void response_writer::add(std::size_t prompt, const token_event& e) {
  auto p = next_piece(prompt, e);
  auto& all = choices_[prompt * n_ + e.index].all;
  all.text += p.text;
  all.ids.insert(all.ids.end(), p.ids.begin(), p.ids.end());
  all.logprobs.insert(all.logprobs.end(), p.logprobs.begin(), p.logprobs.end());
  all.offsets.insert(all.offsets.end(), p.offsets.begin(), p.offsets.end());
  all.finish = p.finish;
  all.stop = p.stop;
}

void response_writer::add(std::size_t prompt, const done_event& done) {
  usage_.add(done);
  for (const auto& one : done.choices) {
    auto& all = choices_[prompt * n_ + one.index].all;
    if (!all.finish)
      all.finish = one.reason;
    if (ranked_)
      all.ranking = one;
  }
}

std::string response_writer::body() const {
  std::string result = head_ + ",\"choices\":[";
  for (const auto& [index, choice] : choices_)
    result += (index ? "," : "") + choice_json(index, choice.all, true);
  result += "],\"usage\":" + usage_.json();
  if (return_token_ids_ && speaks_ == dialect::chat)
    result += prompt_ids(0);
  return result + '}';
}

} // namespace troupe
