// What a step costs on one executor, learned from its steps: milliseconds as a function of its rows, of the rows whose
// logits are wanted, and of the context that attention reads. Whatever weighs cost against benefit asks it: the budget
// of a step, guesses, swapping. Results never depend on it, schedules do. Owned by the scheduler; single-threaded.
//
// The time is piecewise linear in rows (reading the weights makes few rows cost as much as one; later each row costs
// the same) and linear in the rest. A Kalman filter estimates all coefficients together. Its process noise lets the
// whole machine become faster or slower at once, and single coefficients drift more slowly; errors beyond three
// standard deviations count as three. O(1) and without allocation.
//
// While a load only decodes, rows, rows with logits and context grow together, and no step tells which of them takes
// the time. So what a logit row and a position cost is weakly believed anew before every step, as a share of what a
// row costs: rows carry what is left open, and guesses, which are such rows, are expected to take what rows take.
//
// Sizes that were not observed for long keep their proportion to those that are, slowly return to that of the first
// estimate, and never leave bounds around the step observed last.
#pragma once

#include "runtime/scheduling/scheduler_counters.hpp"
#include "runtime/scheduling/step.hpp"

#include <array>
#include <cstddef>
#include <cstdint>

namespace troupe {

/// The size of a step, as far as its time depends on it. Sums of sequences add up.
struct step_shape {
  double rows = 0;
  double logit_rows = 0; // rows whose logits are wanted
  double attended = 0;   // positions attended, summed over rows
  double read = 0;       // positions of K/V read, summed over sequences

  step_shape& operator+=(const step_shape& more);
  step_shape& operator-=(const step_shape& less);
  friend step_shape operator+(step_shape a, const step_shape& b) { return a += b; }
};

/// `rows` rows of one sequence, from `position` on.
step_shape shape_of(std::int32_t position, std::int32_t rows, std::int32_t logit_rows);
step_shape shape_of(const step_plan& plan);

/// `rows` rows, all with logits, behind others of the same sequence that end before `position`.
step_shape shape_of_guesses(std::int32_t position, std::int32_t rows);

class step_cost {
public:
  /// Rows between which the time is linear. Until steps near them are observed, those beyond the eleventh only go on
  /// with the line through the two before.
  static constexpr auto knots = step_cost_summary::knots;

  /// Learns from a step that took `ms`. Times that are not positive and finite, and steps without rows, are ignored.
  void observe(const step_shape& step, double ms);

  /// Whether any step was observed.
  bool known() const { return summary_.steps > 0; }

  /// Rows of the largest step observed.
  std::int32_t most_rows() const { return most_rows_; }

  /// 0 while nothing is known. Beyond the largest step observed, rows cost what the last ones did.
  double expected_ms(const step_shape& step) const;

  /// What `step` takes longer with `more` in it, such as k more rows to be judged.
  double marginal_ms(const step_shape& step, const step_shape& more) const {
    return expected_ms(step + more) - expected_ms(step);
  }

  /// An estimate for steps with a target: beyond the largest step observed, each row may cost what one did on average.
  double cautious_ms(const step_shape& step) const;

  /// With the context of recent steps that read prompts.
  double rows_per_ms(double rows) const;

  /// The fewest rows, at most `most`, that reach `share` of the best rows per second that is certain. `most` while
  /// nothing is known.
  std::int32_t efficient_rows(std::int32_t most, double share = 0.9) const;

  /// Whether the time of steps of `rows` rows is known to about a quarter.
  bool certain(std::int32_t rows) const;

  step_cost_summary summary() const;

private:
  static constexpr std::size_t logits = knots.size(), attended = logits + 1, read = logits + 2, size = logits + 3;
  using vector = std::array<double, size>;
  using knot_values = std::array<double, knots.size()>;
  using matrix = std::array<vector, size>;

  /// A sum of coefficients as estimated: its value, the variance of that, and its covariance with each coefficient, in
  /// the unit of that.
  struct estimate {
    double value = 0, variance = 0;
    vector covariance{};
  };

  static vector features(const step_shape& step);
  vector units() const;
  estimate estimate_of(const vector& sum, const vector& unit, const matrix& spread) const;
  static void narrow(matrix& spread, const estimate& of, double variance);
  void start(const step_shape& step, double ms);
  void drift();
  void recall_beliefs();
  void learn(const vector& h, double ms);
  std::size_t restrict_to_sense(); // returns the number of knots that are estimated: the rest goes on with their line
  std::uint64_t now() const { return summary_.steps + 1; } // the number of the step being observed
  double fresh(std::uint64_t step) const;
  void hold_unobserved();
  void bound_by(const vector& h, std::size_t estimated);

  vector mean_{};   // ms of steps of `knots` rows; ms for each of the other features
  matrix spread_{}; // covariance, in units
  std::array<std::uint64_t, knots.size()> last_seen_{}; // in this step, from 1 on; 0: never
  std::uint64_t last_news_ = 0;                         // the last step of a size that was not seen before
  std::array<knot_values, knots.size()> then_{};        // [i][j]: of knot j, when knot i was last estimated by itself
  std::int32_t most_rows_ = 0;
  step_shape usual_; // of recent steps of many rows; `attended` is for each row
  step_cost_summary summary_;
};

/// What step_cost::expected_ms says, from the model as numbers.
double expected_ms(const step_cost_summary& cost, const step_shape& step);

} // namespace troupe
