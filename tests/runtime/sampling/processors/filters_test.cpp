#include "runtime/sampling/processors/filters.hpp"

#include "runtime/sampling/logits_processors.hpp"
#include "runtime/sampling/processors/repetition.hpp"
#include "runtime/support/json/json.hpp"
#include "tests/runtime/sampling/processors/processors_reference.hpp"
#include "tests/test_data.hpp"

#include <doctest/doctest.h>

#include <map>
#include <random>

using namespace troupe;

namespace {

using reference::logits_row;

/// The row that a filter leaves.
template <class Filter>
logits_row left_by(const logits_row& row, Filter filter) {
  candidates tokens;
  tokens.reset(row);
  filter(tokens);
  tokens.narrow(std::numeric_limits<float>::lowest());
  logits_row result(row.size(), reference::no_logit);
  for (std::size_t i = 0; i < tokens.size(); ++i)
    result[static_cast<std::size_t>(tokens.ids()[i])] = tokens.logits()[i];
  CHECK(tokens.max() == reference::largest(result));
  return result;
}

std::vector<token_id> ids_left_in(const logits_row& row) {
  std::vector<token_id> ids;
  for (std::size_t i = 0; i < row.size(); ++i)
    if (row[i] > reference::no_logit)
      ids.push_back(static_cast<token_id>(i));
  return ids;
}

/// Tokens that weigh nothing, which any filter may drop, are never kept.
logits_row with_weight(const logits_row& row) {
  const auto share = reference::masses(row);
  return reference::kept_where(row, [&](std::size_t i) { return share[i] > 0; });
}

logits_row random_filter_row(std::mt19937& random) {
  const std::size_t vocab = 1 + random() % (random() % 2 ? 20 : 300);
  const auto spread = std::uniform_real_distribution<float>(0.05f, 6)(random);
  std::normal_distribution<float> normal(0, spread);
  logits_row row(vocab);
  for (auto& x : row)
    x = random() % 3 ? normal(random) : std::round(normal(random) * 2) / 2; // some are equal
  for (std::size_t i = 1; i < vocab; ++i)
    if (random() % 20 == 0)
      row[i] = reference::no_logit;
  return row;
}

std::vector<token_id> ids_listed(json::value list) {
  std::vector<token_id> ids;
  for (json::value id : list.get_array())
    ids.push_back(static_cast<token_id>(id.get_int64().value()));
  return ids;
}

logits_row row_in(json::value list) {
  logits_row row;
  for (json::value x : list.get_array())
    row.push_back(static_cast<float>(x.get_double().value() / 65536));
  return row;
}

sequence_bias_list biases_in(json::value test, const std::string& op) {
  std::vector<sequence_bias> all;
  if (op == "bad_words")
    for (json::value word : test["words"].get_array())
      all.push_back({ids_listed(word), -INFINITY});
  else
    for (json::value pair : test["biases"].get_array())
      all.push_back({ids_listed(pair.at(0).value()), static_cast<float>(pair.at(1).get_double().value())});
  return {std::move(all)};
}

logits_row edited_as(json::value test, const std::string& op) {
  auto row = row_in(test["logits"]);
  const auto history = ids_listed(test["history"]);
  if (op == "no_repeat_ngram_size") {
    ngram_index index(static_cast<std::size_t>(test["value"].get_int64().value()));
    for (std::size_t n = 1; n <= history.size(); ++n)
      index.append(std::span(history).first(n));
    index.mask(row, history);
  } else {
    add_sequence_biases(row, biases_in(test, op), history);
  }
  return row;
}

logits_row filtered_as(json::value test, const std::string& op) {
  const auto value = static_cast<float>(test["value"].get_double().value());
  return left_by(row_in(test["logits"]), [&](candidates& tokens) {
    if (op == "typical_p")
      keep_typical(tokens, value);
    else if (op == "epsilon_cutoff")
      keep_epsilon(tokens, value);
    else if (op == "eta_cutoff")
      keep_eta(tokens, value);
    else if (op == "min_p")
      keep_min_p(tokens, value);
    else
      FAIL("unknown op " << op);
  });
}

} // namespace

