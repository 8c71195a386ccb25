// Engines whose prompts and answers are computed by different replicas, and guided requests on several replicas.
#include "api/embed/engine_internals.hpp"
#include "runtime/guide/guide_source.hpp"
#include "runtime/techniques/guides/technique.hpp"
#include "tests/api/embed/small_engine.hpp"

#include <algorithm>
#include <deque>
#include <random>

using namespace troupe;
using namespace troupe::testing;

namespace {

engine_options with_roles(const std::string& roles, int threads = 2) {
  auto o = small();
  o.roles = roles;
  o.compute.threads = threads;
  return o;
}

std::string roles_refused(const engine_options& options) {
  try {
    engine::start(options).wait_until_ready();
  } catch (const failure& f) {
    return f.what();
  }
  return {};
}

std::vector<token_id> random_tokens(unsigned seed, int count) {
  std::mt19937 rng(seed);
  std::vector<token_id> ids(static_cast<std::size_t>(count));
  for (auto& id : ids)
    id = static_cast<token_id>(5 + rng() % 690);
  return ids;
}

/// Requests that follow guides of every kind.
std::vector<generation> constrained_work() {
  using guides::guide_source;
  std::vector<generation> work;
  for (const auto& [kind, text] : {std::pair{guide_source::kind::regex, "[a-z]{3,40}( [a-z]{2,9}){2,5}"},
                                   {guide_source::kind::json_schema, R"({"type": "object", "properties": {"a": {"type":
                                    "integer"}, "b": {"type": "string", "maxLength": 20}}, "required": ["a", "b"]})"},
                                   {guide_source::kind::regex, "(yes|no|perhaps), (because|although) [a-z ]{5,30}\\."}})
    for (unsigned i = 0; i < 4; ++i) {
      auto g = ask(random_tokens(i, 30 + static_cast<int>(i) * 25), 40);
      g.sampling.temperature = 0.8f;
      g.sampling.seed = i;
      g.sampling.n = i == 2 ? 2 : 1;
      g.sampling.techniques.set(guides::following({.what = kind, .text = text}));
      work.push_back(std::move(g));
    }
  return work;
}

} // namespace

TEST_CASE("guided requests on several replicas, with roles and without, have the bits of one alone") {
  auto work = constrained_work();
  work.push_back(ask(random_tokens(9, 40), 400)); // lasts until it is moved, where roles are divided
  work.back().sampling.ignore_eos = true;
  std::vector<heard> expected;
  {
    auto one = engine::start(small());
    one.wait_until_ready();
    for (const auto& g : work)
      expected.push_back(run(one, g));
  }
  auto options = small();
  options.compute.threads = 2;
  SUBCASE("two replicas") { options.replicas = 2; }
  SUBCASE("roles") { options.roles = "prefill:1,decode:1"; }
  SUBCASE("roles of two ranks") {
    options.roles = "prefill:1,decode:1";
    options.compute.threads = 4;
    options.compute.tensor_parallel = 2;
  }
  auto several = start_with({.strict_roles = true}, options);
  several.wait_until_ready();
  std::deque<listener> clients(work.size());
  for (std::size_t i = 0; i < work.size(); ++i)
    several.submit(work[i], clients[i].sink());
  for (std::size_t i = 0; i < work.size(); ++i) {
    CAPTURE(i);
    REQUIRE(clients[i].wait());
    REQUIRE(expected[i].done.has_value());
    CHECK(same(clients[i].result(), expected[i]));
  }
  CHECK(idle(several));
  CHECK((several.stats().total.moves.moved > 0) == !options.roles.empty());
}

TEST_CASE(
  "an answer is gone on with where the prompt's blocks are cached: a block's tokens are computed again at most") {
  auto options = with_roles("prefill:1,decode:1");
  options.max_context = 2048;
  auto e = start_with({.strict_roles = true}, options);
  e.wait_until_ready();
  auto g = ask(random_tokens(1, 300), 1500); // the replica of prompts goes on until the other has the blocks
  g.sampling.ignore_eos = true;
  const auto heard = run(e, g);
  REQUIRE(heard.done.has_value());
  REQUIRE(idle(e));
  const auto s = e.stats();
  CHECK(s.total.moves.moved == 1);
  REQUIRE(s.replicas.size() == 2);
  const auto &p = s.replicas[0], &d = s.replicas[1];
  CHECK(p.blocks.sent == 300 / 16);
  CHECK(p.blocks.sent_bytes == 300 / 16 * (e.model()->kv_cache_bytes / s.total.blocks.total));
  CHECK(d.blocks.adopted == 300 / 16);
  CHECK(d.blocks.found_tokens == 300 / 16 * 16);
  CHECK(d.scheduler.prefill_rows <= 16 + p.scheduler.generated_tokens); // which came while blocks were on their way
  CHECK(d.scheduler.generated_tokens > 20);
}

