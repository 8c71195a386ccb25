// What predictions of answers' lengths are worth: replicas in virtual time, above their capacity, with requests of
// several kinds, placed and preempted by what was learned, by free blocks alone, and by an oracle.
#include "tests/runtime/scheduling/simulated_replicas.hpp"

#include <cmath>

using namespace troupe;
using namespace troupe::testing;

namespace {

enum class knowledge : std::uint8_t { none, learned, oracle };

/// Chats, summaries, code and lists, each kind behind a system prompt of its own; they arrive as a Poisson process.
std::vector<simulated_request> requests_of(unsigned seed, int count, double per_second) {
  struct kind {
    double share, median, spread;
    int least_prompt, most_prompt;
  };
  static constexpr kind kinds[] = {
    {5, 30, 0.5, 100, 200}, {2, 120, 0.3, 400, 900}, {1.5, 700, 0.5, 120, 300}, {2, 60, 0.2, 100, 300}};
  std::mt19937 random(seed);
  std::discrete_distribution<std::size_t> which{kinds[0].share, kinds[1].share, kinds[2].share, kinds[3].share};
  std::exponential_distribution<double> gap(per_second / 1000);
  double now = 0;
  std::vector<simulated_request> all;
  for (int i = 0; i < count; ++i) {
    const auto k = which(random);
    std::vector<token_id> prompt(
      static_cast<std::size_t>(std::uniform_int_distribution(kinds[k].least_prompt, kinds[k].most_prompt)(random)));
    for (std::size_t t = 0; t < prompt.size(); ++t) // 64 tokens are the system prompt's
      prompt[t] = static_cast<token_id>(t < 64 ? 1000 * k + t : random() % 50'000);
    const auto length = std::lognormal_distribution<double>(std::log(kinds[k].median), kinds[k].spread)(random);
    all.push_back({now += gap(random), std::move(prompt), std::clamp(static_cast<int>(length), 1, 2000), 2000});
  }
  return all;
}

void teach(length_model& model, const std::vector<simulated_request>& of, int times) {
  for (const auto& one : of)
    for (int i = 0; i < times; ++i) {
      const length_signs signs{
        .chain = block_chain(std::span(one.prompt).first(std::min<std::size_t>(one.prompt.size(), 128)), 0),
        .prompt_tokens = static_cast<std::int32_t>(one.prompt.size()),
        .most = one.limit()};
      model.learn(signs, one.answer, false, model.predict(signs));
    }
}

struct outcome {
  double preemptions = 0, p99_ms = 0, good = 0; // until the first token; answers that took no longer than they should
};

outcome serve(unsigned seed, double per_second, knowledge what) {
  simulation s({.step_tokens = 256, .max_sequences = 16, .max_queue = 100'000, .steps_ahead = 1}, 260, {1, 1, 1});
  const auto requests = requests_of(seed, 400, per_second);
  if (what == knowledge::learned)
    s.with_lengths([&](length_model& m) { teach(m, requests_of(seed + 1000, 200, per_second), 1); });
  if (what == knowledge::oracle)
    s.with_lengths([&](length_model& m) { teach(m, requests, 30); });
  if (what == knowledge::none)
    s.on_step = [&] { s.with_lengths([](length_model& m) { m = length_model(); }); };
  for (const auto& one : requests)
    s.add(one);
  s.run();
  outcome result;
  result.preemptions = static_cast<double>(s.preemptions());
  result.p99_ms = percentile(s.ttft(), 0.99);
  for (const auto& [id, a] : s.answers)
    result.good += (a.end - requests[id - 1].at <= 8000 + 150.0 * requests[id - 1].answer) / 400.0;
  return result;
}

} // namespace

TEST_CASE("predicted lengths place answers where they fit, and preempt less") {
  outcome sum[3];
  for (const double rate : {1.5, 2.0, 2.5})
    for (const auto what : {knowledge::none, knowledge::learned, knowledge::oracle}) {
      outcome here;
      for (unsigned seed = 1; seed <= 3; ++seed) {
        const auto one = serve(seed, rate, what);
        here.preemptions += one.preemptions;
        here.p99_ms += one.p99_ms / 3;
        here.good += one.good / 3;
      }
      MESSAGE("rate ", rate, " knowledge ", static_cast<int>(what), ": ", here.preemptions,
              " preemptions, p99 of first tokens ", here.p99_ms, " ms, good ", here.good);
      auto& to = sum[static_cast<int>(what)];
      to.preemptions += here.preemptions;
      to.p99_ms += here.p99_ms;
      to.good += here.good;
    }
  const auto& [none, learned, oracle] = sum;
  CHECK(learned.preemptions <= 0.7 * none.preemptions);
  CHECK(learned.p99_ms <= 0.8 * none.p99_ms);
  CHECK(learned.good >= 0.9 * oracle.good);
}
