// The device's sampler compared with the host's, with one sample in flight while the next is queued.
#include "runtime/execution/cpu/cpu_step_sampler.hpp"
#include "runtime/execution/gpu/gpu_step_sampler.hpp"
#include "runtime/techniques/beams/technique.hpp"
#include "tests/emulation/cuda/queues.hpp"
#include "tests/runtime/execution/sampling_starts.hpp"
#include "tests/runtime/sampling/processors/random_samplers.hpp"

#include <doctest/doctest.h>

#include <condition_variable>
#include <cstring>
#include <mutex>
#include <random>

using namespace troupe;
namespace cuda = kernels::cuda;

namespace {

constexpr int vocab = 97, max_sequences = 6;
const std::vector<token_id> eos{5, 6};

/// Counts calls; tests wait for a number of them.
class counter {
public:
  void add() {
    std::lock_guard lock(mutex_);
    ++count_;
    changed_.notify_all();
  }
  void wait_for(int n) {
    std::unique_lock lock(mutex_);
    REQUIRE(changed_.wait_for(lock, std::chrono::minutes(1), [&] { return count_ >= n; }));
  }

private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int count_ = 0;
};

sampling_params random_params(std::mt19937& rng) {
  const auto pick = [&](int lo, int hi) { return std::uniform_int_distribution<int>(lo, hi)(rng); };
  sampling_params p;
  p.temperature = pick(0, 3) == 0 ? 0 : 0.8f;
  p.seed = rng();
  p.max_tokens = pick(3, 20);
  p.min_tokens = pick(0, 6);
  p.ignore_eos = pick(0, 1) == 1;
  p.logprobs = pick(-1, 4);
  if (pick(0, 1) == 1)
    p.repetition_penalty = 1.4f;
  if (pick(0, 1) == 1)
    p.frequency_penalty = 0.9f;
  if (pick(0, 2) == 0)
    p.presence_penalty = -0.6f;
  if (pick(0, 2) == 0)
    p.logit_bias = {{3, 2.f}, {11, -50.f}};
  if (pick(0, 2) == 0)
    p.stop_token_ids = {17};
  if (pick(0, 2) == 0 && p.temperature > 0) // sampled on the host
    testing::add_random_samplers(p, vocab, rng);
  return p;
}

bool same(const sampled_token& a, const sampled_token& b) {
  if (a.id != b.id || a.logprob != b.logprob || a.finish != b.finish || a.top.size() != b.top.size())
    return false;
  for (std::size_t i = 0; i < a.top.size(); ++i)
    if (a.top[i].id != b.top[i].id || a.top[i].logprob != b.top[i].logprob)
      return false;
  return true;
}

/// Sorts what is said of single sequences: the device reports those that the host samples last.
void by_sequence(step_result& result) {
  std::ranges::stable_sort(result.sampled, {}, &sequence_sample::sequence);
  std::ranges::stable_sort(result.judged, {}, &judged_guesses::sequence);
}

} // namespace

TEST_CASE("samples queued before the last token is known equal those of the host's sampler") {
  for (unsigned seed = 1; seed <= 4; ++seed) {
    CAPTURE(seed);
    std::mt19937 rng(seed);
    std::normal_distribution<float> normal(0, 2);
    cuda::emulated::deferred_work later(seed);
    counter sampled;
    gpu_step_sampler on_device(eos, vocab, max_sequences, [&] { sampled.add(); });
    cpu_step_sampler on_host(eos);
    const cuda::stream compute;

    std::vector<std::shared_ptr<const step_plan>> plans;
    std::vector<std::vector<float>> logits;
    std::vector<step_result> expected;
    std::vector<step_tokens> tokens;
    constexpr int steps = 24;
    for (int step = 0; step < steps; ++step) {
      auto plan = std::make_shared<step_plan>();
      plan->step = static_cast<std::uint64_t>(step + 1);
      for (std::int32_t slot = 0; slot < max_sequences; ++slot) {
        sample_demand d{{static_cast<std::uint64_t>(100 * (step / 12) + slot), 0}, slot, slot, nullptr};
        if (step % 12 == 0 || (slot == 2 && step == 5)) // starts, or resumes after a preemption
          d.start = testing::start_with(random_params(rng), {1, 2, 3, 2}, {4, 9});
        plan->logit_rows.push_back(slot);
        plan->samples.push_back(std::move(d));
      }
      if (step == 11)
        for (std::uint64_t request = 0; request < max_sequences; ++request)
          plan->ended.push_back({request, 0});
      logits.emplace_back(vocab * max_sequences);
      for (auto& x : logits.back())
        x = normal(rng);
      if (step == 7) // one row without any token to choose
        std::fill_n(logits.back().begin() + vocab, vocab, -INFINITY);
      plans.push_back(std::move(plan));
      expected.push_back(on_host.sample(*plans.back(), logits.back()));
    }

    const auto collect = [&](int step) {
      sampled.wait_for(step + 1);
      auto got = on_device.collect();
      std::ranges::stable_sort(got.sampled, {}, &sequence_sample::slot); // those of the host come last
      std::ranges::stable_sort(got.failed, {}, &failed_sample::sequence);
      const auto& want = expected[static_cast<std::size_t>(step)];
      CAPTURE(step);
      CHECK(got.step == want.step);
      REQUIRE(got.sampled.size() == want.sampled.size());
      for (std::size_t i = 0; i < got.sampled.size(); ++i) {
        CHECK(got.sampled[i].slot == want.sampled[i].slot);
        CHECK(same(got.sampled[i].token, want.sampled[i].token));
      }
      REQUIRE(got.failed.size() == want.failed.size());
      for (std::size_t i = 0; i < got.failed.size(); ++i)
        CHECK(got.failed[i].why.message == want.failed[i].why.message);
    };
    for (int step = 0; step < steps; ++step) {
      const auto& values = logits[static_cast<std::size_t>(step)];
      if (step == 5) // a resumed sequence has no sample in flight
        collect(4);
      std::shared_ptr<float> memory = std::static_pointer_cast<float>(cuda::allocate(values.size() * sizeof(float)));
      cuda::copy_to_device(compute, memory.get(), values.data(), values.size() * sizeof(float));
      auto ready = std::make_shared<cuda::event>();
      ready->record(compute);
      tokens.push_back(on_device.sample(plans[static_cast<std::size_t>(step)], {memory, vocab, ready}));
      if (step % 12 == 11) { // new requests start once all tokens are known
        collect(step - 1);
        collect(step);
      } else if (step % 12 > 0 && step != 5) {
        collect(step - 1);
      }
    }
    // The slots hold the tokens of the last step.
    tokens.back().ready->synchronise();
    for (const auto& d : expected.back().sampled)
      CHECK(tokens.back().slots.get()[d.slot] == d.token.id);
  }
}

