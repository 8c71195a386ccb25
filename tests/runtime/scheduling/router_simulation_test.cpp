// What the router's choices come to, over workloads in virtual time.
#include "tests/runtime/scheduling/simulated_replicas.hpp"

using namespace troupe;
using namespace troupe::testing;

namespace {

constexpr int many_blocks = 4000;

scheduler_limits usual_limits() {
  return {.step_tokens = 512, .max_sequences = 16, .max_queue = 10000, .steps_ahead = 1};
}

simulation::chooser in_turn(int replicas) {
  return [=](std::uint64_t id) { return static_cast<int>(id % static_cast<std::uint64_t>(replicas)); };
}

std::vector<token_id> random_tokens(std::mt19937& chance, int count) {
  std::vector<token_id> tokens(static_cast<std::size_t>(count));
  for (auto& t : tokens)
    t = static_cast<token_id>(chance() % 30000);
  return tokens;
}

/// Mostly short prompts and answers, and some that are twenty times as long; by chance, so many a second.
void add_skewed(simulation& s, int count, double per_second) {
  std::mt19937 chance(7);
  std::exponential_distribution<> gap(per_second / 1000);
  double at = 0;
  for (int i = 0; i < count; ++i) {
    const bool is_long = chance() % 8 == 0;
    s.add({at, random_tokens(chance, is_long ? 1500 : 80), is_long ? 100 : 20});
    at += gap(chance);
  }
}

/// Conversations of some turns that begin with one of few system prompts: each turn's prompt is all that was said, and
/// something new.
class conversations {
public:
  conversations(simulation& s, int count, int turns) : sim_(s) {
    std::vector<std::vector<token_id>> systems;
    for (int i = 0; i < 3; ++i)
      systems.push_back(random_tokens(chance_, 320));
    std::exponential_distribution<> gap(1.0 / 700);
    double at = 0;
    for (int i = 0; i < count; ++i) {
      auto prompt = systems[static_cast<std::size_t>(i) % systems.size()];
      add(at, turns, std::move(prompt));
      at += gap(chance_);
    }
    sim_.on_end = [this](std::uint64_t id, double now) {
      auto [left, said] = std::move(under_way_.at(id));
      under_way_.erase(id);
      said.resize(said.size() + answer, static_cast<token_id>(20 + id % 500)); // what replicas sample
      if (left > 0)
        add(now + 500 + static_cast<double>(chance_() % 2000), left, std::move(said));
    };
  }

private:
  static constexpr int answer = 40;

  void add(double at, int left, std::vector<token_id> said) {
    const auto more = random_tokens(chance_, 60);
    said.insert(said.end(), more.begin(), more.end());
    const auto id = sim_.add({at, said, answer});
    under_way_[id] = {left - 1, std::move(said)};
  }

  simulation& sim_;
  std::mt19937 chance_{3};
  std::map<std::uint64_t, std::pair<int, std::vector<token_id>>> under_way_;
};

} // namespace

TEST_CASE("under a skewed load, first tokens come sooner than if replicas took turns") {
  simulation routed(usual_limits(), many_blocks, {1, 1}), turns(usual_limits(), many_blocks, {1, 1}, in_turn(2));
  for (auto* s : {&routed, &turns}) {
    add_skewed(*s, 400, 3.2);
    s->run();
  }
  const auto ours = routed.ttft(), theirs = turns.ttft();
  CAPTURE(mean(ours));
  CAPTURE(mean(theirs));
  CHECK(mean(ours) < 0.8 * mean(theirs));
  CHECK(percentile(ours, 0.95) < 0.9 * percentile(theirs, 0.95));
}

TEST_CASE("conversations stay where they are cached: two replicas find what one would") {
  const auto run = [](std::vector<double> replicas, int blocks, simulation::chooser choose = {}) {
    auto s = std::make_unique<simulation>(usual_limits(), blocks, std::move(replicas), std::move(choose));
    const conversations workload(*s, 60, 6);
    s->run();
    return s;
  };
  const auto one = run({1}, many_blocks), two = run({1, 1}, many_blocks / 2);
  const auto turns = run({1, 1}, many_blocks / 2, in_turn(2));
  CHECK(two->hit_rate() >= 0.9 * one->hit_rate());
  CHECK(two->hit_rate() > turns->hit_rate());
  CHECK(mean(two->ttft()) < mean(turns->ttft()));
  for (const int replica : {0, 1}) // neither idles
    CHECK(two->sent_to(replica) > static_cast<int>(two->answers.size()) / 4);
}

TEST_CASE("requests that share the beginning of their prompts do not fill one replica while another idles") {
  simulation s(usual_limits(), many_blocks, {1, 1});
  std::mt19937 chance(5);
  const auto system = random_tokens(chance, 320);
  for (int i = 0; i < 60; ++i) {
    auto prompt = system;
    const auto more = random_tokens(chance, 16);
    prompt.insert(prompt.end(), more.begin(), more.end());
    s.add({1000.0 * i, std::move(prompt), 200});
  }
  s.run();
  CHECK(s.sent_to(0) >= 18);
  CHECK(s.sent_to(1) >= 18);
  CHECK(s.hit_rate() > 0.8);
}

TEST_CASE("a slow replica gets fewer requests, and holds up none of the others") {
  simulation routed(usual_limits(), many_blocks, {1, 4}), turns(usual_limits(), many_blocks, {1, 4}, in_turn(2));
  for (auto* s : {&routed, &turns}) {
    add_skewed(*s, 300, 1.2);
    s->run();
  }
  CHECK(routed.sent_to(1) > 0);
  CHECK(routed.sent_to(1) * 2 < routed.sent_to(0));
  CHECK(mean(routed.ttft()) < 0.5 * mean(turns.ttft()));
}

TEST_CASE("when a replica dies, others take its requests, and later it takes its part again") {
  simulation s(usual_limits(), many_blocks, {1, 1});
  add_skewed(s, 300, 3.2);
  auto now = s.run(30'000);
  REQUIRE(s.sent_to(0) > 0);
  s.lose(0, now);
  CHECK(s.sent_to(1) > 0);
  const auto sent_before = s.answers.size();
  now = s.run(35'000);
  for (auto& [id, a] : s.answers)
    if (id > sent_before)
      CHECK(a.replica == 1);
  s.start(0);
  s.run();
  CHECK(s.answers.size() == 300);
  int moved = 0, later = 0;
  for (auto& [id, a] : s.answers) {
    CHECK(a.end > 0);
    moved += a.sent > 1;
    later += id > sent_before && a.replica == 0;
  }
  CHECK(moved > 0);
  CHECK(later > 50);
}

TEST_CASE("loads are reported neither at each step nor while nothing happens") {
  simulation s(usual_limits(), many_blocks, {0.01, 0.01}); // steps of 0.4 ms
  add_skewed(s, 20, 3.2);
  const auto ms = s.run();
  CHECK(s.reports > 20);
  CHECK(s.reports < 20 * 12); // each request begins, decodes and ends
  CHECK(ms > 4000);
}
