#include "api/server/figures/request_record.hpp"

#include "api/openai/openai_response.hpp"
#include "runtime/support/text/ascii.hpp"

#include <algorithm>

namespace troupe {

namespace {

constexpr std::size_t longest_id = 64;

} // namespace

std::string accepted_request_id(std::string_view given) {
  const bool harmless = std::ranges::all_of(given, [](char c) {
    return is_ascii_letter(c) || is_ascii_digit(c) || c == '-' || c == '_' || c == '.' || c == ':';
  });
  return harmless && given.size() <= longest_id ? std::string(given) : std::string();
}

void log_notes(server_log& log, const std::string& id, const std::vector<std::string>& notes,
               const std::string& frame) {
  for (const auto& note : notes) {
    log_fields fields{{"id", id}};
    if (!frame.empty())
      fields.push_back({"frame", frame});
    fields.push_back({"what", note});
    log.write(log_level::info, "left out", fields);
  }
}

request_record::request_record(std::string id, std::string route) : id_(std::move(id)), route_(std::move(route)) {}

void request_record::parsed(const generation& one) {
  model_ = one.model;
  prompt_tokens_ += one.prompt.size();
  sequences_ += static_cast<std::uint64_t>(one.sampling.width());
}

void request_record::see(const event& e) {
  if (const auto* token = std::get_if<token_event>(&e)) {
    count(*token);
  } else if (const auto* done = std::get_if<done_event>(&e)) {
    count(*done);
  } else {
    const auto& why = std::get<error>(e);
    failed(code_of(why), why.param, why.message);
  }
}

void request_record::count(const token_event& e) {
  if (!e.prompt.empty() && e.token_ids.empty())
    return; // it tells about the prompt alone
  completion_tokens_ += e.token_ids.size();
  last_ = clock::now();
  if (first_ == clock::time_point())
    first_ = last_;
}

void request_record::count(const done_event& done) {
  cached_tokens_ += done.cached_tokens;
  queue_ms_ = std::max(queue_ms_.value_or(0), done.queue_ms);
  for (const auto& choice : done.choices)
    if (const auto name = name_of(choice.reason); finish_.find(name) == finish_.npos)
      finish_ += (finish_.empty() ? "" : ",") + std::string(name);
}

void request_record::failed(std::string_view code, std::string_view param, std::string_view why) {
  code_ = code;
  param_ = param;
  why_ = why;
}

const char* request_record::outcome() const {
  if (code_ == moved)
    return "moved";
  if (code_ == code_of({errc::cancelled, {}, {}}) || status_ == client_left || finish_ == "cancelled")
    return "cancelled";
  return code_.empty() ? "answered" : "failed";
}

void request_record::write(server_log& log, metrics& counted) {
  if (!from_.key.empty())
    counted.ended(from_.key, {status_, prompt_tokens_, completion_tokens_});
  log_fields fields{{"id", id_}};
  if (!frame_.empty())
    fields.push_back({"frame", frame_});
  for (const auto& [name, value] : {std::pair<std::string_view, std::string>{"client", from_.client},
                                    {"forwarded_for", from_.forwarded_for},
                                    {"key", from_.key},
                                    {"user", from_.user}})
    if (!value.empty())
      fields.push_back({name, value});
  fields.push_back({"route", route_});
  fields.push_back({"status", std::uint64_t(status_)});
  if (sequences_ > 0) {
    fields.push_back({"prompt_tokens", prompt_tokens_});
    fields.push_back({"completion_tokens", completion_tokens_});
    fields.push_back({"cached_tokens", cached_tokens_});
    if (queue_ms_) // a client that leaves is not waited for
      fields.push_back({"queue_ms", *queue_ms_});
    if (first_ != clock::time_point()) {
      const auto steps = static_cast<double>(completion_tokens_) / static_cast<double>(sequences_) - 1;
      fields.push_back({"first_token_ms", milliseconds(first_ - begun_)});
      fields.push_back({"between_tokens_ms", steps > 0 ? milliseconds(last_ - first_) / steps : 0.0});
    }
    if (filtered_)
      finish_ = content_filter;
    else if (finish_.empty())
      finish_ = code_.empty() ? "cancelled" : "error";
    fields.push_back({"finish", finish_});
  }
  times_->end();
  const auto seen = times_->seen();
  const bool accounted = seen.submitted || seen.spent[wait_cause::load] > 0;
  if (accounted)
    counted.spent(model_, outcome(), seen.spent);
  fields.push_back({"total_ms", seen.total_ms});
  std::vector<std::string> names; // which fields refer to
  names.reserve(wait_causes);
  for (std::size_t i = 0; i < wait_causes && accounted; ++i)
    if (seen.spent.ms[i] != 0) {
      names.push_back("spent_" + std::string(name_of(static_cast<wait_cause>(i))) + "_ms");
      fields.push_back({names.back(), seen.spent.ms[i]});
    }
  if (!code_.empty())
    fields.push_back({"error", code_});
  if (!param_.empty())
    fields.push_back({"field", param_});
  if (!why_.empty())
    fields.push_back({"why", why_});
  const bool answered_probe = minor_ && code_.empty(); // "not ready yet" is an answer, too
  if (!answered_probe && status_ != client_left && (status_ >= 400 || !code_.empty()))
    log.write_refusal("request", std::move(fields));
  else
    log.write(minor_ ? log_level::debug : log_level::info, "request", fields);
}

} // namespace troupe
