#include "runtime/techniques/guides/answer_guide.hpp"

#include "runtime/sampling/sampling_params.hpp"
#include "runtime/support/error.hpp"
#include "runtime/support/text/utf8.hpp"
#include "runtime/tokenizer/tokenizer.hpp"

#include <algorithm>
#include <utility>

namespace troupe::guides {

namespace {

constexpr std::size_t forced_window = 64; // bytes of forced text that decide its next token
constexpr std::size_t longest_run = 256;  // bytes of forced text that decide how what follows is cut

std::shared_ptr<const guide> compiled(const guide_source& source, std::shared_ptr<const guide_vocabulary> vocabulary,
                                      const guide_limits& limits, std::shared_ptr<guide_pool> pool) {
  if (source.after.size() > answer_guide::longest_after)
    throw failure(errc::bad_request,
                  "the text behind which a guide begins may have at most " +
                    std::to_string(answer_guide::longest_after) + " bytes",
                  field_of(source));
  try {
    return compile_guide(source, std::move(vocabulary), limits, std::move(pool));
  } catch (const failure& f) {
    blame(f, field_of(source));
  }
}

/// Its longest beginning in whole characters; nothing unless that is UTF-8.
std::string whole_characters(std::string text) {
  std::size_t end = 0;
  utf8_state utf8;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto step = utf8.advance(static_cast<unsigned char>(text[i]));
    if (step == utf8_state::step::invalid)
      return {};
    if (step == utf8_state::step::complete)
      end = i + 1;
  }
  text.resize(end);
  return text;
}

} // namespace

answer_guide::answer_guide(const guide_source& source, std::shared_ptr<const tokenizer> tokens,
                           std::shared_ptr<const guide_vocabulary> vocabulary, const guide_limits& limits,
                           std::shared_ptr<guide_pool> pool, std::shared_ptr<const banned_tokens> banned)
  : guide_(compiled(source, vocabulary, limits, std::move(pool))),
    tokens_(std::move(tokens)),
    after_(source.after),
    is_free_(source.what == guide_source::kind::anything),
    banned_(std::move(banned)) {
  if (!source.thinking.end.empty())
    thinking_.emplace(source.thinking, *tokens_, *vocabulary);
  if (!banned_ && !source.banned.empty())
    banned_ = std::make_shared<const banned_tokens>(source.banned, vocabulary);
  if (after_.empty() && !is_free_)
    return;
  may_be_empty_ = is_free_ || guide_state(guide_).can_end();
  free_.resize(vocabulary->words());
  for (std::size_t i = 0; i < vocabulary->size(); ++i) {
    const auto id = static_cast<token_id>(i);
    if (!vocabulary->any_bytes(id).empty() && !vocabulary->is_end(id))
      free_[i / 64] |= std::uint64_t(1) << (i % 64);
  }
}

std::unique_ptr<constraint_state> answer_guide::begin(std::shared_ptr<const constraint> self,
                                                      const sampling_params& params) const {
  thinking_limits limits;
  if (const auto budget = params.thinking_budget; budget >= 0)
    limits = {static_cast<std::size_t>(budget), static_cast<std::size_t>(params.max_tokens)};
  return std::make_unique<answer_state>(std::static_pointer_cast<const answer_guide>(std::move(self)), limits);
}

std::span<const token_id> answer_guide::forbidden(std::size_t matched) const {
  const std::scoped_lock hold(lock_);
  if (const auto known = forbidden_.find(matched); known != forbidden_.end())
    return known->second;
  std::vector<token_id> result;
  for (std::size_t i = 0; i < vocabulary().size(); ++i) {
    const auto bytes = vocabulary().any_bytes(static_cast<token_id>(i));
    const auto end = after_.search(matched, bytes);
    if (end.found && end.at < bytes.size() && !guide_state(guide_).advance(bytes.substr(end.at)))
      result.push_back(static_cast<token_id>(i));
  }
  return forbidden_.emplace(matched, std::move(result)).first->second;
}

