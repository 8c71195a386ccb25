#include "runtime/techniques/beams/technique.hpp"
#include "runtime/techniques/dola/technique.hpp"
#include "runtime/techniques/tree_search/technique.hpp"
#include "tests/rounds.hpp"
#include "tests/runtime/scheduling/scheduler_machine.hpp"

using namespace troupe;
using namespace troupe::testing;

namespace {

/// The requests in starting order when one runs at a time.
std::vector<std::uint64_t> starts(const std::vector<submission>& all) {
  machine m(100, true, {512, 1, 10, 1});
  for (const auto& a : all)
    submit(m, a);
  std::vector<std::uint64_t> order;
  for (int i = 0; i < 50; ++i) {
    m.plan(), m.execute(), m.book();
    for (auto s : m.sched.collect_started())
      order.push_back(s.request);
  }
  return order;
}

} // namespace

TEST_CASE("random workloads sample the same tokens as each sequence alone, and leave no block in use") {
  int swapped_out = 0, swapped_in = 0;
  int accepted = 0, rejected = 0, searches = 0, groups = 0, groups_failed = 0, ahead_of_guides = 0;
  int overlapped = 0, trees = 0, branched = 0, featured_lines = 0, trees_of_states = 0;
  const restored_borders restore;
  for (int seed = 0; seed < rounds(1000); ++seed) {
    CAPTURE(seed);
    std::mt19937 rng(static_cast<unsigned>(seed));
    auto pick = [&](int lo, int hi) { return std::uniform_int_distribution<int>(lo, hi)(rng); };
    scheduler_limits limits{pick(0, 4) == 0 ? 1 : pick(1, 100), pick(0, 4) == 0 ? 1 : pick(1, 12), 1000, pick(1, 3)};
    const auto guesses = pick(0, 1) ? std::make_shared<test_guesser>(static_cast<unsigned>(seed), 0.25 * pick(0, 4))
                                    : nullptr;
    rope_borders.clear();
    for (int i = pick(0, 2), from = 0; i > 0 && from < 140; --i)
      rope_borders.push_back(from = pick(from + 1, 140));
    limits.rope_borders = rope_borders;
    limits.recurrent = recurrent_layers = seed % 3 == 0;
    limits.most_guesses = recurrent_layers ? 1 + seed % 5 : 64;
    limits.measured_budget = pick(0, 1);
    limits.step_target_ms = pick(0, 2) * 10.0;
    if (seed % 2 == 1) {
      limits.stages = 2 + seed / 2 % 3;
      limits.microbatches = seed / 6 % 5; // 0: by what steps cost
    }
    const int longest = 150; // the pool holds at least one such sequence, and may hold no more
    machine m((longest + kernels::block_tokens - 1) / kernels::block_tokens + pick(0, 1) * pick(0, 30), pick(0, 2) > 0,
              limits, pick(0, 1) * pick(1, 40), guesses, seed % 7);
    if (pick(0, 1))
      m.swap = [&] { return swap_decision{pick(0, 3) > 0, pick(0, 3) > 0}; };
    std::mt19937 speed(static_cast<unsigned>(seed));
    m.time = [&](const step_plan& p) {
      return std::exp(std::normal_distribution<>()(speed)) * (5.0 + double(p.tokens.size()));
    };
    if (seed % 4 > 0)
      m.gap = [&](bool ahead) { return ahead ? 0.0 : 5.0 * static_cast<double>(speed() % 16); };
    std::vector<submission> all;
    std::set<std::uint64_t> cancelled, paused;
    std::set<sequence_id> ended;
    // Clients act between any two messages, also while a block request is unanswered.
    std::size_t submitted = 0;
    const auto client = [&] {
      if (submitted == 0)
        return;
      auto id = static_cast<std::uint64_t>(pick(1, static_cast<int>(submitted)));
      switch (pick(0, 30)) {
        case 0:
          cancelled.insert(id);
          m.sched.cancel(id);
          break;
        case 1: { // a stop string
          sequence_id sequence{id, static_cast<std::uint32_t>(pick(0, 3))};
          if (m.transcripts.contains(sequence)) {
            ended.insert(sequence);
            m.sched.finish(sequence);
          }
          break;
        }
        case 2:
        case 3:
        case 4:
          paused.insert(id);
          m.sched.pause(id, true);
          break;
        case 5:
        case 6:
        case 7:
        case 8:
          paused.erase(id);
          m.sched.pause(id, false);
          break;
        default: break;
      }
    };
    m.on_round = [&] {
      client();
      if (pick(0, 3) == 0) // results come in between, too
        m.execute(), m.book();
    };
    for (int i = 0, n = pick(1, 25); i < n; ++i) {
      std::vector<token_id> prompt(static_cast<std::size_t>(pick(1, 100)));
      auto family = pick(0, 2);
      for (std::size_t k = 0; k < prompt.size(); ++k)
        prompt[k] = 10 + (k > 40 ? pick(0, 50) : family);
      all.push_back(make(static_cast<std::uint64_t>(i + 1), prompt, pick(1, 50),
                         pick(1, std::min(4, limits.max_sequences)), pick(0, 3) == 0 ? pick(-1, 1) : 0));
      auto& changed = all.back().sampling;
      if (pick(0, 4) == 0) {
        changed.n = 1;
        const auto width = pick(1, std::min({4, limits.max_sequences, limits.step_tokens}));
        if (!limits.recurrent && pick(0, 2) == 0) {
          changed.techniques.set(searched_by({.simulations = 1000, .parallel = width}));
          ++searches;
        } else {
          changed.techniques.set(troupe::beams({.width = width}));
        }
      }
      if (pick(0, 4) == 0)
        changed.prompt_logprobs = 0;
      if (pick(0, 2) == 0) {
        changed.ignore_eos = true; // tells the machine
        all.back().follows = forcing_constraint();
      }
      if (!changed.grouped() && i % 3 == 0)
        changed.techniques.set(contrasted_with(dola_layers({0, i % 2 + 1})));
      if (pick(0, 2) == 0)
        steer_by(all.back(), static_cast<std::uint64_t>(pick(1, 2)));
    }
    for (int i = 0; submitted < all.size() || i < 500; ++i) {
      switch (pick(0, 6)) {
        case 0:
          if (submitted < all.size())
            submit(m, all[submitted++]);
          break;
        case 1: m.plan(); break;
        case 2: m.plan(); [[fallthrough]];
        case 3: m.execute(); break;
        case 4: pick(0, 1) ? m.book() : m.late(); break;
        case 5: client(); break;
        default: m.execute(); m.book();
      }
    }
    m.on_round = nullptr;
    const auto check_done = [&] {
      for (auto& a : all)
        if (!cancelled.contains(a.request) && !paused.contains(a.request) && a.sampling.grouped()) {
          CAPTURE(a.request);
          CHECK(m.group_results[a.request] == solo_group(a));
        } else if (!cancelled.contains(a.request) && !paused.contains(a.request))
          for (std::uint32_t k = 0; k < static_cast<std::uint32_t>(a.sampling.n); ++k)
            if (!ended.contains({a.request, k})) {
              CAPTURE(a.request);
              CAPTURE(k);
              CHECK(m.transcripts[{a.request, k}] == solo(a, k));
            }
    };
    const auto fail = [&] {
      for (auto& [request, why] : m.sched.collect_failed()) {
        CHECK((why.param == "num_beams" || why.param == "search"));
        cancelled.insert(request);
        ++groups_failed;
      }
    };
    m.drain();
    fail();
    check_done(); // even while some are paused
    for (auto id : std::exchange(paused, {}))
      m.sched.pause(id, false);
    m.drain();
    fail();
    check_done();
    for (auto& a : all)
      if (a.sampling.prompt_logprobs >= 0 && !cancelled.contains(a.request))
        for (std::size_t p = 1; p < a.prompt.size(); ++p)
          CHECK(m.scores[a.request].at(static_cast<std::int32_t>(p)) ==
                history_of(std::span(a.prompt).first(p), a.sampling.seed, a.prompt.size()));
    groups += static_cast<int>(m.group_results.size());
    if (guesses) {
      CHECK(guesses->sequences() == 0);
      accepted += guesses->accepted;
      rejected += guesses->rejected;
      branched += guesses->branched;
    }
    trees += m.trees;
    trees_of_states += limits.recurrent ? m.trees : 0;
    featured_lines += m.featured_lines;
    submit(m, make(1000, {10}, 1)); // the next plan reports ended sequences to the sampler
    m.drain();
    CHECK(m.sampling_states() == 0);
    auto c = m.sched.counters();
    CHECK(c.running + c.waiting + c.paused == 0);
    CHECK(m.manager.counters().in_use == 0);
    overlapped += m.overlapped;
    ahead_of_guides += m.gap ? m.ahead_of_guides : 0;
    swapped_out += static_cast<int>(m.manager.counters().swapped_out);
    swapped_in += static_cast<int>(m.manager.counters().swapped_in);
  }
  CHECK(overlapped > rounds(10000));
  CHECK(ahead_of_guides > rounds(500));
  CHECK(swapped_out > rounds(1000));
  CHECK(swapped_in > rounds(700)); // prefixes with states are of use as far as their snapshots
  CHECK(accepted > rounds(1000));
  CHECK(rejected > rounds(1000));
  CHECK(trees > rounds(1000));
  CHECK(branched > rounds(100));
  CHECK(trees_of_states > rounds(100));
  CHECK(featured_lines > rounds(100));
  CHECK(groups > rounds(100));
  CHECK(searches > rounds(30));
  CHECK(groups_failed < groups / 10);
}

