#include "runtime/techniques/speculation/speculator.hpp"

#include "runtime/sampling/sampling_params.hpp"
#include "runtime/techniques/speculation/lookahead_drafter.hpp"
#include "runtime/techniques/speculation/ngram_drafter.hpp"
#include "runtime/techniques/speculation/technique.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>
#include <utility>

namespace troupe {

namespace {

constexpr std::size_t little_lag = 64;        // tokens that the draft model computes beside its first guess
constexpr int most_unmeasured_passes = 4;     // of the draft model, before it is known how long they take
constexpr int most_offered = 32;              // guesses, from which those are chosen that pay
constexpr int named_others = 1;               // tokens that the draft model names in place of each guess
constexpr double most_branching_pass = 0.125; // of a step, that a pass of the draft model takes if it names others
constexpr std::size_t besides = drafter::grades / 2; // grades from here on are of guesses beside likelier ones
constexpr int usual_answer = 256;                    // tokens: many requests end before their max_tokens
constexpr double least_catch_up_return = 2; // tokens' time to be gained, over what the draft model's prefill takes

/// Sum of the probabilities of the first guesses to be right.
double expected_tokens(double acceptance, int guesses) {
  double sum = 0, p = 1;
  for (int i = 0; i < guesses; ++i)
    sum += p *= acceptance;
  return sum;
}

/// Little is known of guesses whose chance the draft model does not tell.
std::vector<offered_guess> offered_by(const guess_answer& answer) {
  std::vector<offered_guess> offered;
  std::vector<bool> followed(answer.guesses.size() + 1); // [guess + 1]
  for (std::size_t i = 0; i < answer.guesses.size(); ++i) {
    constexpr double usual = 0.75;
    const auto chance = i < answer.chances.size() ? static_cast<double>(answer.chances[i]) : usual;
    const auto parent = i < answer.parents.size() ? answer.parents[i] : static_cast<std::int32_t>(i) - 1;
    const bool beside = followed[as_size(parent + 1)];
    followed[as_size(parent + 1)] = true;
    offered.push_back({answer.guesses[i], parent, grade_of(chance, beside)});
  }
  return offered;
}

speculation mode_of(const speculation_settings& settings, const sampling_params& params) {
  const auto asked = speculation_of(params.techniques);
  return asked == speculation::automatic ? settings.mode : asked;
}

} // namespace

speculator::speculator(speculation_settings settings, step_cost_fn cost)
  : settings_(std::move(settings)), cost_(std::move(cost)), policy_({.forced = settings_.forced}) {
  counters_.accepted_at.resize(as_size(settings_.most_guesses));
  const auto expect = [this](source from, std::initializer_list<double> acceptance) {
    for (std::size_t grade = 0; grade < acceptance.size(); ++grade)
      policy_.expect(from, grade, acceptance.begin()[grade]);
  };
  expect(lookahead, {0.05, 0.2, 0.4});
  expect(jacobi, {0.05});
  expect(undrawn, {0.6});
  constexpr double trust = 0.8; // in what sources believe, before it is measured
  for (std::size_t grade = 0; grade < drafter::grades; ++grade)
    for (const auto from : {ngram, draft})
      policy_.expect(from, grade, trust * confidence_of(grade));
}

speculator::~speculator() = default;

// -- sequences --------------------------------------------------------------------------------------------------------

// A source of guesses is made here.
void speculator::begin(sequence_id id, std::shared_ptr<const sampling_params> params, std::span<const token_id> known,
                       std::size_t prompt_tokens, std::span<const token_id> prediction) {
  const auto mode = mode_of(settings_, *params);
  if (mode == speculation::off || settings_.most_guesses <= 0)
    return;
  sequence s;
  if (settings_.custom)
    s.drafters[custom] = settings_.custom(id, known.first(prompt_tokens));
  const auto wants = [&](speculation kind) {
    return !s.drafters[custom] && (mode == speculation::automatic || mode == kind);
  };
  if (wants(speculation::ngram))
    s.drafters[ngram] = std::make_unique<ngram_drafter>(prediction, prompt_tokens + as_size(params->max_tokens));
  if (mode == speculation::lookahead && settings_.lookahead.window > 0 && !s.drafters[custom])
    s.drafters[lookahead] = std::make_unique<lookahead_window>(settings_.lookahead);
  else if (wants(speculation::lookahead))
    s.drafters[lookahead] = std::make_unique<lookahead_drafter>();
  if (mode == speculation::jacobi && !s.drafters[custom]) // `lookahead` guesses the same and more
    s.drafters[jacobi] = std::make_unique<lookahead_drafter>(false);
  s.drafts = (settings_.draft_model && wants(speculation::draft)) || (settings_.mtp && wants(speculation::mtp));
  s.prompt_tokens = prompt_tokens;
  s.params = std::move(params);
  gain(id, s, known.first(prompt_tokens));
  gain(id, s, known.subspan(prompt_tokens));
  policy_.begin(id);
  sequences_.insert_or_assign(id, std::move(s));
  waits_.reset();
}

void speculator::end(sequence_id id) {
  const auto found = sequences_.find(id);
  if (found == sequences_.end())
    return;
  proposals_ -= found->second.proposed.has_value();
  if (found->second.drafts && found->second.unsent.size() < found->second.tokens) // the draft model knows it
    ended_.push_back(id);
  sequences_.erase(found);
  policy_.end(id);
  waits_.reset();
}

void speculator::gain(sequence_id id, sequence& s, std::span<const token_id> tokens) {
  if (tokens.empty())
    return;
  learn(id, s, tokens);
  for (auto& d : s.drafters)
    if (d)
      d->append(tokens);
  s.tokens += tokens.size();
  for (auto& o : s.offers)
    o.reset();
  if (s.drafts) {
    s.unsent.insert(s.unsent.end(), tokens.begin(), tokens.end());
    s.lag += tokens.size();
    if (settings_.mtp)
      s.lag = std::min<std::size_t>(s.lag, most_state_rows);
  }
  s.drawn.reset();
  waits_.reset();
  if (s.ahead) {
    s.ahead->came(tokens);
    settle_ahead(s);
  }
}

// What was offered is judged by the tokens that came, whether a step has computed it or not.
void speculator::learn(sequence_id id, const sequence& s, std::span<const token_id> tokens) {
  for (const auto from : {ngram, lookahead, jacobi, draft, custom})
    if (const auto& offered = s.offers[from]) {
      auto judged = reached(offered->all, tokens);
      policy_.learn(id, from, judged);
      if (from != draft)
        continue;
      std::erase_if(judged, [](const reached_guess& g) { return g.grade >= besides; });
      for (auto& g : judged)
        g.grade = 0;
      policy_.learn(id, undrawn, judged);
    } else if (const auto& d = s.drafters[from]; d && d->ready() && !(s.proposed && s.proposed->from == from)) {
      if (const auto first = d->first())
        policy_.learn(id, from, {{{static_cast<std::uint8_t>(d->grade()), *first == tokens.front()}}});
    }
}

bool speculator::wants_states(sequence_id id) const {
  if (!settings_.mtp)
    return false;
  const auto found = sequences_.find(id);
  return found != sequences_.end() && found->second.drafts;
}

// Drops the states of wrong guesses, which are of another text. Keeps those of the last tokens alone, where a sequence
// has no guesses for long.
void speculator::take_states(sequence_id id, const state_rows& states, std::int32_t known) {
  if (!wants_states(id))
    return;
  auto& s = sequences_.at(id);
  auto valid = states;
  const auto of_known = std::min(known, states.end()) - states.position;
  const auto right = std::exchange(s.right, {});
  valid.rows = of_known + (states.end() > known ? static_cast<std::int32_t>(right.size()) : 0);
  if (valid.rows <= 0)
    return;
  if (!right.empty() && right.back() >= std::ssize(right) && valid.rows > of_known) { // not the first ones
    const auto values = std::make_shared<std::vector<float>>();
    const auto add = [&](std::int32_t row, std::int32_t rows) {
      const auto* first = states.values.get() + as_size(row) * states.width;
      values->insert(values->end(), first, first + as_size(rows) * states.width);
    };
    add(0, of_known);
    for (const auto guess : right)
      add(of_known + guess, 1);
    valid.values = {values, values->data()};
  }
  s.states.push_back(std::move(valid));
  std::erase_if(s.states, [&](const state_rows& old) { return old.end() + most_state_rows < s.states.back().end(); });
}

// -- decisions --------------------------------------------------------------------------------------------------------

const ranked_guesses& speculator::offer(sequence& s, const decoding_sequence& d, source from) {
  auto& known = s.offers[from];
  const auto most = std::min(d.most, settings_.most_guesses);
  if (known && known->most == most)
    return known->all;
  std::vector<offered_guess> offered;
  if (from == draft)
    offered = *s.drawn;
  else
    s.drafters[from]->offer(as_size(most), room_, offered);
  const auto rate = [&](std::size_t grade) { return policy_.acceptance(d.id, from, grade); };
  known = ranked_offer{most, ranked(offered, rate, most, d.branches && settings_.branches)};
  return known->all;
}

guess_option speculator::option(sequence& s, const decoding_sequence& d, source from) {
  guess_option o{d.id, 0, std::min(d.most, settings_.most_guesses), 0};
  if (from == draft ? s.drawn.has_value() : s.drafters[from]->offers()) {
    o.chances = offer(s, d, from).chances;
    o.most = static_cast<int>(o.chances.size());
  } else if (from == draft) {
    o.acceptance = policy_.acceptance(d.id, undrawn, 0);
    o.pass_ms = pass_ms_.value();
    if (pass_ms_.value() == 0)
      o.most = std::min(o.most, most_unmeasured_passes);
  } else {
    o.acceptance = policy_.acceptance(d.id, from, s.drafters[from]->grade());
  }
  return o;
}

// Whether the draft model's prefill of a transcript costs less than the guesses of it will gain.
bool speculator::worth_catching_up(const sequence& s, const decoding_sequence& d, const plain_step& step) const {
  if (s.lag <= little_lag || row_ms_.value() == 0 || settings_.forced > 0)
    return true;
  const auto emitted = static_cast<int>(s.tokens - s.prompt_tokens);
  const int left = std::min(s.params->max_tokens - emitted, usual_answer);
  const auto unit = policy_.unit_ms(step, cost_);
  constexpr int guesses = 3;
  const auto tokens = 1 + expected_tokens(policy_.acceptance(d.id, undrawn, 0), guesses);
  const auto ms = unit + guesses * pass_ms_.value() + policy_.added_ms(step, cost_, guesses);
  const auto gained = left * (unit - ms / tokens) / step.sequences;
  return gained > least_catch_up_return * static_cast<double>(s.lag) * row_ms_.value();
}

// The source whose guesses promise most tokens; of a sequence without any for long, each in turn.
std::optional<speculator::source> speculator::choose(sequence& s, const decoding_sequence& d, const plain_step& step,
                                                     bool ask) {
  std::array<source, sources> there{};
  std::size_t count = 0;
  for (const auto from : {ngram, lookahead, jacobi, custom})
    if (s.drafters[from] && s.drafters[from]->ready())
      there[count++] = from;
  if (s.drawn ? !s.drawn->empty() : ask && s.drafts && worth_catching_up(s, d, step))
    there[count++] = draft;
  if (count == 0)
    return std::nullopt;
  if (s.drawn && !s.drawn->empty()) // paid for
    return draft;
  if (policy_.due(d.id))
    return there[s.turn % count];
  const auto unit = policy_.unit_ms(step, cost_);
  const auto promise = [&](source from) {
    const auto o = option(s, d, from);
    const auto first = std::min(o.most, 4);
    const auto tokens = o.chances.empty() ? expected_tokens(o.acceptance, first)
                                          : std::accumulate(o.chances.begin(), o.chances.begin() + first, 0.0);
    return tokens * std::max(1 - o.pass_ms / unit, 0.0);
  };
  return *std::max_element(there.begin(), there.begin() + static_cast<std::ptrdiff_t>(count),
                           [&](source a, source b) { return promise(a) < promise(b); });
}

speculator::plan speculator::decide(const plain_step& step, std::span<const decoding_sequence> decoding, int room,
                                    bool ask) {
  plan p{std::vector<source>(decoding.size()), std::vector<int>(decoding.size())};
  room_ = as_size(std::clamp(2 * most_offered / std::max(static_cast<int>(decoding.size()), 1),
                             std::max(settings_.forced, 1), most_offered));
  std::vector<guess_option> options;
  std::vector<std::size_t> places;
  for (std::size_t i = 0; i < decoding.size(); ++i) {
    const auto& d = decoding[i];
    auto s = sequences_.find(d.id);
    if (s == sequences_.end() || d.most <= 0)
      continue;
    if (const auto from = choose(s->second, d, step, ask)) {
      p.from[i] = *from;
      if (*from == lookahead && s->second.drafters[lookahead]->branches()) { // of a fixed shape
        room -= p.guesses[i] = std::min(settings_.lookahead.rows(), room);
        p.any = p.any || p.guesses[i] > 0;
        continue;
      }
      options.push_back(option(s->second, d, *from));
      places.push_back(i);
    }
  }
  if (options.empty())
    return p;
  const auto counts = policy_.plan(step, cost_, options, room);
  for (std::size_t i = 0; i < counts.size(); ++i) {
    p.guesses[places[i]] = counts[i];
    p.any = p.any || counts[i] > 0;
  }
  return p;
}

// -- a step -----------------------------------------------------------------------------------------------------------

bool speculator::waits(const plain_step& step, std::span<const decoding_sequence> decoding) {
  if (asked_ || proposals_ > 0)
    return true;
  if (sequences_.empty())
    return false;
  if (!waits_)
    waits_ = decide(step, decoding, settings_.most_guesses * step.sequences, true).any;
  held_ = held_ || *waits_;
  return *waits_;
}

std::optional<guess_request> speculator::collect(const plain_step& step, std::span<const decoding_sequence> decoding,
                                                 int room) {
  if (!(settings_.draft_model || settings_.mtp) || asked() || sequences_.empty())
    return std::nullopt;
  const auto p = decide(step, decoding, room, true);
  guess_request request;
  for (std::size_t i = 0; i < decoding.size(); ++i) {
    if (p.guesses[i] == 0 || p.from[i] != draft)
      continue;
    auto& s = sequences_.at(decoding[i].id);
    if (s.drawn)
      continue;
    const auto known = s.tokens - s.unsent.size();
    guess_demand demand{decoding[i].id,
                        s.params,
                        s.prompt_tokens,
                        known,
                        std::exchange(s.unsent, {}),
                        p.guesses[i],
                        std::exchange(s.states, {})};
    // To name others takes a small draft model long: then a line of more guesses gains more.
    const bool cheap = pass_ms_.value() <= most_branching_pass * policy_.unit_ms(step, cost_);
    if (decoding[i].branches && settings_.branches && (cheap || settings_.forced > 0))
      let_branch(demand, decoding[i], step);
    request.demands.push_back(std::move(demand));
  }
  if (request.demands.empty())
    return std::nullopt;
  request.number = ++last_request_;
  request.ended = std::exchange(ended_, {});
  asked_ = true;
  return request;
}

// A line ends, by its chances, where a further guess would not be worth a pass and a row. So more may be asked for than
// are worth their passes on average.
void speculator::let_branch(guess_demand& demand, const decoding_sequence& d, const plain_step& step) const {
  demand.others = named_others;
  for (std::size_t grade = 0; grade < drafter::grades; ++grade)
    demand.rates.push_back(static_cast<float>(policy_.acceptance(d.id, draft, grade)));
  if (settings_.forced > 0 || pass_ms_.value() == 0)
    return;
  const auto pass_and_rows = pass_ms_.value() + step.sequences * policy_.added_ms(step, cost_, 1);
  demand.least_chance = static_cast<float>(pass_and_rows / policy_.unit_ms(step, cost_));
  demand.guesses = std::min({2 * demand.guesses, d.most, settings_.most_guesses});
}

// -- guesses ahead ----------------------------------------------------------------------------------------------------

// Behind the likeliest line of what the step verifies.
std::optional<guess_request> speculator::collect_ahead() {
  if (!settings_.ahead || asked_ || ahead_request_ > 0 || proposals_ == 0)
    return std::nullopt;
  if (settings_.forced == 0 && !ahead_.tries())
    return std::nullopt;
  guess_request request;
  for (auto& [id, s] : sequences_) {
    if (!s.drafts || !s.proposed || s.proposed->from != draft)
      continue;
    const auto& [from, grade, guesses, parents] = *s.proposed;
    std::size_t line = 1;
    while (line < guesses.size() && (parents.empty() || parents[line] == static_cast<std::int32_t>(line) - 1))
      ++line;
    const auto left = s.params->max_tokens - static_cast<int>(s.tokens - s.prompt_tokens + line) - 1;
    const auto wanted = std::min(left, settings_.forced > 0 ? settings_.forced : settings_.most_guesses);
    if (wanted <= 0)
      continue;
    s.ahead.emplace(std::vector(guesses.begin(), guesses.begin() + static_cast<std::ptrdiff_t>(line)));
    const auto known = s.tokens - s.unsent.size();
    request.demands.push_back({.sequence = id,
                               .params = s.params,
                               .prompt_tokens = s.prompt_tokens,
                               .known = known,
                               .tokens = std::exchange(s.unsent, {}),
                               .guesses = wanted + 1,
                               .assumed = {guesses.begin(), guesses.begin() + static_cast<std::ptrdiff_t>(line)}});
  }
  if (request.demands.empty())
    return std::nullopt;
  enough_ = std::make_shared<std::atomic<bool>>(false);
  request.number = ahead_request_ = ++last_request_;
  request.ended = std::exchange(ended_, {});
  request.enough = enough_;
  beside_ = true;
  return request;
}

// Only if the tokens that have come leave some of them possible.
bool speculator::waits_for_ahead() const {
  return ahead_request_ > 0 && std::ranges::any_of(sequences_, [](const auto& entry) {
           const auto& ahead = entry.second.ahead;
           return ahead && ahead->is_open();
         });
}

void speculator::take_ahead(const guess_reply& reply) {
  ahead_request_ = 0;
  enough_.reset();
  waits_.reset();
  for (const auto& answer : reply.answers)
    if (const auto s = sequences_.find(answer.sequence); s != sequences_.end() && s->second.ahead) {
      s->second.ahead->answered(answer.guesses);
      settle_ahead(s->second);
    }
  if (reply.passes > 0)
    pass_ms_.add(reply.drawing_ms / reply.passes);
}

// Once tokens have come: guesses of those that follow, or none.
void speculator::settle_ahead(sequence& s) {
  if (!s.ahead->has_come() || (s.ahead->is_open() && !s.ahead->is_answered()))
    return;
  const auto rest = s.ahead->rest();
  const auto taken = s.ahead->taken();
  s.ahead.reset();
  const auto saved = static_cast<double>(std::min(rest.size(), taken)) * pass_ms_.value();
  const auto under_way = ahead_request_ > 0 ? 0.5 * pass_ms_.value() : 0; // and has to end before new ones are drawn
  ahead_.saved(rest.empty() ? -under_way : saved);
  if (rest.empty())
    return;
  guess_answer answer;
  answer.guesses = rest;
  s.drawn = offered_by(answer);
  s.drawn_ahead = true;
  s.offers[draft].reset();
}

void speculator::deliver(const guess_reply& reply) {
  if (ahead_request_ > 0 && reply.number == ahead_request_)
    return take_ahead(reply);
  if (!asked_ || reply.number != last_request_)
    return;
  asked_ = false;
  waits_.reset();
  for (const auto& answer : reply.answers) {
    const auto s = sequences_.find(answer.sequence);
    if (s == sequences_.end() || !s->second.unsent.empty()) // ended, or gone on
      continue;
    s->second.drawn = offered_by(answer);
    s->second.drawn_ahead = false;
    s->second.offers[draft].reset();
    if (!answer.behind)
      s->second.lag = 0;
  }
  if (reply.passes > 0)
    pass_ms_.add(reply.drawing_ms / reply.passes);
  if (as_size(reply.catch_up_rows) > little_lag)
    row_ms_.add(reply.catch_up_ms / reply.catch_up_rows);
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
    auto next = proposal_of(s, decoding[i], p.from[i], as_size(p.guesses[i]), proposals[i]);
    proposals[i].ahead = p.from[i] == draft && s.drawn_ahead;
    if (next.guesses.empty())
      continue;
    proposals_ += !s.proposed;
    s.proposed = std::move(next);
  }
  return proposals;
}

