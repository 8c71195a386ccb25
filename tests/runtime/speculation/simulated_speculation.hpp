// A machine whose steps cost what a formula says, on which a policy's decisions are played out: guesses are right with a
// given probability, each independently of the others.
#pragma once

#include "runtime/speculation/speculation_policy.hpp"

#include <algorithm>
#include <random>

namespace troupe {

struct simulated_speculation {
  // Reading the weights, whatever the rows, then a row's arithmetic.
  double weights_ms = 20, row_ms = 2.5;
  int free_rows = 1;      // rows that the reading hides
  double bubble_ms = 0.3; // what a step loses that is not planned ahead
  double noise = 0.05;    // relative deviation of measured times
  double cost_error = 1;  // what the model believes of a row's time, in terms of the truth
  unsigned seed = 1;

  double truth(int rows) const { return weights_ms + row_ms * std::max(rows - free_rows, 0); }
  double belief(int rows) const { return weights_ms + cost_error * row_ms * std::max(rows - free_rows, 0); }

  /// Tokens per ms without guesses.
  double plain_speed(int sequences) const { return sequences / truth(sequences); }

  /// The speed with always k guesses.
  double speed(int sequences, double acceptance, int k) const {
    double tokens = 1, p = 1;
    for (int i = 0; i < k; ++i)
      tokens += p *= acceptance;
    return sequences * tokens / (truth(sequences * (1 + k)) + (k > 0 ? bubble_ms : 0));
  }

  double best_speed(int sequences, double acceptance, int most) const {
    double best = 0;
    for (int k = 0; k <= most; ++k)
      best = std::max(best, speed(sequences, acceptance, k));
    return best;
  }

  /// Lets `policy` generate so many steps, and returns the speed. `acceptance(step)` may change over time.
  template <class Acceptance>
  double run(speculation_policy& policy, int sequences, int steps, Acceptance acceptance, int most = 16) const {
    std::mt19937 random(seed);
    std::uniform_real_distribution<double> uniform(0, 1);
    std::normal_distribution<double> normal(0, 1);
    const auto cost = [this](int rows) { return belief(rows); };
    for (int s = 0; s < sequences; ++s)
      policy.begin({static_cast<std::uint64_t>(s), 0});
    double tokens = 0, ms = 0;
    for (int step = 0; step < steps; ++step) {
      std::vector<guess_option> options;
      for (int s = 0; s < sequences; ++s) {
        const sequence_id id{static_cast<std::uint64_t>(s), 0};
        options.push_back({id, policy.acceptance(id, 0, 0), most});
      }
      const plain_step plain{sequences, sequences};
      const auto counts = policy.plan(plain, cost, options, 1000);
      int guesses = 0, accepted = 0;
      for (std::size_t s = 0; s < options.size(); ++s) {
        int right = 0;
        while (right < counts[s] && uniform(random) < acceptance(step))
          ++right;
        if (counts[s] > 0)
          policy.judged(options[s].sequence, 0, 0, static_cast<std::size_t>(counts[s]),
                        static_cast<std::size_t>(right));
        else
          policy.plain(options[s].sequence);
        guesses += counts[s];
        accepted += right;
      }
      const auto took = truth(sequences + guesses) * (1 + noise * std::max(normal(random), -3.0)) +
        (guesses > 0 ? bubble_ms : 0);
      policy.finished({plain, guesses, accepted, took}, cost);
      tokens += sequences + accepted;
      ms += took;
    }
    for (int s = 0; s < sequences; ++s)
      policy.end({static_cast<std::uint64_t>(s), 0});
    return tokens / ms;
  }
};

} // namespace troupe