TEST_CASE("a cancellation between block request and grant leaks nothing") {
  machine m(20, true, {64, 4, 10, 2});
  submit(m, make(1, std::vector<token_id>(40, 11), 10));
  submit(m, make(2, std::vector<token_id>(40, 12), 10));
  m.on_round = [&] { m.sched.cancel(2); };
  m.drain();
  CHECK(m.manager.counters().in_use == 0);
  check_transcripts(m, make(1, std::vector<token_id>(40, 11), 10));
}

TEST_CASE("too few blocks lead to preemption, not to another result") {
  machine m(12, false, {64, 8, 100, 2});
  std::vector<submission> all;
  for (std::uint64_t i = 1; i <= 8; ++i)
    all.push_back(make(i, std::vector<token_id>(20, static_cast<token_id>(10 + i)), 100));
  for (auto& a : all)
    submit(m, a);
  m.drain();
  for (auto& a : all)
    check_transcripts(m, a);
  CHECK(m.sched.counters().preemptions > 0);
  CHECK(m.manager.counters().in_use == 0);
}

TEST_CASE("preempted sequences are swapped in rather than recomputed") {
  const auto prefill_rows = [](int host_blocks) {
    machine m(12, true, {64, 8, 100, 2}, host_blocks);
    std::vector<submission> all;
    for (std::uint64_t i = 1; i <= 8; ++i)
      all.push_back(make(i, std::vector<token_id>(20, static_cast<token_id>(10 + i)), 100));
    for (auto& a : all)
      submit(m, a);
    m.drain();
    for (auto& a : all)
      check_transcripts(m, a);
    CHECK(m.sched.counters().preemptions > 0);
    CHECK((m.manager.counters().swapped_in > 0) == (host_blocks > 0));
    return m.sched.counters().prefill_rows;
  };
  CHECK(prefill_rows(64) < prefill_rows(0) / 2);
}

