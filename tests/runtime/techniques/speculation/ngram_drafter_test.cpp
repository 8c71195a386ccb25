#include "runtime/techniques/speculation/ngram_drafter.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <random>

using namespace troupe;

namespace {

using ids = std::vector<token_id>;

ids proposal_of(drafter& d, std::size_t most) {
  ids guesses;
  d.propose(most, guesses);
  return guesses;
}

/// The guess of a plain search: what follows the longest earlier occurrence of the last tokens, of at least two.
std::size_t longest_earlier_match(const ids& text) {
  std::size_t longest = 0;
  for (std::size_t behind = 1; behind < text.size(); ++behind) {
    std::size_t n = 0;
    while (n < behind && text[behind - 1 - n] == text[text.size() - 1 - n])
      ++n;
    longest = std::max(longest, n);
  }
  return longest;
}

} // namespace

TEST_CASE("n-grams: the text is guessed to go on as it did after the longest earlier match") {
  ngram_drafter d({}, 100);
  CHECK_FALSE(d.ready());
  d.append(ids{1, 2, 3, 4, 5, 6, 9, 3, 4, 8, 8, 2, 3, 4});
  REQUIRE(d.ready());
  CHECK(proposal_of(d, 3) == ids{8, 8, 2}); // after the last "3 4", which is looked up before longer matches are known
  d.append(ids{5});
  CHECK(proposal_of(d, 2) == ids{6, 9});
  d.append(ids{7});
  CHECK_FALSE(d.ready());
  CHECK(proposal_of(d, 4).empty());
}

TEST_CASE("n-grams: a repetition is guessed to go on beyond the end of the text") {
  ngram_drafter d({}, 100);
  d.append(ids{9, 1, 2, 3, 1, 2, 3, 1, 2});
  CHECK(proposal_of(d, 7) == ids{3, 1, 2, 3, 1, 2, 3});
}

TEST_CASE("n-grams: long matches are of a higher grade, and a source that is right is kept") {
  ids text;
  for (token_id t = 0; t < 40; ++t)
    text.push_back(t);
  ngram_drafter d({}, 200);
  d.append(text);
  d.append(ids{100, 5, 6});
  CHECK(d.grade() == 0);
  std::size_t grade = 0;
  for (token_id t = 7; t < 30; ++t) {
    CHECK(proposal_of(d, 2) == ids{t, t + 1});
    CHECK(d.grade() >= grade);
    grade = d.grade();
    d.append(ids{t});
  }
  CHECK(grade == 3);
  d.append(ids{200});
  CHECK(d.grade() == 0);
}

TEST_CASE("n-grams: a prediction is guessed from its start, and found again behind a change") {
  const ids prediction{10, 11, 12, 13, 14, 15, 16};
  ngram_drafter d(prediction, 100);
  d.append(ids{1, 2, 3});
  CHECK(proposal_of(d, 4) == ids{10, 11, 12, 13});
  CHECK(d.grade() == 3);
  CHECK(d.predicts());
  d.append(ids{10, 11});
  CHECK(proposal_of(d, 2) == ids{12, 13});
  d.append(ids{50}); // instead of 12
  CHECK_FALSE(d.ready());
  d.append(ids{13});
  CHECK_FALSE(d.ready());
  d.append(ids{14});
  CHECK(proposal_of(d, 9) == ids{15, 16}); // its end is the end of the guesses
  d.append(ids{15, 16});
  CHECK_FALSE(d.ready());
  CHECK_FALSE(d.predicts());
  d.append(ids{1, 2});
  CHECK(proposal_of(d, 2) == ids{3, 10}); // as in the sequence
  CHECK_FALSE(d.predicts());
}

TEST_CASE("n-grams: the last match is found wherever it is, as a search through the whole text finds it") {
  std::mt19937 random(1);
  for (int round = 0; round < 20; ++round) {
    ngram_drafter d({}, 600);
    ids text;
    int found = 0, lost = 0;
    for (int i = 0; i < 600; ++i) {
      text.push_back(static_cast<token_id>(random() % 12));
      d.append(std::span(text).last(1));
      const auto longest = longest_earlier_match(text);
      if (d.ready() != (longest >= 2)) {
        CHECK(longest >= 2); // a full bucket lost it
        ++lost;
      }
      found += d.ready();
      if (!d.ready())
        continue;
      ids guess = proposal_of(d, 1);
      REQUIRE(guess.size() == 1);
      // A guess follows an earlier occurrence of at least the last two tokens.
      bool justified = false;
      for (std::size_t behind = 2; behind < text.size(); ++behind)
        justified = justified ||
          (text[behind] == guess[0] && text[behind - 1] == text[text.size() - 1] &&
           text[behind - 2] == text[text.size() - 2]);
      CHECK(justified);
    }
    CHECK(found > 300);
    CHECK(lost < 10);
  }
}

TEST_CASE("n-grams: tokens appended together or one by one give the same guesses") {
  std::mt19937 random(2);
  ids text(500);
  for (auto& t : text)
    t = static_cast<token_id>(random() % 5);
  ngram_drafter together({}, 500), apart({}, 500);
  together.append(std::span(text).first(100));
  together.append(std::span(text).subspan(100));
  apart.append(std::span(text).first(100));
  for (std::size_t i = 100; i < text.size(); ++i)
    apart.append(std::span(text).subspan(i, 1));
  // A source followed since long may differ, but both match the text that they have in common.
  CHECK(together.ready());
  CHECK(apart.ready());
  CHECK(apart.grade() >= together.grade() - std::min<std::size_t>(together.grade(), 1));
}

TEST_CASE("n-grams: appending and proposing are in linear time, and memory is bounded") {
  using clock = std::chrono::steady_clock;
  // A text full of matches, the worst case for searches.
  const auto nanoseconds_per_token = [](std::size_t before) {
    std::mt19937 random(3);
    ngram_drafter d({}, 400'000);
    ids prompt(before);
    for (auto& t : prompt)
      t = static_cast<token_id>(random() % 3);
    d.append(prompt);
    auto best = std::chrono::nanoseconds::max();
    ids guesses;
    for (int round = 0; round < 20; ++round) {
      const auto start = clock::now();
      for (int i = 0; i < 500; ++i) {
        guesses.clear();
        d.propose(8, guesses);
        d.append(ids{static_cast<token_id>(random() % 3)});
      }
      best = std::min(best, std::chrono::nanoseconds(clock::now() - start));
    }
    CHECK(d.memory() < 10'000'000);
    return static_cast<double>(best.count()) / 500;
  };
  const auto in_short = nanoseconds_per_token(2'000), in_long = nanoseconds_per_token(300'000);
  CAPTURE(in_short);
  CHECK(in_long < 8 * in_short + 2000); // a search would take 150 times as long
}
