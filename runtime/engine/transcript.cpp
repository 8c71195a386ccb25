#include "runtime/engine/transcript.hpp"

#include <algorithm>
#include <span>
#include <utility>

namespace troupe {

token_text_ptr text_of_tokens(std::shared_ptr<const tokenizer> words, const generation& what) {
  if (!words || (what.sampling.stop.empty() && !what.sampling.judged()))
    return nullptr;
  return std::make_shared<const token_text>(
    [words = std::move(words), skip = what.skip_special_tokens, shown = what.shown_tokens](token_id id) {
      const bool hidden = skip && words->is_special(id) && !std::ranges::binary_search(shown, id);
      return hidden ? std::string() : words->token_bytes(id);
    });
}

transcript::transcript(std::uint32_t index, std::shared_ptr<const tokenizer> words, const generation& what)
  : index_(index),
    stop_strings_(what.sampling.stop),
    stops_(stop_strings_),
    min_tokens_(static_cast<std::size_t>(what.sampling.min_tokens)),
    with_logprobs_(what.sampling.logprobs >= 0) {
  if (words)
    begin_text(std::move(words), what);
}

// What decoders make of a token depends on the text before it: at its start, some drop a space. The last tokens of the
// prompt suffice once they have text of their own; runs of bytes, which have none before their end, may be longer.
void transcript::begin_text(std::shared_ptr<const tokenizer> words, const generation& what) {
  const auto* form = what.sampling.techniques.constraint();
  const bool anew = what.begins_text && !(form && form->is_exact());
  const auto prompt = anew ? std::span<const token_id>() : std::span(what.prompt);
  for (std::size_t count = 64;; count *= 2) {
    const auto last = prompt.last(std::min(count, prompt.size()));
    stream_decoder whole(words, what.skip_special_tokens, what.shown_tokens);
    decoder_.emplace(words, what.skip_special_tokens, what.shown_tokens);
    bool has_text = false;
    for (const auto id : last) {
      whole.push(id);
      has_text = !decoder_->push(id).empty() || has_text;
    }
    of_prompt_ = last.empty() ? std::string() : whole.finish();
    if (has_text || last.size() == prompt.size())
      return;
  }
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

void transcript::add(std::string piece) {
  if (!of_prompt_.empty() && !piece.empty()) {
    // The next tokens may change it only if the prompt ends within a character.
    const auto common = std::min(piece.size(), of_prompt_.size());
    const bool same = piece.compare(0, common, of_prompt_, 0, common) == 0;
    piece.erase(0, same ? common : 0);
    of_prompt_.erase(0, same ? common : of_prompt_.size());
  }
  auto match = stops_.push(piece, ids_.size() > min_tokens_);
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
