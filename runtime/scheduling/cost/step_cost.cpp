#include "runtime/scheduling/cost/step_cost.hpp"

#include <algorithm>
#include <cmath>
#include <optional>

namespace troupe {

namespace {

// Deviations are relative to the time of a step.
constexpr double noise = 0.1;         // of one measurement
constexpr double first_noise = 1.0;   // of the first one of its size: it touches memory for the first time
constexpr double common_drift = 0.03; // of the whole machine, per step: followed within about five steps
constexpr double own_drift = 0.002;   // of one coefficient, per step
constexpr double kinship = 0.7;       // correlation of neighbouring knots
constexpr double certainty = 0.25;
constexpr double least_share = 0.2; // of a knot in the time of a step that counts as its observation
constexpr double forgetting = 0.01; // deviation of what has not been observed, per root of steps
constexpr double most_deviations = 3;
constexpr double error_memory = 0.95;
constexpr double usual_memory = 0.95;

// Until steps of such sizes were seen, steps of 16 rows take twice as long as steps of none.
constexpr double knee = 16;
constexpr double shape_share = 0.15; // of what is uncertain then; the rest is the speed of the machine

/// What is believed of a coefficient that is not a knot, in terms of what a row costs beyond the knee.
struct belief {
  double value, deviation;
};
constexpr std::array<belief, 3> beliefs{{
  {0.1, 0.3},      // a row with logits
  {0, 1.0 / 1024}, // a position attended
  {0, 1.0 / 1024}, // a position read
}};
constexpr double belief_steps = 1000;   // steps with a belief count as one measurement of it
constexpr double farthest_belief = 256; // deviations

// What steps do not show keeps its proportion to what they show, and slowly takes that of the first estimate again.
constexpr double freshness = 200;                // steps for which a knot is estimated by itself once it was observed
constexpr double return_to_shape = 1e-6;         // per step
constexpr double widest = 8;                     // times what is in proportion to rows
constexpr double least_ms = 1e-6, most_ms = 1e9; // of a step; what is beyond is an accident of the clock

constexpr auto count = step_cost::knots.size();
constexpr std::size_t usual_knots = 11; // that are estimated from the start

double rows_at(std::size_t knot) { return step_cost::knots[knot]; }

/// What a knot takes before any other was observed, in times of no rows.
double shape_at(std::size_t knot) { return 1 + rows_at(knot) / knee; }

/// The knot at the lower end of the piece that `rows` is on, or that is extended to it.
std::size_t piece_of(double rows) {
  std::size_t low = 0;
  while (low + 2 < count && rows_at(low + 1) <= rows)
    ++low;
  return low;
}

double kinship_of(std::size_t a, std::size_t b) {
  static const auto powers = [] {
    std::array<double, count> p{1};
    for (std::size_t i = 1; i < count; ++i)
      p[i] = p[i - 1] * kinship;
    return p;
  }();
  return powers[a > b ? a - b : b - a];
}

} // namespace

step_shape& step_shape::operator+=(const step_shape& more) {
  rows += more.rows;
  logit_rows += more.logit_rows;
  attended += more.attended;
  read += more.read;
  return *this;
}

step_shape& step_shape::operator-=(const step_shape& less) {
  rows -= less.rows;
  logit_rows -= less.logit_rows;
  attended -= less.attended;
  read -= less.read;
  return *this;
}

step_shape shape_of(std::int32_t position, std::int32_t rows, std::int32_t logit_rows) {
  const double first = position, n = rows;
  return {n, static_cast<double>(logit_rows), n * first + n * (n + 1) / 2, first + n};
}

step_shape shape_of(const step_plan& plan) {
  step_shape all;
  for (std::size_t i = 0; i < plan.sequences.size(); ++i) {
    auto its = shape_of(plan.sequences[i].first_position, plan.sequences[i].rows, 0);
    const bool branch = i > 0 && i < plan.states.size() && plan.states[i].slot == plan.states[i - 1].slot;
    if (branch) // of a tree, whose lines are neighbours: the context is read with the first one's
      its.read = plan.sequences[i].rows;
    all += its;
  }
  all.logit_rows = static_cast<double>(plan.logit_rows.size());
  return all;
}

step_shape shape_of_guesses(std::int32_t position, std::int32_t rows) {
  auto shape = shape_of(position, rows, rows);
  shape.read = rows; // the others' context is read with them
  return shape;
}

step_cost::vector step_cost::features(const step_shape& step) {
  vector h{};
  const auto low = piece_of(step.rows);
  const auto along = (step.rows - rows_at(low)) / (rows_at(low + 1) - rows_at(low));
  h[low] = 1 - along;
  h[low + 1] = along;
  h[logits] = step.logit_rows;
  h[attended] = step.attended;
  h[read] = step.read;
  return h;
}

// -- learning ---------------------------------------------------------------------------------------------------------

void step_cost::observe(const step_shape& step, double ms) {
  if (!(ms > 0) || !std::isfinite(ms) || !(step.rows >= 1))
    return;
  ms = std::clamp(ms, least_ms, most_ms);
  if (!known())
    start(step, ms);
  const auto h = features(step);
  drift();
  recall_beliefs();
  learn(h, ms);
  const auto estimated = restrict_to_sense();
  hold_unobserved();
  bound_by(h, estimated);
  if (step.rows >= kernels::block_tokens) {
    const auto follow = [](double& mean, double value) { mean += (1 - usual_memory) * (value - mean); };
    follow(usual_.logit_rows, step.logit_rows);
    follow(usual_.attended, step.attended / step.rows);
    follow(usual_.read, step.read);
  }
  most_rows_ = std::max(most_rows_, static_cast<std::int32_t>(step.rows));
  ++summary_.steps;
}

// What a deviation of 1 is, for each coefficient.
step_cost::vector step_cost::units() const {
  auto unit = mean_;
  const auto row = std::max(mean_[0] + mean_[logits], 1e-6) / knee;
  for (std::size_t i = 0; i < beliefs.size(); ++i)
    unit[logits + i] = beliefs[i].deviation * row;
  return unit;
}

step_cost::estimate step_cost::estimate_of(const vector& sum, const vector& unit, const matrix& spread) const {
  estimate e;
  for (std::size_t i = 0; i < size; ++i) {
    e.value += sum[i] * mean_[i];
    for (std::size_t j = 0; j < size; ++j)
      e.covariance[i] += spread[i][j] * unit[j] * sum[j];
    e.variance += sum[i] * unit[i] * e.covariance[i];
  }
  return e;
}

// A sum of coefficients was measured with a total variance.
void step_cost::narrow(matrix& spread, const estimate& of, double variance) {
  for (std::size_t i = 0; i < size; ++i)
    for (std::size_t j = 0; j < size; ++j)
      spread[i][j] -= of.covariance[i] * of.covariance[j] / variance;
}

void step_cost::start(const step_shape& step, double ms) {
  const auto scale = ms / (1 + step.rows / knee);
  for (std::size_t i = 0; i < count; ++i)
    mean_[i] = scale * shape_at(i);
  for (std::size_t i = 0; i < count; ++i)
    for (std::size_t j = 0; j < count; ++j)
      spread_[i][j] = 1 - shape_share + shape_share * kinship_of(i, j);
  const auto unit = units();
  for (std::size_t i = 0; i < beliefs.size(); ++i) {
    mean_[logits + i] = beliefs[i].value / beliefs[i].deviation * unit[logits + i];
    spread_[logits + i][logits + i] = 1;
  }
}

void step_cost::drift() {
  const auto unit = units();
  vector value{}; // in its unit
  for (std::size_t i = 0; i < size; ++i)
    value[i] = mean_[i] / unit[i];
  for (std::size_t i = 0; i < size; ++i)
    for (std::size_t j = 0; j < size; ++j) {
      spread_[i][j] += common_drift * common_drift * value[i] * value[j];
      if (i == j || (i < count && j < count))
        spread_[i][j] += own_drift * own_drift * (i == j ? 1 : kinship_of(i, j));
    }
  // What is not observed for long becomes no more uncertain than it was at first.
  for (std::size_t i = 0; i < size; ++i) {
    const auto most = std::max(value[i], 1.0);
    if (spread_[i][i] <= most * most)
      continue;
    const auto shrink = most / std::sqrt(spread_[i][i]);
    for (std::size_t j = 0; j < size; ++j) {
      spread_[i][j] *= shrink;
      spread_[j][i] *= shrink;
    }
  }
}

// What measurements leave open would follow their noise to anywhere.
void step_cost::recall_beliefs() {
  const auto unit = units();
  for (auto i = logits; i < size; ++i) {
    vector one{};
    one[i] = 1;
    const auto now = estimate_of(one, unit, spread_);
    const auto [value, deviation] = beliefs[i - logits];
    const auto variance = now.variance + belief_steps * unit[i] * unit[i];
    const auto error = value / deviation * unit[i] - now.value;
    for (std::size_t j = 0; j < size; ++j)
      mean_[j] += unit[j] * now.covariance[j] * error / variance;
    narrow(spread_, now, variance);
  }
}

void step_cost::learn(const vector& h, double ms) {
  const auto unit = units();
  const auto expected = estimate_of(h, unit, spread_);
  bool first = false;
  for (std::size_t i = 0; i < count; ++i)
    if (h[i] >= least_share) {
      first = first || last_seen_[i] == 0;
      if (last_seen_[i] == 0)
        last_news_ = now();
      last_seen_[i] = now();
    }
  const auto deviation = (first ? first_noise : noise) * expected.value;
  const auto variance = expected.variance + deviation * deviation;
  // The error of the logarithm, since times differ by factors.
  const auto error = expected.value * std::log(ms / expected.value), limit = most_deviations * std::sqrt(variance);
  const auto believed = std::clamp(error, -limit, limit) / variance;
  for (std::size_t i = 0; i < size; ++i) {
    const auto change = expected.covariance[i] * believed;
    if (i < count)
      mean_[i] *= std::exp(change); // so that knots keep their proportions when the machine becomes faster or slower
    else
      mean_[i] += unit[i] * change;
  }
  narrow(spread_, expected, variance);
  const auto relative = std::abs(ms - expected.value) / std::max(expected.value, 1e-9);
  summary_.error += (1 - error_memory) * (std::min(relative, 1.0) - summary_.error);
}

// Moves the means to what is possible: no coefficient is negative, more rows take no less time, and beyond the largest
// steps observed the last slope goes on if it is known from enough rows. Each restriction is met by the likeliest
// change of all coefficients, as if it had been observed; to cut off single ones would leave the time of the step just
// observed wrong. The covariance stays as it is (Simon and Chia 2002). Knots of unusually large steps take no part
// until such steps are observed: what is required of them would bend what is known of small ones.
std::size_t step_cost::restrict_to_sense() {
  auto spread = spread_;
  const auto unit = units();
  const auto make_zero = [&](const vector& sum) {
    const auto e = estimate_of(sum, unit, spread);
    if (!(e.variance > 0))
      return;
    for (std::size_t i = 0; i < size; ++i)
      mean_[i] -= unit[i] * e.covariance[i] * e.value / e.variance;
    narrow(spread, e, e.variance);
  };
  std::size_t top = count - 1;
  while (top > 0 && last_seen_[top] == 0)
    --top;
  const auto used = std::max(top + 1, usual_knots);
  if (rows_at(top) >= 2 * knee)
    for (auto i = top + 1; i < used; ++i) {
      const auto pieces = (rows_at(i) - rows_at(top)) / (rows_at(top) - rows_at(top - 1));
      vector bend{};
      bend[i] = 1;
      bend[top] = -1 - pieces;
      bend[top - 1] = pieces;
      make_zero(bend);
    }
  // The one that is violated most first; those that are met stay met.
  for (std::size_t turn = 0; turn < size; ++turn) {
    constexpr double tolerance = -1e-9;
    double worst = tolerance;
    vector sum{};
    const auto consider = [&](double value, double scale, std::size_t larger, std::optional<std::size_t> smaller) {
      if (value >= worst * scale)
        return;
      worst = value / scale;
      sum = {};
      sum[larger] = 1;
      if (smaller)
        sum[*smaller] = -1;
    };
    for (auto i : {logits, attended, read})
      consider(mean_[i], unit[i], i, std::nullopt);
    for (std::size_t i = 1; i < used; ++i)
      consider(mean_[i] - mean_[i - 1], unit[i] * std::sqrt(spread_[i][i]), i, i - 1);
    if (worst == tolerance)
      break;
    make_zero(sum);
  }
  return rows_at(top) >= 2 * knee ? top + 1 : used;
}

// 1 for the step being observed, and less for earlier ones.
double step_cost::fresh(std::uint64_t step) const { return std::exp(-static_cast<double>(now() - step) / freshness); }

// What a step says of sizes that it does not have comes from correlations alone. What these, the beliefs and the
// restrictions change does not cancel out from step to step: a load of steps of one size would carry all others away,
// without bound. So a knot that was not observed for long is as much dearer than when it was as those are that were
// observed lately. That is a matter of what they take now and took then; nothing adds up on the way.
void step_cost::hold_unobserved() {
  knot_values level{}, weight{};
  double all = 0, scale = 0; // levels and scales are logarithms
  for (std::size_t i = 0; i < count; ++i) {
    mean_[i] = std::max(mean_[i], least_ms);
    level[i] = std::log(mean_[i]);
    weight[i] = last_seen_[i] == 0 ? 0 : fresh(last_seen_[i]);
    all += weight[i];
    scale += weight[i] * (level[i] - std::log(shape_at(i)));
  }
  for (std::size_t i = 0; i < count; ++i) {
    const auto since = std::max(last_seen_[i], last_news_);
    if (fresh(since) >= 0.5) {
      then_[i] = level;
      continue;
    }
    double moved = 0;
    for (std::size_t j = 0; j < count; ++j)
      moved += j == i ? 0 : weight[j] * (level[j] - then_[i][j]);
    const auto followed = then_[i][i] + moved / (all - weight[i]);
    const auto shaped = std::log(shape_at(i)) + scale / all;
    mean_[i] = std::exp(std::lerp(shaped, followed, std::exp(-return_to_shape * static_cast<double>(now() - since))));
  }
}

// Whatever happened, no knot takes many times longer or shorter for its rows than the step just observed for its own.
void step_cost::bound_by(const vector& h, std::size_t estimated) {
  const auto unit = units();
  for (std::size_t i = 0; i < beliefs.size(); ++i)
    mean_[logits + i] = std::clamp(mean_[logits + i], 0.0, farthest_belief * unit[logits + i]);
  const auto seen = [&](double share) { return share >= least_share; };
  const auto first = static_cast<std::size_t>(std::find_if(h.begin(), h.begin() + count, seen) - h.begin());
  for (std::size_t i = 0; i < first; ++i)
    mean_[i] = std::max(mean_[i], mean_[first] * rows_at(i) / rows_at(first) / widest);
  const auto last = first + 1 < count && seen(h[first + 1]) ? first + 1 : first;
  // Where more rows seem to take less, what was seen lately is right.
  for (std::size_t i = 0; i < estimated; ++i)
    for (auto j = i + 1; j < estimated; ++j)
      if (last_seen_[j] > last_seen_[i])
        mean_[i] = std::min(mean_[i], mean_[j]);
  for (std::size_t i = 1; i < estimated; ++i)
    mean_[i] = std::max(mean_[i], mean_[i - 1]);
  for (auto i = last + 1; i < estimated; ++i)
    mean_[i] = std::min(mean_[i], mean_[last] * rows_at(i) / rows_at(last) * widest);
  const auto top = estimated - 1, below = top - 1;
  for (auto i = estimated; i < count; ++i)
    mean_[i] = mean_[top] + (mean_[top] - mean_[below]) * (rows_at(i) - rows_at(top)) / (rows_at(top) - rows_at(below));
}

// -- asking -----------------------------------------------------------------------------------------------------------

double step_cost::expected_ms(const step_shape& step) const {
  const auto h = features(step);
  double ms = 0;
  for (std::size_t i = 0; i < size; ++i)
    ms += h[i] * mean_[i];
  return ms;
}

double step_cost::cautious_ms(const step_shape& step) const {
  const auto ms = expected_ms(step);
  if (step.rows <= most_rows_ || most_rows_ == 0)
    return ms;
  auto largest = step;
  largest.rows = most_rows_;
  return std::max(ms, expected_ms(largest) * step.rows / most_rows_);
}

double step_cost::rows_per_ms(double rows) const {
  return rows / expected_ms({rows, usual_.logit_rows, rows * usual_.attended, usual_.read});
}

std::int32_t step_cost::efficient_rows(std::int32_t most, double share) const {
  if (!known())
    return most;
  double best = rows_per_ms(std::min(most, most_rows_));
  for (const auto rows : knots)
    if (rows <= most && certain(rows))
      best = std::max(best, rows_per_ms(rows));
  const auto goal = share * best;
  double low = 1;
  if (rows_per_ms(low) >= goal)
    return 1;
  for (std::size_t knot = 1; low < most; ++knot) {
    const auto high = knot < count ? std::min<double>(rows_at(knot), most) : most;
    if (rows_per_ms(high) >= goal) {
      // Here a step of r rows takes a + b r.
      const auto at_high = high / rows_per_ms(high), at_low = low / rows_per_ms(low);
      const auto b = (at_high - at_low) / (high - low), a = at_low - b * low;
      const auto rows = goal * b < 1 ? std::ceil(goal * a / (1 - goal * b)) : high;
      return static_cast<std::int32_t>(std::clamp(rows, low, high));
    }
    low = high;
  }
  return most;
}

bool step_cost::certain(std::int32_t rows) const {
  if (!known())
    return false;
  const auto h = features({static_cast<double>(rows), 0, 0, 0});
  const auto e = estimate_of(h, units(), spread_);
  double age = 0;
  for (std::size_t i = 0; i < count; ++i)
    age += h[i] * static_cast<double>(summary_.steps - last_seen_[i]);
  return e.variance <= (certainty * certainty - forgetting * forgetting * age) * e.value * e.value;
}

step_cost_summary step_cost::summary() const {
  auto s = summary_;
  std::copy_n(mean_.begin(), count, s.knot_ms.begin());
  s.logit_row_ms = mean_[logits];
  s.attended_ms = mean_[attended];
  s.read_ms = mean_[read];
  return s;
}

double expected_ms(const step_cost_summary& cost, const step_shape& step) {
  const auto low = piece_of(step.rows);
  const auto along = (step.rows - rows_at(low)) / (rows_at(low + 1) - rows_at(low));
  return std::lerp(cost.knot_ms[low], cost.knot_ms[low + 1], along) + step.logit_rows * cost.logit_row_ms +
    step.attended * cost.attended_ms + step.read * cost.read_ms;
}

} // namespace troupe
