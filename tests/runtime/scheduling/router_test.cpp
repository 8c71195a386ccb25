#include "runtime/scheduling/blocks/block_chain.hpp"
#include "runtime/scheduling/blocks/block_manager.hpp"
#include "runtime/scheduling/routing/router.hpp"

#include <doctest/doctest.h>

#include <numeric>
#include <random>

using namespace troupe;

namespace {

constexpr router::capacity usual{.blocks = 1000, .slots = 8, .queue = 100, .step_rows = 512};

/// A machine whose steps take 20 ms, and 1 ms for each row.
load_report idle_report(int replica, double slowness = 1) {
  load_report r;
  r.replica = replica;
  r.life = 1;
  r.free_slots = usual.slots;
  r.queue_room = usual.queue + usual.slots;
  r.free_blocks = usual.blocks;
  r.step_rows = 512;
  r.cost.steps = 100;
  for (std::size_t i = 0; i < step_cost::knots.size(); ++i)
    r.cost.knot_ms[i] = slowness * (20 + step_cost::knots[i]);
  return r;
}

/// Two replicas, which are idle.
router two(double slowness_of_second = 1) {
  router r;
  for (const int number : {0, 1}) {
    r.start(number, 1, usual);
    r.take(idle_report(number, number == 1 ? slowness_of_second : 1));
  }
  return r;
}

/// A prompt of so many tokens of a kind.
route_query prompt(int tokens, int kind = 0, int answer = 0) {
  std::vector<token_id> ids(static_cast<std::size_t>(tokens));
  std::iota(ids.begin(), ids.end(), 1000 * kind);
  const auto chain = block_chain(ids, 0);
  return {.chain = chain,
          .tokens = tokens,
          .most_cached = tokens,
          .signs = {.chain = chain, .prompt_tokens = tokens, .most = std::max(answer, 1)},
          .most_answer = answer};
}

/// Answers of so many tokens have ended.
void teach(router& r, int tokens) {
  for (int i = 0; i < 200; ++i)
    r.lengths().learn({.most = 100'000}, tokens, false, r.lengths().predict({.most = 100'000}));
}

} // namespace

TEST_CASE("without a replica that runs there is no route") {
  router r;
  CHECK_FALSE(r.choose(1, prompt(10)).has_value());
  CHECK_FALSE(r.has_room());
  r.start(3, 1, usual);
  CHECK(r.has_room());
  CHECK(r.choose(1, prompt(10))->replica == 3);
  r.stop(3);
  CHECK_FALSE(r.choose(2, prompt(10)).has_value());
}

TEST_CASE("what a request is expected to take is its prompt in steps behind what is queued, then its answer") {
  auto r = two();
  CHECK(r.choose(1, prompt(100))->ms == doctest::Approx(120));
  CHECK(r.choose(2, prompt(1000, 1))->ms == doctest::Approx(20 + 512 + 20 + 488)); // on the other one
  CHECK(r.choose(3, prompt(412, 2))->ms == doctest::Approx(20 + 512));             // behind the first, in one step
  auto busy = idle_report(0);
  busy.running = 2;
  busy.free_slots -= 2;
  busy.decodes = shape_of(100, 1, 1) + shape_of(300, 1, 1);
  busy.cost.attended_ms = 0.01;
  router alone;
  alone.start(0, 1, usual);
  alone.take(busy);
  // A step of 102 rows beside 402 positions; 5050 positions of its own.
  CHECK(alone.choose(1, prompt(100))->ms == doctest::Approx(20 + 102 + 4.02 + 50.5));
  alone.end(1);
  teach(alone, 500); // so that it becomes as long as it may
  // Then 10 tokens in steps of three, each at the mean context of the others and its own.
  CHECK(alone.choose(1, prompt(100, 1, 10))->ms == doctest::Approx(176.52 + 10 * (23 + 5.02)).epsilon(0.1));
  alone.end(1);
  // Answers end with 32 to 63 tokens.
  alone.end(1);
  alone.lengths() = length_model();
  teach(alone, 40);
  CHECK(alone.choose(1, prompt(100, 2, 1000))->ms == doctest::Approx(176.52 + 47.5 * (23 + 5.02)).epsilon(0.1));
}

