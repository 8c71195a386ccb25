#include "runtime/sampling/logits_processors.hpp"
#include "runtime/sampling/vector_passes.hpp"
#include "runtime/support/error.hpp"
#include "runtime/support/json/json.hpp"
#include "tests/rounds.hpp"
#include "tests/test_data.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <limits>
#include <random>
#include <set>
#include <vector>

using namespace troupe;

namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();

template <class T>
std::vector<T> numbers(json::value array) {
  std::vector<T> result;
  for (json::value item : array.get_array())
    result.push_back(item.is_null() ? static_cast<T>(-infinity) : static_cast<T>(item.get_double().value()));
  return result;
}

template <class Filter>
std::vector<float> filtered(const std::vector<float>& logits, Filter filter) {
  candidates tokens;
  tokens.reset(logits);
  filter(tokens);
  tokens.narrow(-infinity);
  std::vector<float> result(logits.size(), -infinity);
  for (std::size_t i = 0; i < tokens.size(); ++i)
    result[tokens.ids()[i]] = tokens.logits()[i];
  return result;
}

std::vector<float> processed(json::value test, std::vector<float> logits, const std::vector<token_id>& history) {
  const auto op = std::string(test["op"].get_string().value());
  const auto value = static_cast<float>(test[op].get_double().value());
  if (op == "temperature")
    apply_temperature(logits, value, logits);
  else if (op == "top_k")
    return filtered(logits, [&](candidates& c) { keep_top_k(c, static_cast<int>(value)); });
  else if (op == "top_p")
    return filtered(logits, [&](candidates& c) { keep_top_p(c, value); });
  else if (op == "min_p")
    return filtered(logits, [&](candidates& c) { keep_min_p(c, value); });
  else if (op == "repetition_penalty") {
    token_counts counts;
    counts.add_prompt(history);
    penalise_repetition(logits, counts, value);
  } else
    FAIL("unknown op " << op);
  return logits;
}

std::vector<token_id> kept_ids(const std::vector<float>& logits) {
  std::vector<token_id> ids;
  for (std::size_t i = 0; i < logits.size(); ++i)
    if (logits[i] > -infinity)
      ids.push_back(static_cast<token_id>(i));
  return ids;
}

/// What top-p keeps.
std::vector<token_id> by_sorting(const std::vector<float>& row, float factor, float p) {
  std::vector<std::pair<float, token_id>> order; // negated logit, id
  for (std::size_t i = 0; i < row.size(); ++i)
    if (!std::isnan(row[i]))
      order.emplace_back(-(row[i] * factor), static_cast<token_id>(i));
  std::ranges::sort(order);
  const float max = -order.front().first;
  std::uint64_t total = 0, before = 0;
  for (const auto& [negated, id] : order)
    total += sampling::weight(-negated, max);
  std::vector<token_id> expected;
  for (std::size_t i = 0; before < share_of(total, p); ++i) {
    expected.push_back(order[i].second);
    before += sampling::weight(-order[i].first, max);
  }
  std::ranges::sort(expected);
  return expected;
}

} // namespace

TEST_CASE("every processor matches transformers on the golden checkpoints") {
  int checked = 0;
  for (const auto& folder : std::filesystem::directory_iterator(std::filesystem::path(test_data()) / "golden")) {
    if (!folder.is_directory())
      continue;
    const auto file = json::document::load(folder.path() / "expected.json");
    const json::value processing = file.root()["processing"];
    const auto input = numbers<float>(processing["input"]);
    const auto history = numbers<token_id>(processing["history"]);
    for (json::value test : processing["expected"].get_array()) {
      CAPTURE(folder.path().filename().string());
      CAPTURE(simdjson::minify(test["op"].value()));
      const auto expected = numbers<float>(test["logits"]);
      const auto actual = processed(test, input, history);
      REQUIRE(actual.size() == expected.size());
      for (std::size_t i = 0; i < expected.size(); ++i) {
        CAPTURE(i);
        if (expected[i] == -infinity)
          CHECK(actual[i] == -infinity);
        else
          CHECK(std::abs(actual[i] - expected[i]) <= 1e-5f);
      }
      ++checked;
    }
  }
  CHECK(checked >= 6 * 13);
}

TEST_CASE("top-k keeps all tokens that are equal to the k-th") {
  const std::vector<float> logits{1, 3, 2, 2, 2, 0};
  CHECK(kept_ids(filtered(logits, [](candidates& c) { keep_top_k(c, 2); })) == std::vector<token_id>{1, 2, 3, 4});
  CHECK(kept_ids(filtered(logits, [](candidates& c) { keep_top_k(c, 1); })) == std::vector<token_id>{1});
  CHECK(kept_ids(filtered(logits, [](candidates& c) { keep_top_k(c, 0); })).size() == 6);
  CHECK(kept_ids(filtered(logits, [](candidates& c) { keep_top_k(c, 99); })).size() == 6);
}

