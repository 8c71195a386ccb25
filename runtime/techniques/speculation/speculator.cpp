#include "runtime/techniques/speculation/speculator.hpp"

#include "runtime/sampling/sampling_params.hpp"
#include "runtime/techniques/speculation/technique.hpp"

#include <algorithm>
#include <utility>

namespace troupe {

namespace {

constexpr int most_offered = 32;              // guesses, from which those are chosen that pay
constexpr double most_branching_pass = 0.125; // of a step, that a pass of the draft model takes if it names others

speculation mode_of(const speculation_settings& settings, const sampling_params& params) {
  const auto asked = speculation_of(params.techniques);
  return asked == speculation::automatic ? settings.mode : asked;
}

} // namespace

speculator::speculator(speculation_settings settings, step_cost_fn cost)
  : terms_(std::move(settings), std::move(cost)) {
  counters_.accepted_at.resize(as_size(terms_.settings.most_guesses));
}

speculator::~speculator() = default;

// -- sequences --------------------------------------------------------------------------------------------------------

void speculator::begin(sequence_id id, std::shared_ptr<const sampling_params> params, std::span<const token_id> known,
                       std::size_t prompt_tokens, std::span<const token_id> prediction) {
  const auto mode = mode_of(terms_.settings, *params);
  if (mode == speculation::off || terms_.settings.most_guesses <= 0)
    return;
  sequences_.erase(id);
  auto& s = sequences_.try_emplace(id, terms_, id, mode, std::move(params), known.first(prompt_tokens), prediction)
              .first->second;
  s.gain(known.subspan(prompt_tokens));
  terms_.policy.begin(id);
  waits_.reset();
}

void speculator::end(sequence_id id) {
  const auto found = sequences_.find(id);
  if (found == sequences_.end())
    return;
  proposals_ -= found->second.is_proposed();
  if (found->second.draft_model().is_known())
    ended_.push_back(id);
  sequences_.erase(found);
  terms_.policy.end(id);
  waits_.reset();
}

bool speculator::wants_states(sequence_id id) const {
  if (!terms_.settings.mtp)
    return false;
  const auto found = sequences_.find(id);
  return found != sequences_.end() && found->second.draft_model().is_served();
}

void speculator::take_states(sequence_id id, const state_rows& states, std::int32_t known) {
  if (wants_states(id))
    sequences_.at(id).take_states(states, known);
}

// -- a step -----------------------------------------------------------------------------------------------------------

speculator::plan speculator::decide(const plain_step& step, std::span<const decoding_sequence> decoding, int room,
                                    bool ask) {
  const auto& settings = terms_.settings;
  plan p{std::vector<guess_terms::source>(decoding.size()), std::vector<int>(decoding.size())};
  terms_.room = as_size(std::clamp(2 * most_offered / std::max(static_cast<int>(decoding.size()), 1),
                                   std::max(settings.forced, 1), most_offered));
  std::vector<guess_option> options;
  std::vector<std::size_t> places;
  for (std::size_t i = 0; i < decoding.size(); ++i) {
    const auto& d = decoding[i];
    auto s = sequences_.find(d.id);
    if (s == sequences_.end() || d.most <= 0)
      continue;
    if (const auto from = s->second.choose(d, step, ask)) {
      p.from[i] = *from;
      if (s->second.has_own_shape(*from)) {
        room -= p.guesses[i] = std::min(settings.lookahead.rows(), room);
        p.any = p.any || p.guesses[i] > 0;
        continue;
      }
      options.push_back(s->second.option(d, *from));
      places.push_back(i);
    }
  }
  if (options.empty())
    return p;
  const auto counts = terms_.policy.plan(step, terms_.cost, options, room);
  for (std::size_t i = 0; i < counts.size(); ++i) {
    p.guesses[places[i]] = counts[i];
    p.any = p.any || counts[i] > 0;
  }
  return p;
}

bool speculator::waits(const plain_step& step, std::span<const decoding_sequence> decoding) {
  if (asked_ || proposals_ > 0)
    return true;
  if (sequences_.empty())
    return false;
  if (!waits_)
    waits_ = decide(step, decoding, terms_.settings.most_guesses * step.sequences, true).any;
  held_ = held_ || *waits_;
  return *waits_;
}

std::optional<guess_request> speculator::collect(const plain_step& step, std::span<const decoding_sequence> decoding,
                                                 int room) {
  const auto& settings = terms_.settings;
  if (!(settings.draft_model || settings.mtp) || asked() || sequences_.empty())
    return std::nullopt;
  const auto p = decide(step, decoding, room, true);
  // To name others takes a small draft model long: then a line of more guesses gains more.
  const bool cheap = terms_.pass_ms.value() <= most_branching_pass * terms_.policy.unit_ms(step, terms_.cost);
  guess_request request;
  for (std::size_t i = 0; i < decoding.size(); ++i) {
    if (p.guesses[i] == 0 || p.from[i] != guess_terms::draft)
      continue;
    auto& s = sequences_.at(decoding[i].id).draft_model();
    if (s.drawn())
      continue;
    request.demands.push_back(s.demand(p.guesses[i]));
    if (decoding[i].branches && settings.branches && (cheap || settings.forced > 0))
      s.let_branch(request.demands.back(), decoding[i], step);
  }
  if (request.demands.empty())
    return std::nullopt;
  request.number = ++last_request_;
  request.ended = std::exchange(ended_, {});
  asked_ = true;
  return request;
}

std::optional<guess_request> speculator::collect_ahead() {
  const bool forced = terms_.settings.forced > 0;
  if (!terms_.settings.ahead || asked_ || terms_.ahead_request > 0 || proposals_ == 0)
    return std::nullopt;
  if (!forced && !terms_.ahead.tries())
    return std::nullopt;
  guess_request request;
  for (auto& [id, s] : sequences_)
    if (auto demand = s.demand_ahead())
      request.demands.push_back(std::move(*demand));
  if (request.demands.empty())
    return std::nullopt;
  enough_ = std::make_shared<std::atomic<bool>>(false);
  request.number = terms_.ahead_request = ++last_request_;
  request.ended = std::exchange(ended_, {});
  request.enough = enough_;
  beside_ = true;
  return request;
}

bool speculator::waits_for_ahead() const {
  return terms_.ahead_request > 0 &&
    std::ranges::any_of(sequences_, [](const auto& entry) { return entry.second.draft_model().is_open_ahead(); });
}

void speculator::take_ahead(const guess_reply& reply) {
  terms_.ahead_request = 0;
  enough_.reset();
  waits_.reset();
  for (const auto& answer : reply.answers)
    if (const auto s = sequences_.find(answer.sequence); s != sequences_.end())
      s->second.draft_model().answered_ahead(answer);
  if (reply.passes > 0)
    terms_.pass_ms.add(reply.drawing_ms / reply.passes);
}

void speculator::deliver(const guess_reply& reply) {
  if (terms_.ahead_request > 0 && reply.number == terms_.ahead_request)
    return take_ahead(reply);
  if (!asked_ || reply.number != last_request_)
    return;
  asked_ = false;
  waits_.reset();
  for (const auto& answer : reply.answers)
    if (const auto s = sequences_.find(answer.sequence); s != sequences_.end())
      s->second.draft_model().answered(answer);
  if (reply.passes > 0)
    terms_.pass_ms.add(reply.drawing_ms / reply.passes);
  if (as_size(reply.catch_up_rows) > guess_terms::little_lag)
    terms_.row_ms.add(reply.catch_up_ms / reply.catch_up_rows);
  drawing_ms_ += reply.drawing_ms;
  catch_up_ms_ += reply.catch_up_ms;
}

std::vector<guess_run> speculator::propose(const plain_step& step, std::span<const decoding_sequence> decoding,
                                           int room) {
  std::vector<guess_run> proposals(decoding.size());
  if (sequences_.empty())
    return proposals;
  const auto p = decide(step, decoding, room, false);
  for (std::size_t i = 0; i < decoding.size(); ++i) {
    if (p.guesses[i] == 0)
      continue;
    auto& s = sequences_.at(decoding[i].id);
    proposals_ -= s.is_proposed();
    proposals[i] = s.propose(decoding[i], p.from[i], as_size(p.guesses[i]));
    proposals_ += s.is_proposed();
  }
  return proposals;
}

std::size_t speculator::judged(sequence_id id, std::span<const token_id> choices) {
  const auto found = sequences_.find(id);
  if (found == sequences_.end() || choices.empty())
    return 0;
  if (!found->second.is_proposed() || choices.size() == 1) {
    append(id, choices.first(1));
    return 0;
  }
  const auto [rows, accepted] = found->second.judged(choices);
  for (std::size_t i = 0; i < accepted; ++i)
    ++counters_.accepted_at[i];
  ++counters_.drafts;
  counters_.proposed += rows;
  counters_.accepted += accepted;
  guesses_ += static_cast<int>(rows);
  accepted_ += static_cast<int>(accepted);
  --proposals_;
  waits_.reset();
  return accepted;
}

void speculator::append(sequence_id id, std::span<const token_id> tokens) {
  const auto found = sequences_.find(id);
  if (found == sequences_.end())
    return;
  proposals_ -= found->second.is_proposed();
  found->second.drop_proposal();
  terms_.policy.plain(id);
  found->second.gain(tokens);
  waits_.reset();
}

void speculator::finished(const finished_step& step) {
  auto own = step;
  own.ms = std::max(step.ms - catch_up_ms_, 0.0);
  if (beside_) { // what a step takes longer for that is no cost of guesses, but of making some beside it: ahead
    const auto longer = std::max(step.computed_ms - step.plain_ms - step.added_ms, 0.0);
    own.ms = std::max(own.ms - longer, 0.0);
    own.computed_ms -= longer;
  }
  terms_.policy.finished({own, guesses_, accepted_, drawing_ms_, held_}, terms_.cost);
  terms_.pass_ms.fade();
  terms_.row_ms.fade();
  waits_.reset();
  terms_.ahead.finished(step.computed_ms, step.plain_ms + step.added_ms, std::exchange(beside_, false));
  if (enough_ && (terms_.settings.forced == 0 || !waits_for_ahead()))
    *enough_ = true;
  held_ = guesses_ > 0; // the next one is not planned ahead either
  guesses_ = accepted_ = 0;
  drawing_ms_ = catch_up_ms_ = 0;
}

} // namespace troupe
