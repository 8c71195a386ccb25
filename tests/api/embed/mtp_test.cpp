// Guesses of layers of multi-token prediction: answers are the same bits, whatever runs beside them.
#include "runtime/techniques/speculation/technique.hpp"
#include "tests/api/embed/small_engine.hpp"
#include "tests/test_data.hpp"

#include <memory>
#include <random>
#include <vector>

using namespace troupe;
using namespace troupe::testing;

namespace {

/// `guesses`: of each sequence in a step, whatever they cost; 0: as many as pay.
engine_options mtp_options(const std::string& model, speculation how, int guesses = 0) {
  engine_options o;
  o.model = test_data() + "/tiny_mtp/" + model;
  o.kv_cache_bytes = 1 << 20;
  o.compute.threads = 1;
  o.techniques["speculate"] = {std::string(name_of(how))};
  o.techniques["draft_tokens"] = {std::to_string(guesses)};
  return o;
}

/// Prompts of all kinds: on the walk that model and layers were trained on, or off it; long, short; sampled or greedy.
generation some_generation(std::mt19937& random) {
  std::vector<token_id> prompt;
  for (auto left = 1 + random() % 60; left > 0; --left)
    prompt.push_back(static_cast<token_id>(2 + random() % 46));
  auto g = ask(std::move(prompt), 30);
  g.sampling.ignore_eos = true;
  g.sampling.temperature = random() % 2 ? 0.f : 0.8f;
  g.sampling.seed = random();
  g.sampling.n = 1 + static_cast<int>(random() % 2);
  return g;
}

} // namespace

TEST_CASE(
  "Multi-token prediction: answers are the same with and without, alone and in a crowd, and guesses come true") {
  for (const std::string model : {"deepseek-v3", "qwen3-5", "nemotron-h"}) {
    CAPTURE(model);
    const auto plain = engine::start(mtp_options(model, speculation::off));
    const auto guessing = engine::start(mtp_options(model, speculation::mtp, 4));
    plain.wait_until_ready();
    guessing.wait_until_ready();
    std::mt19937 random(7);
    std::vector<generation> work;
    std::vector<heard> expected;
    int accepted = 0, rejected = 0;
    for (int i = 0; i < 12; ++i) {
      const auto& g = work.emplace_back(some_generation(random));
      expected.push_back(run(plain, g));
      const auto alone = run(guessing, g);
      CHECK(alone.ids == expected.back().ids);
      REQUIRE(alone.done.has_value());
      accepted += static_cast<int>(alone.done->accepted_guesses);
      rejected += static_cast<int>(alone.done->rejected_guesses);
    }
    CHECK(guessing.stats().total.scheduler.guess_trees > 0);
    CHECK(accepted > rejected / 8);
    CHECK(rejected > 0);
    std::vector<listener> crowd(work.size());
    for (std::size_t i = 0; i < work.size(); ++i)
      guessing.submit(work[i], crowd[i].sink());
    for (std::size_t i = 0; i < work.size(); ++i) {
      REQUIRE(crowd[i].wait());
      CHECK(crowd[i].result().ids == expected[i].ids);
    }
    CHECK(idle(guessing));
  }
}

TEST_CASE("Multi-token prediction: a request may ask for it by name where it is loaded") {
  const auto without = engine::start(mtp_options("qwen3-5", speculation::ngram));
  without.wait_until_ready();
  auto g = ask({5, 6, 7}, 20);
  g.sampling.techniques.set(speculated_by(speculation::mtp));
  const auto refused = run(without, g);
  REQUIRE(refused.failed.has_value());
  CHECK(refused.failed->message ==
        "`speculate` is \"mtp\", but no layers of multi-token prediction are loaded for this model");
  const auto with = engine::start(mtp_options("qwen3-5", speculation::automatic, 3));
  with.wait_until_ready();
  const auto answered = run(with, g);
  CHECK(answered.done.has_value());
  CHECK(answered.done->accepted_guesses + answered.done->rejected_guesses > 0);
}
