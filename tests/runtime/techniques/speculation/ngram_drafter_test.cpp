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

std::vector<offered_guess> offer_of(drafter& d, std::size_t most, std::size_t room) {
  std::vector<offered_guess> guesses;
  d.offer(most, room, guesses);
  return guesses;
}

/// Tokens of the longest earlier occurrence of the last ones.
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
  CHECK(proposal_of(d, 3) == ids{5, 6, 9}); // after "2 3 4"; "3 4" alone would be followed by 8
  d.append(ids{5});
  CHECK(proposal_of(d, 2) == ids{6, 9});
  d.append(ids{7});
  CHECK_FALSE(d.ready());
  CHECK(proposal_of(d, 4).empty());
}

TEST_CASE("n-grams: what has followed the last tokens is guessed side by side, the most frequent first") {
  ngram_drafter d({}, 100);
  d.append(ids{9, 1, 2, 5, 9, 1, 2, 6, 9, 1, 2, 5, 9, 1, 2, 7, 4, 4, 3, 1, 2});
  const auto offered = offer_of(d, 2, 16);
  ids first;
  for (const auto& g : offered)
    if (g.parent < 0)
      first.push_back(g.token);
  CHECK(first == ids{5, 7, 6}); // of those that came once, the last one first
  CHECK(offered[0].token == 5);
  CHECK(offered[0].grade < 8);
  for (const auto& g : offered) {
    if (g.parent < 0 && g.token != 5)
      CHECK(g.grade >= 8);
    if (g.parent >= 0 && offered[static_cast<std::size_t>(g.parent)].token == 7)
      CHECK(g.token == 4);
    CHECK(
      (g.parent < 0 || offered[static_cast<std::size_t>(g.parent)].parent < 0)); // no more than two behind each other
  }
  CHECK(offer_of(d, 8, 3).size() == 3);
  CHECK(offer_of(d, 8, 0).empty());
}

TEST_CASE("n-grams: a repetition is guessed to go on beyond the end of the text") {
  ngram_drafter d({}, 100);
  d.append(ids{9, 1, 2, 3, 1, 2, 3, 1, 2});
  CHECK(proposal_of(d, 7) == ids{3, 1, 2, 3, 1, 2, 3});
}

TEST_CASE("n-grams: guesses behind long matches are of a higher grade") {
  ids text;
  for (token_id t = 0; t < 40; ++t)
    text.push_back(t);
  ngram_drafter d({}, 200);
  d.append(text);
  d.append(ids{100, 5, 6});
  auto grade = offer_of(d, 1, 1)[0].grade;
  const auto first = grade;
  for (token_id t = 7; t < 30; ++t) {
    CHECK(proposal_of(d, 2) == ids{t, t + 1});
    CHECK(offer_of(d, 1, 1)[0].grade >= grade);
    grade = offer_of(d, 1, 1)[0].grade;
    d.append(ids{t});
  }
  CHECK(grade == grade_of(1, false));
  CHECK(grade > first);
  d.append(ids{5});
  CHECK(offer_of(d, 1, 1)[0].grade < first);
}

TEST_CASE("n-grams: a prediction is guessed from its start, and found again behind a change") {
  const ids prediction{10, 11, 12, 13, 14, 15, 16};
  ngram_drafter d(prediction, 100);
  d.append(ids{1, 2, 3});
  CHECK(proposal_of(d, 4) == ids{10, 11, 12, 13});
  CHECK(offer_of(d, 1, 1)[0].grade == grade_of(1, false));
  CHECK(offer_of(d, 1, 1)[0].predicted);
  d.append(ids{10, 11});
  CHECK(proposal_of(d, 2) == ids{12, 13});
  d.append(ids{50}); // instead of 12
  CHECK_FALSE(d.ready());
  d.append(ids{13});
  CHECK(offer_of(d, 1, 1)[0].predicted);
  d.append(ids{14});
  CHECK(proposal_of(d, 9) == ids{15, 16}); // its end is the end of the guesses
  d.append(ids{15, 16});
  CHECK(proposal_of(d, 1).empty());
  d.append(ids{1, 2});
  CHECK(proposal_of(d, 2) == ids{3, 10}); // as in the sequence
  CHECK_FALSE(offer_of(d, 1, 1)[0].predicted);
}

TEST_CASE("n-grams: whatever occurred before is found, and guesses have followed their contexts") {
  std::mt19937 random(1);
  for (int round = 0; round < 10; ++round) {
    ngram_drafter d({}, 400);
    ids text;
    for (int i = 0; i < 400; ++i) {
      text.push_back(static_cast<token_id>(random() % 12));
      d.append(std::span(text).last(1));
      CHECK(d.ready() == (longest_earlier_match(text) >= 1));
      for (const auto& g : offer_of(d, 3, 8)) {
        const auto before = g.parent < 0 ? text.back() : offer_of(d, 3, 8)[static_cast<std::size_t>(g.parent)].token;
        bool justified = false;
        for (std::size_t behind = 1; behind < text.size(); ++behind)
          justified = justified || (text[behind] == g.token && text[behind - 1] == before);
        CHECK(justified);
      }
    }
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
  CHECK(proposal_of(together, 8) == proposal_of(apart, 8));
}

TEST_CASE("n-grams: of a text that is too long for its memory, the last part is looked through") {
  ngram_drafter d(ids(500, 3), 100, 64);
  ids text;
  for (token_id t = 100; t < 400; ++t)
    text.push_back(t);
  d.append(text);
  d.append(ids{395, 396});
  CHECK(proposal_of(d, 2) == ids{397, 398});
  for (token_id t = 1000; t < 3000; ++t)
    d.append(ids{t});
  CHECK_FALSE(d.ready());
  d.append(ids{2995});
  CHECK(proposal_of(d, 2) == ids{2996, 2997});
  d.append(ids{5, 3});
  CHECK(offer_of(d, 1, 1)[0].predicted); // of which a part is kept
  CHECK(d.memory() < 100'000);
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
    CHECK(d.memory() < 8'000'000);
    return static_cast<double>(best.count()) / 500;
  };
  const auto in_short = nanoseconds_per_token(2'000), in_long = nanoseconds_per_token(300'000);
  CAPTURE(in_short);
  CHECK(in_long < 8 * in_short + 2000); // a search would take 150 times as long
}