TEST_CASE("top-p keeps the smallest set that reaches p, the lowest ids among equals, and never nothing") {
  const std::vector<float> equal(1000, 0.5f);
  CHECK(kept_ids(filtered(equal, [](candidates& c) { keep_top_p(c, 0.25f); })).size() == 250);
  CHECK(kept_ids(filtered(equal, [](candidates& c) { keep_top_p(c, 0.25f); })).back() == 249);
  CHECK(kept_ids(filtered(equal, [](candidates& c) { keep_top_p(c, 0.f); })) == std::vector<token_id>{0});
  const std::vector<float> halves{std::log(.25f), std::log(.5f), std::log(.125f), std::log(.125f)};
  CHECK(kept_ids(filtered(halves, [](candidates& c) { keep_top_p(c, 0.49f); })) == std::vector<token_id>{1});
  CHECK(kept_ids(filtered(halves, [](candidates& c) { keep_top_p(c, 0.51f); })) == std::vector<token_id>{0, 1});
  CHECK(kept_ids(filtered(halves, [](candidates& c) { keep_top_p(c, 0.76f); })) == std::vector<token_id>{0, 1, 2});
}

TEST_CASE("top-p over rows of 150k tokens, with ties, keeps what sorting all of them keeps") {
  std::mt19937 random(11);
  const int vocab = rounds(151936);
  for (int round = 0; round < 9; ++round) {
    const float spread = std::array{0.1f, 1.f, 3.f}[static_cast<std::size_t>(round % 3)];
    std::normal_distribution<float> normal(0, spread);
    std::vector<float> row(static_cast<std::size_t>(vocab));
    for (auto& x : row) {
      x = normal(random);
      if (round % 2 == 0)
        x = std::round(x * 8) / 8; // thousands of equal ones, also at the edge
      if (random() % 512 == 0)
        x = random() % 2 ? -infinity : std::numeric_limits<float>::quiet_NaN();
    }
    for (int likely = 0; likely < 20 * (round / 3); ++likely)
      row[random() % row.size()] += 4 * spread;
    const float p = std::array{0.3f, 0.9f, 0.95f, 0.999f}[static_cast<std::size_t>(round % 4)];
    const float factor = round % 2 ? 1 / 0.7f : 1;
    CAPTURE(round);

    candidates tokens;
    tokens.reset(row, factor);
    keep_top_p(tokens, p);
    CHECK(std::ranges::equal(tokens.ids(), by_sorting(row, factor, p)));
    for (std::size_t i = 0; i < tokens.size(); ++i)
      REQUIRE(tokens.logits()[i] == row[static_cast<std::size_t>(tokens.ids()[i])] * factor);
  }
}

TEST_CASE("top-p is exact where thousands of tokens that weigh next to nothing decide which is the last to stay") {
  constexpr int vocab = 60'000;
  int ends = 0; // of p, at which one token more stays
  for (int round = 0; round < rounds(12); ++round) {
    std::vector<float> row(static_cast<std::size_t>(vocab), 3 - 22.1f - 0.2f * static_cast<float>(round % 4));
    for (std::size_t i = 0; i < 60; ++i)
      row[i * 7] = 3 - (round < 6 ? 0 : 0.01f * static_cast<float>(i)); // equal ones, or not
    const std::uint64_t one = sampling::weight(0, 0), light = sampling::weight(row[1], 3);
    const double likely = 60. * static_cast<double>(one),
                 rest = static_cast<double>(vocab) * static_cast<double>(light);
    std::size_t before = 0;
    for (int step = -4; step <= 4; ++step) { // about the edge of 20 tokens
      const auto p = static_cast<float>(20. * static_cast<double>(one) / (likely + rest * (1 + 0.25 * step)));
      CAPTURE(round);
      CAPTURE(step);
      candidates tokens;
      tokens.reset(row);
      keep_top_p(tokens, p);
      REQUIRE(std::ranges::equal(tokens.ids(), by_sorting(row, 1, p)));
      ends += before > 0 && tokens.size() != before;
      before = tokens.size();
    }
  }
  CHECK(ends > 0);
}

