#include "runtime/engine/best_of.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

using namespace troupe;

namespace {

sampling_params best_of_params(int n, int candidates, best_of_rank rank = best_of_rank::cumulative,
                               int max_tokens = 100) {
  sampling_params p;
  p.n = n;
  p.best_of = candidates;
  p.rank = rank;
  p.max_tokens = max_tokens;
  return p;
}

void finish_with(best_of& race, std::uint32_t candidate, const std::vector<float>& logprobs) {
  for (const float l : logprobs)
    race.add(candidate, l);
  race.finish(candidate);
}

std::vector<std::uint32_t> winners(const best_of& race) {
  std::vector<std::uint32_t> result;
  for (const auto& one : race.best())
    result.push_back(one.candidate);
  return result;
}

} // namespace

TEST_CASE("The best of several candidates have the highest sums, or means, of log-probabilities") {
  for (const auto rank : {best_of_rank::cumulative, best_of_rank::mean}) {
    best_of race(best_of_params(2, 3, rank));
    finish_with(race, 0, {-1, -1, -1});    // sum -3, mean -1
    finish_with(race, 1, {-2});            // -2, -2
    finish_with(race, 2, {-1.5f, -1.25f}); // -2.75, -1.375
    const auto best = race.best();
    REQUIRE(best.size() == 2);
    const bool mean = rank == best_of_rank::mean;
    CHECK(winners(race) == (mean ? std::vector<std::uint32_t>{0, 2} : std::vector<std::uint32_t>{1, 2}));
    CHECK(best[0].score == (mean ? -1 : -2));
    CHECK(best[0].cumulative_logprob == (mean ? -3 : -2));
    CHECK(best[1].score == (mean ? -1.375 : -2.75));
  }
}

TEST_CASE("Of equally good candidates the first win, whichever finishes first") {
  best_of race(best_of_params(2, 4));
  for (const std::uint32_t i : {3u, 1u, 2u, 0u})
    finish_with(race, i, {-1});
  CHECK(winners(race) == std::vector<std::uint32_t>{0, 1});
}

TEST_CASE("A candidate is hopeless once its sum is below those of n finished ones, not when it equals them") {
  best_of race(best_of_params(2, 4));
  race.add(3, -50);
  finish_with(race, 0, {-1, -1});
  CHECK_FALSE(race.hopeless(3)); // one more may win
  finish_with(race, 1, {-3});
  CHECK(race.hopeless(3));
  CHECK_FALSE(race.hopeless(0));
  race.add(2, -3);
  CHECK_FALSE(race.hopeless(2));
  race.add(2, -0.01f);
  CHECK(race.hopeless(2));
}

TEST_CASE("A candidate ranked by its mean is hopeless once certain tokens up to the limit could not save it") {
  best_of race(best_of_params(1, 2, best_of_rank::mean, 10));
  finish_with(race, 0, {-0.5f});
  race.add(1, -5);
  CHECK_FALSE(race.hopeless(1)); // nine more of log-probability 0 reach -0.5
  race.add(1, -0.01f);
  CHECK(race.hopeless(1));
}

TEST_CASE("Impossible and undefined log-probabilities rank last") {
  best_of race(best_of_params(3, 3, best_of_rank::mean));
  finish_with(race, 0, {-1, NAN});
  finish_with(race, 1, {-1, -INFINITY});
  finish_with(race, 2, {-1, -90});
  CHECK(winners(race) == std::vector<std::uint32_t>{2, 0, 1});
  CHECK(race.best()[1].score == -INFINITY);
}

TEST_CASE("The winners do not depend on the order in which tokens arrive, nor on candidates given up") {
  std::mt19937 random(3);
  int given_up = 0;
  for (int round = 0; round < 400; ++round) {
    const auto rank = round % 2 ? best_of_rank::mean : best_of_rank::cumulative;
    const int candidates = 2 + static_cast<int>(random() % 6), n = 1 + static_cast<int>(random() % 3);
    if (n >= candidates)
      continue;
    const auto params = best_of_params(n, candidates, rank, 8);
    std::vector<std::vector<float>> tokens(static_cast<std::size_t>(candidates));
    for (auto& one : tokens)
      for (auto count = 1 + random() % 8; count > 0; --count)
        one.push_back(-static_cast<float>(random() % 8) / 4); // coarse, so that there are ties
    best_of all(params);
    for (std::uint32_t i = 0; i < tokens.size(); ++i)
      finish_with(all, i, tokens[i]);
    for (int order = 0; order < 5; ++order) {
      best_of race(params);
      std::vector<std::size_t> at(tokens.size(), 0);
      std::vector<std::uint32_t> running(tokens.size());
      std::iota(running.begin(), running.end(), 0);
      while (!running.empty()) {
        const auto which = static_cast<std::ptrdiff_t>(random() % running.size());
        const auto i = running[static_cast<std::size_t>(which)];
        const auto drop = [&] { running.erase(running.begin() + which); };
        if (race.hopeless(i)) {
          ++given_up;
          drop();
          continue;
        }
        race.add(i, tokens[i][at[i]++]);
        if (at[i] == tokens[i].size()) {
          race.finish(i);
          drop();
        }
      }
      const auto expected = all.best(), got = race.best();
      REQUIRE(got.size() == expected.size());
      for (std::size_t i = 0; i < got.size(); ++i) {
        CHECK(got[i].candidate == expected[i].candidate);
        CHECK(got[i].score == expected[i].score);
      }
    }
  }
  CHECK(given_up > 100);
}
