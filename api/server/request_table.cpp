#include "api/server/request_table.hpp"

#include "api/openai/openai_response.hpp"
#include "runtime/sampling/group_strategy.hpp"
#include "runtime/support/json/json_object.hpp"
#include "runtime/support/text/utf8.hpp"

#include <boost/asio/post.hpp>

#include <algorithm>
#include <ranges>

namespace troupe {

namespace {

failure missing(std::string_view id, bool known) {
  constexpr std::size_t longest_shown = 100; // ids are shorter
  const auto name = id.size() <= longest_shown ? '`' + std::string(id) + '`' : std::string("of so long an id");
  return failure(errc::not_found,
                 known ? "the request " + name + " has ended" : "there is no request " + name + ", or not any more",
                 "id");
}

} // namespace

request_entry::request_entry(origin from, std::shared_ptr<request_times> times, boost::asio::any_io_executor strand,
                             request_scope& scope)
  : from_(std::move(from)), times_(std::move(times)), scope_(&scope), strand_(std::move(strand)) {}

void request_entry::parsed(const std::vector<generation>& prompts, std::string_view answer_id) {
  const std::lock_guard lock(mutex_);
  answer_id_ = answer_id;
  for (const auto& one : prompts) {
    model_ = one.model;
    prompt_tokens_ += one.prompt.size();
    generates_ = generates_ || (one.sampling.max_tokens > 0 && one.embed == pooling::none);
    reasons_ = reasons_ || one.reasoning;
    if (const auto together = one.sampling.group())
      whole_ = together->field;
  }
}

void request_entry::submitted(request_handle handle) {
  times_->submitted(handle.ledger());
  const std::lock_guard lock(mutex_);
  handles_.push_back(std::move(handle));
}

void request_entry::end(unsigned status, std::string code) {
  times_->end();
  scope_ = nullptr;
  const std::lock_guard lock(mutex_);
  handles_ = {};
  strand_ = {};
  status_ = status;
  code_ = std::move(code);
}

bool request_entry::is_called(std::string_view name) const {
  if (from_.id == name)
    return true;
  const std::lock_guard lock(mutex_);
  return !answer_id_.empty() && answer_id_ == name;
}

bool request_entry::ended() const {
  const std::lock_guard lock(mutex_);
  return status_ != 0;
}

std::string request_entry::json() const {
  const auto seen = times_->seen();
  json_object result;
  result.text("id", to_utf8(from_.id)).text("object", "request").text("route", to_utf8(from_.route));
  const std::lock_guard lock(mutex_);
  result.number("created", static_cast<std::int64_t>(created_))
    .text("state", seen.state)
    .text_or_null("answer_id", answer_id_)
    .text_or_null("model", to_utf8(model_));
  if (status_ != 0)
    result.number("status", status_);
  if (!code_.empty())
    result.text("error", code_);
  return result.number("prompt_tokens", prompt_tokens_)
    .number("completion_tokens", seen.tokens)
    .number("total_ms", seen.total_ms)
    .raw("spent_ms", json_of(seen.spent))
    .str();
}

void request_entry::cancel() {
  const std::lock_guard lock(mutex_);
  if (!strand_)
    return;
  boost::asio::post(strand_, [self = shared_from_this()] {
    if (self->scope_)
      self->scope_->cut({errc::cancelled, "the request was cancelled by its owner", {}});
  });
}

// Called with the mutex held.
void request_entry::check_controllable() const {
  if (status_ != 0)
    throw missing(from_.id, true);
  if (handles_.empty())
    throw failure(errc::bad_request, "the request `" + from_.id + "` has not begun to answer: it can only be cancelled",
                  "id");
  if (!whole_.empty() || !generates_)
    throw failure(errc::bad_request,
                  "the request `" + from_.id + "` has no answer that could end early" +
                    (whole_.empty() ? "" : ", because of `" + whole_ + '`') + ": it can only be cancelled",
                  "id");
}

void request_entry::finish() {
  const std::lock_guard lock(mutex_);
  check_controllable();
  for (const auto& handle : handles_)
    handle.finish();
}

void request_entry::end_reasoning() {
  const std::lock_guard lock(mutex_);
  check_controllable();
  if (!reasons_)
    throw failure(errc::bad_request, "the request `" + from_.id + "` has no reasoning whose end is known", "action");
  for (const auto& handle : handles_)
    handle.end_reasoning();
}

void request_table::open(const entry_ptr& one) {
  const std::lock_guard lock(mutex_);
  open_.push_back(one);
}

void request_table::close(const entry_ptr& one) {
  const std::lock_guard lock(mutex_);
  std::erase(open_, one);
  ended_.push_back(one);
  if (ended_.size() > most_ended_)
    ended_.pop_front();
}

request_table::entry_ptr request_table::find(std::size_t owner, std::string_view id) const {
  const std::lock_guard lock(mutex_);
  for (const auto* all : {&open_, &ended_})
    for (const auto& one : *all | std::views::reverse)
      if (one->owner() == owner && one->is_called(id))
        return one;
  throw missing(id, false);
}

std::vector<request_table::entry_ptr> request_table::running(std::size_t owner, std::string_view id) const {
  std::vector<entry_ptr> found;
  const std::lock_guard lock(mutex_);
  for (const auto& one : open_)
    if (one->owner() == owner && one->is_called(id))
      found.push_back(one);
  if (found.empty())
    throw missing(
      id, std::ranges::any_of(ended_, [&](const auto& one) { return one->owner() == owner && one->is_called(id); }));
  return found;
}

} // namespace troupe
