#include "runtime/techniques/speculation/guessed_sequence.hpp"

#include "runtime/sampling/sampling_params.hpp"
#include "runtime/techniques/speculation/lookahead_drafter.hpp"
#include "runtime/techniques/speculation/ngram_drafter.hpp"

#include <algorithm>
#include <numeric>

namespace troupe {

namespace {

constexpr int most_unmeasured_passes = 4;            // of the draft model, before it is known how long they take
constexpr std::size_t besides = drafter::grades / 2; // grades from here on are of guesses beside likelier ones

} // namespace

// A source of guesses is made here.
guessed_sequence::guessed_sequence(guess_terms& terms, sequence_id id, speculation mode,
                                   std::shared_ptr<const sampling_params> params, std::span<const token_id> prompt,
                                   std::span<const token_id> prediction)
  : terms_(terms), id_(id), draft_(terms, id, params, prompt.size()) {
  const auto& settings = terms.settings;
  if (settings.custom)
    drafters_[custom] = settings.custom(id, prompt);
  const auto wants = [&](speculation kind) {
    return !drafters_[custom] && (mode == speculation::automatic || mode == kind);
  };
  if (wants(speculation::ngram))
    drafters_[ngram] = std::make_unique<ngram_drafter>(prediction, prompt.size() + as_size(params->max_tokens));
  if (mode == speculation::lookahead && settings.lookahead.window > 0 && !drafters_[custom])
    drafters_[lookahead] = std::make_unique<lookahead_window>(settings.lookahead);
  else if (wants(speculation::lookahead))
    drafters_[lookahead] = std::make_unique<lookahead_drafter>();
  if (mode == speculation::jacobi && !drafters_[custom]) // `lookahead` guesses the same and more
    drafters_[jacobi] = std::make_unique<lookahead_drafter>(false);
  if ((settings.draft_model && wants(speculation::draft)) || (settings.mtp && wants(speculation::mtp)))
    draft_.serve();
  gain(prompt);
}

void guessed_sequence::gain(std::span<const token_id> tokens) {
  if (tokens.empty())
    return;
  learn(tokens);
  for (auto& d : drafters_)
    if (d)
      d->append(tokens);
  for (auto& o : offers_)
    o.reset();
  draft_.gain(tokens);
}

// What was offered is judged by the tokens that came, whether a step has computed it or not.
void guessed_sequence::learn(std::span<const token_id> tokens) {
  for (const auto from : {ngram, lookahead, jacobi, draft, custom})
    if (const auto& offered = offers_[from]) {
      auto judged = reached(offered->all, tokens);
      terms_.policy.learn(id_, from, judged);
      if (from != draft)
        continue;
      std::erase_if(judged, [](const reached_guess& g) { return g.grade >= besides; });
      for (auto& g : judged)
        g.grade = 0;
      terms_.policy.learn(id_, undrawn, judged);
    } else if (const auto& d = drafters_[from]; d && d->ready() && !(proposed_ && proposed_->from == from)) {
      if (const auto first = d->first())
        terms_.policy.learn(id_, from, {{{static_cast<std::uint8_t>(d->grade()), *first == tokens.front()}}});
    }
}

// -- decisions --------------------------------------------------------------------------------------------------------

const ranked_guesses& guessed_sequence::offer(const decoding_sequence& d, source from) {
  auto& known = offers_[from];
  const auto most = std::min(d.most, terms_.settings.most_guesses);
  if (known && known->most == most)
    return known->all;
  std::vector<offered_guess> offered;
  if (from == draft)
    offered = *draft_.drawn();
  else
    drafters_[from]->offer(as_size(most), terms_.room, offered);
  const auto rate = [&](std::size_t grade) { return terms_.policy.acceptance(d.id, from, grade); };
  known = ranked_offer{most, ranked(offered, rate, most, d.branches && terms_.settings.branches)};
  return known->all;
}

guess_option guessed_sequence::option(const decoding_sequence& d, source from) {
  guess_option o{d.id, 0, std::min(d.most, terms_.settings.most_guesses), 0};
  if (from == draft ? draft_.drawn().has_value() : drafters_[from]->offers()) {
    o.chances = offer(d, from).chances;
    o.most = static_cast<int>(o.chances.size());
  } else if (from == draft) {
    o.acceptance = terms_.policy.acceptance(d.id, undrawn, 0);
    o.pass_ms = terms_.pass_ms.value();
    if (o.pass_ms == 0)
      o.most = std::min(o.most, most_unmeasured_passes);
  } else {
    o.acceptance = terms_.policy.acceptance(d.id, from, drafters_[from]->grade());
  }
  return o;
}

// Where a sequence has had no guesses for long, each source gets its turn.
std::optional<guessed_sequence::source> guessed_sequence::choose(const decoding_sequence& d, const plain_step& step,
                                                                 bool ask) {
  std::array<source, sources> there{};
  std::size_t count = 0;
  for (const auto from : {ngram, lookahead, jacobi, custom})
    if (drafters_[from] && drafters_[from]->ready())
      there[count++] = from;
  const auto& drawn = draft_.drawn();
  if (drawn ? !drawn->empty() : ask && draft_.is_served() && draft_.is_worth_catching_up(step))
    there[count++] = draft;
  if (count == 0)
    return std::nullopt;
  if (drawn && !drawn->empty()) // paid for
    return draft;
  if (terms_.policy.due(d.id))
    return there[turn_ % count];
  const auto unit = terms_.policy.unit_ms(step, terms_.cost);
  const auto promise = [&](source from) {
    const auto o = option(d, from);
    const auto first = std::min(o.most, 4);
    const auto tokens = o.chances.empty() ? expected_tokens(o.acceptance, first)
                                          : std::accumulate(o.chances.begin(), o.chances.begin() + first, 0.0);
    return tokens * std::max(1 - o.pass_ms / unit, 0.0);
  };
  return *std::max_element(there.begin(), there.begin() + static_cast<std::ptrdiff_t>(count),
                           [&](source a, source b) { return promise(a) < promise(b); });
}

// -- the proposal -----------------------------------------------------------------------------------------------------

guess_run guessed_sequence::propose(const decoding_sequence& d, source from, std::size_t guesses) {
  guess_run run;
  std::uint8_t grade = 0;
  auto* by = from == draft ? nullptr : drafters_[from].get();
  if (!by || by->offers()) {
    run = in_lines(offer(d, from), guesses);
  } else {
    grade = static_cast<std::uint8_t>(by->grade());
    if (by->branches())
      by->propose_tree(as_size(d.most), guesses, run.tokens, run.parents);
    else
      by->propose(guesses, run.tokens);
  }
  run.ahead = from == draft && draft_.is_drawn_ahead();
  if (!run.tokens.empty())
    proposed_ = proposal{from, grade, run.tokens, run.parents};
  return run;
}

guessed_sequence::verdict guessed_sequence::judged(std::span<const token_id> choices) {
  const auto& proposed = *proposed_;
  const auto rows = std::min(choices.size() - 1, proposed.guesses.size());
  const auto line = right_line(choices.first(rows + 1));
  const auto accepted = line.size() - 1;
  if (auto& d = drafters_[proposed.from])
    d->branches() ? d->observe_tree(choices.first(rows + 1)) : d->observe(choices.first(rows + 1));
  if (!offers_[proposed.from]) {
    std::vector<reached_guess> judged(accepted, {proposed.grade, true});
    if (accepted < rows)
      judged.push_back({proposed.grade, false});
    terms_.policy.learn(id_, proposed.from, judged);
  }
  terms_.policy.tried(id_, accepted > 0);
  ++turn_;
  gain(line);
  proposed_.reset();
  return {rows, accepted};
}

// The choices along the guesses that were right: each of them, and the one that follows.
std::vector<token_id> guessed_sequence::right_line(std::span<const token_id> choices) {
  const auto& [from, grade, guesses, parents] = *proposed_;
  right_.clear();
  std::vector<token_id> line{choices.front()};
  for (std::size_t guess = 0, after = 0; guess + 1 < choices.size();
       ++guess) { // `after`: guesses up to the last right one
    const bool follows = parents.empty() ? guess == after : parents[guess] == static_cast<std::int32_t>(after) - 1;
    if (!follows || guesses[guess] != line.back() || choices[guess + 1] < 0)
      continue;
    line.push_back(choices[guess + 1]);
    right_.push_back(static_cast<std::int32_t>(guess));
    after = guess + 1;
  }
  return line;
}

void guessed_sequence::drop_proposal() {
  proposed_.reset();
  right_.clear();
}

std::optional<guess_demand> guessed_sequence::demand_ahead() {
  if (!draft_.is_served() || !proposed_ || proposed_->from != draft)
    return std::nullopt;
  const auto& [from, grade, guesses, parents] = *proposed_;
  std::size_t line = 1;
  while (line < guesses.size() && (parents.empty() || parents[line] == static_cast<std::int32_t>(line) - 1))
    ++line;
  return draft_.demand_ahead({guesses.begin(), guesses.begin() + static_cast<std::ptrdiff_t>(line)});
}

} // namespace troupe
