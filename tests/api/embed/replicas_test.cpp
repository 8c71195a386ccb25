// Engines of several replicas.
#include "tests/api/embed/small_engine.hpp"

#include <algorithm>
#include <deque>
#include <random>

using namespace troupe;
using namespace troupe::testing;

namespace {

engine_options with_replicas(int count) {
  auto o = small();
  o.replicas = count;
  o.compute.threads = count;
  return o;
}

std::string refusal_of(const engine_options& options) {
  try {
    engine::start(options).wait_until_ready();
  } catch (const failure& f) {
    return f.what();
  }
  return {};
}

/// Conversations of four turns at a time, each of whose prompts is all that was said; returns the share of tokens found
/// cached.
double converse(const engine_options& options) {
  auto e = engine::start(options);
  e.wait_until_ready();
  std::mt19937 rng(4);
  const auto say = [&](std::vector<token_id>& to, int tokens) {
    for (int i = 0; i < tokens; ++i)
      to.push_back(static_cast<token_id>(5 + rng() % 690));
  };
  std::vector<token_id> system;
  say(system, 64);
  std::vector<std::vector<token_id>> said(8, system);
  for (int turn = 0; turn < 8; ++turn) {
    std::deque<listener> clients(said.size());
    for (std::size_t i = 0; i < said.size(); ++i) {
      say(said[i], 24);
      auto g = ask(said[i], 12);
      g.sampling.ignore_eos = true;
      e.submit(std::move(g), clients[i].sink());
    }
    for (std::size_t i = 0; i < said.size(); ++i) {
      REQUIRE(clients[i].wait());
      const auto heard = clients[i].result();
      REQUIRE(heard.done.has_value());
      const auto& answer = heard.ids.at(0);
      said[i].insert(said[i].end(), answer.begin(), answer.end());
    }
  }
  REQUIRE(idle(e));
  const auto s = e.stats();
  CHECK(s.replicas.size() == static_cast<std::size_t>(options.replicas));
  for (const auto& each : s.replicas)
    CHECK(each.scheduler.generated_tokens > 0);
  return static_cast<double>(s.total.blocks.found_tokens) / static_cast<double>(s.total.blocks.looked_up_tokens);
}

} // namespace

TEST_CASE("two replicas find as much of conversations cached as one, to a tenth") {
  const auto one = converse(with_replicas(1));
  CHECK(one > 0.5);
  double two = 0;
  for (int tries = 0; tries < 5 && two < 0.9 * one; ++tries) // delayed steps send requests elsewhere
    two = converse(with_replicas(2));
  CHECK(two >= 0.9 * one);
}

TEST_CASE("replicas share weights and the KV cache's memory") {
  auto options = with_replicas(1);
  auto one = engine::start(options);
  one.wait_until_ready();
  options.replicas = options.compute.threads = 2;
  auto two = engine::start(options);
  two.wait_until_ready();
  CHECK(two.model()->weight_bytes == one.model()->weight_bytes);
  CHECK(two.stats().total.blocks.total == one.stats().total.blocks.total / 2 * 2);
  CHECK(two.model()->device.ends_with("divided among 2 replicas"));
}

TEST_CASE("replicas that cannot be had are refused with a sentence") {
  auto options = with_replicas(3);
  options.compute.threads = 2;
  CHECK(refusal_of(options) == "`replicas` must be at most 2, one for each thread to compute with, not 3");
  CHECK(refusal_of(with_replicas(0)).starts_with("`replicas` must be at least 1"));
  auto little = with_replicas(2);
  auto one = engine::start(with_replicas(1));
  one.wait_until_ready();
  const auto block = one.model()->kv_cache_bytes / one.stats().total.blocks.total;
  little.max_context = 512;
  little.kv_cache_bytes = 60 * block; // 32 would be enough for one of its sequences
  const auto why = refusal_of(little);
  CHECK(why.starts_with("a sequence of 512 tokens needs "));
  CHECK(why.ends_with(", the part of one of 2 replicas"));
}