TEST_CASE("the moves of a cancelled step are done by the next") {
  machine m(3, true, {64, 4, 10, 1}, 8);
  const auto first = make(1, std::vector<token_id>(48, 11), 1), other = make(2, std::vector<token_id>(48, 12), 1);
  submit(m, first), m.drain();
  submit(m, other), m.drain(); // swaps out the blocks of the first
  submit(m, make(3, std::vector<token_id>(48, 11), 1));
  m.on_round = [&] { m.sched.cancel(3); }; // its blocks are granted, its rows never planned
  m.drain();
  m.on_round = nullptr;
  CHECK(m.manager.counters().swapped_in == 2);
  auto again = make(4, std::vector<token_id>(48, 11), 1); // finds them in the pool
  submit(m, again), m.drain();
  check_transcripts(m, again);
}

TEST_CASE("decoding goes on in every step while a long prompt is under way") {
  machine m(100, true, {32, 4, 10, 1});
  submit(m, make(1, {20}, 30));
  m.plan(), m.execute(), m.book();
  submit(m, make(2, std::vector<token_id>(300, 33), 1));
  for (int step = 0; step < 8; ++step) {
    auto before = m.transcripts[{1, 0}].size();
    if (solo(make(1, {20}, 30), 0).size() == before)
      break;
    m.plan(), m.execute(), m.book();
    CHECK(m.transcripts[{1, 0}].size() == before + 1);
  }
  m.drain();
  CHECK(m.transcripts[{2, 0}].size() == 1);
}