TEST_CASE("filters, repeated n-grams, bad words and biases of sequences do what transformers' processors do") {
  const auto file = json::document::load(test_data() + "/samplers.json");
  std::map<std::string, int> checked;
  for (json::value test : file.root().get_array()) {
    const auto op = std::string(test["op"].get_string().value());
    CAPTURE(op);
    CAPTURE(checked[op]);
    ++checked[op];
    const bool edits = op == "no_repeat_ngram_size" || op == "bad_words" || op == "sequence_bias";
    const auto result = edits ? edited_as(test, op) : filtered_as(test, op);
    if (op != "sequence_bias") {
      CHECK(ids_left_in(result) == ids_listed(test["kept"]));
      continue;
    }
    const auto wanted = row_in(test["scores"]);
    for (std::size_t i = 0; i < wanted.size(); ++i)
      CHECK(result[i] == doctest::Approx(wanted[i]).epsilon(1e-4));
  }
  CHECK(checked.size() == 7);
}

TEST_CASE("filters keep what their definitions keep") {
  std::mt19937 random(5);
  const auto uniform = [&](float low, float high) { return std::uniform_real_distribution<float>(low, high)(random); };
  // Rounding may decide a token within this of an edge either way; such rows are rare, and not compared.
  int compared = 0, close = 0;
  for (int round = 0; round < 1000; ++round) {
    CAPTURE(round);
    const auto row = random_filter_row(random);
    const auto check = [&](const logits_row& got, auto define, float value) {
      const auto wanted = with_weight(define(value));
      const auto nearly = static_cast<double>(value);
      if (with_weight(define(nearly * (1 - 1e-9))) != wanted || with_weight(define(nearly * (1 + 1e-9))) != wanted) {
        ++close;
        return;
      }
      ++compared;
      CHECK(ids_left_in(with_weight(got)) == ids_left_in(wanted));
    };
    const auto p = uniform(0.01f, 0.99f), small = std::pow(10.f, uniform(-5, -0.3f));
    check(
      left_by(row, [&](auto& t) { keep_typical(t, p); }), [&](double v) { return reference::typical(row, v); }, p);
    check(
      left_by(row, [&](auto& t) { keep_epsilon(t, small); }), [&](double v) { return reference::epsilon(row, v); },
      small);
    check(
      left_by(row, [&](auto& t) { keep_eta(t, small); }), [&](double v) { return reference::eta(row, v); }, small);
    check(
      left_by(row, [&](auto& t) { keep_top_a(t, p); }), [&](double v) { return reference::top_a(row, v); }, p);
    check(
      left_by(row, [&](auto& t) { keep_top_n_sigma(t, 3 * p); }),
      [&](double v) { return reference::top_n_sigma(row, v); }, 3 * p);
    check(
      left_by(row, [&](auto& t) { exclude_top_choices(t, p / 4, 1, random()); }),
      [&](double v) { return reference::xtc(row, v); }, p / 4);
  }
  CHECK(compared > 5500);
  CHECK(close < 300);
}

TEST_CASE("XTC leaves one of the top choices, as often as it is asked to") {
  const logits_row row{std::log(.4f), std::log(.3f), std::log(.2f), std::log(.1f)};
  const auto after = [&](float threshold, float probability, std::uint64_t bits) {
    return ids_left_in(left_by(row, [&](auto& t) { exclude_top_choices(t, threshold, probability, bits); }));
  };
  CHECK(after(0.15f, 1, 0) == std::vector<token_id>{2, 3});
  CHECK(after(0.25f, 1, ~0ull) == std::vector<token_id>{1, 2, 3});
  CHECK(after(0.35f, 1, 0) == std::vector<token_id>{0, 1, 2, 3}); // there is but one
  CHECK(after(0.15f, 0.5f, 0x7fffffffffffffff) == std::vector<token_id>{2, 3});
  CHECK(after(0.15f, 0.5f, 0x8000000000000000) == std::vector<token_id>{0, 1, 2, 3});
  // What is left is drawn in proportion.
  candidates tokens;
  int third = 0;
  for (std::uint64_t i = 0; i < 3000; ++i) {
    tokens.reset(row);
    exclude_top_choices(tokens, 0.15f, 1, 0);
    third += tokens.sample(i * (~0ull / 3000)) == 2;
  }
  CHECK(std::abs(third - 2000) <= 2);
}

