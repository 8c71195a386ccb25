#include "runtime/techniques/speculation/lookahead_window.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <functional>

using namespace troupe;

namespace {

using tokens = std::vector<token_id>;

struct window_run {
  tokens text;
  int steps = 0, branched = 0;
};

/// Generates as the scheduler does: rows are a tree, the model's own choice picks the child that holds it.
window_run generate(const lookahead_shape& shape, tokens text, std::size_t count, std::size_t room,
                    const std::function<token_id(const tokens&)>& model) {
  lookahead_window d(shape);
  window_run run;
  d.append(text);
  const auto end = text.size() + count;
  while (text.size() < end) {
    tokens guesses;
    std::vector<std::int32_t> parents;
    const auto most = end - text.size();
    d.propose_tree(most, room, guesses, parents);
    REQUIRE(guesses.size() == parents.size());
    REQUIRE(guesses.size() <= room);
    std::vector<tokens> lines;
    tokens choices{model(text)};
    for (std::size_t i = 0; i < guesses.size(); ++i) {
      REQUIRE(parents[i] < static_cast<std::int32_t>(i));
      lines.push_back(parents[i] < 0 ? text : lines[static_cast<std::size_t>(parents[i])]);
      lines.back().push_back(guesses[i]);
      REQUIRE(lines.back().size() <= text.size() + most);
      choices.push_back(model(lines.back()));
    }
    tokens gained{choices[0]};
    std::int32_t after = -1;
    for (std::size_t i = 0; i < guesses.size(); ++i)
      if (parents[i] == after && guesses[i] == gained.back()) {
        run.branched += static_cast<std::int32_t>(i) != after + 1;
        after = static_cast<std::int32_t>(i);
        gained.push_back(choices[i + 1]);
      }
    d.observe_tree(choices);
    d.append(gained);
    text.insert(text.end(), gained.begin(), gained.end());
    ++run.steps;
  }
  run.text = std::move(text);
  return run;
}

} // namespace

TEST_CASE("lookahead as published: a shape is three numbers that give at most 60 rows") {
  CHECK(lookahead_shape_of("5,3,4") == lookahead_shape{5, 3, 4});
  CHECK(lookahead_shape_of("15,3,15")->rows() == 60);
  for (const char* wrong : {"", "5", "5,3", "0,3,5", "5,1,5", "5,9,1", "5,3,5,", "5,3,5x", " 5,3,5", "16,3,15",
                            "5,3,-1", "99999999999,3,1", "2147483647,2,2147483647"})
    CHECK_FALSE(lookahead_shape_of(wrong).has_value());
}

TEST_CASE("lookahead as published: a step has the window's levels and the n-grams that have followed the last token") {
  lookahead_window d({3, 3, 2});
  d.append(tokens{1, 2, 3, 9, 1, 4, 5, 9, 1});
  CHECK(d.grade() == 1);
  tokens guesses;
  std::vector<std::int32_t> parents;
  d.propose_tree(100, 100, guesses, parents);
  REQUIRE(guesses.size() == 10);
  // Two n-grams, the newest first; the window's line; what stands behind each of its places.
  CHECK(tokens(guesses.begin(), guesses.begin() + 4) == tokens{4, 5, 2, 3});
  CHECK(parents == std::vector<std::int32_t>{-1, 0, -1, 2, -1, 4, 5, 4, 5, 6});

  tokens line;
  d.propose(5, line);
  CHECK(line == tokens{4, 5});
}

TEST_CASE("lookahead as published: n-grams that begin alike share rows, and less room leaves the last ones out") {
  lookahead_window d({2, 4, 3});
  d.append(tokens{1, 2, 3, 4, 9, 1, 2, 3, 5, 9, 1});
  tokens guesses;
  std::vector<std::int32_t> parents;
  d.propose_tree(100, 5, guesses, parents);
  CHECK(tokens(guesses.begin(), guesses.begin() + 4) == tokens{2, 3, 5, 4});
  CHECK(parents == std::vector<std::int32_t>{-1, 0, 1, 1, -1});
  guesses.clear();
  parents.clear();
  d.propose_tree(2, 100, guesses, parents);
  CHECK(std::ranges::count(parents, -1) == 2);
  CHECK(guesses.size() == 5); // two of an n-gram, two of the window's line, one behind its first place
}

TEST_CASE("lookahead as published: the window's corrections become n-grams that prove right") {
  // Tokens are a function of their position: a correction is right wherever it was made.
  const auto by_position = [](const tokens& text) { return static_cast<token_id>(1000 + text.size()); };
  const auto run = generate({8, 4, 2}, {1, 2, 3}, 300, 60, by_position);
  for (std::size_t i = 3; i < run.text.size(); ++i)
    CHECK(run.text[i] == static_cast<token_id>(1000 + i));
  CHECK(run.steps < 120);
  // Where a token is followed by one of several, all that have followed it are tried.
  const auto by_pair = [](const tokens& text) {
    const auto a = static_cast<std::uint64_t>(text[text.size() - 1]),
               b = static_cast<std::uint64_t>(text[text.size() - 2]);
    return static_cast<token_id>((a * 7 + b * 3 + 1) % 5);
  };
  const auto repeated = generate({4, 3, 6}, {1, 2}, 2000, 60, by_pair);
  CHECK(repeated.steps < 1000);
  CHECK(repeated.branched > 20);
}
