#include "runtime/engine/request_answer.hpp"

#include <algorithm>
#include <utility>

namespace troupe {

namespace {

double milliseconds_of(request_answer::time_point::duration d) {
  return std::chrono::duration<double, std::milli>(d).count();
}

} // namespace

request_answer::request_answer(request_ptr what, std::shared_ptr<const tokenizer> words,
                               std::shared_ptr<request_ledger> ledger, std::function<void(token_event)> tell)
  : what_(std::move(what)), words_(std::move(words)), ledger_(std::move(ledger)), tell_(std::move(tell)) {
  const auto& params = what_->sampling;
  if (params.best_of > params.n)
    ranking_.emplace(params);
  const auto candidates = static_cast<std::uint32_t>(ranking_ ? params.best_of : params.n);
  held_.resize(candidates);
  for (std::uint32_t i = 0; i < candidates; ++i)
    sequences_.emplace_back(i, words_, *what_);
  if (params.prompt_logprobs >= 0 && what_->prompt.size() == 1)
    tell_scores({});
}

bool request_answer::complete() const {
  return std::ranges::all_of(sequences_, [](auto& s) { return s.finished(); });
}

bool request_answer::has_tokens() const {
  return std::ranges::any_of(sequences_, [](auto& s) { return !s.ids().empty(); });
}

bool request_answer::awaits_scores() const {
  return what_->sampling.prompt_logprobs >= 0 && scored_ < what_->prompt.size();
}

bool request_answer::may_finish() const {
  const auto& params = what_->sampling;
  return !params.grouped() && params.max_tokens > 0 && what_->embed == pooling::none;
}

std::uint64_t request_answer::tokens() const {
  std::uint64_t all = scored_ + (embedding_.empty() ? 0 : 1);
  for (const auto& s : sequences_)
    all += s.ids().size();
  return all;
}

std::vector<resumed_sequence> request_answer::unfinished() const {
  std::vector<resumed_sequence> resumed;
  if (!has_tokens())
    return resumed;
  for (std::uint32_t i = 0; i < sequences_.size(); ++i)
    if (!sequences_[i].finished())
      resumed.push_back({i, sequences_[i].ids(), sequences_[i].mirostat_mu()});
  return resumed;
}

void request_answer::started(time_point when, std::int32_t cached) {
  if (started_)
    return;
  started_ = when;
  // An answer that is replayed may find its own tokens cached, too.
  cached_tokens_ = static_cast<std::uint32_t>(std::min(static_cast<std::size_t>(cached), what_->prompt.size()));
}

std::span<const std::uint32_t> request_answer::append(std::uint32_t index, const sampled_token& token, time_point now) {
  ended_.clear();
  last_token_ = now;
  if (!first_token_)
    first_token_ = now;
  auto& sequence = sequences_[index];
  const bool was_running = !sequence.finished();
  withheld_tokens_ += was_running && token.withheld;
  ledger_->generated(was_running);
  if (auto event = sequence.push(token))
    deliver(index, std::move(*event));
  if (was_running && ranking_)
    rank(index, token.logprob);
  if (was_running && sequence.stopped_by_text())
    ended_.push_back(index);
  return ended_;
}

// Candidates of best_of are answered when all are known.
void request_answer::deliver(std::size_t index, token_event e) {
  if (ranking_)
    held_[index].push_back(std::move(e));
  else
    tell_(std::move(e));
}

void request_answer::rank(std::uint32_t index, float logprob) {
  ranking_->add(index, logprob);
  if (sequences_[index].finished())
    ranking_->finish(index);
  for (std::uint32_t i = 0; i < sequences_.size(); ++i)
    if (!sequences_[i].finished() && ranking_->hopeless(i)) {
      sequences_[i].cut(finish_reason::cancelled);
      ended_.push_back(i);
    }
}

void request_answer::count_guesses(std::uint32_t right, std::uint32_t wrong, bool predicted) {
  accepted_guesses_ += right;
  rejected_guesses_ += wrong;
  accepted_predicted_ += predicted ? right : 0;
  rejected_predicted_ += predicted ? wrong : 0;
}

bool request_answer::add_scores(std::size_t position, std::span<const sampled_token> tokens) {
  const auto next = std::max<std::size_t>(scored_, 1);
  if (position > next || position + tokens.size() <= next)
    return false;
  tell_scores(tokens.subspan(next - position));
  return true;
}

// The last ones of a request that generates nothing are part of its sequence's last event.
void request_answer::tell_scores(std::span<const sampled_token> tokens) {
  token_event e;
  if (scored_ == 0)
    e.prompt.push_back({.id = what_->prompt.front()});
  e.prompt.insert(e.prompt.end(), tokens.begin(), tokens.end());
  scored_ += e.prompt.size();
  if (awaits_scores() || what_->sampling.max_tokens > 0)
    return tell_(std::move(e));
  auto last = sequences_.front().cut(finish_reason::length);
  last.prompt = std::move(e.prompt);
  tell_(std::move(last));
  finish(finish_reason::length);
}

void request_answer::conclude(std::span<const hypothesis> found, time_point now) {
  first_token_ = last_token_ = now;
  for (std::size_t i = 0; i < sequences_.size() && i < found.size(); ++i) {
    auto& sequence = sequences_[i];
    ledger_->generated(found[i].tokens.size());
    for (const auto& token : found[i].tokens)
      if (auto event = sequence.push(token))
        tell_(std::move(*event));
    sequence.rank(found[i].cumulative_logprob, found[i].score);
  }
  finish(finish_reason::length);
}

void request_answer::conclude(std::vector<float> embedding, time_point now) {
  first_token_ = last_token_ = now;
  embedding_ = std::move(embedding);
  finish(finish_reason::stop);
}

void request_answer::finish(finish_reason why) {
  for (auto& s : sequences_)
    if (!s.finished())
      deliver(s.summary().index, s.cut(why));
}

bool request_answer::end_reasoning() {
  if (!first_token_ || !what_->reasoning || !may_finish() || ranking_)
    return false;
  bool any = false;
  for (auto& each : sequences_)
    any = close_reasoning(each) || any;
  return any;
}

bool request_answer::close_reasoning(transcript& of) {
  const auto& marks = *what_->reasoning;
  if (of.finished() || of.ids().empty() || !words_ || !marks.holds(words_->decode(of.ids(), false)))
    return false;
  const auto most = static_cast<std::size_t>(what_->sampling.max_tokens);
  for (const auto id : marks.closing) {
    if (of.finished())
      break;
    sampled_token token;
    token.id = id;
    token.mirostat_mu = of.mirostat_mu();
    if (of.ids().size() + 1 >= most)
      token.finish = sampled_token::finish::length;
    ledger_->generated(1);
    if (auto event = of.push(token))
      deliver(of.summary().index, std::move(*event));
  }
  return true;
}

std::vector<begun_sequence> request_answer::begun() const {
  using how = begun_sequence::end;
  std::vector<begun_sequence> all;
  for (const auto& each : sequences_) {
    const bool cut = each.finished() && !each.stopped_by_text();
    const bool full = cut && each.summary().reason == finish_reason::length;
    all.push_back({each.ids(), each.mirostat_mu(), full ? how::length : cut ? how::stop : how::none});
  }
  return all;
}

void request_answer::replay(std::span<const begun_sequence> what, time_point now) {
  for (std::size_t i = 0; i < std::min(what.size(), sequences_.size()); ++i)
    for (std::size_t k = 0; k < what[i].emitted.size(); ++k) {
      sampled_token token;
      token.id = what[i].emitted[k];
      token.mirostat_mu = what[i].mirostat_mu;
      if (k + 1 == what[i].emitted.size() && what[i].ended != begun_sequence::end::none)
        token.finish = what[i].ended == begun_sequence::end::length ? sampled_token::finish::length
                                                                    : sampled_token::finish::eos;
      first_token_ = last_token_ = now;
      ledger_->generated(1);
      if (auto event = sequences_[i].push(token)) {
        event->replayed = true;
        tell_(std::move(*event));
      }
    }
}

done_event request_answer::close(time_point submitted, time_point now) {
  if (ranking_)
    tell_best();
  done_event e;
  for (std::size_t i = 0; i < static_cast<std::size_t>(what_->sampling.n); ++i) {
    e.choices.push_back(sequences_[i].summary());
    e.choices.back().index = static_cast<std::uint32_t>(i);
    e.completion_tokens += e.choices.back().tokens;
  }
  e.prompt_tokens = static_cast<std::uint32_t>(what_->prompt.size());
  e.cached_tokens = cached_tokens_;
  e.accepted_guesses = accepted_guesses_;
  e.rejected_guesses = rejected_guesses_;
  e.accepted_predicted = accepted_predicted_;
  e.rejected_predicted = rejected_predicted_;
  e.withheld_tokens = withheld_tokens_;
  e.embedding = std::move(embedding_);
  const auto started = started_.value_or(first_token_.value_or(now));
  const auto first = std::max(first_token_.value_or(now), started); // it may have been replayed
  e.queue_ms = milliseconds_of(started - submitted);
  e.prefill_ms = milliseconds_of(first - started);
  e.decode_ms = milliseconds_of(last_token_.value_or(first) - first);
  e.total_ms = milliseconds_of(now - submitted);
  ledger_->close(now);
  e.spent = ledger_->parts();
  return e;
}

// Tells what the best candidates have generated, and puts these first. If the request was ended early, some of them may
// not be finished.
void request_answer::tell_best() {
  std::vector<transcript> best;
  const auto take = [&](std::uint32_t candidate, double logprob, double score) {
    for (auto& e : held_[candidate]) {
      e.index = static_cast<std::uint32_t>(best.size());
      tell_(std::move(e));
    }
    held_[candidate].clear();
    best.push_back(std::move(sequences_[candidate]));
    best.back().rank(logprob, score);
  };
  std::vector<bool> taken(sequences_.size());
  for (const auto& r : ranking_->best()) {
    taken[r.candidate] = true;
    take(r.candidate, r.cumulative_logprob, r.score);
  }
  for (std::uint32_t i = 0; i < sequences_.size() && std::ssize(best) < what_->sampling.n; ++i)
    if (!taken[i])
      take(i, 0, 0);
  sequences_ = std::move(best);
}

} // namespace troupe
