// An engine whose device fails in a step: clients notice a pause at most, and their results are the same bits.
#include "runtime/guide/guide_source.hpp"
#include "runtime/support/json/json.hpp"
#include "runtime/techniques/amateur/technique.hpp"
#include "runtime/techniques/dola/technique.hpp"
#include "runtime/techniques/guides/technique.hpp"
#include "runtime/tokenizer/tokenizer.hpp"
#include "tests/actors/troubled_engine.hpp"
#include "tests/sanitized.hpp"

#include <algorithm>
#include <atomic>
#include <new>
#include <span>
#include <stdexcept>

using namespace troupe;
using namespace troupe::testing;

namespace {

/// What came of runs of the same work, each with a fault in another step.
struct faulted_runs {
  int undisturbed_steps = 0;
  std::uint64_t undisturbed_moves = 0, restarts = 0, moves = 0;
};

/// Runs `work` without a fault, then with one in every `stride`-th step: clients receive the same. How many steps there
/// are is a matter of timing; it ends with a run that has fewer.
faulted_runs with_faults_everywhere(const std::vector<generation>& work, int stride, const engine_options& options) {
  const auto expected = undisturbed(work);
  faulted_runs all;
  {
    troubled_engine calm(std::make_shared<faults>(), options);
    all.undisturbed_steps = check_same(calm, work, expected);
    all.undisturbed_moves = calm.settled()->total.moves.moved;
  }
  REQUIRE(all.undisturbed_steps > 20);
  for (int at = 1;; at += stride) {
    CAPTURE(at);
    troubled_engine e(failing([=](int step) {
                        if (step == at)
                          fail_device();
                      }),
                      options);
    check_same(e, work, expected);
    const auto stats = e.settled();
    REQUIRE(stats.has_value());
    CHECK(stats->total.restarts <= 1);
    all.restarts += stats->total.restarts;
    all.moves += stats->total.moves.moved;
    if (stats->total.restarts == 0)
      return all;
  }
}

} // namespace

TEST_CASE("what was counted before a restart stays counted") {
  troubled_engine e;
  e.run(ask(5, 12));
  const auto before = e.settled();
  REQUIRE(before.has_value());
  CHECK(before->total.scheduler.generated_tokens == 12);
  e.lose_scheduler();
  e.run(ask(40, 9));
  const auto after = e.settled();
  REQUIRE(after.has_value());
  CHECK(after->total.restarts == 1);
  CHECK(after->total.scheduler.generated_tokens == 21);
  CHECK(after->total.scheduler.prompt_tokens == 45);
  CHECK(after->total.scheduler.steps > before->total.scheduler.steps);
  CHECK(after->total.blocks.looked_up_tokens == before->total.blocks.looked_up_tokens + 40);
  CHECK(after->total.blocks.total == before->total.blocks.total);
  REQUIRE(after->replicas.size() == 1);
  CHECK(after->replicas[0].scheduler.steps == after->total.scheduler.steps);
}

TEST_CASE("a fault in any step of any work changes no event that clients receive") {
  const int stride = troupe::testing::address_sanitized() ? 5 : 1;
  const auto all = with_faults_everywhere(mixed_work(), stride, small());
  CHECK(all.restarts >= static_cast<std::uint64_t>(10 / stride)); // one answer has 20 tokens, some guessed
}

TEST_CASE("a fault in any step on two replicas changes no event that clients receive") {
  auto options = small();
  options.replicas = options.compute.threads = 2;
  options.kv_cache_bytes *= 2;
  CHECK(with_faults_everywhere(mixed_work(), 5, options).restarts > 0);
}

TEST_CASE("a fault in any step of any stage changes no event that clients receive") {
  auto options = small();
  options.stages = options.compute.threads = 2;
  const auto all = with_faults_everywhere(mixed_work(), 7, options);
  CHECK(all.undisturbed_steps > 40); // of all stages
  CHECK(all.restarts > 2);
}

TEST_CASE("a fault in any step of either role, also amid a transfer, changes no event that clients receive") {
  auto work = mixed_work();
  work.push_back(ask(120, 30));
  work.push_back(ask(150, 12));
  auto options = small();
  options.roles = "prefill:1,decode:1";
  options.compute.threads = 2;
  options.kv_cache_bytes *= 2;
  const auto all = with_faults_everywhere(work, 3, options);
  CHECK(all.restarts > 0);
  CHECK(all.undisturbed_moves > 0);
  CHECK(all.moves > 0);
}

