#include "runtime/techniques/speculation/draft_model.hpp"

#include "runtime/execution/device.hpp"
#include "runtime/model/decoder/weights.hpp"
#include "runtime/model/rope.hpp"
#include "runtime/support/kv_blocks.hpp"
#include "runtime/techniques/speculation/guess_offer.hpp"
#include "runtime/techniques/speculation/mtp_runner.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <utility>

namespace troupe {

namespace {

using clock = std::chrono::steady_clock;

constexpr std::size_t little = 4; // rows of one sequence that hardly prolong a pass

double ms_since(clock::time_point start) {
  return std::chrono::duration<double, std::milli>(clock::now() - start).count();
}

} // namespace

draft_model::draft_model(const device& on, draft_spec spec)
  : spec_(std::move(spec)),
    border_(as_size(rope_border(spec_.runner.weights->config.rope, spec_.runner.sizes.context))) {
  runner_ = spec_.mtp ? std::make_unique<mtp_runner>(spec_.mtp, spec_.runner, on.open()) : on.make_runner(spec_.runner);
  sampler_ = on.make_sampler(spec_.sampler, [this] {
    const std::lock_guard lock(mutex_);
    ++reported_;
    reported_changed_.notify_one();
  });
  for (auto b = spec_.runner.blocks; b-- > 0;)
    free_.push_back(b);
  warm_up();
}

draft_model::~draft_model() = default;

// First passes take milliseconds longer, as they touch memory for the first time. Guesses would be thought that dear.
void draft_model::warm_up() {
  if (spec_.mtp) // reads states, and its weights are the model's
    return;
  const sequence_id nobody{std::numeric_limits<std::uint64_t>::max()};
  const auto params = std::make_shared<const sampling_params>();
  serve({.demands = {{.sequence = nobody, .params = params, .prompt_tokens = 1, .tokens = {0}, .guesses = 2}}});
  serve({.ended = {nobody}});
}

// -- sequences --------------------------------------------------------------------------------------------------------

// What does not change a choice is left out, and what the draft has no token for.
sampling_params draft_model::params_of(const sampling_params& target, int others) const {
  auto p = target;
  p.logprobs = others > 0 ? others + 1 : -1; // the likeliest tokens: what could stand in place of a guess
  p.prompt_logprobs = -1;
  const auto known = [&](token_id id) { return id < spec_.sampler.vocab; };
  std::vector<logit_bias_map::entry> biases;
  for (const auto& [id, bias] : target.logit_bias)
    if (known(id))
      biases.emplace_back(id, bias);
  if (biases.size() < target.logit_bias.size())
    p.logit_bias = logit_bias_map(std::move(biases));
  std::vector<token_id> stops;
  std::ranges::copy_if(target.stop_token_ids, std::back_inserter(stops), known);
  if (stops.size() < target.stop_token_ids.size())
    p.stop_token_ids = stop_id_set(std::move(stops));
  return p;
}

void draft_model::take(const guess_demand& demand, sequence& s) const {
  s.valid = std::min(s.valid, demand.known - std::min(demand.known, s.base));
  s.text.resize(std::min(s.text.size(), demand.known));
  s.text.insert(s.text.end(), demand.tokens.begin(), demand.tokens.end());
  s.text.insert(s.text.end(), demand.assumed.begin(), demand.assumed.end());
  if (const bool longer = border_ > 0 && s.text.size() > border_; longer != s.longer) {
    s.longer = longer;
    s.computed.clear();
    s.valid = 0;
  }
  while (!spec_.mtp && s.valid < s.computed.size() && s.valid < s.text.size() && s.computed[s.valid] == s.text[s.valid])
    ++s.valid;
  // The last token's row is computed again, if need be, for its logits.
  s.valid = std::min(s.valid, s.text.size() - 1 - std::min(s.text.size() - 1, s.base));
  s.foreign = s.foreign || std::ranges::any_of(demand.tokens, [&](token_id t) { return t >= spec_.sampler.vocab; });
  if (!s.asked || s.asked->prompt.size() != demand.prompt_tokens) {
    const auto end = s.text.begin() + static_cast<std::ptrdiff_t>(demand.prompt_tokens);
    s.asked = std::make_shared<const request>(
      request{{.prompt = {s.text.begin(), end}, .sampling = params_of(*demand.params, demand.others)}});
  }
  s.served = requests_;
}

// Whether the states of all rows that are to be computed are there: that of a token's predecessor for each.
bool draft_model::take_states(const guess_demand& demand, sequence& s) const {
  const auto width = as_size(spec_.runner.weights->config.hidden);
  for (const auto& more : demand.states) {
    const auto first = as_size(more.position);
    const auto held = s.states.size() / width;
    if (first < s.first_state || first > s.first_state + held || held == 0) {
      s.first_state = first;
      s.states.clear();
    } else {
      s.states.resize((first - s.first_state) * width);
    }
    s.states.insert(s.states.end(), more.values.get(), more.values.get() + as_size(more.rows) * width);
  }
  const auto end = s.first_state + s.states.size() / width; // behind the last
  if (s.states.empty() || end + 1 < s.text.size() || s.first_state + 1 >= s.text.size())
    return false;
  if (s.base + s.valid < s.first_state + 1 || s.base >= s.text.size()) {
    s.base = s.first_state + 1;
    s.computed.clear();
    s.valid = 0;
  }
  const auto done = s.base + s.valid - 1 - s.first_state;
  s.states.erase(s.states.begin(), s.states.begin() + static_cast<std::ptrdiff_t>(done * width));
  s.first_state += done;
  return true;
}

// Adds the hidden states of the rows of its next pass.
void draft_model::add_states(const job& j, std::vector<float>& rows) const {
  if (j.guesses > 0) {
    rows.insert(rows.end(), j.state.begin(), j.state.end());
    return;
  }
  const auto& s = *j.of;
  const auto width = as_size(spec_.runner.weights->config.hidden);
  const auto first = s.states.begin() + static_cast<std::ptrdiff_t>((s.base + s.valid - 1 - s.first_state) * width);
  rows.insert(rows.end(), first, first + static_cast<std::ptrdiff_t>(j.rows * width));
}

void draft_model::drop_blocks(sequence& s) {
  free_.insert(free_.end(), s.blocks.begin(), s.blocks.end());
  s.blocks.clear();
  s.computed.clear();
  s.valid = 0;
}

// Room for the positions [0, tokens), or no change.
bool draft_model::reserve(sequence& s, std::size_t tokens) {
  const auto wanted = blocks_for(tokens);
  while (s.blocks.size() + free_.size() < wanted) {
    sequence* oldest = nullptr;
    for (auto& [_, other] : sequences_)
      if (!other.blocks.empty() && other.served < requests_ && (!oldest || other.served < oldest->served))
        oldest = &other;
    if (!oldest)
      return false;
    drop_blocks(*oldest);
  }
  while (s.blocks.size() < wanted) {
    s.blocks.push_back(free_.back());
    free_.pop_back();
  }
  return true;
}

// -- passes -----------------------------------------------------------------------------------------------------------

// Decides which rows the first pass computes: those of sequences with few first, so that long prompts delay no others.
void draft_model::begin_pass(std::vector<job>& jobs) {
  const auto length = [](const sequence& s) { return s.text.size() - s.base; };
  const auto missing = [&](const job& j) { return length(*j.of) - j.of->valid; };
  std::ranges::stable_sort(jobs, {}, missing);
  auto left = as_size(spec_.runner.sizes.rows);
  for (auto& j : jobs) {
    auto& s = *j.of;
    const auto context = as_size(spec_.runner.sizes.context);
    if (s.foreign || length(s) > context) {
      drop_blocks(s);
      j.wanted = 0;
      continue;
    }
    j.wanted = std::min(j.wanted, static_cast<int>(context - length(s)) + 1);
    j.rows = std::min(missing(j), left);
    const bool complete = j.rows == missing(j);
    if (complete && !reserve(s, length(s) + as_size(j.wanted) - 1))
      j.wanted = 1;
    if (!reserve(s, s.valid + j.rows))
      j.rows = 0;
    if (j.rows < missing(j)) {
      j.wanted = 0;
      j.answer->behind = true;
    }
    left -= j.rows;
  }
  std::erase_if(jobs, [](const job& j) { return j.rows == 0; });
}

step_result draft_model::run(std::span<job> jobs) {
  step_plan plan;
  plan.step = ++steps_;
  plan.ended = std::exchange(ended_, {});
  std::vector<float> states;
  std::int32_t slot = 0;
  for (const auto& j : jobs) {
    auto& s = *j.of;
    if (spec_.mtp)
      add_states(j, states);
    kernels::sequence_rows rows;
    rows.first_row = static_cast<std::int32_t>(plan.tokens.size());
    rows.rows = static_cast<std::int32_t>(j.rows);
    rows.first_position = static_cast<std::int32_t>(j.guesses > 0 ? s.computed.size() : s.valid);
    rows.first_block = static_cast<std::int32_t>(plan.block_tables.size());
    rows.length = static_cast<std::int32_t>(s.text.size() - s.base);
    plan.sequences.push_back(rows);
    plan.block_tables.insert(plan.block_tables.end(), s.blocks.begin(), s.blocks.end());
    if (j.guesses > 0) {
      s.computed.push_back(j.answer->guesses[as_size(j.last)]);
    } else {
      s.computed.resize(s.valid);
      const auto first = s.text.begin() + static_cast<std::ptrdiff_t>(s.base) + rows.first_position;
      s.computed.insert(s.computed.end(), first, first + rows.rows);
      s.valid = s.computed.size();
    }
    plan.tokens.insert(plan.tokens.end(), s.computed.end() - rows.rows, s.computed.end());
    if (j.guesses >= j.wanted)
      continue;
    sample_demand d{.sequence = j.id,
                    .slot = slot++,
                    .logit_row = static_cast<std::int32_t>(plan.logit_rows.size()),
                    .start = nullptr};
    plan.logit_rows.push_back(static_cast<std::int32_t>(plan.tokens.size()) - 1);
    if (j.guesses == 0)
      d.start = std::make_shared<const sampling_start>(
        sampling_start{.asked = s.asked, .emitted = {s.text.begin() + std::ssize(s.asked->prompt), s.text.end()}});
    plan.samples.push_back(std::move(d));
  }
  if (spec_.mtp)
    plan.hidden_rows = plan.logit_rows;
  const auto shared = std::make_shared<const step_plan>(std::move(plan));
  const stage_rows before{.rows = {std::shared_ptr<const void>(), states.data()}};
  const auto output = runner_->run(*shared, spec_.mtp ? &before : nullptr);
  for (auto& j : jobs)
    if (const auto of = std::ranges::find(shared->samples, j.id, &sample_demand::sequence);
        spec_.mtp && of != shared->samples.end()) {
      const auto* first = output.hidden.get() + as_size(of->logit_row) * output.width;
      j.state.assign(first, first + output.width);
    }
  return wait_for(sampler_->sample(shared, output));
}

step_result draft_model::wait_for(const step_tokens& tokens) {
  if (tokens.sampled)
    return *tokens.sampled;
  std::unique_lock lock(mutex_);
  // A device that has failed never reports.
  while (!reported_changed_.wait_for(lock, std::chrono::milliseconds(500), [this] { return reported_ > 0; }))
    sampler_->check();
  --reported_;
  lock.unlock();
  return sampler_->collect();
}

// Keeps the jobs that want more guesses.
void draft_model::add_guesses(std::vector<job>& jobs, const step_result& drawn) {
  std::map<sequence_id, const sampled_token*> tokens;
  for (const auto& each : drawn.sampled)
    tokens.emplace(each.sequence, &each.token);
  std::erase_if(jobs, [&](job& j) {
    const auto found = tokens.find(j.id);
    if (found == tokens.end() || found->second->id >= spec_.target_vocab)
      return true;
    add_guess(j, *found->second);
    return found->second->finish != sampled_token::finish::none || j.guesses >= j.wanted ||
      j.chance < j.asked->least_chance;
  });
}

// What was drawn, and the likeliest others.
void draft_model::add_guess(job& j, const sampled_token& token) {
  auto& answer = *j.answer;
  const auto parent = j.last;
  const auto add = [&](token_id id, float logprob) {
    answer.guesses.push_back(id);
    answer.parents.push_back(parent);
    if (j.asked->others > 0)
      answer.chances.push_back(std::exp(logprob));
  };
  j.last = static_cast<std::int32_t>(answer.guesses.size());
  add(token.id, token.logprob);
  ++j.guesses;
  j.rows = 1;
  int others = 0;
  for (const auto& other : token.top)
    if (other.id != token.id && other.id < spec_.target_vocab && others++ < j.asked->others)
      add(other.id, other.logprob);
  if (j.asked->others > 0) {
    const auto own = std::exp(token.logprob);
    const auto& rates = j.asked->rates;
    j.chance *= rates.empty() ? own : rates[grade_of(static_cast<double>(own), false)];
  }
}

guess_reply draft_model::serve(const guess_request& request) {
  auto reply = answer(request);
  for (const auto& demand : request.demands)
    if (auto& text = sequences_[demand.sequence].text; !demand.assumed.empty())
      text.resize(std::min(text.size(), demand.known + demand.tokens.size()));
  return reply;
}

guess_reply draft_model::answer(const guess_request& request) {
  ++requests_;
  guess_reply reply;
  reply.number = request.number;
  ended_.insert(ended_.end(), request.ended.begin(), request.ended.end());
  for (const auto id : request.ended)
    if (const auto found = sequences_.find(id); found != sequences_.end()) {
      drop_blocks(found->second);
      sequences_.erase(found);
    }
  std::vector<job> jobs;
  reply.answers.resize(request.demands.size());
  for (std::size_t i = 0; i < request.demands.size(); ++i) {
    const auto& demand = request.demands[i];
    reply.answers[i].sequence = demand.sequence;
    auto& s = sequences_[demand.sequence];
    if (demand.known > s.text.size() ||
        demand.known + demand.tokens.size() < std::max<std::size_t>(demand.prompt_tokens, 1))
      continue; // not a continuation of what it knows
    take(demand, s);
    if (spec_.mtp && !take_states(demand, s))
      continue;
    jobs.push_back({.id = demand.sequence,
                    .of = &s,
                    .answer = &reply.answers[i],
                    .asked = &demand,
                    .wanted = std::max(demand.guesses, 1)});
  }
  if (request.is_enough())
    return reply;
  begin_pass(jobs);
  if (jobs.empty())
    return reply;
  // The first pass counts as drawing, unless it mainly computes transcripts.
  std::erase_if(ended_, [&](sequence_id id) { return std::ranges::find(jobs, id, &job::id) != jobs.end(); });
  std::size_t rows = 0, most = 0;
  for (const auto& j : jobs) {
    rows += j.rows;
    most = std::max(most, j.rows);
  }
  auto start = clock::now();
  add_guesses(jobs, run(jobs));
  if (most > little) {
    reply.catch_up_ms = ms_since(start);
    reply.catch_up_rows = static_cast<int>(rows);
    start = clock::now();
  } else {
    reply.passes = 1;
  }
  for (; !jobs.empty() && !request.is_enough(); ++reply.passes)
    add_guesses(jobs, run(jobs));
  reply.drawing_ms = ms_since(start);
  return reply;
}

} // namespace troupe
