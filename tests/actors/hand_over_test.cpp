// Requests that end in one process and go on in another: here, in another group of actors.
#include "tests/actors/worker_group.hpp"

#include <optional>
#include <variant>

using namespace troupe;
using namespace troupe::testing;

namespace {

request_actor submit_to(worker_group& to, std::vector<event>& events, generation g) {
  return spawn_request(to.system, to.engine, std::make_shared<const generation>(std::move(g)),
                       client_line([&events](event e) { events.push_back(std::move(e)); }));
}

generation of_two() {
  generation g;
  g.prompt = {1};
  g.sampling.temperature = 1;
  g.sampling.seed = 5;
  g.sampling.max_tokens = 30;
  g.sampling.ignore_eos = true;
  g.sampling.n = 2;
  return g;
}

} // namespace

TEST_CASE("a request that is handed over goes on elsewhere with the same tokens, and tells what it had before") {
  std::vector<event> alone, first, second;
  {
    worker_group workers;
    submit_to(workers, alone, of_two());
    workers.coordinator.run();
  }
  std::size_t before = 0;
  SUBCASE("in mid-answer") { before = 9; }
  SUBCASE("before it has begun") { before = 0; }
  auto moved = of_two();
  {
    worker_group workers;
    const auto request = submit_to(workers, first, of_two());
    while (ids(first).size() < before)
      REQUIRE(workers.coordinator.try_run_once());
    caf::anon_send(request, finish_wanted{.hands_over = true});
    workers.coordinator.run();
    REQUIRE(std::holds_alternative<done_event>(first.back()));
    moved.begun = std::get<done_event>(first.back()).begun;
    REQUIRE(moved.begun != nullptr);
    CHECK(workers.idle());
  }
  worker_group workers;
  submit_to(workers, second, moved);
  workers.coordinator.run();
  CHECK(workers.idle());
  for (const std::uint32_t choice : {0u, 1u}) {
    CHECK(ids(second, choice) == ids(alone, choice));
    std::vector<token_id> replayed;
    for (const auto& one : second)
      if (const auto* token = std::get_if<token_event>(&one); token && token->index == choice && token->replayed)
        replayed.insert(replayed.end(), token->token_ids.begin(), token->token_ids.end());
    CHECK(replayed == ids(first, choice)); // no more and no less than the first client was told
  }
  REQUIRE(std::holds_alternative<done_event>(second.back()));
  CHECK(std::get<done_event>(second.back()).completion_tokens == std::get<done_event>(alone.back()).completion_tokens);
}

TEST_CASE("a choice that had ended is told as ended elsewhere, and a request of such choices ends at once") {
  worker_group workers;
  auto g = of_two();
  g.begun = std::make_shared<const std::vector<begun_sequence>>(
    std::vector<begun_sequence>{{{2, 3}, 0, begun_sequence::end::stop}, {{4}, 0, begun_sequence::end::length}});
  std::vector<event> events;
  submit_to(workers, events, g);
  workers.coordinator.run();
  REQUIRE(std::holds_alternative<done_event>(events.back()));
  const auto& done = std::get<done_event>(events.back());
  CHECK(done.choices.at(0).reason == finish_reason::stop);
  CHECK(done.choices.at(1).reason == finish_reason::length);
  CHECK(done.completion_tokens == 3);
  CHECK(workers.idle());
}
