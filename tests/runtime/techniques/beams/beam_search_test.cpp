#include "runtime/techniques/beams/beam_search.hpp"
#include "runtime/techniques/beams/technique.hpp"

#include "runtime/support/json/json.hpp"
#include "tests/runtime/sampling/groups/table_models.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>

using namespace troupe;
using namespace troupe::test;

namespace {

struct beam_case {
  sampling_params params;
  std::vector<token_id> prompt, eos;
  std::size_t table = 0;
};

beam_case read_beam_case(json::value v) {
  const auto number = [&](const char* key, double fallback) {
    double found = fallback;
    if (const auto field = json::find(v, key))
      REQUIRE(!field->get(found));
    return found;
  };
  beam_case result;
  auto& p = result.params;
  p.max_tokens = static_cast<int>(number("max_tokens", 0));
  p.min_tokens = static_cast<int>(number("min_tokens", 0));
  p.n = static_cast<int>(number("num_beams", 0));
  const auto stopping = *json::find(v, "early_stopping");
  p.techniques.set(troupe::beams({
    .width = p.n,
    .groups = static_cast<int>(number("num_beam_groups", 1)),
    .diversity_penalty = static_cast<float>(number("diversity_penalty", 0)),
    .length_penalty = static_cast<float>(number("length_penalty", 1)),
    .stopping = stopping.is_string() ? early_stopping::never
      : bool(stopping)               ? early_stopping::on
                                     : early_stopping::off,
  }));
  p.validate(24);
  result.prompt = list<token_id>(*json::find(v, "prompt"));
  result.eos = list<token_id>(*json::find(v, "eos"));
  result.table = static_cast<std::size_t>(number("table", 0));
  return result;
}

void check_cases(const char* kind) {
  const auto document = json::document::parse(content(data() / "beams.json"), "beams.json");
  std::vector<language_model> tables;
  for (auto table : json::array(document.root()["tables"]))
    tables.push_back(read_table(table));
  int count = 0;
  for (auto v : json::array(document.root()[kind])) {
    const auto one = read_beam_case(v);
    CAPTURE(count);
    ++count;
    beam_search strategy(*beams_of(one.params), std::make_shared<const sampling_params>(one.params), one.eos,
                         one.prompt);
    const auto got = drive(strategy, tables[one.table], one.params, one.prompt);
    check_sequences(v["sequences"], got, 1e-5);
  }
  CHECK(count > 0);
}

std::vector<hypothesis> search(const language_model& model, const sampling_params& params,
                               std::vector<token_id> eos = {0}, const std::vector<token_id>& prompt = {1}) {
  params.validate(model(prompt).size());
  beam_search strategy(*beams_of(params), std::make_shared<const sampling_params>(params), std::move(eos), prompt);
  return drive(strategy, model, params, prompt);
}

/// The same logits after every sequence.
language_model constant(std::vector<float> logits) {
  return [logits = std::move(logits)](std::span<const token_id>) { return logits; };
}

sampling_params with_beams(int count, int max_tokens) {
  sampling_params p;
  p.n = count;
  p.techniques.set(troupe::beams({.width = count}));
  p.max_tokens = max_tokens;
  return p;
}

} // namespace

TEST_CASE("Beam search finds transformers' sequences and scores, whatever ends them") { check_cases("beams"); }

TEST_CASE("Diverse beam search finds transformers' sequences and scores") { check_cases("diverse"); }

TEST_CASE("A stop token ends a beam as EOS does, and says so") {
  const auto model = constant({1.f, 3.f, 2.f, 0.f});
  auto params = with_beams(3, 3);
  params.stop_token_ids = {2};
  const auto got = search(model, params);
  params.stop_token_ids = {};
  const auto same = search(model, params, {0, 2});
  REQUIRE(got.size() == 3);
  for (std::size_t i = 0; i < got.size(); ++i) {
    CHECK(ids_of(got[i]) == ids_of(same[i]));
    using finish = enum sampled_token::finish;
    const auto last = got[i].tokens.back();
    CHECK(last.finish == (last.id == 0 ? finish::eos : last.id == 2 ? finish::stop_token : finish::length));
    for (std::size_t t = 0; t + 1 < got[i].tokens.size(); ++t)
      CHECK(got[i].tokens[t].finish == finish::none);
  }
}

TEST_CASE("With ignore_eos an EOS id is a token like others in a beam search") {
  const auto model = constant({3.f, 1.f, 0.f});
  auto params = with_beams(2, 4);
  params.ignore_eos = true;
  for (const auto& one : search(model, params)) {
    CHECK(one.tokens.size() == 4);
    CHECK(one.tokens.back().finish == sampled_token::finish::length);
  }
}

TEST_CASE("Beams with equal scores are ordered by parent, then by id") {
  const auto got = search(constant(std::vector<float>(5, 0.f)), with_beams(4, 2), {});
  REQUIRE(got.size() == 4);
  CHECK(ids_of(got[0]) == std::vector<token_id>{0, 0});
  CHECK(ids_of(got[1]) == std::vector<token_id>{0, 1});
  CHECK(ids_of(got[2]) == std::vector<token_id>{0, 2});
  CHECK(ids_of(got[3]) == std::vector<token_id>{0, 3});
}

TEST_CASE("More beams than there are sequences find each of them once") {
  const auto got = search(constant({1.f, 0.f}), with_beams(16, 3), {});
  CHECK(got.size() == 8);
}

TEST_CASE("A wide enough beam search finds the most likely sequences of all") {
  const std::vector<float> logits{0.3f, 1.2f, -0.4f, 0.9f};
  const auto got = search(constant(logits), with_beams(64, 3), {});
  REQUIRE(got.size() == 64);
  double total = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    total += std::exp(got[i].cumulative_logprob);
    CHECK(got[i].score == doctest::Approx(got[i].cumulative_logprob / 3));
    if (i > 0)
      CHECK(got[i - 1].score >= got[i].score);
  }
  CHECK(total == doctest::Approx(1).epsilon(1e-6));
}

TEST_CASE("Beams report each token's log-probability and, if asked for, the likeliest ones") {
  auto params = with_beams(2, 2);
  params.logprobs = 3;
  const auto got = search(constant({0.f, 1.f, 2.f, 3.f}), params, {});
  REQUIRE(got.size() == 2);
  const double log_total = std::log(1 + std::exp(-1.0) + std::exp(-2.0) + std::exp(-3.0));
  for (const auto& one : got) {
    double sum = 0;
    for (const auto& token : one.tokens) {
      CHECK(token.logprob == doctest::Approx(token.id - 3 - log_total));
      REQUIRE(token.top.size() == 3);
      CHECK(token.top[0].id == 3);
      CHECK(token.top[2].id == 1);
      CHECK(token.top[1].logprob == doctest::Approx(-1 - log_total));
      sum += token.logprob;
    }
    CHECK(one.cumulative_logprob == doctest::Approx(sum));
  }
}

TEST_CASE("A beam search without anything to choose fails with a reason") {
  constexpr float none = -std::numeric_limits<float>::infinity();
  CHECK(failure_of([&] { search(constant({none, none}), with_beams(2, 2)); }) == nothing_to_choose);
  CHECK(failure_of([&] { search(constant({NAN, none}), with_beams(2, 2)); }) == nothing_to_choose);
  auto params = with_beams(2, 2);
  params.min_tokens = 1; // forbids the only token that is left
  CHECK(failure_of([&] { search(constant({0.f, none}), params); }) == nothing_to_choose);
}