TEST_CASE("a factor is what scaling the row would be: its maximum, choice, infinities and draws") {
  std::mt19937 random(5);
  std::normal_distribution<float> normal(0, 4);
  for (int round = 0; round < 40; ++round) {
    std::vector<float> row(1 + random() % 700);
    for (auto& x : row)
      x = random() % 64 == 0 ? (random() % 2 ? -infinity : std::numeric_limits<float>::quiet_NaN()) : normal(random);
    row[random() % row.size()] = round % 8 == 0 ? infinity : round % 8 == 1 ? 3e38f : 5.f;
    const float factor = round % 3 ? 1 / 0.37f : 1e5f;
    std::vector<float> scaled(row.size());
    for (std::size_t i = 0; i < row.size(); ++i)
      scaled[i] = row[i] * factor;
    candidates a, b;
    a.reset(row, factor);
    b.reset(scaled);
    CHECK(a.max() == b.max());
    CHECK(a.likeliest() == b.likeliest());
    CHECK(a.total_weight() == b.total_weight());
    const auto bits = (std::uint64_t{random()} << 32) | random();
    CHECK(a.sample(bits) == b.sample(bits));
    CHECK(a.kth_largest(3) == b.kth_largest(3));
    CHECK(std::ranges::equal(a.ids(), b.ids()));
  }
}

TEST_CASE("top-p among the survivors of top-k counts their probabilities alone") {
  const std::vector<float> logits{std::log(.4f), std::log(.3f), std::log(.2f), std::log(.1f)};
  const auto both = filtered(logits, [](candidates& c) {
    keep_top_k(c, 2); // leaves 4/7 and 3/7
    keep_top_p(c, 0.55f);
  });
  CHECK(kept_ids(both) == std::vector<token_id>{0});
  CHECK(kept_ids(filtered(logits, [](candidates& c) { keep_top_p(c, 0.55f); })) == std::vector<token_id>{0, 1});
}

TEST_CASE("min-p is relative to the likeliest token") {
  const std::vector<float> logits{0, -1, -2, -3};
  CHECK(kept_ids(filtered(logits, [](candidates& c) { keep_min_p(c, 0.3f); })) == std::vector<token_id>{0, 1});
  CHECK(kept_ids(filtered(logits, [](candidates& c) { keep_min_p(c, 1.f); })) == std::vector<token_id>{0});
  CHECK(kept_ids(filtered(logits, [](candidates& c) { keep_min_p(c, 0.f); })).size() == 4);
}

TEST_CASE("repetition penalty touches a token once, presence and frequency count generated tokens only") {
  token_counts counts;
  counts.add_prompt(std::vector<token_id>{1, 1, 2});
  counts.add_generated(2);
  counts.add_generated(3);
  counts.add_generated(3);
  std::vector<float> logits{1, 2, -2, 4};
  penalise_repetition(logits, counts, 2);
  CHECK(logits == std::vector<float>{1, 1, -4, 2});
  penalise_presence(logits, counts, 0.5f, 0.25f);
  CHECK(logits == std::vector<float>{1, 1, -4.75f, 1});
}

TEST_CASE("edits ignore ids outside the row") {
  std::vector<float> logits{1, 2};
  token_counts counts;
  counts.add_prompt(std::vector<token_id>{-1, 2, 1 << 30});
  penalise_repetition(logits, counts, 2);
  mask(logits, std::vector<token_id>{-5, 7});
  add_bias(logits, std::vector<std::pair<token_id, float>>{{2, 1.f}, {-1, 1.f}});
  CHECK(logits == std::vector<float>{1, 2});
}

TEST_CASE("logits without a finite maximum are refused, odd ones among others are handled") {
  candidates tokens;
  const float nan = std::numeric_limits<float>::quiet_NaN();
  CHECK_THROWS_AS(tokens.reset({}), failure);
  CHECK_THROWS_AS(tokens.reset(std::vector<float>(300, nan)), failure);
  CHECK_THROWS_AS(tokens.reset(std::vector<float>(300, -infinity)), failure);
  for (const float odd : {nan, -nan, -infinity}) {
    std::vector<float> logits(300, odd);
    logits[200] = -1e30f;
    tokens.reset(logits);
    CHECK(tokens.likeliest() == 200);
    CHECK(tokens.sample(~std::uint64_t{0}) == 200);
    keep_top_k(tokens, 5);
    keep_top_p(tokens, 0.5f);
    keep_min_p(tokens, 0.5f);
    CHECK(tokens.size() == 1);
    CHECK(tokens.sample(0) == 200);
  }
  std::vector<float> logits(300, 1e30f);
  logits[7] = logits[250] = infinity;
  tokens.reset(logits);
  CHECK(tokens.likeliest() == 7);
  CHECK(tokens.sample(0) == 7);
  CHECK(tokens.sample(~std::uint64_t{0}) == 250);
}
