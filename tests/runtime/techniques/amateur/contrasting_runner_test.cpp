// What an amateur computes of a plan, and that its rows are those of the model alone.
#include "runtime/techniques/amateur/contrasting_runner.hpp"

#include "runtime/techniques/amateur/technique.hpp"
#include "tests/runtime/techniques/speculation/draft_model_cases.hpp"

#include <random>

using namespace troupe;

namespace {

step_plan three_sequences() {
  step_plan plan;
  plan.step = 7;
  plan.tokens = {10, 11, 12, 20, 30, 31};
  plan.sequences = {{0, 3, 0, 0}, {3, 1, 17, 1}, {4, 2, 4, 3}};
  plan.block_tables = {5, 8, 9, 2};
  plan.logit_rows = {1, 2, 3, 4, 5};
  plan.samples = {{{1, 0}, 0, 1, nullptr}, {{2, 0}, 1, 2, nullptr}, {{3, 0}, 2, 3, nullptr}};
  plan.samples[2].guesses = 1;
  plan.moves = {{block_move::kind::copy, 1, 2}};
  return plan;
}

std::vector<featured_sequence> contrasted(std::initializer_list<std::int32_t> places) {
  const auto features = std::make_shared<const row_features>(
    row_features{.used = technique_uses(contrasted_by({.beta = 1}))});
  std::vector<featured_sequence> result;
  for (const auto place : places)
    result.push_back({features, place});
  return result;
}

/// One pass over a whole text, in blocks from `block` on.
step_plan one_pass(const std::vector<token_id>& text, std::int32_t block) {
  step_plan plan;
  plan.step = 1;
  plan.tokens = text;
  plan.sequences = {{0, static_cast<std::int32_t>(text.size()), 0, 0}};
  for (std::size_t i = 0; i < text.size(); i += kernels::block_tokens)
    plan.block_tables.push_back(block++);
  plan.logit_rows = {static_cast<std::int32_t>(text.size()) - 1};
  plan.samples = {{{1, 0}, 0, 0, nullptr}};
  return plan;
}

std::vector<float> logits_of(const step_output& output, std::size_t i = 0) {
  const auto* first = output.logits.get() + i * output.vocab;
  return {first, first + output.vocab};
}

} // namespace

TEST_CASE("an amateur computes the rows of contrasted sequences, and logits where they sample") {
  auto plan = three_sequences();
  plan.featured = contrasted({0, 2});
  plan.common = {{5, 2, 1}};
  std::vector<std::int32_t> of;
  const auto own = amateurs_plan(plan, plan.tokens, 31, of);
  CHECK(own.step == 7);
  CHECK(own.tokens == std::vector<token_id>{10, 11, 12, 30, 0}); // 31 is not its own
  REQUIRE(own.sequences.size() == 2);
  CHECK(own.sequences[1].first_row == 3);
  CHECK(own.sequences[1].rows == 2);
  CHECK(own.sequences[1].first_position == 4);
  CHECK(own.sequences[1].first_block == 1);
  CHECK(own.block_tables == std::vector<std::int32_t>{5, 2});
  CHECK(own.logit_rows == std::vector<std::int32_t>{2, 3, 4}); // row 1 is scored, not sampled
  CHECK(of == std::vector<std::int32_t>{1, 3, 4});
  CHECK(own.moves.size() == 1);
  CHECK(own.common == plan.common);
  of.clear();
  plan.featured.clear();
  CHECK(amateurs_plan(plan, plan.tokens, 31, of).tokens.empty());
  CHECK(of.empty());
}

TEST_CASE("the rows of the amateur, and those of the expert, are the bits that each computes alone") {
  auto options = draft_cases::on_cpu();
  options.model = golden("qwen3");
  options.techniques["amateur"] = {golden("qwen2")};
  const auto both = load_model(options, {});
  REQUIRE(both->seconds.size() == 1);
  const auto runner = replica_of(both).make_runner();
  options.techniques.clear();
  options.model = golden("qwen2");
  const auto other = replica_of(load_model(options, {}));
  options.model = golden("qwen3");
  const auto expert = replica_of(load_model(options, {})).make_runner(), amateur = other.make_runner();
  auto text = draft_cases::some_prompt(other, 40, 1);
  auto plan = one_pass(text, 3);
  plan.featured = contrasted({0});
  const auto output = runner->run(plan);
  REQUIRE(output.contrast);
  REQUIRE(output.contrast->at(0).size() == 1);
  const auto found = output.contrast->at(0).front();
  CHECK(logits_of(output) == logits_of(expert->run(plan)));
  CHECK(std::vector(found.begin(), found.end()) == logits_of(amateur->run(plan)));
  // Another sequence alone, whose step also copies a block of the first; then the first goes on in the copy.
  auto plain = one_pass(draft_cases::some_prompt(other, 20, 2), 10);
  plain.moves = {{block_move::kind::copy, 5, 12}};
  CHECK(runner->run(plain).contrast->at(0).empty());
  text.push_back(7);
  step_plan next;
  next.tokens = {7};
  next.sequences = {{0, 1, 40, 0}};
  next.block_tables = {3, 4, 12};
  next.logit_rows = {0};
  next.samples = {{{1, 0}, 0, 0, nullptr}};
  next.featured = contrasted({0});
  const auto later = runner->run(next);
  const auto again = later.contrast->at(0).front();
  CHECK(std::vector(again.begin(), again.end()) == logits_of(amateur->run(one_pass(text, 0))));
}
