#include "runtime/techniques/speculation/lookahead_drafter.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <functional>

using namespace troupe;

namespace {

using ids = std::vector<token_id>;

/// A model whose next token depends on the last two.
token_id next_of(const ids& text) {
  const auto a = static_cast<std::uint64_t>(text[text.size() - 1]),
             b = static_cast<std::uint64_t>(text[text.size() - 2]);
  return static_cast<token_id>((a * 7 + b * 3 + 1) % 11);
}

struct lookahead_run {
  ids text;
  int steps = 0, accepted = 0, proposed = 0;
};

/// Generates `tokens` as the scheduler does: guesses are rows, the choices at all rows are observed.
lookahead_run generate(drafter& d, ids text, std::size_t tokens, std::size_t most,
                       const std::function<token_id(const ids&)>& model = next_of) {
  lookahead_run run;
  d.append(text);
  const auto end = text.size() + tokens;
  while (text.size() < end) {
    ids guesses;
    d.propose(most, guesses);
    REQUIRE(guesses.size() <= most);
    ids rows = text, choices{model(text)};
    for (const auto g : guesses) {
      rows.push_back(g);
      choices.push_back(model(rows));
    }
    std::size_t accepted = 0;
    while (accepted < guesses.size() && guesses[accepted] == choices[accepted])
      ++accepted;
    d.observe(choices);
    const auto gained = std::span(choices).first(accepted + 1);
    d.append(gained);
    text.insert(text.end(), gained.begin(), gained.end());
    ++run.steps;
    run.accepted += static_cast<int>(accepted);
    run.proposed += static_cast<int>(guesses.size());
  }
  run.text = std::move(text);
  return run;
}

} // namespace

TEST_CASE("lookahead: a text that repeats itself is soon guessed") {
  lookahead_drafter d;
  const auto run = generate(d, {1, 2}, 4000, 8);
  // The sequence of a model of finite state repeats itself sooner or later.
  CHECK(run.accepted > 1000);
  CHECK(run.steps + run.accepted == static_cast<int>(run.text.size()) - 2);
}

TEST_CASE("lookahead: corrections converge where tokens depend little on those before them (Jacobi)") {
  // Tokens are a function of their position: all guesses are right after one correction.
  lookahead_drafter d;
  const auto by_position = [](const ids& text) { return static_cast<token_id>(1000 + text.size()); };
  const auto run = generate(d, {1, 2, 3}, 200, 8, by_position);
  CHECK(run.steps < 60); // without guesses 200
}

TEST_CASE("lookahead: what the model chose behind a wrong guess becomes the next guess of that position") {
  lookahead_drafter d;
  d.append(ids{5, 6});
  ids guesses;
  d.propose(3, guesses);
  REQUIRE(guesses.size() == 3);
  const ids choices{50, 51, 52, 53};
  REQUIRE(guesses[0] != 50);
  d.observe(choices);
  d.append(ids{50});
  guesses.clear();
  d.propose(3, guesses);
  CHECK(guesses == ids{51, 52, 53});
}

TEST_CASE("lookahead: n-grams of corrections are proposed when their first token comes up") {
  lookahead_drafter d;
  d.append(ids{5, 6});
  ids guesses;
  d.propose(2, guesses);
  d.observe(ids{50, 51, 52}); // `guesses[0]` is followed by 51, `guesses[1]` by 52
  d.append(ids{50});
  ids second;
  d.propose(2, second); // 51, 52
  d.observe(ids{60, 61, 62});
  const auto first = guesses[0];
  d.append(ids{60});
  d.append(ids{first}); // not guessed
  CHECK(d.grade() == 1);
  ids third;
  d.propose(2, third);
  CHECK(third == ids{51, 61}); // 51 followed `first`, and then 61 followed 51
}

TEST_CASE("lookahead: rows that a step leaves out, and tokens without guesses, are no trouble") {
  lookahead_drafter d;
  ids guesses;
  d.propose(4, guesses);
  CHECK(guesses.empty()); // before the prompt
  d.append(ids{1});
  d.propose(8, guesses);
  REQUIRE(guesses.size() == 8);
  d.observe(ids{2, 3}); // of nine rows, two
  d.append(ids{2});
  guesses.clear();
  d.propose(1, guesses);
  CHECK(guesses == ids{3});
  d.append(ids{7, 8, 9});
  d.append(ids{});
  guesses.clear();
  d.propose(100, guesses);
  CHECK(guesses.size() == lookahead_drafter::window);
}

TEST_CASE("lookahead: the pool keeps a bounded number of n-grams, the newest") {
  ngram_pool pool(10);
  const auto after = [&](token_id last) {
    const auto found = pool.find(std::nullopt, last).tokens;
    return ids(found.begin(), found.end());
  };
  for (token_id t = 0; t < 1000; ++t) {
    pool.add(ids{t, t + 1});
    CHECK(pool.keys() <= 10);
  }
  CHECK(after(999) == ids{1000});
  CHECK(after(0).empty());
  pool.add(ids{999, 1000, 5});
  CHECK(after(999) == ids{1000, 5});
  pool.add(ids{999, 1000});
  CHECK(after(999) == ids{1000, 5}); // says the same, and more
  pool.add(ids{999, 7});
  CHECK(after(999) == ids{7});
  CHECK(pool.find(999, 1000).of_pair);
  CHECK(pool.find(999, 1000).tokens.front() == 5);
  CHECK_FALSE(pool.find(998, 999).of_pair);
}

TEST_CASE("jacobi: without a pool, the window's corrections alone are guessed") {
  lookahead_drafter pooled, plain(false);
  const auto with = generate(pooled, {1, 2}, 400, 8), without = generate(plain, {1, 2}, 400, 8);
  const auto common = std::min(with.text.size(), without.text.size());
  CHECK(std::equal(with.text.begin(), with.text.begin() + static_cast<std::ptrdiff_t>(common), without.text.begin()));
  CHECK(plain.grade() == 0);
  CHECK(pooled.grade() > 0);
  CHECK(without.accepted < with.accepted);
  // Where tokens hardly depend on those right before them, corrections behind a wrong guess are right.
  lookahead_drafter by_place(false);
  const auto run = generate(by_place, {1, 2}, 60, 8,
                            [](const ids& text) { return static_cast<token_id>(text.size() * 5 % 97); });
  CHECK(run.accepted > 40);
}
