// Microseconds per sampled token on one thread: medians over different rows, as in decoding. Then what a step of 64
// sequences takes, divided over threads.
#include "runtime/execution/cpu/cpu_step_sampler.hpp"
#include "runtime/sampling/sampler.hpp"
#include "runtime/techniques/watermark/technique.hpp"
#include "tests/runtime/execution/sampling_starts.hpp"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <random>
#include <utility>
#include <vector>

using namespace troupe;

namespace {

std::vector<std::vector<float>> random_rows(std::size_t vocab) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0, 2.5f);
  std::vector<std::vector<float>> rows(8, std::vector<float>(vocab));
  for (auto& row : rows) {
    for (auto& x : row)
      x = normal(random);
    for (int likely = 0; likely < 20; ++likely) // a few likely tokens, as in a trained model
      row[random() % vocab] += 8;
  }
  return rows;
}

double median_us(const sampling_params& params, const std::vector<std::vector<float>>& rows) {
  using clock = std::chrono::steady_clock;
  const std::vector<token_id> prompt(1000, 7);
  sequence_sampler sampler(std::make_shared<const sampling_params>(params), {2}, prompt, {}, 0);
  sampling_scratch scratch;
  std::vector<double> times;
  for (int i = 0; i < 400; ++i) {
    const auto start = clock::now();
    sampler.sample(rows[static_cast<std::size_t>(i) % rows.size()], scratch);
    times.push_back(std::chrono::duration<double, std::micro>(clock::now() - start).count());
  }
  std::nth_element(times.begin(), times.begin() + 200, times.end());
  return times[200];
}

/// Milliseconds of a step of `sequences`, whose rows differ.
double median_step_ms(const sampling_params& params, std::size_t vocab, int sequences, int threads) {
  auto own = params;
  own.max_tokens = 1 << 20;
  const auto start = testing::start_with(own, {7});
  std::vector<float> logits;
  for (const auto rows = random_rows(vocab); logits.size() < vocab * static_cast<std::size_t>(sequences);)
    for (const auto& row : rows)
      logits.insert(logits.end(), row.begin(), row.end());
  cpu_step_sampler sampler({2}, {}, {.threads = threads});
  std::vector<double> times;
  for (int step = 0; step < 60; ++step) {
    step_plan plan;
    plan.step = static_cast<std::uint64_t>(step) + 1;
    for (std::int32_t i = 0; i < sequences; ++i) {
      plan.logit_rows.push_back(i);
      plan.samples.push_back({{static_cast<std::uint64_t>(i), 0}, i, i, step == 0 ? start : nullptr});
    }
    const auto began = std::chrono::steady_clock::now();
    sampler.sample(plan, logits);
    times.push_back(std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - began).count());
  }
  std::nth_element(times.begin(), times.begin() + 30, times.end());
  return times[30];
}

} // namespace

int main() {
  sampling_params greedy, plain, top_k, top_p, all, logprobs;
  greedy.temperature = 0;
  plain.temperature = 0.8f;
  top_k.temperature = top_p.temperature = all.temperature = 0.8f;
  top_k.top_k = 40;
  top_p.top_p = all.top_p = 0.95f;
  all.top_k = 40;
  all.min_p = 0.05f;
  all.repetition_penalty = 1.1f;
  all.presence_penalty = all.frequency_penalty = 0.5f;
  sampling_params typical, xtc, dry, mirostat, green, self_green, gumbel;
  typical.typical_p = 0.9f;
  xtc.xtc_probability = 0.5f;
  dry.dry_multiplier = 0.8f;
  mirostat.mirostat = 2;
  const auto marked = [](sampling_params& p, watermarks::options mark) {
    p.techniques.set(watermarks::marked_by(std::make_shared<watermarks::options>(mark)));
  };
  marked(green, {});
  marked(self_green, {.context = watermarks::context_kind::self, .width = 3});
  marked(gumbel, {.what = watermarks::kind::gumbel, .context = watermarks::context_kind::sequence, .width = 4});
  logprobs.temperature = 0;
  logprobs.logprobs = 5;
  const std::pair<const char*, const sampling_params*> cases[] = {{"greedy", &greedy},
                                                                  {"temperature", &plain},
                                                                  {"top-k 40", &top_k},
                                                                  {"top-p 0.95", &top_p},
                                                                  {"all and penalties", &all},
                                                                  {"greedy, logprobs 5", &logprobs},
                                                                  {"typical 0.9", &typical},
                                                                  {"XTC", &xtc},
                                                                  {"DRY", &dry},
                                                                  {"mirostat", &mirostat},
                                                                  {"green list", &green},
                                                                  {"green list, selfhash", &self_green},
                                                                  {"Gumbel", &gumbel}};
  std::printf("%-22s %10s %10s  us per token\n", "", "32k", "152k");
  const auto small = random_rows(32000), large = random_rows(151936);
  for (const auto& [name, params] : cases)
    std::printf("%-22s %10.1f %10.1f\n", name, median_us(*params, small), median_us(*params, large));

  std::printf("\n%-22s %10s %10s  ms per step of 64 sequences, 152k\n", "", "1 thread", "2 threads");
  for (const auto& [name, params] : {cases[0], cases[1], cases[3]})
    std::printf("%-22s %10.2f %10.2f\n", name, median_step_ms(*params, 151936, 64, 1),
                median_step_ms(*params, 151936, 64, 2));
}
