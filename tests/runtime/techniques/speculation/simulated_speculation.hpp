// Plays a policy's decisions out on a machine whose steps take what a formula says, while step_cost learns from them as
// in the scheduler. Guesses are right with a given probability, each independently of the others.
#pragma once

#include "runtime/scheduling/cost/step_cost.hpp"
#include "runtime/techniques/speculation/speculation_policy.hpp"

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

namespace troupe {

/// Guesses behind each other, of which the first ones were right.
inline std::vector<reached_guess> line_of(std::size_t guesses, std::size_t right) {
  std::vector<reached_guess> reached(right, reached_guess{0, true});
  if (right < guesses)
    reached.push_back({0, false});
  return reached;
}

struct simulated_machine {
  // Reading the weights, whatever the rows, then a row's arithmetic.
  double weights_ms = 20, row_ms = 2.5;
  int free_rows = 1;      // rows that the reading hides
  double bubble_ms = 0.3; // what a step loses that is not planned ahead
  double noise = 0.05;    // relative deviation of times
  double slowness = 1;

  double time(int rows) const { return slowness * (weights_ms + row_ms * std::max(rows - free_rows, 0)); }

  /// How much faster always k guesses are than none.
  double gain(int sequences, double acceptance, int k) const {
    double tokens = 1, p = 1;
    for (int i = 0; i < k; ++i)
      tokens += p *= acceptance;
    return tokens * time(sequences) / (time(sequences * (1 + k)) + (k > 0 ? bubble_ms : 0));
  }

  double best_gain(int sequences, double acceptance, int most = 16) const {
    double best = 0;
    for (int k = 0; k <= most; ++k)
      best = std::max(best, gain(sequences, acceptance, k));
    return best;
  }
};

struct simulated_load {
  int sequences = 1, steps = 0;
  double acceptance = 0;
  int prompt_rows = 0; // that join every eighth step
  bool fresh = true;   // other sequences than in the load before
  bool seen = false;   // where there are no guesses, it is seen whether the first would have been right
};

class simulated_speculation {
public:
  explicit simulated_speculation(simulated_machine machine = {}, unsigned seed = 1,
                                 speculation_policy::settings settings = {})
    : machine(machine), policy(settings), random_(seed) {
    cost.observe(shape_of(0, 32, 1), 1.5 * machine.time(32)); // the first prompt is slow
  }

  /// How much faster the load was than without guesses. Times without their noise.
  double run(const simulated_load& load) {
    start_sequences(load);
    double plain_ms = 0, ms = 0;
    for (int step = 0; step < load.steps; ++step) {
      const auto prompt = step % 8 == 0 ? load.prompt_rows : 0;
      const auto& [guesses, accepted] = play(load, prompt);
      ms += machine.time(load.sequences + prompt + guesses) + (guesses > 0 ? machine.bubble_ms : 0);
      plain_ms += machine.time(load.sequences + prompt) +
        static_cast<double>(accepted) / load.sequences * machine.time(load.sequences);
    }
    all_plain_ms_ += plain_ms;
    all_ms_ += ms;
    return plain_ms / ms;
  }

  /// The same of all loads so far.
  double gain() const { return all_plain_ms_ / all_ms_; }

  step_estimate estimate(int rows) const {
    if (belief)
      return {belief(rows), true};
    return {cost.expected_ms({double(rows), double(rows), double(context) * rows, double(context)}),
            cost.certain(rows)};
  }

  simulated_machine machine;
  speculation_policy policy;
  step_cost cost;
  std::function<double(int rows)> belief; // instead of what is learned

private:
  static constexpr int context = 300;

  void start_sequences(const simulated_load& load) {
    if (load.fresh)
      for (const auto id : std::exchange(running_, {}))
        policy.end(id);
    while (running_.size() < static_cast<std::size_t>(load.sequences)) {
      running_.push_back({++last_request_, 0});
      policy.begin(running_.back());
    }
  }

  /// One step: how many guesses there were, and how many were right.
  std::pair<int, int> play(const simulated_load& load, int prompt) {
    const auto cost_of = [this](int rows) { return estimate(rows); };
    const plain_step plain{load.sequences + prompt, load.sequences};
    step_shape shape;
    for (int i = 0; i < load.sequences; ++i)
      shape += shape_of(context, 1, 1);
    if (prompt > 0)
      shape += shape_of(0, prompt, 0);
    const auto without = shape;
    std::vector<guess_option> options;
    for (const auto id : running_)
      options.push_back({id, policy.acceptance(id, 0, 0), 16});
    const auto counts = policy.plan(plain, cost_of, options, 64);
    int guesses = 0, accepted = 0;
    for (std::size_t s = 0; s < options.size(); ++s) {
      const auto count = static_cast<std::size_t>(counts[s]);
      std::size_t right = 0;
      while (right < count && std::uniform_real_distribution<>()(random_) < load.acceptance)
        ++right;
      if (count > 0) {
        policy.learn(options[s].sequence, 0, line_of(count, right));
        policy.tried(options[s].sequence, right > 0);
        shape += shape_of_guesses(context + 1, counts[s]);
      } else {
        if (load.seen)
          policy.learn(options[s].sequence, 0,
                       line_of(1, std::uniform_real_distribution<>()(random_) < load.acceptance ? 1 : 0));
        policy.plain(options[s].sequence);
      }
      guesses += counts[s];
      accepted += static_cast<int>(right);
    }
    const auto deviation = std::clamp(std::normal_distribution<>()(random_), -3.0, 3.0);
    const auto computed = machine.time(plain.rows + guesses) * (1 + machine.noise * deviation);
    cost.observe(shape, computed);
    const auto ms = computed + (guesses > 0 ? machine.bubble_ms : 0);
    const auto plain_ms = belief ? belief(plain.rows) : cost.expected_ms(without);
    const auto all_ms = belief ? belief(plain.rows + guesses) : cost.expected_ms(shape);
    const bool certain = !belief && cost.certain(plain.rows) && cost.certain(plain.rows + guesses);
    policy.finished({{plain, ms, computed, plain_ms, all_ms - plain_ms, certain}, guesses, accepted}, cost_of);
    return {guesses, accepted};
  }

  std::mt19937 random_;
  std::vector<sequence_id> running_;
  std::uint64_t last_request_ = 0;
  double all_plain_ms_ = 0, all_ms_ = 0;
};

} // namespace troupe
