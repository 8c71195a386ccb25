#include "runtime/techniques/speculation/drafter.hpp"
#include "runtime/techniques/speculation/guess_offer.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <random>

using namespace troupe;

namespace {

double as_named(std::size_t grade) { return 0.1 * static_cast<double>(grade); }

} // namespace

TEST_CASE("offers: grades tell how far a guess is believed, and whether a likelier one is beside it") {
  CHECK(grade_of(0, false) == 0);
  CHECK(grade_of(1, false) == 7);
  CHECK(grade_of(0, true) == 8);
  CHECK(grade_of(1, true) == 15);
  for (std::size_t grade = 0; grade < drafter::grades; ++grade)
    CHECK(grade_of(confidence_of(grade), grade >= 8) == grade);
}

TEST_CASE("offers: the likeliest guesses are taken, and a line behind each other comes first") {
  // 0 ── 1 ── 2
  //  └── 3 ── 4     5: another first token
  const std::vector<offered_guess> offered{{10, -1, 6, true}, {11, 0, 5, true}, {12, 1, 9, true},
                                           {13, 0, 4, true},  {14, 3, 9, true}, {15, -1, 3, false}};
  const auto all = ranked(offered, as_named, 16, true);
  CHECK(std::ranges::is_sorted(all.chances, std::greater<>()));
  CHECK(all.chances[0] == doctest::Approx(0.6));
  CHECK(all.chances[1] == doctest::Approx(0.3)); // 0.6 * 0.5, and of the other first token
  auto run = in_lines(all, 100);
  CHECK(run.tokens == std::vector<token_id>{10, 11, 12, 13, 14, 15});
  CHECK(run.parents == std::vector<std::int32_t>{-1, 0, 1, 0, 3, -1});
  CHECK_FALSE(run.predicted);
  run = in_lines(all, 2);
  CHECK(run.tokens == std::vector<token_id>{10, 11});
  CHECK(run.parents.empty()); // one line
  CHECK(run.predicted);
  CHECK(in_lines(all, 0).tokens.empty());

  // What came is known of all, whatever was taken.
  const auto judged = reached(all, std::vector<token_id>{10, 13, 9});
  std::vector<std::pair<int, bool>> known;
  for (const auto& g : judged)
    known.emplace_back(g.grade, g.right);
  CHECK(known == std::vector<std::pair<int, bool>>{{6, true}, {3, false}, {5, false}, {4, true}, {9, false}});
  CHECK(reached(all, std::vector<token_id>{7, 11}).size() == 2);

  const auto line = ranked(offered, as_named, 16, false);
  CHECK(in_lines(line, 100).tokens == std::vector<token_id>{10, 11, 12});
  const auto shallow = ranked(offered, as_named, 2, true);
  CHECK(in_lines(shallow, 100).tokens == std::vector<token_id>{10, 11, 13, 15});
}

TEST_CASE(
  "offers: however they branch, a guess comes behind the one that it follows, and no more are taken than wanted") {
  std::mt19937 random(3);
  for (int round = 0; round < 300; ++round) {
    std::vector<offered_guess> offered;
    for (int i = 0; i < static_cast<int>(random() % 40); ++i)
      offered.push_back({static_cast<token_id>(i),
                         static_cast<std::int32_t>(random() % static_cast<unsigned>(i + 1)) - 1,
                         static_cast<std::uint8_t>(random() % 16)});
    const int most = 1 + static_cast<int>(random() % 6);
    const bool branches = random() % 4 > 0;
    const auto all = ranked(
      offered, [](std::size_t grade) { return (15.0 - grade) / 15; }, most, branches);
    CHECK(std::ranges::is_sorted(all.chances, std::greater<>()));
    const auto count = random() % 40;
    const auto run = in_lines(all, count);
    REQUIRE(run.tokens.size() == std::min(count, all.guesses.size()));
    if (!branches)
      CHECK(run.parents.empty());
    std::vector<int> depths;
    for (std::size_t i = 0; i < run.tokens.size(); ++i) {
      const auto parent = run.parents.empty() ? static_cast<std::int32_t>(i) - 1 : run.parents[i];
      REQUIRE(parent < static_cast<std::int32_t>(i));
      depths.push_back(parent < 0 ? 1 : depths[static_cast<std::size_t>(parent)] + 1);
      CHECK(depths.back() <= most);
      // It follows the token that it was offered behind.
      const auto before = offered[static_cast<std::size_t>(run.tokens[i])].parent;
      CHECK((parent < 0 ? before < 0 : run.tokens[static_cast<std::size_t>(parent)] == before));
    }
  }
}
