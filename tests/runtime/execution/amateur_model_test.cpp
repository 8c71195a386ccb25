#include "runtime/execution/amateur_model.hpp"

#include "runtime/support/error.hpp"
#include "tests/runtime/execution/draft_model_cases.hpp"

#include <random>

using namespace troupe;

namespace {

runner_spec amateur_spec(const loaded_model& model, int rows, int blocks) {
  auto spec = model.runner();
  spec.sizes = {rows, 8, 256};
  spec.blocks = blocks;
  return spec;
}

/// In one pass, with nothing computed before.
std::vector<float> logits_at_once(const loaded_model& model, const draft_cases::ids& tokens) {
  amateur_model once(*model.device, amateur_spec(model, 256, 16));
  const auto row = once.logits_after({1, 0}, tokens);
  return {row.begin(), row.end()};
}

} // namespace

TEST_CASE("an amateur's logits are the same bits in any passes, order and shortage of blocks") {
  const auto model = load_model(draft_cases::on_cpu(), {});
  amateur_model amateur(*model->device, amateur_spec(*model, 7, 10));
  std::mt19937 rng(1);
  std::vector<draft_cases::ids> texts;
  for (int i = 0; i < 3; ++i)
    texts.push_back(draft_cases::some_prompt(*model, 20 + 30 * i, i));
  for (int i = 0; i < 30; ++i) {
    const auto which = rng() % texts.size();
    auto& text = texts[which];
    if (rng() % 4 == 0 && text.size() > 10)
      text.resize(text.size() - rng() % 5 - 1); // a token is taken back
    if (rng() % 3 != 0)
      text.push_back(static_cast<token_id>(rng() % 500));
    const auto found = amateur.logits_after({which, 0}, text);
    CHECK(std::vector(found.begin(), found.end()) == logits_at_once(*model, text));
  }
  for (std::uint64_t which = 0; which < texts.size(); ++which)
    amateur.forget({which, 0});
  CHECK(amateur.free_blocks() == 10);
}

TEST_CASE("an amateur refuses what does not fit, and goes on") {
  const auto model = load_model(draft_cases::on_cpu(), {});
  amateur_model amateur(*model->device, amateur_spec(*model, 64, 3));
  const auto text = draft_cases::some_prompt(*model, 49, 0);
  CHECK_THROWS_WITH_AS(amateur.logits_after({1, 0}, text),
                       "a sequence of 49 tokens does not fit into the KV cache of the amateur model", failure);
  CHECK_THROWS_AS(amateur.logits_after({1, 0}, draft_cases::ids(257, 1)), failure);
  CHECK_THROWS_AS(amateur.logits_after({1, 0}, {}), failure);
  const draft_cases::ids shorter(text.begin(), text.begin() + 48);
  CHECK(amateur.logits_after({2, 0}, shorter).size() == static_cast<std::size_t>(model->info.vocab_size));
  CHECK(amateur.free_blocks() == 0);
}
