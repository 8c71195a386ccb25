#include "runtime/sampling/group_strategy.hpp"
#include "runtime/support/json/json.hpp"
#include "runtime/techniques/beams/technique.hpp"
#include "tests/runtime/sampling/groups/golden_model.hpp"

#include <doctest/doctest.h>

using namespace troupe;
using namespace troupe::test;

TEST_CASE("Golden checkpoints: beam search finds transformers' sequences and scores") {
  constexpr double closest = 1e-3;
  for (const auto& name : golden_models) {
    CAPTURE(name);
    golden_model model(name);
    const auto expected = json::document::load(data() / "golden" / name / "expected.json");
    int searches = 0;
    for (auto one : json::array(expected.root()["cases"])) {
      const auto beams = json::find(one, "beam");
      if (!beams)
        continue;
      const auto prompt = list<token_id>(one["ids"]);
      for (auto beam : json::array(*beams)) {
        sampling_params params;
        params.n = static_cast<int>(std::int64_t(beam["num_beams"]));
        params.techniques.set(
          troupe::beams({.width = params.n, .length_penalty = static_cast<float>(double(beam["length_penalty"]))}));
        params.max_tokens = static_cast<int>(std::int64_t(beam["max_new_tokens"]));
        const auto strategy = make_group_strategy(std::make_shared<const sampling_params>(params), model.eos_ids(),
                                                  prompt);
        const auto got = drive(
          *strategy, [&](std::span<const token_id> tokens) { return model.logits_after(tokens); }, params, prompt);
        check_sequences(beam["sequences"], got, closest);
        ++searches;
      }
    }
    CHECK(searches > 0);
  }
}
