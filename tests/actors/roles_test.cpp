// Requests whose prompts one replica computes and whose answers another goes on with, under CAF's deterministic
// coordinator: an engine that only routes, and worker groups that the test ends and starts.
#include "tests/actors/routed_groups.hpp"

#include <algorithm>
#include <deque>

using namespace troupe;
using namespace troupe::testing;

namespace {

constexpr std::int32_t blocks_of_pool = 40;
constexpr int prefills = 0, decodes = 1;
constexpr auto idle = std::chrono::milliseconds(20); // of virtual time, until a replica takes the other role

struct roles_script : routing_script {
  roles_script() : routing_script(router(true, role_balance(idle))) {}

  std::map<std::uint64_t, std::pair<int, int>> places; // of requests by number, and where they may go on
  int moved = 0, stayed = 0, asked = 0, changes = 0;
};

class role_engine {
public:
  static constexpr const char* name = "engine";

  role_engine(engine_actor::pointer self, std::shared_ptr<roles_script> to) : self_(self), to_(std::move(to)) {}

  engine_actor::behavior_type make_behavior() {
    return engine_that(
      [this](const admission_wanted& its) {
        if (!its.query)
          return self_->send(its.request, admit_atom::value, to_->ask());
        const auto to = to_->routes.choose(++number_, *its.query);
        REQUIRE(to.has_value());
        admit(its.request, *to);
      },
      [this](const move_wanted& its) {
        ++to_->asked;
        const auto [from, to] = to_->places.at(its.number);
        const auto choice = to_->routes.move(from, to, its.number, ++number_, *its.query);
        if (!choice.to) {
          ++to_->stayed;
          return;
        }
        ++to_->moved;
        admit(its.request, *choice.to);
      },
      [this](load_atom, const load_report_ptr& report) {
        to_->routes.take(*report);
        to_->changes += to_->routes.yield_roles(self_->clock().now()).has_value();
      },
      [](const deadline_set&) {}, [](deadlines_due) {}, [](record_atom, const step_record_ptr&) {});
  }

private:
  void admit(const request_actor& request, const route& to) {
    to_->places[number_] = {to.replica, to.moves_to};
    self_->send(request, admit_atom::value, to_->admit(to, number_));
  }

  engine_actor::pointer self_;
  std::shared_ptr<roles_script> to_;
  std::uint64_t number_ = 0;
};

struct script_of_roles {
  std::shared_ptr<roles_script> script = std::make_shared<roles_script>(); // made before those who use it
};

/// One replica that prefills and one that decodes.
class role_replicas : public script_of_roles, public routed_groups {
public:
  /// `recurrent`: blocks are of use behind snapshots of states alone, which move, too.
  explicit role_replicas(transport way = {}, std::size_t images = 64, bool equal_numerics = true,
                         bool recurrent = false)
    : routed_groups(*script, 2, 20, blocks_of_pool),
      way_(std::move(way)),
      images_(images),
      equal_numerics_(equal_numerics) {
    limits.recurrent = recurrent;
    engine = spawn_state<engine_actor, role_engine>(system, script);
    start(prefills);
    start(decodes);
  }

  void start(int number) {
    sent_elsewhere exchange{std::make_shared<const image_pool>(64, images_)};
    exchange.numerics[0] = equal_numerics_ ? 0 : static_cast<std::uint64_t>(number);
    std::optional<state_snapshots> snapshots;
    if (limits.recurrent) {
      exchange.states = std::make_shared<const image_pool>(32, 4);
      snapshots.emplace(limits.max_sequences, 8);
    }
    const auto& g = routed_groups::start(
      number, spawn_kv_block_manager(system, blocks_of_pool, true, 0, {}, {}, exchange, std::move(snapshots)), way_,
      true);
    caf::anon_send(g.executor, scheduler_known{g.scheduler});
    if (groups.size() == 2) {
      for (const int from : {prefills, decodes}) {
        const auto& to = groups.at(prefills + decodes - from);
        const replica_known other{prefills + decodes - from, to.blocks, to.scheduler};
        caf::anon_send(groups.at(from).blocks, other);
        caf::anon_send(groups.at(from).executor, other);
      }
    }
    open(number, number == prefills ? replica_role::prefill : replica_role::decode);
  }

