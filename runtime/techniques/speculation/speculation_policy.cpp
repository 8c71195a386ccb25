#include "runtime/techniques/speculation/speculation_policy.hpp"

#include <bit>
#include <cmath>
#include <queue>

namespace troupe {

namespace {

constexpr double prior_weight = 2;      // judged guesses that an expectation counts as
constexpr double sequence_decay = 0.96; // of a judged guess per later one
constexpr double overall_decay = 0.98;
constexpr int least_patience = 8, most_patience = 256; // tokens
constexpr double most_retry_stake = 0.5; // of a step without guesses: what a row of unknown cost is believed to take
constexpr double gap_decay = 0.9;        // of a measured gap per later one
constexpr double most_gap = 0.75;        // believed, in steps without guesses: so that retries can always be paid for
constexpr double most_loss = 4;          // of one step, in steps without guesses: more is an accident
constexpr double most_allowance = 4, least_allowance = -4;
constexpr double most_staked = 0.5;        // of the allowance, on one step
constexpr double checked_gain = 2;         // half of a step's speed gained: as many unchecked steps as can be
constexpr double agreement = 0.2;          // of a time with what was expected
constexpr double least_probability = 0.02; // a guess less likely to matter is not considered

} // namespace

void speculation_policy::tally::add(bool right, double decay) {
  judged = judged * decay + 1;
  accepted = accepted * decay + (right ? 1 : 0);
}

// Starts from none, which counts as one measurement.
void speculation_policy::gap::add(double value) {
  weight = weight * gap_decay + 1;
  ms += (value - ms) / (weight + 1);
}

double speculation_policy::acceptance(sequence_id id, std::size_t source, std::size_t grade) const {
  const auto prior = overall_[source][grade].rate(priors_[source][grade], prior_weight);
  const auto s = sequences_.find(id);
  if (s == sequences_.end())
    return prior;
  const auto own = s->second.measured.find({source, grade});
  return own == s->second.measured.end() ? prior : own->second.rate(prior, prior_weight);
}

bool speculation_policy::due(sequence_id id) const {
  const auto s = sequences_.find(id);
  return s != sequences_.end() && s->second.idle >= s->second.patience;
}

double speculation_policy::added_ms(const plain_step& step, const step_cost_fn& cost, int guesses) const {
  return std::max(cost(step.rows + guesses).ms - cost(step.rows).ms, 0.0);
}

double speculation_policy::unit_ms(const plain_step& step, const step_cost_fn& cost) const {
  return std::max(cost(step.sequences).ms + ahead_gap_.ms, 1e-3);
}

std::size_t speculation_policy::size_of(const plain_step& step) {
  return std::min<std::size_t>(std::bit_width(static_cast<unsigned>(step.rows)), 23);
}

std::vector<int> speculation_policy::plan(const plain_step& step, const step_cost_fn& cost,
                                          std::span<const guess_option> options, int room) const {
  std::vector<int> counts(options.size());
  if (settings_.forced > 0) {
    for (std::size_t i = 0; i < options.size(); ++i)
      room -= counts[i] = std::max(std::min({options[i].most, settings_.forced, room}), 0);
    return counts;
  }
  const auto unchecked = unchecked_[size_of(step)];
  if (allowance_ <= 0 || step.sequences == 0 || unchecked >= most_unchecked)
    return counts;
  // Likeliest first. A later guess of a sequence is never likelier than the one before it, so that the order in which
  // guesses are taken does not depend on how many are.
  struct candidate {
    double probability;
    std::size_t option;
    int depth;
    bool operator<(const candidate& other) const { return probability < other.probability; }
  };
  std::priority_queue<candidate> next;
  const auto push = [&](std::size_t option, int depth, double before) {
    const auto& o = options[option];
    if (depth <= o.most)
      next.push(
        {o.chances.empty() ? before * std::min(o.acceptance, 0.99) : o.chances[as_size(depth - 1)], option, depth});
  };
  for (std::size_t i = 0; i < options.size(); ++i)
    push(i, 1, 1);
  // Rows of prompts are worth what they cost: the step counts as one of its decoding rows, to which guesses add.
  const double base_ms = unit_ms(step, cost);
  const double plain_rate = step.sequences / base_ms;
  double best_rate = plain_rate * (1 + settings_.least_gain);
  double tokens = step.sequences;
  const double overhead = overhead_ms();
  double rows_ms = 0; // monotonous, though estimates may not be
  double pass_ms = 0;
  std::vector<std::size_t> order;
  std::size_t best = 0;
  while (!next.empty() && std::ssize(order) < room) {
    const auto c = next.top();
    next.pop();
    if (c.probability < least_probability)
      break;
    const auto& option = options[c.option];
    order.push_back(c.option);
    tokens += c.probability;
    rows_ms = std::max(rows_ms, added_ms(step, cost, static_cast<int>(order.size())));
    pass_ms = std::max(pass_ms, option.pass_ms * c.depth);
    const auto stake = overhead + rows_ms + pass_ms;
    if (stake > most_staked * allowance_ * base_ms)
      break;
    const auto rate = tokens / (base_ms + stake);
    if (rate > best_rate) {
      best_rate = rate;
      best = order.size();
    }
    push(c.option, c.depth + 1, c.probability);
  }
  // The less there is to gain, the better must be known what is lost by guesses, and the less is lost by having none.
  if (best > 0 && unchecked >= most_unchecked * checked_gain * (best_rate / plain_rate - 1))
    return counts;
  for (std::size_t i = 0; i < best; ++i)
    ++counts[order[i]];
  // Retries, of as few sequences as cost little beside the others, if the allowance pays for them. Where even a right
  // guess is expected to lose, they are as rare as can be.
  auto left = std::min<std::ptrdiff_t>(room - static_cast<std::ptrdiff_t>(best), 1 + step.sequences / 16);
  const auto retry_ms = std::min(added_ms(step, cost, 1),
                                 (cost(step.rows + 1).certain ? most_loss : most_retry_stake) * base_ms);
  double staked = best > 0 ? 0 : overhead;
  for (std::size_t i = 0; i < options.size() && left > 0; ++i) {
    const auto& option = options[i];
    if (counts[i] > 0 || option.most == 0 || !due(option.sequence))
      continue;
    const auto for_all = overhead + option.pass_ms + retry_ms * step.sequences; // to gain a token each
    if (base_ms < for_all * (1 + settings_.least_gain) && sequences_.at(option.sequence).idle < most_patience)
      continue;
    staked += retry_ms + option.pass_ms;
    if (staked > allowance_ * base_ms)
      break;
    counts[i] = 1;
    --left;
  }
  return counts;
}

void speculation_policy::learn(sequence_id id, std::size_t source, std::span<const reached_guess> guesses) {
  const auto s = sequences_.find(id);
  for (const auto& guess : guesses) {
    overall_[source][guess.grade].add(guess.right, overall_decay);
    if (s != sequences_.end())
      s->second.measured[{source, guess.grade}].add(guess.right, sequence_decay);
  }
}

void speculation_policy::tried(sequence_id id, bool right) {
  const auto s = sequences_.find(id);
  if (s == sequences_.end())
    return;
  s->second.idle = 0;
  s->second.patience = right ? least_patience : std::min(s->second.patience * 2, most_patience);
}

void speculation_policy::plain(sequence_id id) {
  if (const auto s = sequences_.find(id); s != sequences_.end())
    s->second.idle = std::min(s->second.idle + 1, most_patience);
}

void speculation_policy::finished(const measured_step& measured, const step_cost_fn& cost) {
  const auto& step = measured.step;
  if (step.plain.sequences == 0 || !(step.plain_ms > 0))
    return;
  const auto unit = unit_ms(step.plain, cost);
  const auto most = most_loss * unit;
  const auto gap = std::clamp(step.ms - measured.drawing_ms - step.computed_ms, -most, most);
  const bool ahead = measured.guesses == 0 && !measured.held && measured.drawing_ms == 0;
  (ahead ? ahead_gap_ : held_gap_).add(std::clamp(gap, -most_gap * unit, most_gap * unit));
  if (measured.guesses > 0)
    ++unchecked_[size_of(step.plain)];
  else if (std::abs(step.computed_ms - step.plain_ms) <= agreement * step.plain_ms)
    unchecked_[size_of(step.plain)] = 0;
  if (!ahead) {
    const auto added = step.certain ? step.added_ms : step.computed_ms - step.plain_ms;
    const auto loss = added + measured.drawing_ms + gap - ahead_gap_.ms;
    allowance_ += static_cast<double>(measured.accepted) / step.plain.sequences - std::min(loss, most) / unit;
  }
  if (allowance_ < settings_.allowance)
    allowance_ = std::min(allowance_ + settings_.share * std::min(step.ms, most) / unit, settings_.allowance);
  allowance_ = std::clamp(allowance_, least_allowance, most_allowance);
}

} // namespace troupe