TEST_CASE("how long an answer becomes is learned from answers to alike prompts, as their ends are reported") {
  router r;
  r.start(0, 1, usual);
  auto load = idle_report(0);
  std::uint64_t last = 0;
  const auto answer_ms = [&](int kind) { return r.choose(++last, prompt(100, kind, 1'000'000))->ms; };
  for (int i = 0; i < 30; ++i)
    for (const int kind : {1, 2}) {
      answer_ms(kind);
      load.received = {last};
      load.ended = {{last, kind == 1 ? 10 : 5'000, false}, {last + 1000, 1'000'000, false}}; // the latter is unknown
      r.take(load);
    }
  CHECK(answer_ms(1) < 120 + 100 * 21);
  CHECK(answer_ms(2) > 120 + 3'000 * 21);
}

TEST_CASE("a request that goes on in another replica is learned from under its new number") {
  router r(true); // else it would rather stay
  r.start(0, 1, usual), r.start(1, 1, usual);
  r.choose(1, prompt(100, 1, 1000));
  auto there = prompt(100, 1, 1000);
  there.answered = 5;
  REQUIRE(r.move(0, 1, 1, 2, there).why == move_choice::reason::moves);
  auto load = idle_report(1);
  load.ended = {{1, 50, false}};
  r.take(load);
  CHECK(r.lengths().scores().answers == 0);
  load.ended = {{2, 50, false}};
  r.take(load);
  CHECK(r.lengths().scores().answers == 1);
}

TEST_CASE("equal replicas take turns: by sequences, then by number") {
  auto r = two();
  std::vector<int> chosen;
  for (std::uint64_t i = 1; i <= 6; ++i)
    chosen.push_back(r.choose(i, prompt(8))->replica);
  CHECK(chosen == std::vector{0, 1, 0, 1, 0, 1});
}

TEST_CASE("the same inputs give the same routes") {
  const auto routes = [] {
    auto r = two(1.3);
    std::mt19937 chance(1);
    std::vector<std::pair<int, double>> all;
    for (std::uint64_t i = 1; i <= 300; ++i) {
      const auto to = *r.choose(i, prompt(static_cast<int>(1 + chance() % 600), static_cast<int>(chance() % 9), 50));
      all.emplace_back(to.replica, to.ms);
      if (chance() % 3 == 0)
        r.end(1 + chance() % i);
      if (chance() % 5 == 0) {
        auto report = idle_report(static_cast<int>(chance() % 2));
        report.running = static_cast<int>(chance() % 8);
        report.received = {i};
        r.take(report);
      }
    }
    return all;
  };
  CHECK(routes() == routes());
}

TEST_CASE("a prompt goes where its beginning is cached, unless the wait there is longer than its computation") {
  auto r = two();
  CHECK(r.choose(1, prompt(800, 1))->replica == 0);
  CHECK(r.choose(2, prompt(800, 2))->replica == 1);
  r.end(1);
  r.end(2);
  for (std::uint64_t i = 10; i < 13; ++i) { // 52 of its 852 tokens are new
    const auto to = *r.choose(i, prompt(852, 2));
    CHECK(to.replica == 1);
    CHECK(to.cached_tokens == (i == 10 ? 800 : 848));
    r.end(i);
  }
  auto busy = idle_report(1);
  busy.prompts = shape_of(0, 500, 1);
  r.take(busy);
  CHECK(r.choose(20, prompt(852, 2))->replica == 1);
  busy.prompts = shape_of(0, 2000, 1);
  r.take(busy);
  CHECK(r.choose(21, prompt(852, 2))->replica == 0);
}

TEST_CASE("what a request cannot take from the cache does not count") {
  auto r = two();
  CHECK(r.choose(1, prompt(400))->replica == 0);
  r.end(1);
  auto scored = prompt(400);
  scored.most_cached = 0;
  const auto to = *r.choose(2, scored);
  CHECK(to.cached_tokens == 0);
  CHECK(to.ms == doctest::Approx(420));
  auto again = prompt(400); // whose last token is computed in any case
  r.end(2);
  CHECK(r.choose(3, again)->cached_tokens == 399);
}

TEST_CASE("a slower replica is chosen when the faster one has more to do") {
  auto r = two(3);
  CHECK(r.choose(1, prompt(100, 1))->replica == 0);
  CHECK(r.choose(2, prompt(100, 2))->replica == 0);
  CHECK(r.choose(3, prompt(100, 3))->replica == 0); // 320 against 360 ms
  CHECK(r.choose(4, prompt(100, 4))->replica == 1);
}

TEST_CASE("where slots or blocks are short, a request waits for those that run to end") {
  auto r = two();
  auto full = idle_report(0), busy = idle_report(1);
  full.running = usual.slots;
  full.free_slots = 0;
  full.left = {50, 60, 70, 80};
  busy.prompts = shape_of(0, 100, 1);
  SUBCASE("slots") {}
  SUBCASE("blocks") {
    full.running = 4;
    full.free_slots = 4;
    full.free_blocks = 2;
  }
  r.take(full);
  r.take(busy);
  CHECK(r.choose(1, prompt(50))->replica == 1); // 100 rows are sooner computed than the first answer has ended
  busy.prompts = shape_of(0, 100'000, 1);
  r.take(busy);
  CHECK(r.choose(2, prompt(50))->replica == 0);
}

TEST_CASE("a full queue is not chosen while another has room") {
  router r;
  r.start(0, 1, {.blocks = 1000, .slots = 1, .queue = 1, .step_rows = 512});
  r.start(1, 1, {.blocks = 1000, .slots = 1, .queue = 1, .step_rows = 512});
  r.take([] {
    auto slow = idle_report(1, 1000);
    slow.queue_room = 2;
    return slow;
  }());
  auto fast = idle_report(0);
  fast.queue_room = 2;
  r.take(fast);
  CHECK(r.choose(1, prompt(10))->replica == 0);
  CHECK(r.choose(2, prompt(10))->replica == 0);
  CHECK(r.choose(3, prompt(10))->replica == 1);
  CHECK(r.has_room());
  CHECK(r.choose(4, prompt(10))->replica == 1);
  CHECK_FALSE(r.has_room());
  CHECK(r.choose(5, prompt(10))->replica == 0); // it will refuse, or refuse another
  fast.received = {1, 2, 5};
  fast.queue_room = 0;
  r.take(fast);
  CHECK_FALSE(r.has_room());
  fast.received = {};
  fast.queue_room = 1;
  r.take(fast);
  CHECK(r.has_room());
}

TEST_CASE("requests count until their replica reports them, or they have ended") {
  auto r = two();
  const auto ms = [&] { // of a probe
    const auto to = *r.choose(99, prompt(10, 5));
    r.end(99);
    return std::pair(to.replica, to.ms);
  };
  CHECK(r.choose(1, prompt(300, 1))->replica == 0);
  CHECK(r.choose(2, prompt(200, 2))->replica == 1);
  CHECK(ms() == std::pair(1, 230.0));
  r.end(2); // before it came there
  CHECK(ms() == std::pair(1, 30.0));
  auto report = idle_report(0);
  report.received = {1, 77};
  r.take(report); // and computed at once
  r.choose(3, prompt(20, 3));
  CHECK(ms() == std::pair(1, 30.0));
}

TEST_CASE("a replica that dies is forgotten, and its last report comes too late") {
  auto r = two();
  CHECK(r.choose(1, prompt(800, 1))->replica == 0);
  CHECK(r.choose(2, prompt(80, 2))->replica == 1);
  r.stop(0);
  CHECK(r.choose(1, prompt(800, 1))->replica == 1);
  r.end(1);
  r.end(2);
  r.start(0, 2, usual);
  auto late = idle_report(0);
  late.prompts = shape_of(0, 100'000, 1);
  r.take(late);
  // Its costs are unknown, so they are the other's.
  const auto to = *r.choose(3, prompt(800, 9));
  CHECK(to.replica == 0);
  CHECK(to.ms == doctest::Approx(840));
  CHECK(r.choose(4, prompt(800, 1))->cached_tokens > 0);
}

TEST_CASE("the memory of prefixes keeps the chains used last, the beginnings longest") {
  const auto chain = [](int kind, int blocks) { return prompt(16 * blocks, kind).chain; };
  prefix_memory m(10, 1 << 20);
  m.use(chain(1, 6));
  m.use(chain(2, 4));
  CHECK(m.known(chain(1, 8)) == 6);
  CHECK(m.known(chain(2, 3)) == 3);
  CHECK(m.known(chain(3, 3)) == 0);
  m.use(chain(1, 2));
  m.use(chain(3, 3)); // for the ends of the first
  CHECK(m.known(chain(1, 6)) == 3);
  CHECK(m.known(chain(2, 4)) == 4);
  CHECK(m.size() == 10);
  m.use(chain(4, 25));
  CHECK(m.known(chain(4, 25)) == 10);
  CHECK(m.known(chain(3, 3)) == 0);
  prefix_memory small(1000, 3 * prefix_memory::bytes_each);
  small.use(chain(1, 5));
  CHECK(small.size() == 3);
  prefix_memory none(0, 1 << 20);
  none.use(chain(1, 5));
  CHECK(none.known(chain(1, 5)) == 0);
}

TEST_CASE("the memory of prefixes knows beginnings, whatever was used in which order") {
  std::mt19937 chance(2);
  prefix_memory m(40, 1 << 20);
  for (int i = 0; i < 500; ++i) {
    const auto all = prompt(16 * 20, static_cast<int>(chance() % 6)).chain;
    m.use(std::span(all).first(1 + chance() % 20));
    CHECK(m.size() <= 40);
    for (int kind = 0; kind < 6; ++kind) { // by bisection as by each
      const auto other = prompt(16 * 20, kind).chain;
      const auto known = m.known(other);
      bool agrees = true;
      for (std::size_t n = 1; n <= other.size(); ++n)
        agrees = agrees && (m.known(std::span(other).first(n)) == n) == (n <= known);
      REQUIRE(agrees);
    }
  }
}

TEST_CASE("a chain of blocks has the hashes of the prefix cache, and depends on the salt") {
  std::vector<token_id> ids(50);
  std::iota(ids.begin(), ids.end(), 7);
  const auto chain = block_chain(ids, 5);
  REQUIRE(chain.size() == 3);
  auto hash = block_pool::content_hash(5, std::span(ids).first(16));
  CHECK(chain[0] == hash);
  CHECK(chain[1] == block_pool::content_hash(hash, std::span(ids).subspan(16, 16)));
  CHECK(block_chain(ids, 6)[0] != chain[0]);
  CHECK(block_chain(std::span(ids).first(15), 5).empty());
  const std::vector<std::int32_t> borders{32, 48};
  CHECK(rotation_of(32, borders) == 0);
  CHECK(rotation_of(33, borders) == 1);
  CHECK(rotation_of(50, borders) == 2);
  CHECK(chain_root(9, 0) == 9);
  CHECK(chain_root(9, 1) != chain_root(9, 2));
}

TEST_CASE("of requests that ended without a report, the last few alone are remembered, whose report may yet come") {
  awaited_answers answers;
  constexpr std::uint64_t running = 1;
  answers.await(running, prompt(20, 0, 100));
  for (std::uint64_t request = 2; request < 5000; ++request) {
    answers.await(request, prompt(20, 0, 100));
    answers.end(request);
  }
  CHECK(answers.size() < 300);
  CHECK(!answers.known());
  answers.learn({.request = 4999, .tokens = 7});
  CHECK(answers.known());
  const auto before = answers.size();
  answers.learn({.request = running, .tokens = 9});
  CHECK(answers.size() == before - 1);
}
