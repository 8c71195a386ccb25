#include "runtime/techniques/watermark/detector.hpp"
#include "runtime/techniques/watermark/marker.hpp"
#include "runtime/techniques/watermark/technique.hpp"

#include "runtime/sampling/sampler.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <random>
#include <set>

namespace troupe::watermarks {

namespace {

constexpr token_id marked_vocab = 400;

std::vector<options> every_mark() {
  std::vector<options> all;
  for (const auto what : {kind::green, kind::gumbel})
    for (const auto context : {context_kind::sequence, context_kind::sum, context_kind::min, context_kind::self})
      for (const int width : {1, 3})
        if (what == kind::green || context != context_kind::self)
          all.push_back({what, context, width, .25f, 3, key_of("secret")});
  return all;
}

/// A model whose every row is drawn anew.
std::vector<float> row_of_marked(std::mt19937& random) {
  std::normal_distribution<float> normal(0, 1);
  std::vector<float> logits(marked_vocab);
  for (auto& x : logits)
    x = normal(random);
  return logits;
}

std::vector<token_id> text_of(const std::optional<options>& mark, int tokens, unsigned seed) {
  std::mt19937 random(seed);
  sampling_params p{.seed = seed, .max_tokens = 10000};
  p.techniques.set(marked_by(mark ? std::make_shared<options>(*mark) : nullptr));
  sequence_sampler sampler(std::make_shared<const sampling_params>(p), {}, std::vector<token_id>{1, 2}, {}, 0);
  sampling_scratch scratch;
  std::vector<token_id> ids;
  while (static_cast<int>(ids.size()) < tokens)
    ids.push_back(sampler.sample(row_of_marked(random), scratch).id);
  return ids;
}

} // namespace

TEST_CASE("SipHash gives the known answers of its inventors") {
  const hash_key key{0x0706050403020100, 0x0f0e0d0c0b0a0908};
  std::vector<std::uint8_t> bytes(15);
  std::iota(bytes.begin(), bytes.end(), std::uint8_t{0});
  CHECK(siphash(key, bytes) == 0xa129ca6149be45e5);
  CHECK(siphash(key, {}) == 0x726fdb47dd0e0e31);
  CHECK(siphash(key, std::span(bytes).first(8)) == 0x93f5f5799a932462);
}

TEST_CASE("green lists are those that the passes over a row favour, of the share gamma") {
  std::mt19937 random(1);
  for (auto mark : every_mark()) {
    mark.what = kind::green;
    std::size_t green = 0, all = 0;
    for (int round = 0; round < 40; ++round) {
      std::vector<token_id> context(static_cast<std::size_t>(mark.width));
      for (auto& id : context)
        id = static_cast<token_id>(random() % 1000);
      const place here(mark, context);
      std::vector<float> logits(777, 1.f);
      here.favour_green(logits);
      for (std::size_t i = 0; i < logits.size(); ++i) {
        const bool is_green = here.value(static_cast<token_id>(i)) < green_limit(mark.gamma);
        REQUIRE(logits[i] == (is_green ? 4.f : 1.f));
        green += is_green;
        ++all;
      }
    }
    // 4.5 standard deviations of the binomial; the lists of `min` and `self` are not all independent
    const auto n = static_cast<double>(all);
    CHECK(std::abs(static_cast<double>(green) - n / 4) < 4.5 * std::sqrt(n * 3 / 16) * 2);
  }
}

TEST_CASE("uniform values are uniform, and other keys give others") {
  const options one{kind::gumbel, context_kind::sequence, 2, .25f, 2, key_of("a")};
  auto other = one;
  other.key = key_of("b");
  const std::vector<token_id> context{5, 6};
  const place a(one, context), b(other, context);
  std::vector<double> values;
  double product = 0;
  for (token_id id = 0; id < 20000; ++id) {
    values.push_back(a.uniform(id));
    product += (a.uniform(id) - .5) * (b.uniform(id) - .5);
  }
  CHECK(std::abs(product / 20000 * 12) < 0.03); // the correlation
  std::sort(values.begin(), values.end());
  double furthest = 0; // Kolmogorov-Smirnov
  for (std::size_t i = 0; i < values.size(); ++i)
    furthest = std::max(furthest, std::abs(values[i] - (static_cast<double>(i) + .5) / 20000));
  CHECK(furthest < 1.95 / std::sqrt(20000)); // p = 0.001
}

TEST_CASE("marked texts are found with the key, unmarked ones and those of other keys are not") {
  for (const auto& mark : every_mark()) {
    CAPTURE(static_cast<int>(mark.what));
    CAPTURE(static_cast<int>(mark.context));
    CAPTURE(mark.width);
    const auto marked = text_of(mark, 120, 3), plain = text_of(std::nullopt, 120, 3);
    const auto found = detect(mark, marked);
    CHECK(found.tokens >= 50); // the least hash of several repeats itself
    CHECK(found.tokens <= 120u - static_cast<std::size_t>(mark.width));
    CHECK(found.p < 1e-6);
    CHECK(found.z > 4);
    CHECK(detect(mark, plain).p > 1e-3);
    auto wrong = mark;
    wrong.key = key_of("other");
    CHECK(detect(wrong, marked).p > 1e-3);
    // Found in the middle of another text too.
    auto mixed = plain;
    mixed.insert(mixed.begin() + 60, marked.begin(), marked.end());
    CHECK(detect(mark, mixed).p < 1e-3);
  }
}

TEST_CASE("p is how often an unmarked text has as high a score, also of texts that repeat themselves") {
  // Keys rather than texts are random: no text may be more suspicious than another.
  std::vector<token_id> repeating;
  for (int i = 0; i < 300; ++i)
    repeating.push_back(static_cast<token_id>(i % 3 == 0 ? 1 : i % 50));
  for (auto mark : every_mark()) {
    CAPTURE(static_cast<int>(mark.what));
    CAPTURE(static_cast<int>(mark.context));
    int below_tenth = 0, below_hundredth = 0;
    for (std::uint64_t key = 0; key < 1000; ++key) {
      mark.key = {key, 77};
      const auto p = detect(mark, repeating).p;
      below_tenth += p < 0.1;
      below_hundredth += p < 0.01;
    }
    CHECK(below_tenth < 150); // 5 standard deviations above 100
    CHECK(below_hundredth < 26);
  }
}

TEST_CASE("the exact tail, z and the count of a short text") {
  const options mark{kind::green, context_kind::sum, 1, .5f, 2, key_of("k")};
  CHECK(detect(mark, {}).tokens == 0);
  CHECK(detect(mark, {}).p == 1);
  CHECK(detect(mark, std::vector<token_id>{4}).tokens == 0);
  const std::vector<token_id> text{1, 2, 3, 4, 5};
  const auto found = detect(mark, text);
  CHECK(found.tokens == 4);
  const double tails[] = {1, 15. / 16, 11. / 16, 5. / 16, 1. / 16};
  CHECK(found.p == doctest::Approx(tails[static_cast<int>(found.score)]));
  CHECK(found.z == doctest::Approx(found.score - 2));
  CHECK(detect(mark, std::vector<token_id>{1, 2, 1, 2, 1, 2}).tokens == 2); // (1, 2) and (2, 1)
}

TEST_CASE("Gumbel watermarks leave the distribution as it is") {
  const std::vector<float> logits{std::log(.5f), std::log(.3f), std::log(.15f), std::log(.05f), -INFINITY};
  std::map<token_id, int> count;
  constexpr int keys = 8000;
  for (std::uint64_t key = 0; key < keys; ++key) {
    const auto mark = std::make_shared<options>(options{kind::gumbel, context_kind::sequence, 1, .25f, 2, {key, 5}});
    marker m(mark);
    candidates tokens;
    tokens.reset(logits);
    CHECK_FALSE(m.choose(tokens)); // nothing was generated yet
    m.append(0);
    ++count[*m.choose(tokens)];
  }
  double chi_square = 0;
  for (token_id id = 0; id < 4; ++id) {
    const auto expected = keys * std::exp(static_cast<double>(logits[static_cast<std::size_t>(id)]));
    chi_square += std::pow(count[id] - expected, 2) / expected;
  }
  CHECK(count.size() == 4);
  CHECK(chi_square < 16.3); // the 0.999 quantile for 3 degrees of freedom
}

TEST_CASE("each of eight answers to one prompt has a mark of its own, and is found by the one key") {
  const auto mark = std::make_shared<options>(options{kind::gumbel, context_kind::sequence, 4, .25f, 2, key_of("k")});
  const options other{kind::gumbel, context_kind::sequence, 4, .25f, 2, key_of("another")};
  std::set<std::vector<token_id>> tails;
  int found = 0, falsely = 0;
  for (std::uint32_t index = 0; index < 8; ++index) {
    std::mt19937 random(7); // the same logits for all
    sampling_params p{.seed = 11, .max_tokens = 10000};
    p.techniques.set(marked_by(mark));
    // All begin alike, as answers that are sure of their first words do.
    const std::vector<token_id> first{3, 1, 4, 1, 5};
    sequence_sampler sampler(std::make_shared<const sampling_params>(p), {}, std::vector<token_id>{1, 2}, first, index);
    sampling_scratch scratch;
    auto ids = first;
    while (ids.size() < 200)
      ids.push_back(sampler.sample(row_of_marked(random), scratch).id);
    tails.insert({ids.begin() + 5, ids.begin() + 25});
    found += detect(*mark, ids).p < 0.01;
    falsely += detect(other, ids).p < 0.01;
  }
  CHECK(tails.size() == 8);
  CHECK(found == 8);
  CHECK(falsely == 0);
}

TEST_CASE("unmarked texts are taken for marked ones as seldom as p says") {
  const options mark{kind::gumbel, context_kind::sequence, 4, .25f, 2, key_of("k")};
  int below = 0;
  for (unsigned seed = 0; seed < 400; ++seed) {
    std::mt19937 random(seed);
    std::vector<token_id> text(60);
    for (auto& id : text)
      id = static_cast<token_id>(random() % 1000);
    below += detect(mark, text).p < 0.05;
  }
  CHECK(below > 4); // 20 are expected
  CHECK(below < 42);
}

TEST_CASE("a context that was there before leaves the choice to chance") {
  const auto mark = std::make_shared<options>(options{kind::gumbel, context_kind::sequence, 2, .25f, 2, key_of("x")});
  marker m(mark);
  candidates tokens;
  const std::vector<float> logits(50, 1.f);
  tokens.reset(logits);
  for (const token_id id : {1, 2})
    m.append(id);
  CHECK(m.choose(tokens).has_value());
  for (const token_id id : {3, 1, 2})
    m.append(id);
  CHECK_FALSE(m.choose(tokens).has_value()); // 1, 2 again
  m.append(9);
  CHECK(m.choose(tokens).has_value());
}

TEST_CASE("a mask wins over a watermark") {
  const options green{kind::green, context_kind::sum, 1, .5f, 20, key_of("k")};
  sampling_params p{.allowed_token_ids = token_set({7, 9}, "allowed_token_ids", 2), .max_tokens = 100};
  p.techniques.set(marked_by(std::make_shared<options>(green)));
  sequence_sampler sampler(std::make_shared<const sampling_params>(p), {}, std::vector<token_id>{1}, {}, 0);
  sampling_scratch scratch;
  for (int i = 0; i < 50; ++i) {
    const auto id = sampler.sample(std::vector<float>(20, 0.f), scratch).id;
    CHECK((id == 7 || id == 9));
  }
}

} // namespace troupe::watermarks