TEST_CASE("a replica that is lost for good leaves the other one serving, and the status says so") {
  const auto work = mixed_work();
  const auto expected = undisturbed(work);
  auto options = small();
  options.replicas = options.compute.threads = 2;
  options.kv_cache_bytes *= 2;
  std::atomic<bool> lose_another = false;
  troubled_engine e(failing([&](int step) {
                      if (step == 6 || lose_another)
                        throw kernels::device_error("it fell off the bus", true);
                    }),
                    options);
  check_same(e, work, expected);
  const auto status = e.wait_until([](const load_status& s) { return !s.degraded.empty(); });
  CHECK(status.now == load_status::stage::ready);
  CHECK(status.degraded.starts_with("1 of 2 replicas are left: replica "));
  CHECK(status.degraded.ends_with(": the device is lost: it fell off the bus"));
  const auto stats = e.settled();
  REQUIRE(stats.has_value());
  CHECK(stats->replicas.size() == 2);
  check_same(e, work, expected);
  CHECK(e.script->runners == 2);
  lose_another = true;
  CHECK(e.run(ask(10, 30)).failed->message == "the device is lost: it fell off the bus");
  CHECK(e.wait_for(load_status::stage::failed).why.has_value());
}

TEST_CASE("work continues after three faults in a row, whatever is thrown and by whichever actor") {
  const auto work = mixed_work();
  const auto expected = undisturbed(work);
  auto script = failing([](int step) {
    if (step == 4)
      throw std::bad_alloc();
    if (step == 11)
      throw std::runtime_error("a bug");
  });
  script->on_runner = [](int n) {
    if (n == 2) // the replacement of the first
      fail_device();
  };
  troubled_engine e(script);
  check_same(e, work, expected);
  CHECK(e.settled()->total.restarts == 3);
  const auto lines = e.lines();
  const auto told = [&](const std::string& why) {
    return std::ranges::count(lines, "a part of the engine failed and was restarted: " + why);
  };
  CHECK(told("there is not enough memory") == 1);
  CHECK(told("cuLaunchKernel(attention): it failed") == 1);
  CHECK(told("a bug") == 1);
}

TEST_CASE("contrasted requests survive faults of the model, and of the amateur, with the same bits") {
  auto options = small();
  options.model = golden("qwen3");
  options.techniques["amateur"] = {golden("qwen2")};
  auto work = mixed_work();
  for (std::size_t i = 0; i < work.size(); ++i)
    if (i % 2 == 0)
      work[i].sampling.techniques.set(contrasted_by({.beta = 1}));
    else
      work[i].sampling.techniques.set(contrasted_with(dola_layers({0, 1})));
  const auto expected = undisturbed(work, options);
  for (const int at : {3, 8, 13}) {
    CAPTURE(at);
    troubled_engine e(failing([=](int step) {
                        if (step == at)
                          fail_device();
                      }),
                      options);
    check_same(e, work, expected);
    CHECK(e.settled()->total.restarts == 1);
  }
}

TEST_CASE("a guided answer goes on within a string after the death of its replica, valid and with the same bits") {
  auto g = ask(20, 200);
  g.sampling.ignore_eos = false;
  g.sampling.techniques.set(guides::following(
    {.what = guides::guide_source::kind::json_schema,
     .text = R"({"type":"object","properties":{"name":{"type":"string","minLength":20,"maxLength":40}},
                "required":["name"],"additionalProperties":false})",
     .compact = true}));
  const auto expected = undisturbed({g}).front();
  REQUIRE(expected.finish.at(0) == finish_reason::stop);
  const auto whole = json::document::parse(expected.text.at(0), "the answer", errc::internal);
  CHECK(json::find(whole.root(), "name").value().get_string().value().size() >= 20);
  const auto& ids = expected.ids.at(0);
  const auto words = tokenizer::load(golden("llama-gqa"));
  for (std::size_t known = ids.size() / 4; known < ids.size() * 3 / 4; known += 3) {
    CAPTURE(known);
    const auto before = words->decode(std::span(ids).first(known), true);
    REQUIRE(std::ranges::count(before, '"') == 3);
    auto script = std::make_shared<faults>();
    script->on_plan = [&, failed = false](const step_plan& plan) mutable {
      const auto& rows = plan.sequences.at(0);
      if (!failed && rows.first_position + rows.rows >= static_cast<std::int32_t>(g.prompt.size() + known))
        failed = true, fail_device();
    };
    troubled_engine e(script);
    CHECK(same(e.run(g), expected));
    CHECK(e.settled()->total.restarts == 1);
  }
}

TEST_CASE("nothing is restarted after the loss of the device's context") {
  troubled_engine e(failing([](int step) {
    if (step == 3)
      throw kernels::device_error("cuStreamSynchronize: an illegal memory access was encountered", true);
  }));
  const std::string sentence = "the device is lost: cuStreamSynchronize: an illegal memory access was encountered";
  CHECK(e.run(ask(10, 30)).failed->message == sentence);
  CHECK(e.wait_for(load_status::stage::failed).why->message == sentence);
  CHECK(e.run(ask(1, 1)).failed->message == sentence);
  CHECK(e.script->runners == 1);
}
