// The router among replicas that prefill and replicas that decode.
#include "runtime/scheduling/blocks/block_chain.hpp"
#include "runtime/scheduling/routing/router.hpp"

#include <doctest/doctest.h>

#include <numeric>

using namespace troupe;

namespace {

constexpr int prefiller = 0, answerer = 1; // replicas

router::capacity capacity_of(replica_role role) {
  return {.blocks = 2000, .slots = 32, .queue = 100, .step_rows = 512, .role = role, .block_copy_ms = 0.1};
}

/// Steps take 20 ms, and 1 ms for each row.
load_report quiet_report(int replica) {
  load_report r;
  r.replica = replica;
  r.life = 1;
  r.free_slots = 32;
  r.queue_room = 132;
  r.free_blocks = 2000;
  r.step_rows = 512;
  r.cost.steps = 100;
  for (std::size_t i = 0; i < step_cost::knots.size(); ++i)
    r.cost.knot_ms[i] = 20 + step_cost::knots[i];
  return r;
}

/// Answers of so many tokens have ended.
void answers_became(router& r, int tokens) {
  for (int i = 0; i < 64; ++i)
    r.lengths().learn({.most = 100'000}, tokens, false, r.lengths().predict({.most = 100'000}));
}

load_report answering(int replica, int sequences) {
  auto r = quiet_report(replica);
  r.running = sequences;
  r.free_slots -= sequences;
  r.free_blocks -= 10 * sequences;
  for (int i = 1; i <= sequences; ++i)
    r.left.push_back(100.0 * i / sequences);
  for (int i = 0; i < sequences; ++i)
    r.decodes += shape_of(100, 1, 1);
  return r;
}

router one_of_each(int answers_under_way = 0, bool strict = false) {
  router r(strict);
  r.start(prefiller, 1, capacity_of(replica_role::prefill));
  r.start(answerer, 1, capacity_of(replica_role::decode));
  r.take(quiet_report(prefiller));
  r.take(answering(answerer, answers_under_way));
  answers_became(r, 100);
  return r;
}

route_query prompt_query(int tokens, int answer = 100, int kind = 0) {
  std::vector<token_id> ids(static_cast<std::size_t>(tokens));
  std::iota(ids.begin(), ids.end(), 10000 * kind);
  return {.chain = block_chain(ids, 0),
          .tokens = tokens,
          .most_cached = tokens,
          .most_answer = answer,
          .may_move = answer > 1};
}

/// Behind its first token.
route_query behind_first(route_query q) {
  ++q.tokens;
  --q.most_answer;
  return q;
}

} // namespace

TEST_CASE("a prompt goes to whom prefills, and then to whom decodes") {
  for (const int under_way : {0, 1, 16}) {
    CAPTURE(under_way);
    auto r = one_of_each(under_way);
    const auto to = r.choose(1, prompt_query(2000));
    REQUIRE(to.has_value());
    CHECK(to->replica == prefiller);
    CHECK(to->moves_to == answerer);
    const auto choice = r.move(prefiller, answerer, 1, 2, behind_first(prompt_query(2000)));
    REQUIRE(choice.to.has_value());
    CHECK(choice.why == move_choice::reason::moves);
    CHECK(choice.to->replica == answerer);
    CHECK(choice.to->cached_tokens == 2000);
  }
}

TEST_CASE("a short prompt, or one that is cached there, goes where it will be answered") {
  auto r = one_of_each(4);
  CHECK(r.choose(1, prompt_query(6))->replica == answerer);
  const auto first = prompt_query(2000);
  CHECK(r.choose(2, first)->replica == prefiller);
  CHECK(r.choose(3, prompt_query(2003))->replica == prefiller); // the same beginning, which is not there yet
  REQUIRE(r.move(prefiller, answerer, 2, 4, behind_first(first)).to.has_value());
  CHECK(r.choose(5, prompt_query(2003))->replica == answerer);
}