TEST_CASE("EOS ids outside the vocabulary are ignored, and sampling allocates nothing") {
  const std::vector<token_id> strange{5, vocab, vocab + 3, -1};
  gpu_step_sampler on_device(strange, vocab, max_sequences, [] {});
  cpu_step_sampler on_host(strange);
  const cuda::stream compute;
  std::mt19937 rng(9);
  std::normal_distribution<float> normal(0, 2);
  const auto memory = std::static_pointer_cast<float>(cuda::allocate(vocab * max_sequences * sizeof(float)));
  std::vector<std::shared_ptr<const step_plan>> plans;
  const auto before = cuda::emulated::counted().allocations;
  for (int step = 0; step < 6; ++step) {
    auto plan = std::make_shared<step_plan>();
    plan->step = static_cast<std::uint64_t>(step + 1);
    for (std::int32_t slot = 0; slot < max_sequences; ++slot) {
      sample_demand d{{static_cast<std::uint64_t>(slot), 0}, slot, slot, nullptr};
      if (step == 0) {
        sampling_params p;
        p.temperature = slot % 2 == 0 ? 0 : 0.9f;
        p.repetition_penalty = slot % 3 == 0 ? 1.2f : 1;
        p.min_tokens = p.max_tokens = 10;
        d.start = testing::start_with(p, {1, 2});
      }
      plan->logit_rows.push_back(slot);
      plan->samples.push_back(std::move(d));
    }
    std::vector<float> logits(vocab * max_sequences);
    for (auto& x : logits)
      x = normal(rng);
    for (std::size_t row = 0; row < max_sequences; ++row) {
      logits[row * vocab] = 20;     // masks of the previous row must not affect it
      logits[row * vocab + 5] = 30; // masked
    }
    const auto want = on_host.sample(*plan, logits);
    cuda::copy_to_device(compute, memory.get(), logits.data(), logits.size() * sizeof(float));
    auto ready = std::make_shared<cuda::event>();
    ready->record(compute);
    on_device.sample(plan, {memory, vocab, ready});
    const auto got = on_device.collect();
    REQUIRE(got.sampled.size() == want.sampled.size());
    for (std::size_t i = 0; i < got.sampled.size(); ++i)
      CHECK(same(got.sampled[i].token, want.sampled[i].token));
  }
  CHECK(cuda::emulated::counted().allocations == before);
  cuda::emulated::check_memory();
}

