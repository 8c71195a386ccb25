#include "runtime/techniques/guides/thinking.hpp"

#include "runtime/support/error.hpp"
#include "runtime/tokenizer/tokenizer.hpp"

#include <algorithm>
#include <optional>
#include <utility>

namespace troupe::guides {

namespace {

constexpr std::size_t most_room = 64; // tokens that are kept for the answer behind the reasoning

bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; }

/// The first token of `text` as the tokenizer cuts it, or else the longest token that it begins with.
std::optional<token_id> first_token(std::string_view text, const tokenizer& tokens, const guide_vocabulary& words) {
  const auto fits = [&](token_id id) {
    const auto bytes = words.any_bytes(id);
    return !bytes.empty() && text.starts_with(bytes) && !words.is_end(id);
  };
  if (const auto whole = tokens.id_of(text); whole && fits(*whole))
    return whole;
  if (is_utf8(text)) // else a token has ended within a character
    if (const auto ids = tokens.encode(text, false); !ids.empty() && fits(ids.front()))
      return ids.front();
  std::optional<token_id> best;
  for (std::size_t i = 0; i < words.size(); ++i)
    if (const auto id = static_cast<token_id>(i);
        fits(id) && (!best || words.any_bytes(id).size() > words.any_bytes(*best).size()))
      best = id;
  return best;
}

/// How many tokens of an answer are kept for what follows the reasoning.
std::size_t room_of(std::size_t answer) { return std::clamp<std::size_t>(answer / 8, 1, most_room); }

} // namespace

thinking_rules::thinking_rules(thinking_marks marks, const tokenizer& tokens, const guide_vocabulary& vocabulary)
  : marks_(std::move(marks)), end_(marks_.end) {
  const std::string_view close = marks_.close;
  closing_.resize(close.size());
  tokens_.resize(close.size() + 1, 0);
  for (auto at = close.size(); at-- > 0;) {
    const auto id = first_token(close.substr(at), tokens, vocabulary);
    if (!id)
      throw failure(errc::bad_request,
                    "the model's reasoning cannot be bounded: none of its tokens begin `" +
                      std::string(close.substr(at)) + "`, which ends it",
                    "thinking_token_budget");
    closing_[at] = *id;
    tokens_[at] = 1 + tokens_[std::min(close.size(), at + vocabulary.any_bytes(*id).size())];
  }
}

thinking_state::thinking_state(const thinking_rules* rules, thinking_limits limits) : rules_(rules), limits_(limits) {
  if (rules)
    now_ = rules->marks().is_open ? in::reasoning : in::opening;
}

bool thinking_state::closes() const {
  if (now_ != in::reasoning)
    return now_ == in::closing;
  if (!utf8_.between_characters())
    return false;
  if (thought_ >= limits_.budget)
    return true;
  return limits_.answer != thinking_limits::none &&
    taken_ + rules_->closing_tokens(matched_) + room_of(limits_.answer) >= limits_.answer;
}

void thinking_state::advance(std::string_view bytes) {
  if (now_ == in::rest)
    return;
  if (now_ == in::reasoning && closes()) {
    now_ = in::closing;
    closed_ = matched_;
  }
  ++taken_;
  switch (now_) {
    case in::opening: return open(bytes);
    case in::reasoning: ++thought_; return think(bytes);
    case in::closing:
      closed_ += bytes.size();
      if (closed_ >= rules_->marks().close.size())
        now_ = in::rest;
      return;
    case in::rest: return;
  }
}

void thinking_state::open(std::string_view bytes) {
  const auto& begin = rules_->marks().begin;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    if (matched_ == 0 && is_blank(bytes[i]) && !is_blank(begin.front()))
      continue;
    if (bytes[i] != begin[matched_]) {
      now_ = in::rest;
      return;
    }
    if (++matched_ == begin.size()) {
      now_ = in::reasoning;
      matched_ = 0;
      return think(bytes.substr(i + 1));
    }
  }
}

void thinking_state::think(std::string_view bytes) {
  const auto found = rules_->end().search(matched_, bytes);
  if (found.found)
    now_ = in::rest;
  else
    matched_ = found.at;
  for (const auto c : bytes) {
    const bool inside = !utf8_.between_characters();
    if (utf8_.advance(static_cast<unsigned char>(c)) == utf8_state::step::invalid && inside)
      utf8_.advance(static_cast<unsigned char>(c)); // it may start the next
  }
}

} // namespace troupe::guides
