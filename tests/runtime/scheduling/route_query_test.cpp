#include "runtime/scheduling/blocks/block_chain.hpp"
#include "runtime/scheduling/planning/scheduler.hpp"
#include "runtime/scheduling/routing/route_query.hpp"
#include "runtime/techniques/guidance/technique.hpp"
#include "tests/runtime/scheduling/submission.hpp"

#include <doctest/doctest.h>

#include <functional>
#include <numeric>

using namespace troupe;

namespace {

std::vector<token_id> counted(int n) {
  std::vector<token_id> ids(static_cast<std::size_t>(n));
  std::iota(ids.begin(), ids.end(), 3);
  return ids;
}

testing::submission asking(int prompt, const std::function<void(sampling_params&)>& change = {}) {
  testing::submission a;
  a.prompt = counted(prompt);
  a.sampling.max_tokens = 30;
  if (change)
    change(a.sampling);
  return a;
}

} // namespace

TEST_CASE("the router hears of a prompt's blocks and its answer") {
  const auto q = query_of(asking(40), true, {});
  CHECK(q.chain == block_chain(counted(40), 0));
  CHECK(q.tokens == 40);
  CHECK(q.beside == 0);
  CHECK(q.most_cached == 40);
  CHECK(q.sequences == 1);
  CHECK(q.most_answer == 30);
  CHECK(query_of(asking(40), false, {}).chain.empty());
}

TEST_CASE("the chain of a request that is steered, or beyond a border of rotations, is another one") {
  auto steered = asking(40);
  steered.features = std::make_shared<const row_features>(row_features{.salt = 77});
  CHECK(query_of(steered, true, {}).chain == block_chain(counted(40), 77));
  const std::vector<std::int32_t> borders{39};
  CHECK(query_of(asking(40), true, borders).chain == block_chain(counted(40), chain_root(0, 1)));
  CHECK(query_of(asking(39), true, borders).chain == block_chain(counted(39), 0));
}

TEST_CASE("the router hears of all sequences of a request") {
  CHECK(query_of(asking(40, [](auto& p) { p.n = p.best_of = 3; }), true, {}).sequences == 3);
  auto pair = asking(40, [](auto& p) { p.techniques.set(guided_by(2)); });
  pair.negative_prompt = counted(25);
  const auto q = query_of(pair, true, {});
  CHECK(q.sequences == 2);
  CHECK(q.beside == 25);
}

TEST_CASE("a request that is resumed brings its answers so far") {
  auto a = asking(40, [](auto& p) { p.n = p.best_of = 3; });
  a.resumed.push_back({.index = 0, .emitted = std::vector<token_id>(10, 5)});
  a.resumed.push_back({.index = 2, .emitted = std::vector<token_id>(7, 6)});
  const auto q = query_of(a, true, {});
  CHECK(q.tokens == 50);
  CHECK(q.chain.size() == 3);
  CHECK(q.beside == 7);
  CHECK(q.sequences == 2);
  CHECK(q.most_answer == 20);
}

TEST_CASE("tokens that are scored or embedded are computed in any case") {
  CHECK(query_of(asking(40, [](auto& p) { p.prompt_logprobs = 1; }), true, {}).most_cached == 0);
  auto embedded = asking(40);
  embedded.embed = pooling::mean;
  CHECK(query_of(embedded, true, {}).most_cached == 0);
  CHECK(query_of(embedded, true, {}).most_answer == 0);
  embedded.embed = pooling::last;
  CHECK(query_of(embedded, true, {}).most_cached == 39);
}
