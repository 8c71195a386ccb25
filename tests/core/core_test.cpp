// The engine without any technique: this program has an empty repertoire, so none of them is linked.
#include "runtime/techniques/repertoire.hpp"
#include "tests/api/embed/small_engine.hpp"

#include <random>

using namespace troupe;
using namespace troupe::testing;

namespace troupe {

std::span<const technique* const> repertoire() { return {}; }

} // namespace troupe

TEST_CASE("an engine without techniques answers, the same in a crowd as alone") {
  const auto e = engine::start(small());
  e.wait_until_ready();
  std::mt19937 random(5);
  std::vector<generation> work;
  std::vector<heard> alone;
  for (int i = 0; i < 8; ++i) {
    std::vector<token_id> prompt(3 + random() % 60);
    for (auto& id : prompt)
      id = static_cast<token_id>(5 + random() % 600);
    auto& g = work.emplace_back(ask(std::move(prompt), 24));
    g.sampling.seed = random();
    if (i % 4 == 1)
      g.sampling.temperature = 0.8f, g.sampling.top_p = 0.9f, g.sampling.dry_multiplier = 1;
    if (i % 4 == 2)
      g.sampling.n = 3, g.sampling.temperature = 1;
    if (i % 4 == 3)
      g.sampling.logprobs = 2;
    alone.push_back(run(e, g));
    REQUIRE(alone.back().done);
  }
  std::vector<std::unique_ptr<listener>> crowd;
  for (const auto& g : work)
    e.submit(g, crowd.emplace_back(std::make_unique<listener>())->sink());
  for (std::size_t i = 0; i < crowd.size(); ++i) {
    CAPTURE(i);
    REQUIRE(crowd[i]->wait());
    CHECK(crowd[i]->result().ids == alone[i].ids);
  }
  CHECK(idle(e));
}

TEST_CASE("a request for a technique that is not there finds nothing of it") {
  technique_uses none;
  CHECK(none.empty());
  CHECK(none.group() == nullptr);
  CHECK(repertoire().empty());
  engine_options options = small();
  options.techniques["steer"] = {"x=/nowhere"}; // which nobody loads
  const auto e = engine::start(options);
  e.wait_until_ready();
  CHECK(run(e, ask({7, 8, 9}, 4)).done);
}