  scheduler_counters scheduled(int number) { return ask<scheduler_counters>(groups.at(number).scheduler); }
  block_counters blocks(int number) { return ask<block_counters>(groups.at(number).blocks); }

  /// Whether nothing runs, and no block is in use.
  bool idle() {
    coordinator.run();
    return std::ranges::all_of(groups, [this](auto& each) {
      const auto s = scheduled(each.first);
      return s.running + s.waiting + s.paused == 0 && blocks(each.first).in_use == 0;
    });
  }

private:
  template <class Counters, class Handle>
  Counters ask(const Handle& who) {
    caf::scoped_actor self{system};
    Counters result;
    auto pending = self->request(who, std::chrono::seconds(60), stats_atom::value);
    coordinator.run();
    pending.receive([&](const Counters& c) { result = c; }, [](caf::error&) { FAIL("no answer"); });
    return result;
  }

  transport way_;
  std::size_t images_;
  bool equal_numerics_;
};

} // namespace

TEST_CASE("a prompt is computed by one replica and its answer by another, which computes what no full block holds") {
  role_replicas two;
  std::vector<event> events;
  two.submit(long_prompt(58, 1, 12), events);
  two.coordinator.run();
  CHECK(ids(events) == counting(2, 12));
  CHECK(std::holds_alternative<done_event>(events.back()));
  CHECK(two.script->moved == 1);
  const auto p = two.scheduled(prefills), d = two.scheduled(decodes);
  CHECK(p.prefill_rows + p.decode_rows <= 58 + 3); // some of its next tokens, until it has left
  CHECK(d.generated_tokens >= 9);
  CHECK(d.prefill_rows <= 16); // what no full block holds, and those tokens
  const auto sent = two.blocks(prefills), got = two.blocks(decodes);
  CHECK(sent.sent == 3);
  CHECK(sent.sent_bytes == 3 * 64);
  CHECK(got.adopted == 3);
  CHECK(got.found_tokens == 48);
  CHECK(got.incomplete == 0);
  CHECK(two.idle());
}

TEST_CASE("blocks that are cached there already are not sent again") {
  role_replicas two;
  std::vector<event> first, second;
  two.submit(long_prompt(58, 1, 4), first);
  two.coordinator.run();
  auto longer = long_prompt(90, 1, 4);
  std::copy_n(long_prompt(58, 1, 1).prompt.begin(), 48, longer.prompt.begin());
  two.submit(longer, second);
  two.coordinator.run();
  CHECK(ids(second) == counting(2, 4));
  CHECK(two.script->moved == 2);
  CHECK(two.blocks(prefills).sent == 5); // of 3 and 5
  CHECK(two.blocks(prefills).found_tokens == 48);
  std::vector<event> again;
  two.submit(long_prompt(58, 1, 4), again); // of which all is there
  two.coordinator.run();
  CHECK(ids(again) == counting(2, 4));
  CHECK(two.script->moved == 3);
  CHECK(two.blocks(prefills).sent == 5);
  CHECK(two.idle());
}

TEST_CASE("prompts shorter than a block move, too, and several answers to one prompt move together") {
  role_replicas two;
  std::vector<event> small, three;
  two.submit(long_prompt(3, 1, 9), small);
  two.submit(long_prompt(40, 10, 9, 3), three);
  two.coordinator.run();
  CHECK(ids(small) == counting(2, 9));
  for (std::uint32_t index = 0; index < 3; ++index)
    CHECK(ids(three, index) == counting(11, 9));
  CHECK(two.script->moved == 2);
  CHECK(two.idle());
}