TEST_CASE("with many prompts and no answers under way, whom decodes prefills, too, and keeps what it has begun") {
  auto r = one_of_each();
  std::map<int, int> sent;
  for (std::uint64_t i = 1; i <= 9; ++i) {
    const auto to = *r.choose(i, prompt_query(2000, 1, static_cast<int>(i)));
    ++sent[to.replica];
    CHECK(to.moves_to == -1); // nothing follows their first tokens
  }
  CHECK(sent[prefiller] >= 4);
  CHECK(sent[answerer] >= 2);
}

TEST_CASE("long prompts wait rather than hold up many answers") {
  auto r = one_of_each(16);
  for (std::uint64_t i = 1; i <= 12; ++i)
    CHECK(r.choose(i, prompt_query(2000, 100, static_cast<int>(i)))->replica == prefiller);
}

TEST_CASE("where those that decode have no room, answers stay with whom prefills, unless prompts keep it busy") {
  auto r = one_of_each(32);
  const auto stays = [&](std::uint64_t i, int tokens) {
    const auto q = prompt_query(tokens, 1000, static_cast<int>(i));
    const auto to = *r.choose(2 * i, q);
    const bool stayed = to.replica == prefiller &&
      (to.moves_to == -1 ||
       r.move(prefiller, answerer, 2 * i, 2 * i + 1, behind_first(q)).why == move_choice::reason::dearer);
    r.end(2 * i);
    r.end(2 * i + 1);
    return stayed;
  };
  for (std::uint64_t i = 1; i <= 20; ++i)
    CHECK(stays(i, 40));
  int stayed = 0;
  for (std::uint64_t i = 21; i <= 40; ++i)
    stayed += stays(i, 2000);
  CHECK(stayed < 5);
  for (std::uint64_t i = 41; i <= 80; ++i)
    stays(i, 40);
  CHECK(stays(100, 40));
  r.take(answering(answerer, 31)); // there is room for one
  CHECK_FALSE(stays(101, 40));
}

