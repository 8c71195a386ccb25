#include "runtime/techniques/speculation/draft_model.hpp"

#include "tests/runtime/techniques/speculation/draft_model_cases.hpp"

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

TEST_CASE("draft model: lines that part from the first one go on as the model would, and leave nothing behind") {
  using draft_cases::ids;
  const auto target_model = replica_of(load_model(draft_cases::on_cpu(), {}));
  draft_cases::lone_target target(target_model);
  auto spec = draft_cases::spec_of(target_model, 128, 64);
  spec.least_parting = 0;
  draft_model draft(target_model.plan.last(), spec);
  std::vector<draft_cases::drafted_sequence> sequences;
  sequences.push_back(draft_cases::drafted(1, draft_cases::some_prompt(target_model, 9, 3), draft_cases::greedy()));
  sequences.push_back(draft_cases::drafted(2, draft_cases::some_prompt(target_model, 28, 5), draft_cases::sampled()));
  int partings = 0;
  for (std::uint64_t round = 1; round <= 5; ++round) { // also from block to block
    CAPTURE(round);
    guess_request request{.number = round};
    for (auto& s : sequences) {
      request.demands.push_back(s.demand(4));
      request.demands.back().others = 2;
    }
    const auto reply = draft.serve(request);
    for (std::size_t i = 0; i < sequences.size(); ++i) {
      auto& s = sequences[i];
      const auto& answer = reply.answers[i];
      REQUIRE(answer.parents.size() == answer.guesses.size());
      REQUIRE(answer.chances.size() == answer.guesses.size());
      std::vector<ids> lines(answer.guesses.size());
      std::vector<bool> followed(answer.guesses.size() + 1);
      std::size_t first_line = 0;
      for (std::size_t g = 0; g < answer.guesses.size(); ++g) {
        const auto parent = as_size(answer.parents[g] + 1);
        const auto before = parent == 0 ? ids() : lines[parent - 1];
        lines[g] = before;
        lines[g].push_back(answer.guesses[g]);
        CHECK(lines[g].size() <= 4);
        CHECK(answer.chances[g] > 0);
        CHECK(answer.chances[g] <= 1);
        if (followed[parent])
          continue; // the first one behind its parent was drawn
        followed[parent] = true;
        auto emitted = s.emitted;
        emitted.insert(emitted.end(), before.begin(), before.end());
        CHECK(answer.guesses[g] == target.continuation(s.prompt, emitted, *s.params, 1)[0]);
        if (parent == first_line)
          first_line = g + 1;
        else
          ++partings;
      }
      CHECK(lines[first_line - 1] == target.continuation(s.prompt, s.emitted, *s.params, 4));
      const auto next = target.continuation(s.prompt, s.emitted, *s.params, 3);
      s.emitted.insert(s.emitted.end(), next.begin(), next.end());
    }
  }
  CHECK(partings >= 30); // two of each in each round, of three tokens at most
  draft.serve({.number = 9, .ended = {{1, 0}, {2, 0}}});
  CHECK(draft.free_blocks() == 64);
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