TEST_CASE("with recurrent layers a prompt moves with its state, and one of a single block, which has none, without") {
  for (const int tokens : {16, 17, 58}) {
    CAPTURE(tokens);
    role_replicas two({}, 64, true, true);
    std::vector<event> events;
    two.submit(long_prompt(tokens, 1, 12), events);
    two.coordinator.run();
    CHECK(ids(events) == counting(2, 12));
    CHECK(two.script->moved == 1);
    const auto sent = two.blocks(prefills), got = two.blocks(decodes);
    CHECK(sent.sent == static_cast<std::uint64_t>(tokens / 16));
    CHECK(sent.states_sent == (tokens > 16 ? 1 : 0));
    CHECK(got.states_adopted == sent.states_sent);
    CHECK(got.incomplete == 0);
    CHECK(two.idle());
  }
}

TEST_CASE("what has ended before it could move does not") {
  role_replicas two;
  std::vector<event> one, stopped;
  two.submit(long_prompt(40, 1, 1), one);
  two.submit(long_prompt(40, 30, 20), stopped); // whose first token is the last
  two.coordinator.run();
  CHECK(ids(one) == counting(2, 1));
  CHECK(ids(stopped) == counting(31, 1));
  CHECK(two.script->moved == 0);
  CHECK(two.scheduled(decodes).steps == 0);
  CHECK(two.idle());
}

TEST_CASE("few images hold up a transfer, but nothing else") {
  role_replicas two({}, 1);
  std::deque<std::vector<event>> events(5);
  for (std::size_t i = 0; i < events.size(); ++i)
    two.submit(long_prompt(70, static_cast<token_id>(i + 1), 10, 1, static_cast<token_id>(i + 8)), events[i]);
  for (int i = 0; i < 200; ++i) { // while images come back
    two.coordinator.run();
    two.coordinator.advance_time(std::chrono::milliseconds(2));
  }
  two.coordinator.run();
  for (std::size_t i = 0; i < events.size(); ++i)
    CHECK(ids(events[i]) == counting(static_cast<token_id>(i + 2), 10));
  CHECK(two.blocks(prefills).sent > 0);
  CHECK(two.idle());
}

TEST_CASE("whatever of a transfer is lost, the request stays where it is, and its client notices nothing") {
  for (int lost = 0; lost < 4; ++lost) {
    CAPTURE(lost);
    int sent = 0;
    role_replicas two([&](block_arrival&) { return sent++ != lost; });
    std::vector<event> events;
    two.submit(long_prompt(70, 1, 20), events);
    two.coordinator.run();
    CHECK(ids(events) == counting(2, 20));
    CHECK(two.script->moved == 0);
    CHECK(two.scheduled(decodes).steps == 0);
    CHECK(two.blocks(decodes).incomplete == (lost < 3 ? 1 : 0)); // of the last one, nothing is heard
    CHECK(two.idle());
  }
}

TEST_CASE("a block that arrives twice, or for nobody, does no harm") {
  role_replicas two([](block_arrival& a) {
    if (a.first == 2)
      a.request += 1000;
    return true;
  });
  std::vector<event> events;
  two.submit(long_prompt(70, 1, 20), events);
  two.coordinator.run();
  CHECK(ids(events) == counting(2, 20));
  CHECK(two.script->moved == 1); // it was adopted all the same
  CHECK(two.idle());
}

TEST_CASE("blocks are exchanged between equal numerics only") {
  role_replicas two({}, 64, false);
  std::vector<event> events;
  two.submit(long_prompt(70, 1, 20), events);
  two.coordinator.run();
  CHECK(ids(events) == counting(2, 20));
  CHECK(two.script->asked == 0);
  CHECK(two.blocks(prefills).sent == 0);
  CHECK(two.idle());
}

