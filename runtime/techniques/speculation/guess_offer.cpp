#include "runtime/techniques/speculation/guess_offer.hpp"

#include "runtime/techniques/speculation/drafter.hpp"

#include <algorithm>
#include <array>

namespace troupe {

namespace {

constexpr std::array bounds{0.05, 0.1, 0.2, 0.35, 0.5, 0.7, 0.9};
static_assert(2 * (bounds.size() + 1) == drafter::grades);
constexpr double most_chance = 0.99; // of a guess, given those before it

} // namespace

std::uint8_t grade_of(double confidence, bool beside) {
  const auto grade = std::ranges::upper_bound(bounds, confidence) - bounds.begin();
  return static_cast<std::uint8_t>(grade + (beside ? std::ssize(bounds) + 1 : 0));
}

double confidence_of(std::size_t grade) {
  grade %= bounds.size() + 1;
  const auto low = grade == 0 ? 0 : bounds[grade - 1], high = grade == bounds.size() ? 1 : bounds[grade];
  return (low + high) / 2;
}

ranked_guesses ranked(std::span<const offered_guess> offered, const std::function<double(std::size_t grade)>& rate,
                      int most, bool branches) {
  const auto count = offered.size();
  std::vector<double> chances(count);
  std::vector<int> depths(count);
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < count; ++i) {
    const auto parent = offered[i].parent;
    chances[i] = (parent < 0 ? 1 : chances[as_size(parent)]) * std::min(rate(offered[i].grade), most_chance);
    depths[i] = parent < 0 ? 1 : depths[as_size(parent)] + 1;
    if (depths[i] <= most)
      order.push_back(i);
  }
  std::ranges::stable_sort(order, [&](std::size_t a, std::size_t b) { return chances[a] > chances[b]; });
  ranked_guesses result;
  std::vector<std::int32_t> places(count, -1);
  std::int32_t end_of_line = -1; // offered
  for (const auto i : order) {
    const auto& guess = offered[i];
    if (!branches && guess.parent != end_of_line)
      continue;
    end_of_line = static_cast<std::int32_t>(i);
    places[i] = static_cast<std::int32_t>(result.guesses.size());
    result.guesses.push_back(guess);
    result.guesses.back().parent = guess.parent < 0 ? -1 : places[as_size(guess.parent)];
    result.chances.push_back(chances[i]);
  }
  return result;
}

guess_run in_lines(const ranked_guesses& from, std::size_t count) {
  count = std::min(count, from.guesses.size());
  guess_run run{.predicted = count > 0};
  std::vector<std::int32_t> places(count);
  bool one_line = true;
  // Depth first: behind a guess come those that follow it, then what follows the one before it otherwise.
  std::vector<std::vector<std::int32_t>> following(count + 1); // [parent + 1]
  for (auto i = count; i-- > 0;)                               // the likeliest is taken first, from the end
    following[as_size(from.guesses[i].parent + 1)].push_back(static_cast<std::int32_t>(i));
  std::vector<std::int32_t> open = following[0];
  while (!open.empty()) {
    const auto i = as_size(open.back());
    open.pop_back();
    const auto& guess = from.guesses[i];
    const auto parent = guess.parent < 0 ? -1 : places[as_size(guess.parent)];
    places[i] = static_cast<std::int32_t>(run.tokens.size());
    one_line = one_line && parent == places[i] - 1;
    run.tokens.push_back(guess.token);
    run.parents.push_back(parent);
    run.predicted = run.predicted && guess.predicted;
    open.insert(open.end(), following[i + 1].begin(), following[i + 1].end());
  }
  if (one_line)
    run.parents.clear();
  return run;
}

std::vector<reached_guess> reached(const ranked_guesses& from, std::span<const token_id> came) {
  std::vector<reached_guess> all;
  std::int32_t before = -1;
  for (const auto token : came) {
    std::int32_t right = -1;
    for (auto i = before + 1; i < std::ssize(from.guesses); ++i) {
      const auto& guess = from.guesses[as_size(i)];
      if (guess.parent != before)
        continue;
      all.push_back({guess.grade, guess.token == token});
      if (guess.token == token)
        right = i;
    }
    if (right < 0)
      break;
    before = right;
  }
  return all;
}

} // namespace troupe
