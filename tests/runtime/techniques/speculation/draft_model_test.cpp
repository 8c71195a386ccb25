#include "runtime/techniques/speculation/draft_model.hpp"

#include "tests/runtime/techniques/speculation/draft_model_cases.hpp"

#include <atomic>

using namespace troupe;

TEST_CASE("draft model: one that equals the target guesses its tokens, greedy and sampled") {
  draft_cases::guesses_of_an_equal_model(draft_cases::on_cpu());
}

TEST_CASE("draft model: prompts are computed in parts that delay no other sequence") {
  draft_cases::chunks(draft_cases::on_cpu());
}

TEST_CASE("draft model: who was not served for longest loses its blocks, and gets them back") {
  draft_cases::few_blocks(draft_cases::on_cpu());
}

TEST_CASE("draft model: guesses end with the context, with the answer and with the vocabulary") {
  draft_cases::limits(draft_cases::on_cpu());
}

TEST_CASE("draft model: beside each guess stands the likeliest other token, and the line is the same") {
  const auto target_model = replica_of(load_model(draft_cases::on_cpu(), {}));
  draft_cases::lone_target target(target_model);
  draft_model draft(target_model.plan.last(), draft_cases::spec_of(target_model, 128, 64));
  for (const auto& params : {draft_cases::greedy(), draft_cases::sampled()}) {
    auto s = draft_cases::drafted(params.temperature > 0, draft_cases::some_prompt(target_model, 9, 3), params);
    auto demand = s.demand(4);
    demand.others = 2;
    const auto answer = draft.serve({.number = 1, .demands = {std::move(demand)}}).answers[0];
    REQUIRE(answer.guesses.size() == 12);
    CHECK(answer.parents == std::vector<std::int32_t>{-1, -1, -1, 0, 0, 0, 3, 3, 3, 6, 6, 6});
    REQUIRE(answer.chances.size() == 12);
    const auto line = target.continuation(s.prompt, {}, params, 4);
    for (std::size_t i = 0; i < 4; ++i) {
      CHECK(answer.guesses[3 * i] == line[i]);
      CHECK(answer.guesses[3 * i + 1] != line[i]);
      CHECK(answer.chances[3 * i + 1] >= answer.chances[3 * i + 2]);
      if (params.temperature == 0)
        CHECK(answer.chances[3 * i] >= answer.chances[3 * i + 1]);
      CHECK(answer.chances[3 * i + 2] > 0);
      CHECK(answer.chances[3 * i] <= 1);
    }
  }
}

TEST_CASE("draft model: what is taken for granted counts for one request, whether it comes or not") {
  const auto target_model = replica_of(load_model(draft_cases::on_cpu(), {}));
  draft_cases::lone_target target(target_model);
  draft_model draft(target_model.plan.last(), draft_cases::spec_of(target_model, 128, 64));
  for (const auto& params : {draft_cases::greedy(), draft_cases::sampled()}) {
    auto s = draft_cases::drafted(params.temperature > 0, draft_cases::some_prompt(target_model, 9, 3), params);
    std::uint64_t number = 0;
    const auto guesses = [&](int count, draft_cases::ids assumed = {}) {
      auto demand = s.demand(count);
      demand.assumed = std::move(assumed);
      return draft.serve({.number = ++number, .demands = {std::move(demand)}}).answers[0].guesses;
    };
    for (int round = 0; round < 6; ++round) {
      CAPTURE(round);
      const auto next = target.continuation(s.prompt, s.emitted, params, 8);
      const auto line = guesses(3);
      CHECK(line == draft_cases::ids(next.begin(), next.begin() + 3));
      auto assumed = line;
      if (round % 3 == 1)
        assumed.back() = (assumed.back() + 1) % target_model.model->info.vocab_size;
      auto emitted = s.emitted;
      emitted.insert(emitted.end(), assumed.begin(), assumed.end());
      CHECK(guesses(5, assumed) == target.continuation(s.prompt, emitted, params, 5));
      s.emitted.insert(s.emitted.end(), next.begin(), next.begin() + (round % 2 == 0 ? 5 : 2));
    }
  }
}

TEST_CASE("draft model: a request that has enough gets no more guesses") {
  const auto target_model = replica_of(load_model(draft_cases::on_cpu(), {}));
  draft_cases::lone_target target(target_model);
  draft_model draft(target_model.plan.last(), draft_cases::spec_of(target_model, 128, 64));
  auto s = draft_cases::drafted(1, draft_cases::some_prompt(target_model, 9, 3), draft_cases::greedy());
  const auto enough = std::make_shared<std::atomic<bool>>(true);
  const auto reply = draft.serve({.number = 1, .demands = {s.demand(4)}, .enough = enough});
  REQUIRE(reply.answers.size() == 1);
  CHECK(reply.answers[0].guesses.empty());
  CHECK(draft.serve({.number = 2, .demands = {s.demand(4)}}).answers[0].guesses ==
        target.continuation(s.prompt, {}, draft_cases::greedy(), 4)); // it was told the prompt
}

TEST_CASE("draft model: a line ends where its chance, by what was measured of such guesses, is too small") {
  const auto target_model = replica_of(load_model(draft_cases::on_cpu(), {}));
  draft_model draft(target_model.plan.last(), draft_cases::spec_of(target_model, 128, 64));
  auto s = draft_cases::drafted(1, draft_cases::some_prompt(target_model, 9, 3), draft_cases::greedy());
  const auto guesses = [&](float rate, float least) {
    auto demand = s.demand(5);
    demand.others = 1;
    demand.rates.assign(16, rate);
    demand.least_chance = least;
    auto reply = draft.serve({.number = 1, .demands = {std::move(demand)}});
    std::size_t depth = 0;
    std::vector<std::size_t> depths;
    for (const auto parent : reply.answers[0].parents) {
      depths.push_back(parent < 0 ? 1 : depths[as_size(parent)] + 1);
      depth = std::max(depth, depths.back());
    }
    return depth;
  };
  CHECK(guesses(1, 0.9f) == 5);
  CHECK(guesses(0.5f, 0.3f) == 2); // 0.5, then 0.25
  CHECK(guesses(0.5f, 0.6f) == 1);
}