TEST_CASE("left to what it costs, requests have the same bits, and idle replicas do the others' work") {
  auto e = engine::start(with_roles("prefill:1,decode:1"));
  e.wait_until_ready();
  auto one = engine::start(small());
  one.wait_until_ready();
  std::vector<generation> work;
  for (unsigned i = 0; i < 40; ++i) {
    auto g = ask(random_tokens(i, 20 + static_cast<int>(i * 37 % 200)), 1 + static_cast<int>(i * 7 % 30));
    g.sampling.temperature = 0.7f;
    g.sampling.seed = i;
    work.push_back(std::move(g));
  }
  std::deque<listener> clients(work.size());
  for (std::size_t i = 0; i < work.size(); ++i)
    e.submit(work[i], clients[i].sink());
  for (std::size_t i = 0; i < work.size(); ++i) {
    REQUIRE(clients[i].wait());
    CHECK(same(clients[i].result(), run(one, work[i])));
  }
  CHECK(idle(e));
}

TEST_CASE("while roles change, requests have the same bits") {
  auto options = with_roles("prefill:1,decode:1");
  options.max_sequences = 2; // so that answers wait while there are no prompts
  options.role_idle = std::chrono::milliseconds(1);
  auto one = engine::start(small());
  one.wait_until_ready();
  for (const bool strict : {true, false}) {
    CAPTURE(strict);
    auto e = start_with({.strict_roles = strict}, options);
    e.wait_until_ready();
    std::vector<generation> work;
    for (unsigned i = 0; i < 24; ++i) {
      auto g = ask(random_tokens(i, 5 + static_cast<int>(i * 53 % 150)), i % 3 == 0 ? 3 : 250);
      g.sampling.ignore_eos = true;
      g.sampling.temperature = 0.7f;
      g.sampling.seed = i;
      work.push_back(std::move(g));
    }
    std::deque<listener> clients(work.size());
    for (std::size_t i = 0; i < work.size(); ++i)
      e.submit(work[i], clients[i].sink());
    for (std::size_t i = 0; i < work.size(); ++i) {
      REQUIRE(clients[i].wait());
      CHECK(same(clients[i].result(), run(one, work[i])));
    }
    CHECK(idle(e));
    const auto stats = e.stats();
    CHECK((!strict || stats.total.role_changes > 0));
    CHECK(std::ranges::all_of(stats.replicas, [](auto& each) { return each.scheduler.generated_tokens > 0; }));
  }
}

TEST_CASE("roles that cannot be had are refused with a sentence") {
  CHECK(roles_refused(with_roles("prefill:0,decode:1")).starts_with("`roles` needs a number from 1 to 1024"));
  CHECK(roles_refused(with_roles("prefill:1,encode:1")).ends_with("there is no role `encode`"));
  CHECK(roles_refused(with_roles("prefill:2,decode:1")) ==
        "`roles` asks for 3 replicas, but `replicas` must be at most 2, one for each thread to compute with, not 3");
  auto both = with_roles("prefill:1,decode:1");
  both.replicas = 2;
  CHECK(roles_refused(both) == "`roles` already says how many replicas there are: leave out `replicas`");
  auto without = with_roles("prefill:1,decode:1");
  without.prefix_cache = false;
  CHECK(roles_refused(without).starts_with("`roles` needs the prefix cache"));
  auto little = with_roles("prefill:1,decode:1");
  little.kv_cache_bytes = 100 << 10;
  const auto why = roles_refused(little);
  CHECK(why.starts_with("a sequence of 512 tokens needs "));
  CHECK(why.ends_with(", the part of one of 2 replicas"));
}
