// The draft model on the emulated GPU, whose work runs late and in any order that events allow.
#include "runtime/techniques/speculation/draft_model.hpp"

#include "tests/runtime/execution/gpu/gpu_engine.hpp"
#include "tests/runtime/techniques/speculation/draft_model_cases.hpp"

using namespace troupe;

namespace {

engine_options drafting_on_gpu() {
  auto o = testing::on_gpu();
  o.step_tokens = 256;
  return o;
}

} // namespace

TEST_CASE("draft model on a GPU: one that equals the target guesses its tokens, greedy and sampled") {
  const kernels::cuda::emulated::deferred_work later(3);
  draft_cases::guesses_of_an_equal_model(drafting_on_gpu(), 2);
}

TEST_CASE("draft model on a GPU: a device that fails ends the wait with an error") {
  const auto model = replica_of(load_model(drafting_on_gpu(), {}));
  draft_model draft(model.plan.last(), draft_cases::spec_of(model, 64, 16));
  auto s = draft_cases::drafted(1, draft_cases::some_prompt(model, 9, 3), draft_cases::greedy());
  kernels::cuda::emulated::deferred_work later(4);
  later.fail_after(20);
  CHECK_THROWS_AS(
    [&] {
      for (std::uint64_t i = 1; i < 50; ++i)
        draft.serve({.number = i, .demands = {s.demand(4)}});
    }(),
    kernels::device_error);
}