TEST_CASE("who would wait for a place stays, if that is faster") {
  auto r = one_of_each();
  const auto q = prompt_query(400, 3);
  REQUIRE(r.choose(1, q)->replica == prefiller);
  auto full = answering(answerer, 32);
  full.left.assign(32, 10'000);
  r.take(full);
  CHECK(r.move(prefiller, answerer, 1, 2, behind_first(q)).why == move_choice::reason::dearer);
}

TEST_CASE("what has not arrived is computed again, which is weighed") {
  auto r = one_of_each();
  const auto q = prompt_query(2000, 2);
  REQUIRE(r.choose(1, q)->replica == prefiller);
  const auto other = behind_first(prompt_query(2000, 3, 5)); // as behind a border of LongRoPE: other blocks
  CHECK(r.move(prefiller, answerer, 1, 2, other).why == move_choice::reason::dearer);
  const auto before = r.lengths().scores().answers;
  auto report = quiet_report(prefiller);
  report.ended = {{.request = 1, .tokens = 2}};
  r.take(report);
  CHECK(r.lengths().scores().answers == before + 1); // it has kept its number
}

TEST_CASE("a replica that has failed is neither chosen nor moved to") {
  auto r = one_of_each();
  const auto q = prompt_query(2000);
  REQUIRE(r.choose(1, q)->moves_to == answerer);
  r.stop(answerer);
  CHECK(r.move(prefiller, answerer, 1, 2, behind_first(q)).why == move_choice::reason::gone);
  CHECK(r.choose(3, q)->moves_to == -1);
  CHECK(r.choose(3, q)->replica == prefiller);
  r.stop(prefiller);
  CHECK_FALSE(r.choose(4, q).has_value());
  r.start(answerer, 2, capacity_of(replica_role::decode));
  CHECK(r.choose(5, q)->replica == answerer);
}

TEST_CASE("of several that decode, the prompt's blocks go to the one that will answer sooner") {
  router r;
  r.start(prefiller, 1, capacity_of(replica_role::prefill));
  r.take(quiet_report(prefiller));
  for (const int number : {1, 2}) {
    r.start(number, 1, capacity_of(replica_role::decode));
    r.take(answering(number, number == 1 ? 12 : 3));
  }
  const auto to = *r.choose(1, prompt_query(1000));
  CHECK(to.replica == prefiller);
  CHECK(to.moves_to == 2);
}

TEST_CASE("strict replicas do what their roles say, whatever it costs") {
  auto r = one_of_each(0, true);
  for (const int tokens : {1, 20, 2000}) {
    const auto to = *r.choose(1, prompt_query(tokens));
    CHECK(to.replica == prefiller);
    CHECK(to.moves_to == answerer);
    CHECK(r.move(prefiller, answerer, 1, 2, behind_first(prompt_query(tokens, 2))).to.has_value());
  }
  CHECK(r.choose(3, prompt_query(2000, 1))->moves_to == -1); // there is nothing to move
}

TEST_CASE("what moved counts where it is, and no longer where it was") {
  auto r = one_of_each(2);
  const auto q = prompt_query(1000);
  const auto before = r.choose(1, q)->ms;
  REQUIRE(r.choose(4, prompt_query(1000, 100, 5))->ms > before);
  r.end(4);
  r.end(1);
  REQUIRE(r.choose(1, q)->replica == prefiller);
  REQUIRE(r.move(prefiller, answerer, 1, 2, behind_first(q)).to.has_value());
  r.end(1);
  r.end(2);
  CHECK(r.choose(3, prompt_query(1000, 100, 9))->ms == doctest::Approx(before));
}

TEST_CASE("a replica without prompts takes new answers while many are under way elsewhere, and prompts again later") {
  using namespace std::chrono_literals;
  router r(false, role_balance(10s));
  r.start(prefiller, 1, capacity_of(replica_role::prefill));
  r.start(answerer, 1, capacity_of(replica_role::decode));
  r.take(quiet_report(prefiller));
  r.take(answering(answerer, 24)); // 44 ms a step; 12 would take 32
  answers_became(r, 100);
  const role_balance::time_point start;
  CHECK_FALSE(r.yield_roles(start));
  const auto short_one = prompt_query(6);
  CHECK(r.choose(1, short_one)->replica == answerer);
  r.end(1);
  CHECK_FALSE(r.yield_roles(start + 9s));
  REQUIRE(r.yield_roles(start + 10s).has_value());
  CHECK(r.role_of(prefiller) == replica_role::decode);
  CHECK(r.choose(2, short_one)->replica == prefiller); // which is free
  r.end(2);
  const auto long_one = prompt_query(2000);
  CHECK(r.choose(3, long_one)->moves_to == -1); // nobody prefills
  auto busy = quiet_report(prefiller);
  busy.prompts = shape_of(0, 2000, 1);
  r.take(busy);
  CHECK_FALSE(r.yield_roles(start + 11s));
  const auto back = r.yield_roles(start + 14s);
  REQUIRE(back.has_value());
  CHECK(back->why == role_change::reason::own_queues);
  CHECK(r.role_of(prefiller) == replica_role::prefill);
  CHECK(r.choose(4, prompt_query(2000, 100, 7))->moves_to == answerer);
}

TEST_CASE(
  "answers that would be no faster beside fewer others queue for nobody, and a restarted replica has its own role") {
  using namespace std::chrono_literals;
  router r(false, role_balance(10s));
  const role_balance::time_point start;
  r.start(prefiller, 1, capacity_of(replica_role::prefill));
  r.start(answerer, 1, capacity_of(replica_role::decode));
  r.take(quiet_report(prefiller));
  r.take(answering(answerer, 4)); // 24 ms a step; 2 would take 22
  CHECK_FALSE(r.yield_roles(start));
  CHECK_FALSE(r.yield_roles(start + 60s));
  auto full = answering(answerer, 4);
  full.waiting = 3;
  r.take(full);
  CHECK_FALSE(r.yield_roles(start + 60s));
  REQUIRE(r.yield_roles(start + 70s).has_value());
  r.start(prefiller, 2, capacity_of(replica_role::prefill));
  CHECK(r.role_of(prefiller) == replica_role::prefill);
}
