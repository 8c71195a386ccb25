// Beams with processors, filters, masks and stop strings, against transformers (tests/data/shaped_beams.json).
#include "runtime/sampling/group_strategy.hpp"
#include "runtime/support/json/json.hpp"
#include "runtime/techniques/beams/technique.hpp"
#include "tests/runtime/sampling/groups/golden_model.hpp"
#include "tests/runtime/sampling/groups/table_models.hpp"

#include <doctest/doctest.h>

#include <set>
#include <string>

using namespace troupe;
using namespace troupe::test;

namespace {

struct shaped_case {
  sampling_params params;
  std::vector<token_id> prompt, eos;
  token_rule rule;
};

shaped_case read_shaped_case(json::value v) {
  const auto number = [&](const char* key, double fallback) {
    double found = fallback;
    if (const auto field = json::find(v, key))
      REQUIRE(!field->get(found));
    return found;
  };
  const auto real = [&](const char* key, double fallback) { return static_cast<float>(number(key, fallback)); };
  const auto whole = [&](const char* key) { return static_cast<int>(number(key, 0)); };
  shaped_case result;
  auto& p = result.params;
  p.max_tokens = whole("max_tokens");
  p.min_tokens = whole("min_tokens");
  p.n = whole("num_beams");
  const auto stopping = *json::find(v, "early_stopping");
  p.techniques.set(troupe::beams({
    .width = p.n,
    .length_penalty = real("length_penalty", 1),
    .stopping = stopping.is_string() ? early_stopping::never
      : bool(stopping)               ? early_stopping::on
                                     : early_stopping::off,
    .sampled = json::find(v, "seed").has_value(),
  }));
  p.repetition_penalty = real("repetition_penalty", 1);
  p.no_repeat_ngram_size = whole("no_repeat_ngram_size");
  p.temperature = real("temperature", 1);
  p.top_k = whole("top_k");
  p.top_p = real("top_p", 1);
  p.min_p = real("min_p", 0);
  p.epsilon_cutoff = real("epsilon_cutoff", 0);
  if (const auto seed = json::find(v, "seed")) {
    p.seed = std::uint64_t(*seed);
  }
  if (const auto biases = json::find(v, "logit_bias")) {
    std::vector<logit_bias_map::entry> entries;
    for (auto entry : json::array(*biases)) {
      const json::array pair = entry;
      entries.emplace_back(static_cast<token_id>(std::int64_t(pair.at(0).value())),
                           static_cast<float>(double(pair.at(1).value())));
    }
    p.logit_bias = std::move(entries);
  }
  if (const auto words = json::find(v, "bad_words")) {
    std::vector<sequence_bias> entries;
    for (auto word : json::array(*words))
      entries.push_back({list<token_id>(word), -std::numeric_limits<float>::infinity()});
    p.sequence_biases = sequence_bias_list(std::move(entries));
  }
  if (const auto stops = json::find(v, "stop")) {
    std::vector<std::string> texts;
    for (auto text : json::array(*stops))
      texts.emplace_back(std::string_view(text));
    p.stop = std::move(texts);
  }
  if (const auto rule = json::find(v, "allowed")) {
    const auto of = list<token_id>(*rule);
    result.rule = [of](std::span<const token_id> sequence, token_id id) {
      return (7 * id + sequence.back()) % of[0] != of[1];
    };
  }
  result.prompt = list<token_id>(*json::find(v, "prompt"));
  result.eos = list<token_id>(*json::find(v, "eos"));
  return result;
}

std::vector<hypothesis> run_case(const shaped_case& c, const language_model& model, std::size_t vocab,
                                 token_text_ptr text) {
  c.params.validate(vocab);
  const auto strategy = make_group_strategy(std::make_shared<const sampling_params>(c.params), c.eos, c.prompt, {}, 0,
                                            std::move(text));
  return drive(*strategy, model, c.params, c.prompt, c.rule);
}

} // namespace

TEST_CASE("Beams with processors, filters, masks and stop strings are transformers', over tables") {
  const auto tables = json::document::parse(content(data() / "beams.json"), "beams.json");
  const auto cases = json::document::parse(content(data() / "shaped_beams.json"), "shaped_beams.json");
  std::vector<language_model> models;
  for (auto table : json::array(tables.root()["tables"]))
    models.push_back(read_table(table));
  const auto letters = std::make_shared<const token_text>(
    [](token_id id) { return std::string(1, static_cast<char>('a' + id)); });
  int number = 0, by_text = 0;
  for (auto one : json::array(cases.root()["tables"])) {
    CAPTURE(number);
    ++number;
    const auto c = read_shaped_case(one);
    const auto got = run_case(c, models[static_cast<std::size_t>(std::int64_t(one["table"]))], 24, letters);
    check_sequences(one["sequences"], got, 1e-4);
    for (const auto& h : got)
      by_text += h.tokens.back().finish == sampled_token::finish::text;
  }
  CHECK(number == 160);
  CHECK(by_text > 40);
}

TEST_CASE("Golden checkpoints: beams with processors, filters, masks and stop strings are transformers'") {
  const auto cases = json::document::parse(content(data() / "shaped_beams.json"), "shaped_beams.json");
  for (const auto& name : golden_models) {
    CAPTURE(name);
    golden_model model(name);
    const auto text = std::make_shared<const token_text>(
      [words = model.words()](token_id id) { return words->is_special(id) ? std::string() : words->token_bytes(id); });
    int number = 0;
    for (auto one : json::array(cases.root()["golden"][name])) {
      CAPTURE(number);
      ++number;
      const auto c = read_shaped_case(one);
      const auto got = run_case(
        c, [&](std::span<const token_id> tokens) { return model.logits_after(tokens); }, model.vocab(), text);
      check_sequences(one["sequences"], got, 1e-3);
    }
    CHECK(number >= 7);
  }
}

TEST_CASE("Beams that may not go on at all end the search with the request's fault") {
  sampling_params p;
  p.techniques.set(troupe::beams({.width = 2}));
  p.max_tokens = 4;
  p.allowed_token_ids = token_set({3}, "allowed_token_ids", 8);
  p.no_repeat_ngram_size = 1;
  const auto strategy = make_group_strategy(std::make_shared<const sampling_params>(p), {}, std::vector<token_id>{3});
  sampling_scratch scratch;
  const std::vector<float> row(8, 0.f);
  const std::vector<std::span<const float>> rows{row};
  CHECK_THROWS_AS(strategy->judge(rows, scratch), failure);
}

TEST_CASE("Beam sampling depends on the seed, and draws different extensions") {
  const auto tables = json::document::parse(content(data() / "beams.json"), "beams.json");
  const auto model = read_table(json::array(tables.root()["tables"]).at(0).value());
  const auto found = [&](std::uint64_t seed) {
    shaped_case c;
    c.params.n = 4;
    c.params.techniques.set(troupe::beams({.width = 4, .sampled = true}));
    c.params.max_tokens = 6;
    c.params.temperature = 1.5f;
    c.params.seed = seed;
    c.prompt = {1};
    c.eos = {2};
    std::vector<std::vector<token_id>> all;
    for (const auto& h : run_case(c, model, 24, nullptr))
      all.push_back(ids_of(h));
    CHECK(std::set(all.begin(), all.end()).size() == all.size());
    return all;
  };
  CHECK(found(1) == found(1));
  CHECK(found(1) != found(2));
}