TEST_CASE("n sequences compute their prompt once") {
  machine m(100, false, {512, 8, 10, 2});
  auto a = make(1, std::vector<token_id>(100, 17), 5, 8);
  submit(m, a);
  m.drain();
  check_transcripts(m, a);
  CHECK(m.sched.counters().prefill_rows == 100);
  CHECK(m.manager.counters().copied == 7);
}

TEST_CASE("a second request with the same prompt computes only uncached tokens") {
  machine m(100, true, {512, 8, 10, 2});
  submit(m, make(1, std::vector<token_id>(100, 17), 5));
  m.drain();
  m.sched.collect_started();
  submit(m, make(2, std::vector<token_id>(100, 17), 5));
  m.drain();
  CHECK(m.sched.counters().prefill_rows == 104);
  auto started = m.sched.collect_started();
  REQUIRE(started.size() == 1);
  CHECK(started[0].cached_tokens == 96);
}

TEST_CASE("requests of one priority start in their order, higher priorities before them") {
  CHECK(starts({make(1, {20}, 3), make(2, {20}, 3), make(3, {20}, 3, 1, 5)}) == std::vector<std::uint64_t>{3, 1, 2});
}

TEST_CASE("requests start in order of arrival at the engine, whatever their current numbers") {
  std::vector<submission> all{make(11, {20}, 3), make(12, {20}, 3), make(13, {20}, 3)};
  all[0].arrival = 3, all[1].arrival = 1, all[2].arrival = 2;
  CHECK(starts(all) == std::vector<std::uint64_t>{12, 13, 11});
}

TEST_CASE("a more important request takes the place of a less important one") {
  machine m(100, true, {512, 1, 10, 1});
  submit(m, make(1, {20}, 40));
  m.plan(), m.execute(), m.book();
  submit(m, make(2, {21}, 2, 1, 1));
  m.drain();
  CHECK(m.sched.counters().preemptions == 1);
  check_transcripts(m, make(1, {20}, 40));
  check_transcripts(m, make(2, {21}, 2));
}

TEST_CASE("a full queue and an impossible n are refused with a sentence") {
  scheduler s({512, 4, 2, 2});
  for (std::uint64_t i = 1; i <= 6; ++i) // four could run, two may wait
    CHECK_FALSE(s.submit(make(i, {1}, 1)).has_value());
  auto full = s.submit(make(7, {1}, 1));
  REQUIRE(full.has_value());
  CHECK(full->code == errc::overloaded);
  auto wide = s.submit(make(8, {1}, 1, 5));
  REQUIRE(wide.has_value());
  CHECK(wide->param == "n");
}

TEST_CASE("a paused request gets no rows, delays no other and loses its blocks first") {
  machine m(12, false, {64, 4, 10, 2});
  auto one = make(1, std::vector<token_id>(100, 21), 40), two = make(2, std::vector<token_id>(100, 22), 40);
  submit(m, one);
  m.plan(), m.execute(), m.book(), m.plan(), m.execute(), m.book(), m.plan(), m.execute(), m.book();
  auto before = m.transcripts[{1, 0}].size();
  m.sched.pause(1, true);
  submit(m, two);
  m.drain();
  CHECK(m.transcripts[{1, 0}].size() <= before + 1);
  check_transcripts(m, two);
  m.sched.pause(1, false);
  m.drain();
  check_transcripts(m, one);
}