TEST_CASE("whenever either replica dies, no client sees more than a pause") {
  int moved = 0;
  for (const int dies : {prefills, decodes})
    for (int jobs = 1; jobs < 400; jobs += 7) {
      CAPTURE(dies);
      CAPTURE(jobs);
      role_replicas two;
      std::deque<std::vector<event>> events(4);
      for (std::size_t i = 0; i < events.size(); ++i)
        two.submit(long_prompt(20 + static_cast<int>(i) * 20, static_cast<token_id>(i + 1), 16, i == 2 ? 3 : 1,
                               static_cast<token_id>(i + 8)),
                   events[i]);
      for (int i = 0; i < jobs; ++i)
        two.coordinator.try_run_once();
      two.lose(dies);
      if (jobs % 2 == 0)
        two.start(dies);
      two.coordinator.run();
      for (std::size_t i = 0; i < events.size(); ++i) {
        CAPTURE(i);
        for (std::uint32_t index = 0; index < (i == 2 ? 3u : 1u); ++index)
          CHECK(ids(events[i], index) == counting(static_cast<token_id>(i + 2), 16));
        REQUIRE(std::holds_alternative<done_event>(events[i].back()));
      }
      moved += two.script->moved;
      CHECK(two.idle());
    }
  CHECK(moved > 100);
}

TEST_CASE("a client that leaves, or pauses, at any moment of a move leaves nothing behind") {
  for (const bool pauses : {false, true})
    for (int jobs = 1; jobs < 120; ++jobs) {
      CAPTURE(pauses);
      CAPTURE(jobs);
      role_replicas two;
      std::vector<event> events;
      auto request = two.submit(long_prompt(50, 1, 20), events);
      const auto storage = caf::actor_cast<caf::weak_actor_ptr>(request);
      for (int i = 0; i < jobs; ++i)
        two.coordinator.try_run_once();
      if (pauses)
        caf::anon_send(request, pause_atom::value, true);
      else
        caf::anon_send(request, cancel_atom::value);
      two.coordinator.run();
      if (pauses) {
        caf::anon_send(request, pause_atom::value, false);
        two.coordinator.run();
        CHECK(ids(events) == counting(2, 20));
      }
      request = request_actor();
      CHECK(two.idle());
      REQUIRE(std::holds_alternative<done_event>(events.back()));
      CHECK(storage->weak_refs == 1);
      CHECK(storage->strong_refs == 0);
    }
}

TEST_CASE("a replica that takes the other role answers who comes, keeps whom it has, and goes back to its own") {
  role_replicas two;
  auto& script = *two.script;
  const auto pass = [&](
                      int jobs, const std::function<bool()>& until = [] { return false; }) {
    for (int i = 0; i < jobs && !until(); ++i) {
      two.coordinator.try_run_once();
      two.coordinator.advance_time(std::chrono::milliseconds(1));
    }
  };
  const auto role = [&](int number) { return script.routes.role_of(number); };
  std::deque<std::vector<event>> events;
  std::vector<token_id> firsts;
  const auto submit = [&](int tokens, token_id last, int answer) {
    events.emplace_back();
    firsts.push_back(last);
    two.submit(long_prompt(tokens, last, answer, 1, static_cast<token_id>(8 + events.size() % 20)), events.back());
  };
  for (token_id i = 1; i <= 12; ++i)
    submit(18, i, 18);
  pass(20'000, [&] { return script.changes > 0; });
  REQUIRE(role(prefills) == replica_role::decode); // four are answered, others wait, and there are no prompts
  const auto before = two.scheduled(prefills).generated_tokens;
  const auto moved = script.moved;
  for (token_id i = 1; i <= 4; ++i)
    submit(18, i, 18);
  pass(100);
  CHECK(two.scheduled(prefills).generated_tokens > before + 4); // it answers, and nobody moves away
  CHECK(script.moved == moved);
  for (token_id i = 1; i <= 6; ++i)
    submit(90, i, 3);
  pass(20'000, [&] { return script.changes > 1; });
  CHECK(role(prefills) == replica_role::prefill);
  two.coordinator.run();
  for (std::size_t i = 0; i < events.size(); ++i) {
    CAPTURE(i);
    CHECK(ids(events[i]) == counting(firsts[i] + 1, i < 16 ? 18 : 3));
    CHECK(std::holds_alternative<done_event>(events[i].back()));
  }
  CHECK(two.idle());
}