TEST_CASE("dynamic temperature is low where the model is sure, and within its range") {
  const auto shaped = [](const logits_row& row, float temperature, float range, float exponent) {
    return left_by(row, [&](auto& t) { apply_dynamic_temperature(t, temperature, range, exponent); });
  };
  const logits_row even(8, 2.f);
  CHECK(shaped(even, 1, 0.5f, 1)[0] == doctest::Approx(2 / 1.5)); // all the entropy there can be
  const logits_row sure{50, 0, 0};
  CHECK(shaped(sure, 1, 0.5f, 1)[0] == doctest::Approx(100));
  CHECK(shaped(sure, 0.5f, 2, 1)[0] == doctest::Approx(5000)); // no lower than 0.01
  CHECK(shaped({3}, 1, 0.5f, 1)[0] == 3);                      // nothing to choose from
  const logits_row row{2, 1, 0, -1};
  for (const float exponent : {0.5f, 1.f, 2.f}) {
    const auto share = std::pow(reference::entropy(row) / std::log(4.), static_cast<double>(exponent));
    CHECK(shaped(row, 1.2f, 0.8f, exponent)[0] == doctest::Approx(2 / (0.4 + 1.6 * share)).epsilon(1e-5));
  }
}

TEST_CASE("quadratic smoothing bends the logits around the largest") {
  const logits_row row{4, 3, 1, -2};
  const auto smoothed = [&](float factor, float curve) {
    return left_by(row, [&](auto& t) { smooth(t, factor, curve); });
  };
  CHECK(smoothed(0, 2) == row);
  CHECK(smoothed(0.5f, 1) == logits_row{4, 3.5f, -0.5f, -14});
  const auto curved = smoothed(0.5f, 2); // k = 0.25, s = 0.25
  CHECK(curved[1] == doctest::Approx(4 - 0.25 - 0.25));
  CHECK(curved[3] == doctest::Approx(4 - 0.25 * 36 - 0.25 * 216));
  const float most = std::numeric_limits<float>::max();
  CHECK(left_by({most, 0}, [](auto& t) { smooth(t, 100, 3); })[0] == most);
}

TEST_CASE("mirostat draws below its bound of surprise and moves the bound towards tau") {
  std::mt19937_64 random(11);
  std::normal_distribution<float> normal(0, 3);
  logits_row row(300);
  for (auto& x : row)
    x = normal(random);
  candidates tokens;
  for (int round = 0; round < 300; ++round) {
    const auto mu = std::uniform_real_distribution<float>(-1, 12)(random);
    tokens.reset(row);
    const auto drawn = draw_mirostat(tokens, mu, 3, 0.25f, random());
    const auto id = static_cast<std::size_t>(drawn.id);
    const auto nats = reference::surprises(row);
    const auto bits_of = [&](std::size_t i) { return nats[i] / std::log(2.); };
    const bool best = row[id] == reference::largest(row);
    CHECK((best || bits_of(id) <= static_cast<double>(mu)));
    double left = 0; // probability of what may be drawn
    const auto share = reference::probabilities(row);
    for (std::size_t i = 0; i < row.size(); ++i)
      if (bits_of(i) <= static_cast<double>(mu) || row[i] == reference::largest(row))
        left += share[i];
    const auto surprise = -std::log2(share[id] / left);
    CHECK(drawn.mu == doctest::Approx(static_cast<double>(mu) - 0.25 * (surprise - 3)).epsilon(1e-5));
  }
  // The mean surprise comes close to tau.
  float mu = 6;
  double sum = 0;
  for (int i = 0; i < 2000; ++i) {
    for (auto& x : row)
      x = normal(random);
    tokens.reset(row);
    const auto drawn = draw_mirostat(tokens, mu, 2, 0.1f, random());
    sum += 2 + (static_cast<double>(mu) - static_cast<double>(drawn.mu)) / 0.1; // the surprise
    mu = drawn.mu;
  }
  CHECK(sum / 2000 == doctest::Approx(2).epsilon(0.15));
}