TEST_CASE("guesses, groups and scored prompts are judged as by the host's sampler") {
  std::mt19937 rng(5);
  std::normal_distribution<float> normal(0, 2);
  cuda::emulated::deferred_work later(5);
  counter sampled;
  gpu_step_sampler on_device(eos, vocab, max_sequences, [&] { sampled.add(); });
  cpu_step_sampler on_host(eos);
  const cuda::stream compute;
  const auto prompt = std::make_shared<const std::vector<token_id>>(std::vector<token_id>{1, 2, 3, 2, 8, 30});
  const auto start_with = [&](const sampling_params& p) { return testing::start_with(p, *prompt); };
  sampling_params beams;
  beams.techniques.set(troupe::beams({.width = 3}));
  beams.max_tokens = 60;
  beams.ignore_eos = true;
  std::size_t members = 1;
  int accepted = 0, branched = 0;
  std::vector<std::int32_t> running{0, 1, 2};
  for (int step = 0; step < 40; ++step) {
    CAPTURE(step);
    auto plan = std::make_shared<step_plan>();
    plan->step = static_cast<std::uint64_t>(step + 1);
    const auto add_row = [&](token_id token) {
      plan->logit_rows.push_back(static_cast<std::int32_t>(plan->tokens.size()));
      plan->tokens.push_back(token);
      return plan->logit_rows.back();
    };
    std::vector<std::pair<std::int32_t, token_id>> certain; // rows in which this token will be chosen
    for (const auto slot : running) {
      sample_demand d{{static_cast<std::uint64_t>(slot), 0}, slot, add_row(0), nullptr};
      if (step == 0) {
        auto p = random_params(rng);
        if (slot == 0) { // drawn on the device, by the position and the guesses before
          p = {};
          p.frequency_penalty = 0.9f;
          p.logprobs = 2;
          p.ignore_eos = true;
        }
        p.max_tokens = 200;
        p.min_tokens = 0;
        d.start = start_with(p);
      }
      const bool branches = step % 2 == 1;
      d.guesses = static_cast<std::int32_t>(rng() % 5) + (branches ? 2 : 0);
      std::vector<std::int32_t> parents;
      for (std::int32_t i = 0; i < d.guesses; ++i) {
        const auto guess = static_cast<token_id>(20 + rng() % 5); // repeated ones are penalised
        add_row(guess);
        parents.push_back(!branches || rng() % 3 == 0 ? i - 1 : static_cast<std::int32_t>(rng() % (i + 1)) - 1);
        const auto before = d.logit_row + 1 + parents.back();
        if (rng() % 4 > 0 &&
            std::ranges::find(certain, before, &std::pair<std::int32_t, token_id>::first) == certain.end())
          certain.emplace_back(before, guess);
      }
      if (branches)
        d.parents = std::make_shared<const std::vector<std::int32_t>>(std::move(parents));
      plan->samples.push_back(std::move(d));
    }
    group_demand group{100, {}, step == 0 ? start_with(beams) : nullptr};
    for (std::size_t i = 0; i < members; ++i)
      group.logit_rows.push_back(add_row(0));
    plan->groups.push_back(std::move(group));
    plan->scores.push_back({200, 1, add_row(0), 2, 3, prompt});
    add_row(0);
    std::vector<float> logits(plan->tokens.size() * vocab);
    for (auto& x : logits)
      x = normal(rng);
    for (const auto& [row, token] : certain)
      logits[static_cast<std::size_t>(row * vocab + token)] = 80;

    auto want = on_host.sample(*plan, logits);
    std::shared_ptr<float> memory = std::static_pointer_cast<float>(cuda::allocate(logits.size() * sizeof(float)));
    cuda::copy_to_device(compute, memory.get(), logits.data(), logits.size() * sizeof(float));
    auto ready = std::make_shared<cuda::event>();
    ready->record(compute);
    on_device.sample(plan, {memory, vocab, ready});
    sampled.wait_for(step + 1);
    auto got = on_device.collect();
    by_sequence(want), by_sequence(got);

    REQUIRE(got.sampled.size() == want.sampled.size());
    running.clear();
    for (std::size_t i = 0; i < got.sampled.size(); ++i) {
      CHECK(got.sampled[i].sequence == want.sampled[i].sequence);
      CHECK(got.sampled[i].more == want.sampled[i].more);
      CHECK(same(got.sampled[i].token, want.sampled[i].token));
      if (!got.sampled[i].more && got.sampled[i].token.finish == sampled_token::finish::none)
        running.push_back(got.sampled[i].slot);
    }
    REQUIRE(got.judged.size() == want.judged.size());
    for (std::size_t i = 0; i < got.judged.size(); ++i) {
      CHECK(got.judged[i].accepted == want.judged[i].accepted);
      CHECK(got.judged[i].last == want.judged[i].last);
      branched += got.judged[i].last > got.judged[i].accepted;
      CHECK(got.judged[i].choices.size() == static_cast<std::size_t>(got.judged[i].guesses + 1));
      accepted += got.judged[i].accepted;
    }
    REQUIRE(got.groups.size() == 1);
    REQUIRE(got.groups[0].children.size() == want.groups[0].children.size());
    members = got.groups[0].children.size();
    for (std::size_t i = 0; i < members; ++i) {
      CHECK(got.groups[0].children[i].parent == want.groups[0].children[i].parent);
      CHECK(got.groups[0].children[i].token == want.groups[0].children[i].token);
    }
    REQUIRE(got.scores.size() == 1);
    REQUIRE(got.scores[0].tokens.size() == 2);
    for (std::size_t i = 0; i < 2; ++i)
      CHECK(same(got.scores[0].tokens[i], want.scores[0].tokens[i]));
  }
  CHECK(members == 3);
  CHECK(accepted > 20);
  CHECK(branched > 5);
}
