// Requests for embeddings among others: every hidden state that is pooled comes once, in order, from the right history.
#include "tests/runtime/scheduling/scheduler_machine.hpp"

using namespace troupe;
using namespace troupe::testing;

namespace {

submission embedding(std::uint64_t id, std::vector<token_id> prompt, pooling how) {
  auto a = make(id, std::move(prompt), 1);
  a.embed = how;
  return a;
}

std::vector<token_id> prompt_of_length(std::size_t length, token_id first = 100) {
  std::vector<token_id> ids(length);
  for (std::size_t i = 0; i < length; ++i)
    ids[i] = first + static_cast<token_id>(i % 90);
  return ids;
}

/// The positions that are pooled, each with the state that it must have.
void check_embedding(machine& m, const submission& a) {
  CAPTURE(a.request);
  const std::span<const token_id> prompt(a.prompt);
  const auto first = a.embed == pooling::last ? prompt.size() - 1 : 0,
             end = a.embed == pooling::cls ? 1 : prompt.size();
  CHECK(m.completed[a.request] == 1);
  CHECK(m.embedded[a.request].size() == end - first);
  for (auto p = first; p < end; ++p)
    CHECK(m.embedded[a.request].at(static_cast<std::int32_t>(p)) == history_of(prompt.first(p + 1)));
  CHECK(m.transcripts[{a.request, 0}].empty());
}

} // namespace

TEST_CASE("a prompt's hidden states are wanted over as many steps as its chunks take") {
  for (const auto how : {pooling::mean, pooling::last, pooling::cls}) {
    machine m(20, true, {7, 4, 10, 2});
    const auto a = embedding(1, prompt_of_length(60), how);
    submit(m, a);
    m.drain();
    check_embedding(m, a);
    m.sched.cancel(1);
    m.drain();
    CHECK(m.manager.counters().in_use == 0);
  }
}

TEST_CASE("an embedding of the last state uses the prefix cache, a mean computes all rows") {
  machine m(40, true, {512, 4, 10, 2});
  submit(m, make(1, prompt_of_length(64), 4));
  m.drain();
  const auto rows = [&](pooling how) {
    static std::uint64_t id = 10;
    const auto before = m.sched.counters().prefill_rows + m.sched.counters().decode_rows;
    const auto a = embedding(++id, prompt_of_length(64), how);
    submit(m, a);
    m.drain();
    check_embedding(m, a);
    m.sched.cancel(a.request);
    m.drain();
    return m.sched.counters().prefill_rows + m.sched.counters().decode_rows - before;
  };
  CHECK(rows(pooling::last) == 16); // the block of the last row
  CHECK(rows(pooling::mean) == 64);
  CHECK(rows(pooling::cls) == 1);
}

TEST_CASE("embeddings and generations preempt each other, and all get what is theirs") {
  std::uint64_t preemptions = 0;
  for (unsigned seed = 1; seed <= 40; ++seed) {
    CAPTURE(seed);
    std::mt19937 rng(seed);
    const auto pick = [&](int lo, int hi) { return std::uniform_int_distribution<int>(lo, hi)(rng); };
    machine m(pick(8, 16), pick(0, 1) == 1, {pick(4, 40), pick(1, 6), 100, pick(1, 2)});
    std::vector<submission> all;
    std::set<std::uint64_t> ended;
    for (std::uint64_t id = 1; id <= 15; ++id) {
      auto prompt = prompt_of_length(static_cast<std::size_t>(pick(1, 90)), static_cast<token_id>(100 + pick(0, 2)));
      if (pick(0, 1) == 0)
        all.push_back(embedding(id, std::move(prompt), static_cast<pooling>(pick(1, 3))));
      else
        all.push_back(make(id, std::move(prompt), pick(1, 30)));
      all.back().priority = pick(0, 2);
      submit(m, all.back());
      for (int steps = pick(0, 3); steps > 0; --steps) {
        m.plan();
        m.execute();
        m.book();
      }
    }
    // One that is complete keeps its blocks until its request ends, as others may need them.
    const auto end_complete_ones = [&] {
      bool any = false;
      for (const auto& a : all)
        if (m.completed[a.request] == 1 && !ended.contains(a.request)) {
          m.sched.cancel(a.request);
          any = ended.insert(a.request).second;
        }
      return any;
    };
    do
      m.drain();
    while (end_complete_ones());
    m.drain();
    for (const auto& a : all)
      if (a.embed != pooling::none)
        check_embedding(m, a);
      else
        check_transcripts(m, a);
    CHECK(m.manager.counters().in_use == 0);
    preemptions += m.sched.counters().preemptions;
  }
  CHECK(preemptions > 0);
}

TEST_CASE(
  "An encoder's texts are each computed in one step, beside others as far as it has room, and share no blocks") {
  for (unsigned seed = 1; seed <= 30; ++seed) {
    CAPTURE(seed);
    std::mt19937 rng(seed);
    const auto pick = [&](int lo, int hi) { return std::uniform_int_distribution<int>(lo, hi)(rng); };
    scheduler_limits limits{60, pick(1, 6), 100, pick(1, 2)};
    limits.whole_prompts = true;
    machine m(pick(4, 12), true, limits);
    std::vector<submission> all;
    for (std::uint64_t id = 1; id <= 20; ++id) { // with common beginnings
      all.push_back(
        embedding(id, prompt_of_length(static_cast<std::size_t>(pick(1, 60))),
                  std::array{pooling::mean, pooling::last, pooling::cls}[static_cast<std::size_t>(pick(0, 2))]));
      submit(m, all.back());
    }
    std::size_t tokens = 0;
    for (int round = 0; round < 25; ++round) { // texts that wait for blocks of others go on when these end
      m.drain();
      for (const auto& a : all)
        if (m.completed[a.request] > 0)
          m.sched.cancel(a.request);
    }
    for (const auto& a : all) {
      CAPTURE(a.request);
      CHECK(m.completed[a.request] == 1);
      tokens += a.prompt.size();
    }
    CHECK(m.sched.counters().prefill_rows + m.sched.counters().decode_rows == tokens); // none twice, none from a cache
    CHECK(m.manager.counters().found_tokens == 0);
    CHECK(m.manager.counters().in_use == 0);
  }
}