speculator::proposal speculator::proposal_of(sequence& s, const decoding_sequence& d, source from, std::size_t guesses,
                                             guess_run& run) {
  proposal next{from, 0, {}, {}};
  auto* by = from == draft ? nullptr : s.drafters[from].get();
  if (!by || by->offers()) {
    run = in_lines(offer(s, d, from), guesses);
  } else {
    next.grade = static_cast<std::uint8_t>(by->grade());
    if (by->branches())
      by->propose_tree(as_size(d.most), guesses, run.tokens, run.parents);
    else
      by->propose(guesses, run.tokens);
  }
  next.guesses = run.tokens;
  next.parents = run.parents;
  return next;
}

std::size_t speculator::judged(sequence_id id, std::span<const token_id> choices) {
  const auto found = sequences_.find(id);
  if (found == sequences_.end() || choices.empty())
    return 0;
  auto& s = found->second;
  if (!s.proposed || choices.size() == 1) {
    append(id, choices.first(1));
    return 0;
  }
  const auto& proposed = *s.proposed;
  const auto rows = std::min(choices.size() - 1, proposed.guesses.size());
  const auto line = right_line(proposed, choices.first(rows + 1), s.right);
  const auto accepted = line.size() - 1;
  for (std::size_t i = 0; i < accepted; ++i)
    ++counters_.accepted_at[i];
  if (auto& d = s.drafters[proposed.from])
    d->branches() ? d->observe_tree(choices.first(rows + 1)) : d->observe(choices.first(rows + 1));
  if (!s.offers[proposed.from]) {
    std::vector<reached_guess> judged(accepted, {proposed.grade, true});
    if (accepted < rows)
      judged.push_back({proposed.grade, false});
    policy_.learn(id, proposed.from, judged);
  }
  policy_.tried(id, accepted > 0);
  ++s.turn;
  ++counters_.drafts;
  counters_.proposed += rows;
  counters_.accepted += accepted;
  guesses_ += static_cast<int>(rows);
  accepted_ += static_cast<int>(accepted);
  gain(id, s, line);
  s.proposed.reset();
  --proposals_;
  return accepted;
}

