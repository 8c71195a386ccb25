#include "runtime/scheduling/cost/step_budget.hpp"

#include "runtime/support/text/number_text.hpp"

#include <algorithm>
#include <iterator>

namespace troupe {

namespace {

constexpr std::int32_t fewest_rows = 32; // also before any step was measured
constexpr std::int32_t steps_between_trials = 50;
constexpr double errors_of_margin = 2.5; // below the target: so many times the mean relative error of expected times
constexpr std::int32_t steps_between_news = 512;

bool differs_by_half(double a, double b) { return a > 1.5 * b || b > 1.5 * a; }

} // namespace

std::int32_t step_budget::rows(const step_cost& cost) const {
  if (!limits_.measured)
    return limits_.rows;
  if (!cost.known())
    return std::min(fewest_rows, limits_.rows);
  auto rows = efficient_rows(cost);
  const bool is_due = steps_since_trial_ >= steps_between_trials;
  const auto wants_trial = [&](std::int32_t knot) {
    return knot >= fewest_rows && knot <= (is_due ? 4 : 2) * rows && knot < 2 * limits_.rows && !cost.certain(knot) &&
      (is_due || knot > cost.most_rows());
  };
  const auto& knots = step_cost::knots;
  const auto above = std::ranges::upper_bound(knots, rows);
  if (const auto larger = std::find_if(above, knots.end(), wants_trial); larger != knots.end())
    rows = *larger;
  else if (const auto smaller = std::find_if(std::reverse_iterator(above), knots.rend(), wants_trial);
           smaller != knots.rend())
    rows = *smaller;
  return std::min({rows, std::max(fewest_rows, 2 * cost.most_rows()), limits_.rows});
}

std::int32_t step_budget::efficient_rows(const step_cost& cost) const {
  return std::max(cost.efficient_rows(limits_.rows, decoding_ ? 0.9 : 0.97), std::min(fewest_rows, limits_.rows));
}

void step_budget::begin(const step_cost& cost, bool decoding) {
  decoding_ = decoding;
  if (granted_.of_prompts > 0)
    steps_since_trial_ = rows_ == efficient_rows_ ? steps_since_trial_ + 1 : 0;
  rows_ = rows(cost);
  efficient_rows_ = efficient_rows(cost);
  granted_ = demanded_ = {};
}

std::int32_t step_budget::room(const step_cost& cost, std::int32_t position, std::int32_t wanted) const {
  const auto there = static_cast<std::int32_t>(demanded_.shape.rows);
  auto most = std::min(wanted, rows_ - there);
  if (limits_.target_ms > 0 && !cost.known())
    most = std::min(most, least_prompt_rows);
  else if (limits_.target_ms > 0) {
    const auto target = limits_.target_ms / (1 + errors_of_margin * cost.summary().error);
    const auto in_time = [&](std::int32_t rows) {
      return cost.cautious_ms(demanded_.shape + shape_of(position, rows, 1)) <= target;
    };
    auto fits = 0; // and `most` + 1 does not, or is not asked for
    while (fits < most) {
      const auto middle = fits + (most - fits + 1) / 2;
      if (in_time(middle))
        fits = middle;
      else
        most = middle - 1;
    }
  }
  const auto owed = limits_.measured || limits_.target_ms > 0 ? least_prompt_rows - demanded_.of_prompts : 0;
  return std::clamp(std::max(most, std::min(owed, wanted)), 0, std::max(0, limits_.rows - there));
}

void step_budget::add(content& to, std::int32_t position, std::int32_t rows, bool of_prompt) {
  to.shape += shape_of(position, rows, of_prompt ? 0 : rows);
  if (of_prompt)
    to.of_prompts += rows;
}

std::string step_budget::news(const step_cost& cost) {
  if (!limits_.measured || --steps_until_news_ > 0)
    return {};
  const auto rows = cost.efficient_rows(limits_.rows);
  const auto ms = cost.expected_ms({static_cast<double>(rows), 0, 0, 0});
  if (!differs_by_half(rows, reported_rows_) && !differs_by_half(ms, reported_ms_)) {
    steps_until_news_ = 1;
    return {};
  }
  steps_until_news_ = steps_between_news;
  reported_rows_ = rows;
  reported_ms_ = ms;
  auto line = "steps of up to " + std::to_string(rows) + " rows; " + to_general(ms, 3) + " ms for that many";
  for (const auto knot : {1, 16, 64, 256})
    line += ", " + to_general(cost.expected_ms({static_cast<double>(knot), 0, 0, 0}), 3) + " ms for " +
      std::to_string(knot);
  const auto s = cost.summary();
  return line + "; " + to_general(s.attended_ms * 1e3, 3) + " us for each position attended, " +
    to_general(s.read_ms * 1e3, 3) + " us for each read";
}

} // namespace troupe