TEST_CASE("sequences without rows say why: paused, preempted, in the queue or not their turn") {
  machine m(12, false, {64, 4, 100, 2}); // four slots, and blocks for fewer than four answers
  using kind = step_lane::kind;
  const auto of = [&](std::uint64_t request) {
    const auto lanes = m.sched.idle_lanes(100);
    const auto found = std::ranges::find(lanes, request, [](const step_lane& lane) { return lane.sequence.request; });
    REQUIRE(found != lanes.end());
    return found->what;
  };
  for (std::uint64_t request = 1; request <= 8; ++request)
    submit(m, make(request, std::vector<token_id>(20, static_cast<token_id>(10 + request)), 100));
  CHECK(of(1) == kind::queue);
  m.plan(), m.execute(), m.book();
  CHECK(of(1) == kind::turn); // if it has no rows in the next step
  CHECK(of(8) == kind::queue);
  m.sched.pause(8, true);
  CHECK(of(8) == kind::paused);
  m.sched.pause(8, false);
  const auto preempted = [&] {
    const auto lanes = m.sched.idle_lanes(100);
    return std::ranges::count(lanes, kind::preempted, &step_lane::what);
  };
  CHECK(preempted() == 0);
  for (int i = 0; i < 200 && preempted() == 0; ++i)
    m.plan(), m.execute(), m.book();
  CHECK(preempted() > 0);
  CHECK(m.sched.counters().preemptions > 0);
  const auto two = m.sched.idle_lanes(2); // those that run come first
  REQUIRE(two.size() == 2);
  CHECK(two.front().what == kind::turn);
}

TEST_CASE("sequences that are judged together say whether they wait for a mask or for a reward model") {
  machine m(100, true, {64, 4, 10, 2});
  using kind = step_lane::kind;
  const auto why = [&] { return m.sched.idle_lanes(1).at(0).what; };
  auto beams = make(1, {21, 22}, 40);
  auto& params = beams.sampling;
  params.techniques.set(troupe::beams({.width = 2}));
  m.guided.insert(1);
  submit(m, beams);
  for (int i = 0; i < 30 && why() != kind::mask; ++i)
    m.plan(), m.execute(), m.book();
  CHECK(why() == kind::mask);
  step_result asked;
  asked.at_judge = {{1, 0}};
  m.sched.finished_late(asked);
  CHECK(why() == kind::judge);
  REQUIRE(m.late());
  CHECK(why() == kind::turn);
}

TEST_CASE("a waiting request runs after a cancellation during a block request") {
  machine m(20, true, {64, 1, 10, 2});
  submit(m, make(1, std::vector<token_id>(40, 11), 10));
  submit(m, make(2, {12}, 10));
  m.on_round = [&] { m.sched.cancel(1); };
  m.drain();
  check_transcripts(m, make(2, {12}, 10));
  CHECK(m.manager.counters().in_use == 0);
}

TEST_CASE("paused requests yield their slots to waiting ones") {
  machine m(100, true, {64, 4, 10, 2});
  auto paused = make(1, {21}, 40, 2), slow = make(2, {22}, 40, 2), wide = make(3, {23}, 5, 4);
  submit(m, paused);
  submit(m, slow);
  m.plan(), m.execute(), m.book(), m.plan(), m.execute(), m.book();
  m.sched.pause(1, true);
  m.sched.pause(2, true);
  submit(m, wide);
  m.drain();
  check_transcripts(m, wide);
  m.sched.pause(1, false);
  m.sched.pause(2, false);
  m.drain();
  check_transcripts(m, paused);
  check_transcripts(m, slow);
}

TEST_CASE("no more sequences are preempted than necessary") {
  machine m(14, false, {512, 8, 100, 1});
  std::vector<submission> all;
  for (int i = 1; i <= 8; ++i) // seven of one block each, and the youngest with the seven that the others need next
    all.push_back(make(static_cast<std::uint64_t>(i), std::vector<token_id>(i < 8 ? 16 : 112, 10 + i), 10));
  for (auto& a : all)
    submit(m, a);
  for (int step = 0; step < 2; ++step)
    m.plan(), m.execute(), m.book();
  CHECK(m.sched.counters().preemptions == 1);
  CHECK(m.sched.counters().waiting == 1);
  m.drain();
  for (auto& a : all)
    check_transcripts(m, a);
}

TEST_CASE("paused requests have no place in the queue") {
  machine m(64, true, {.step_tokens = 64, .max_sequences = 2, .max_queue = 2});
  std::vector<submission> paused;
  for (std::uint64_t id = 1; id <= 4; ++id) {
    submit(m, paused.emplace_back(make(id, {static_cast<token_id>(id)}, 5)));
    m.plan();
    m.sched.pause(id, true);
  }
  m.drain();
  CHECK(m.sched.counters().paused == 4);
  auto a = make(11, {31}, 5), b = make(12, {32}, 5);
  submit(m, a), submit(m, b);
  m.drain();
  check_transcripts(m, a), check_transcripts(m, b);
  // A resumed request regains its place even if the queue is full.
  submit(m, make(13, {33}, 5)), submit(m, make(14, {34}, 5));
  for (auto& p : paused)
    CHECK(m.sched.pause(p.request, false).empty());
  m.drain();
  for (auto& p : paused)
    check_transcripts(m, p);
  CHECK(m.sched.counters().paused == 0);
}

