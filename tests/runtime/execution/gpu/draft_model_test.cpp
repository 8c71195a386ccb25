// The draft model on the emulated GPU, whose work runs late and in any order that events allow; and on another device
// than its target's.
#include "runtime/techniques/speculation/draft_model.hpp"

#include "tests/runtime/execution/gpu/tiny_engine.hpp"
#include "tests/runtime/techniques/speculation/draft_model_cases.hpp"

using namespace troupe;
using kernels::cuda::emulated::bytes_on;
using kernels::cuda::emulated::shown_devices;

namespace {

/// A tiny model that is its own draft.
engine_options drafted_by_itself(const testing::tiny_model& tiny, const std::string& device) {
  auto o = tiny.options();
  o.compute.device = device;
  o.compute.threads = 1;
  o.techniques = {{"draft", {o.model}}, {"draft_tokens", {"3"}}};
  return o;
}

std::string refusal(const engine_options& options) {
  try {
    load_model(options, {});
  } catch (const failure& f) {
    return f.what_failed().param + ": " + f.what();
  }
  return {};
}

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

TEST_CASE("with a draft model on a device of its own, requests have the bits of those without one") {
  const shown_devices two(2);
  const testing::tiny_model tiny("tiny_families/arcee");
  std::vector<generation> work;
  for (token_id i = 0; i < 4; ++i) {
    work.push_back(testing::ignoring_eos(testing::tiny_prompt(5 + 9 * static_cast<std::size_t>(i), i), 12));
    work.back().sampling.logprobs = 1;
    if (i > 1) {
      work.back().sampling.temperature = 0.8f;
      work.back().sampling.seed = 3;
    }
  }
  for (const std::string device : {"cuda:0", "cpu"}) {
    const auto expected = testing::alone(drafted_by_itself(tiny, device), work);
    for (const std::string draft : {"", "cuda:0", "cuda:1", "cpu"}) {
      CAPTURE(device);
      CAPTURE(draft);
      const kernels::cuda::emulated::deferred_work later(7);
      auto o = drafted_by_itself(tiny, device);
      o.techniques["draft_device"] = {draft};
      testing::gpu_engine engine(o);
      if (const auto& why = engine.status().why)
        FAIL(why->message);
      testing::run_together(engine, work, expected);
      const auto counted = engine.stats().total.scheduler;
      CHECK(counted.accepted_tokens > 0);
      const bool apart = !draft.empty() && draft != device;
      CHECK((counted.guess_runs_ahead > 0) == apart); // which devices that take turns cannot
    }
  }
}

TEST_CASE("weights and guesses of a draft model are in the memory of its own device") {
  const shown_devices two(2);
  const testing::tiny_model tiny("tiny_families/arcee");
  const auto bytes_with = [&](const std::string& draft, int device) {
    auto o = drafted_by_itself(tiny, "cuda:0");
    o.techniques["draft_device"] = {draft};
    const auto before = bytes_on(device);
    const auto model = load_model(o, {});
    const auto guesses = model->guesses.make_model(replica_of(model));
    return bytes_on(device) - before;
  };
  auto without = drafted_by_itself(tiny, "cuda:0");
  without.techniques.clear();
  const auto before = bytes_on(0);
  const auto model = load_model(without, {});
  const auto alone = bytes_on(0) - before;
  CHECK(bytes_with("cuda:1", 0) == alone);
  CHECK(bytes_with("cpu", 0) == alone);
  CHECK(bytes_with("cuda:1", 1) > alone);
  CHECK(bytes_with("", 0) == alone + bytes_with("cuda:1", 1));
  CHECK(bytes_with("", 1) == 0);

  // Each plans for its own.
  std::string lines;
  auto o = drafted_by_itself(tiny, "cuda:0");
  o.techniques["draft_device"] = {"cuda:1"};
  load_model(o, [&](const load_status& s) { lines += s.line + '\n'; });
  CHECK(lines.find("; on cuda:1, emulated GPU") != std::string::npos);
  CHECK(lines.find(" on cuda:1, emulated GPU", lines.find("; with the draft model ")) != std::string::npos);
}

TEST_CASE("devices that a draft model cannot have to itself are refused with a sentence") {
  const shown_devices two(2);
  const testing::tiny_model tiny("tiny_families/arcee");
  auto o = drafted_by_itself(tiny, "cuda:0");
  o.techniques["draft_device"] = {"cuda:2"};
  CHECK(refusal(o) == "draft_device: there is no device `cuda:2`: the last is cuda:1");
  o.techniques["draft_device"] = {"cuda:1"};
  o.techniques["draft_threads"] = {"1"};
  CHECK(refusal(o) == "draft_threads: `draft_threads` is for a draft model on a CPU, not on cuda:1");
  o.techniques["draft_device"] = {"cpu"};
  CHECK(refusal(o).empty());
  o.techniques.erase("draft_device");
  CHECK(refusal(o) ==
        "draft_threads: `draft_threads` is for models on a CPU: on a GPU, both take turns, unless "
        "`draft_device` is cpu");
  o.techniques = {{"draft", {o.model}}, {"draft_device", {"cuda:1"}}};
  o.compute.tensor_parallel = 2;
  CHECK(refusal(o).starts_with("draft_device: `draft_device` cannot be a GPU beside those that `tensor_parallel` "));
}