// The choices along the guesses that were right: each of them, and the one that follows.
std::vector<token_id> speculator::right_line(const proposal& proposed, std::span<const token_id> choices,
                                             std::vector<std::int32_t>& right) {
  right.clear();
  std::vector<token_id> line{choices.front()};
  for (std::size_t guess = 0, after = 0; guess + 1 < choices.size();
       ++guess) { // `after`: guesses up to the last right one
    const bool follows = proposed.parents.empty() ? guess == after
                                                  : proposed.parents[guess] == static_cast<std::int32_t>(after) - 1;
    if (!follows || proposed.guesses[guess] != line.back() || choices[guess + 1] < 0)
      continue;
    line.push_back(choices[guess + 1]);
    right.push_back(static_cast<std::int32_t>(guess));
    after = guess + 1;
  }
  return line;
}

void speculator::append(sequence_id id, std::span<const token_id> tokens) {
  const auto found = sequences_.find(id);
  if (found == sequences_.end())
    return;
  proposals_ -= std::exchange(found->second.proposed, std::nullopt).has_value();
  found->second.right.clear();
  policy_.plain(id);
  gain(id, found->second, tokens);
}

void speculator::finished(const finished_step& step) {
  auto own = step;
  own.ms = std::max(step.ms - catch_up_ms_, 0.0);
  if (beside_) { // what a step takes longer for that is no cost of guesses, but of making some beside it: ahead_
    const auto longer = std::max(step.computed_ms - step.plain_ms - step.added_ms, 0.0);
    own.ms = std::max(own.ms - longer, 0.0);
    own.computed_ms -= longer;
  }
  policy_.finished({own, guesses_, accepted_, drawing_ms_, held_}, cost_);
  pass_ms_.fade();
  row_ms_.fade();
  waits_.reset();
  ahead_.finished(step.computed_ms, step.plain_ms + step.added_ms, std::exchange(beside_, false));
  if (enough_ && (settings_.forced == 0 || !waits_for_ahead()))
    *enough_ = true;
  held_ = guesses_ > 0; // the next one is not planned ahead either
  guesses_ = accepted_ = 0;
  drawing_ms_ = catch_up_ms_ = 0;
}

} // namespace troupe