TEST_CASE("of too many paused requests those paused longest are dropped") {
  machine m(64, true, {.step_tokens = 64, .max_sequences = 2, .max_queue = 2});
  for (std::uint64_t id = 1; id <= 4; ++id) {
    submit(m, make(id, {static_cast<token_id>(id)}, 5));
    CHECK(m.sched.pause(id, true).empty());
  }
  CHECK(m.sched.pause(1, false).empty()); // and again: now it is the last
  CHECK(m.sched.pause(1, true).empty());
  submit(m, make(5, {5}, 5, 2));
  m.drain();
  submit(m, make(6, {6}, 5));
  CHECK(m.sched.pause(6, true) == std::vector<std::uint64_t>{2});
  CHECK(m.sched.counters().paused == 4);
  m.sched.cancel(3);
  submit(m, make(7, {7}, 5));
  CHECK(m.sched.pause(7, true).empty());
  m.drain();
  CHECK(m.sched.counters().paused == 4);
}

TEST_CASE("a prompt under way takes blocks from a paused request") {
  machine m(8, false, {.step_tokens = 16, .max_sequences = 4});
  const auto paused = make(1, std::vector<token_id>(60, 21), 30), decoding = make(2, {22}, 40),
             prompt = make(3, std::vector<token_id>(60, 23), 3);
  submit(m, paused);
  while (m.transcripts[{1, 0}].empty())
    m.plan(), m.execute(), m.book();
  m.sched.pause(1, true);
  submit(m, decoding);
  submit(m, prompt);
  while (m.transcripts[{3, 0}].empty())
    m.plan(), m.execute(), m.book();
  CHECK(m.transcripts[{2, 0}].size() < solo(decoding, 0).size()); // it has not waited for it
  m.sched.pause(1, false);
  m.drain();
  for (auto& a : {paused, decoding, prompt})
    check_transcripts(m, a);
}

TEST_CASE("the load of a scheduler is what it has left to compute, as far as it is not expected to be cached") {
  machine m(100, true, {.step_tokens = 64, .max_sequences = 2, .max_queue = 5, .steps_ahead = 1});
  CHECK(m.sched.load().queue_room == 7);
  submit(m, make(1, std::vector<token_id>(40, 11), 4));
  submit(m, make(2, std::vector<token_id>(100, 12), 4));
  auto late = make(3, std::vector<token_id>(50, 13), 4);
  late.expected_cached = 32;
  submit(m, late);
  auto load = m.sched.load();
  CHECK(load.running == 0);
  CHECK(load.waiting == 3);
  CHECK(load.free_slots == 2);
  CHECK(load.queue_room == 4);
  CHECK(load.prompts.rows == 40 + 100 + 18);
  CHECK(load.step_rows == 64);
  m.plan(), m.execute(), m.book(); // all of the first prompt, 24 rows of the second
  load = m.sched.load();
  CHECK(load.running == 2);
  CHECK(load.waiting == 1);
  CHECK(load.prompts.rows == 76 + 18);
  CHECK(load.decodes.rows == 1);
  CHECK(load.decodes.read == 41);
  CHECK(load.generated_tokens == 1);
  m.sched.add_lengths(load);
  CHECK(load.left.size() == 2);
  CHECK(load.left.front() >= 1);
  CHECK(load.left.back() <= 4);
  CHECK(load.growth <= 8);
  CHECK(m.sched.take_ended().empty());
  m.drain();
  load = m.sched.load();
  CHECK(load.running + load.waiting == 0);
  CHECK(load.prompts.rows == 0);
  m.sched.add_lengths(load);
  CHECK(load.left.empty());
  const auto ended = m.sched.take_ended();
  REQUIRE(ended.size() == 3);
  for (const auto& one : ended)
    CHECK(one.tokens <= 4);
  CHECK(m.sched.counters().answers_predicted == 3);
}