// `run` and `forced` are cut into tokens together, if one begins between them.
std::optional<token_id> answer_guide::next_token(std::string_view run, std::string_view forced) const {
  const auto text = whole_characters(std::string(run) + std::string(forced));
  if (text.size() < run.size() + 2)
    return run.empty() || !text.empty() ? std::nullopt : next_token({}, forced);
  const auto ids = tokens_->encode(text, false);
  std::size_t at = 0, i = 0;
  while (i < ids.size() && at < run.size())
    at += vocabulary().bytes(ids[i++]).size();
  if (at != run.size())
    return run.empty() ? std::nullopt : next_token({}, forced);
  if (i + 1 >= ids.size()) // it may be the beginning of a longer one
    return {};
  const auto bytes = vocabulary().bytes(ids[i]);
  if (bytes.empty() || !forced.starts_with(bytes) || vocabulary().is_end(ids[i]))
    return {};
  return ids[i];
}

answer_state::answer_state(std::shared_ptr<const answer_guide> g, thinking_limits limits)
  : guide_(std::move(g)),
    state_(guide_->guide_),
    thinking_(guide_->thinking_ ? &*guide_->thinking_ : nullptr, limits),
    banned_(guide_->banned_.get()),
    guided_(guide_->after_.empty()) {}

bool answer_state::advance(token_id token) {
  const auto bytes = vocabulary().any_bytes(token);
  if (bytes.empty() || vocabulary().is_end(token) || (thinking_.closes() && token != thinking_.next()) ||
      banned_.forbids(token) || !follow(token, bytes))
    return false;
  thinking_.advance(bytes);
  banned_.advance(bytes, vocabulary().bytes(token).empty());
  return true;
}

bool answer_state::follow(token_id token, std::string_view bytes) {
  if (guided_) {
    if (guide_->is_free())
      return true;
    const bool forced = !state_.forced(1).empty();
    if (!state_.advance(token))
      return false;
    run_ = forced && run_.size() < longest_run ? run_.append(vocabulary().bytes(token)) : std::string();
    return true;
  }
  const auto end = guide_->after_.search(matched_, bytes);
  if (!end.found) {
    matched_ = end.at;
    return true;
  }
  guided_ = end.at == bytes.size() || guide_->is_free() || state_.advance(bytes.substr(end.at));
  return guided_;
}

void answer_state::mask(std::span<std::uint64_t> out, std::vector<token_id>* withheld) {
  const auto clear = [&](std::span<const token_id> ids) {
    for (const auto id : ids)
      if (static_cast<std::size_t>(id) < vocabulary().size())
        out[static_cast<std::size_t>(id) / 64] &= ~(std::uint64_t(1) << (id % 64));
  };
  if (thinking_.closes()) {
    std::ranges::fill(out, 0);
    out[static_cast<std::size_t>(thinking_.next()) / 64] |= std::uint64_t(1) << (thinking_.next() % 64);
  } else if (guided_ && !guide_->is_free()) {
    state_.mask(out);
    clear(vocabulary().end_tokens());
  } else {
    std::ranges::copy(guide_->free_, out.begin());
    if (!guided_)
      clear(guide_->forbidden(matched_));
  }
  banned_.each_list([&](std::span<const token_id> ids) {
    if (withheld)
      for (const auto id : ids)
        if (out[static_cast<std::size_t>(id) / 64] >> (id % 64) & 1)
          withheld->push_back(id);
    clear(ids);
  });
}

std::optional<token_id> answer_state::forced() {
  std::optional<token_id> result;
  if (thinking_.closes())
    result = thinking_.next();
  else if (guided_ && !guide_->is_free())
    if (const auto text = state_.forced(forced_window); !text.empty())
      result = guide_->next_token(run_, text);
  return result && !banned_.forbids(*result) ? result : std::nullopt;
}

} // namespace troupe::guides
