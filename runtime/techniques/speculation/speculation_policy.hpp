// Decides how many guesses each sequence of a step gets: the number that yields the most expected tokens per
// millisecond, by measured rates of acceptance and step_cost's prices of rows. Single-threaded.
//
// Estimates may be wrong, so losses are bounded in two ways. A sequence that gets no guesses is tried again with one,
// after ever more tokens. And an allowance, counted in steps of the decoding rows alone, pays for what guesses lose. It
// grows by a small share of the time and by what guesses gain, up to a limit, and no step stakes more than a part of
// it. So losses stay below that share. They are counted as measured until step_cost is certain of such steps, and then
// at its prices, so that noise and a machine that slows down do not count as losses. The time of a step without guesses
// is checked: at least every 64th step of a size has none, and more of them where guesses gain little. Only the cost of
// not planning a step ahead is learned here; all others are step_cost's.
#pragma once

#include "runtime/support/types.hpp"
#include "runtime/techniques/guesser.hpp"
#include "runtime/techniques/speculation/drafter.hpp"
#include "runtime/techniques/speculation/guess_offer.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

namespace troupe {

/// What one sequence of a step could be given.
struct guess_option {
  sequence_id sequence;
  double acceptance = 0; // of guesses that follow each other: probability that one is right if those before it are
  int most = 0;          // guesses; 0: none to be had
  double pass_ms = 0;    // a pass of the draft model yields one guess for each sequence that it serves; 0: no such cost
  std::span<const double> chances = {}; // of guesses that branch, each one's to be right, none above that before it
};

/// What is known of a step when its tokens have arrived.
struct measured_step {
  finished_step step;
  int guesses = 0, accepted = 0;
  double drawing_ms = 0; // of step.ms, until the guesses were drawn
  bool held = false;     // it was not planned ahead, in the hope of guesses
};

class speculation_policy {
public:
  static constexpr std::size_t sources = 8; // kinds of drafters

  struct settings {
    double share = 0.01;    // of the time, which guesses may lose
    double allowance = 1.0; // at the start, in steps of the decoding rows alone
    double least_gain = 0.02;
    int forced = 0; // guesses of each option, whatever they cost; 0: as many as pay
  };

  speculation_policy() : speculation_policy(settings()) {}
  explicit speculation_policy(settings s) : settings_(s), allowance_(s.allowance) {
    unchecked_.fill(most_unchecked);
    for (auto& of_source : priors_)
      of_source.fill(0.5);
  }

  /// What to expect of a source before it is measured.
  void expect(std::size_t source, std::size_t grade, double acceptance) { priors_[source][grade] = acceptance; }

  void begin(sequence_id id) { sequences_.try_emplace(id); }
  void end(sequence_id id) { sequences_.erase(id); }

  /// The probability that a guess is accepted: of this sequence, source and grade, as far as measured; else what was
  /// measured of the source.
  double acceptance(sequence_id id, std::size_t source, std::size_t grade) const;

  /// Guesses for each option, of all at most `room`.
  std::vector<int> plan(const plain_step& step, const step_cost_fn& cost, std::span<const guess_option> options,
                        int room) const;

  /// Which guesses of a source were right, or would have been.
  void learn(sequence_id id, std::size_t source, std::span<const reached_guess> guesses);

  /// A sequence has had guesses, of which some were right.
  void tried(sequence_id id, bool right);

  /// A sequence has gained a token in a step in which it had no guesses.
  void plain(sequence_id id);

  /// A step is over. `cost`: as for `plan`.
  void finished(const measured_step& step, const step_cost_fn& cost);

  /// Milliseconds by which a step takes longer because it cannot be planned before the step before it is judged.
  double overhead_ms() const { return std::max(held_gap_.ms - ahead_gap_.ms, 0.0); }

  /// Milliseconds that guesses add to a step, and those of a step of the decoding rows alone.
  double added_ms(const plain_step& step, const step_cost_fn& cost, int guesses) const;
  double unit_ms(const plain_step& step, const step_cost_fn& cost) const;

  /// Whether a sequence has had no guesses for so long that it is to be tried again.
  bool due(sequence_id id) const;

  double allowance() const { return allowance_; }

private:
  /// Accepted and judged guesses, older ones counting less.
  struct tally {
    double accepted = 0, judged = 0;
    void add(bool right, double decay);
    double rate(double prior, double weight) const { return (accepted + weight * prior) / (judged + weight); }
  };
  using tallies = std::array<std::array<tally, drafter::grades>, sources>;

  struct sequence {
    std::map<std::pair<std::size_t, std::size_t>, tally> measured; // by source and grade
    int idle = 0;                                                  // tokens since it last had guesses
    int patience = 8;                                              // it is tried again when idle for so many tokens
  };

  /// Mean time between two steps in which nothing is computed, recent ones counting more.
  struct gap {
    double ms = 0, weight = 0;
    void add(double value);
  };

  settings settings_;
  double allowance_;
  tallies overall_{};
  std::array<std::array<double, drafter::grades>, sources> priors_;
  std::map<sequence_id, sequence> sequences_;
  gap ahead_gap_, held_gap_; // before steps that were planned ahead, and that were not

  /// Steps with guesses since one without took what was expected, by the size of the step: powers of 2 of rows.
  static constexpr int most_unchecked = 64;
  std::array<int, 24> unchecked_;
  static std::size_t size_of(const plain_step& step);
};

} // namespace troupe
