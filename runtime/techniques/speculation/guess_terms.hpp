// What the guesses of all sequences of a scheduler share: the settings, what steps and the draft model's passes cost, and
// the policy. Owned by the speculator; single-threaded.
#pragma once

#include "runtime/techniques/guesser.hpp"
#include "runtime/techniques/speculation/ahead_guesses.hpp"
#include "runtime/techniques/speculation/drafter.hpp"
#include "runtime/techniques/speculation/guess_offer.hpp"
#include "runtime/techniques/speculation/lookahead_window.hpp"
#include "runtime/techniques/speculation/speculation_names.hpp"
#include "runtime/techniques/speculation/speculation_policy.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <utility>

namespace troupe {

struct speculation_settings {
  speculation mode = speculation::automatic; // of requests that leave it to the engine
  bool draft_model = false;                  // there is one
  bool mtp = false;                          // in its place, the model's own layers of multi-token prediction
  int most_guesses = 16;                     // of a sequence in one step; 0: no speculation at all
  lookahead_shape lookahead = {};            // of requests that ask for lookahead, whatever it costs
  drafter_factory custom = {};               // for benches: what it makes is a sequence's only source
  int forced = 0;                            // guesses of each sequence, whatever they cost; 0: as many as pay
  bool branches = true;                      // for benches: guesses may branch
  bool ahead = false; // the draft model has threads or a device of its own: it guesses on while the model verifies
};

/// The least of the last values: what other programs and waking up add is no property of a model. One alone says
/// little.
class least_of_last {
public:
  void add(double value) {
    values_[count_++ % values_.size()] = value;
    least_ = *std::min_element(values_.begin(), values_.begin() + std::min(count_, values_.size()));
  }
  /// Called as time passes. What seems too dear would otherwise never be measured again.
  void fade() { least_ -= least_ / 4096; }
  double value() const { return count_ < 2 ? 0 : least_; } // 0: not known yet

private:
  std::array<double, 8> values_{};
  std::size_t count_ = 0;
  double least_ = 0;
};

struct guess_terms {
  /// Where guesses come from. `undrawn`: the draft model's, before they are known.
  enum source : std::size_t { ngram, lookahead, jacobi, draft, custom, sources, undrawn = sources };

  static constexpr std::size_t little_lag = 64; // tokens that the draft model computes beside its first guess

  /// `cost`: of a step's rows at the present context.
  guess_terms(speculation_settings s, step_cost_fn c)
    : settings(std::move(s)), cost(std::move(c)), policy({.forced = settings.forced}) {
    const auto expect = [this](source from, std::initializer_list<double> acceptance) {
      for (std::size_t grade = 0; grade < acceptance.size(); ++grade)
        policy.expect(from, grade, acceptance.begin()[grade]);
    };
    expect(lookahead, {0.05, 0.2, 0.4});
    expect(jacobi, {0.05});
    expect(undrawn, {0.6});
    constexpr double trust = 0.8; // in what sources believe, before it is measured
    for (std::size_t grade = 0; grade < drafter::grades; ++grade)
      for (const auto from : {ngram, draft})
        policy.expect(from, grade, trust * confidence_of(grade));
  }

  speculation_settings settings;
  step_cost_fn cost;
  speculation_policy policy;
  least_of_last pass_ms, row_ms; // of the draft model: a pass that draws, a row that catches up
  std::size_t room = 1;          // guesses that a source may offer: fewer, the more sequences there are
  ahead_account ahead;
  std::uint64_t ahead_request = 0; // that guesses ahead and has no reply; 0: none
};

/// Sum of the probabilities of the first guesses of a line to be right.
inline double expected_tokens(double acceptance, int guesses) {
  double sum = 0, p = 1;
  for (int i = 0; i < guesses; ++i)
    sum += p *= acceptance;
  return sum;
}

} // namespace troupe
