// What a source of guesses offers for the tokens that follow: guesses that may branch, each with a grade by which its
// chance is known. From them are taken the likeliest. Pure functions.
#pragma once

#include "runtime/support/types.hpp"
#include "runtime/techniques/guesser.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace troupe {

struct offered_guess {
  token_id token = 0;
  std::int32_t parent = -1; // the offered guess that it follows, which comes earlier; -1: the last known token
  std::uint8_t grade = 0;   // below drafter::grades; how often guesses of it are right, is measured
  bool predicted = false;   // of the request's prediction
};

/// The grade of a guess by what its source believes, 0 to 1: 0 to 7, and 8 to 15 of those beside a likelier one.
std::uint8_t grade_of(double confidence, bool beside);

/// The middle of a grade's confidences.
double confidence_of(std::size_t grade);

/// Guesses, likeliest first, so that none comes before the one that it follows.
struct ranked_guesses {
  std::vector<offered_guess> guesses;
  std::vector<double> chances; // of each, that it is right
};

/// `rate`: how often guesses of a grade are right if those before them are. At most `most` behind each other. Without
/// `branches`, the likeliest line.
ranked_guesses ranked(std::span<const offered_guess> offered, const std::function<double(std::size_t grade)>& rate,
                      int most, bool branches);

/// The first guesses, ordered as a step has them: each behind the one that it follows, the likeliest first, so that they
/// begin with the likeliest line.
guess_run in_lines(const ranked_guesses& guesses, std::size_t count);

/// A guess that followed right ones.
struct reached_guess {
  std::uint8_t grade = 0;
  bool right = false;
};

/// The guesses that followed right ones, judged by the tokens that came: also those that no step has computed.
std::vector<reached_guess> reached(const ranked_guesses& guesses, std::span<const token_id> came);

} // namespace troupe
