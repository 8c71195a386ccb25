#include "runtime/engine/transcript.hpp"

#include <utility>

namespace troupe {

transcript::transcript(std::uint32_t index, std::shared_ptr<const tokenizer> words, const generation& what)
  : index_(index),
    stop_strings_(what.sampling.stop),
    stops_(stop_strings_),
    with_logprobs_(what.sampling.logprobs >= 0) {
  if (words)
    decoder_.emplace(std::move(words), what.skip_special_tokens, what.shown_tokens);
}

std::optional<token_event> transcript::push(const sampled_token& token) {
  if (finished_)
    return std::nullopt;
  pending_.token_ids.push_back(token.id);
  if (with_logprobs_)
    pending_.logprobs.push_back(token);
  ids_.push_back(token.id);
  mirostat_mu_ = token.mirostat_mu;
  using finish = enum sampled_token::finish;
  // An end-of-sequence token is not part of the text.
  const bool ends = token.finish == finish::eos || token.finish == finish::stop_token;
  if (decoder_ && !ends)
    add(decoder_->push(token.id));
  if (!finished_ && token.finish != finish::none)
    return cut(token.finish == finish::length ? finish_reason::length : finish_reason::stop);
  if (pending_.text.empty() && !finished_ && decoder_)
    return std::nullopt;
  return flush();
}

token_event transcript::cut(finish_reason why) {
  if (decoder_)
    add(decoder_->finish());
  if (!finished_) {
    pending_.text += stops_.finish();
    finished_ = why;
  }
  return flush();
}

void transcript::add(const std::string& piece) {
  auto match = stops_.push(piece);
  pending_.text += match.text;
  if (match.stopped && !finished_) {
    pending_.stop = stop_strings_[match.which];
    finished_ = finish_reason::stop;
    stopped_by_text_ = true;
  }
}

token_event transcript::flush() {
  pending_.index = index_;
  pending_.finish = finished_;
  auto event = std::exchange(pending_, {});
  pending_.position = static_cast<std::uint32_t>(ids_.size());
  return event;
}

choice_summary transcript::summary() const {
  return {index_, finished_.value_or(finish_reason::cancelled), static_cast<std::uint32_t>(ids_.size()),
          cumulative_logprob_, score_};
}

} // namespace troupe
