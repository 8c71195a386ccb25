#include "runtime/scheduling/blocks/block_manager.hpp"

#include <doctest/doctest.h>

#include <numeric>

using namespace troupe;

namespace {

token_list tokens(int n, int first = 0) {
  std::vector<token_id> t(static_cast<std::size_t>(n));
  std::iota(t.begin(), t.end(), first);
  return std::make_shared<const std::vector<token_id>>(std::move(t));
}

constexpr sequence_id a{1, 0}, b{2, 0}, c{3, 0};

block_answer ask(block_manager& m, sequence_id id, int rows, token_list open = nullptr, int watermark = 0) {
  block_request r;
  r.demands.push_back({id, rows, std::move(open), watermark});
  return m.serve(r).answers.at(0);
}

void commit(block_manager& m, sequence_id id, const std::vector<token_id>& t) {
  block_request r;
  r.commits.push_back({id, t});
  m.serve(r);
}

void release(block_manager& m, sequence_id id) {
  block_request r;
  r.releases.push_back(id);
  m.serve(r);
}

} // namespace

TEST_CASE("blocks are granted on demand, sixteen positions each") {
  block_manager m(4, true);
  auto prompt = tokens(20);
  CHECK(ask(m, a, 20, prompt).rows == 20);
  CHECK(m.counters().in_use == 2);
  for (int i = 0; i < 12; ++i)
    CHECK(ask(m, a, 1).rows == 1);
  CHECK(m.counters().in_use == 2);
  CHECK(ask(m, a, 1).first_position == 32);
  CHECK(m.counters().in_use == 3);
  release(m, a);
  CHECK(m.counters().in_use == 0);
  CHECK(m.counters().cached == 0);
}

TEST_CASE("a sequence is opened with the blocks of one that begins alike, unless more is cached") {
  for (const bool cache : {false, true}) {
    CAPTURE(cache);
    block_manager m(8, cache);
    const auto open_like = [&](sequence_id id, sequence_id like, int alike) {
      block_request r;
      r.demands.push_back({.sequence = id, .rows = 40, .open = tokens(40), .like = like, .alike = alike});
      return m.serve(r).answers.at(0);
    };
    ask(m, a, 38, tokens(38));
    commit(m, a, *tokens(32));
    const auto of_b = open_like(b, a, 37);
    CHECK(of_b.first_position == 37);
    CHECK(of_b.rows == 3);
    CHECK(of_b.committed == (cache ? 32 : 0));
    CHECK(m.counters().in_use == 4); // the third block is its own: it writes there
    CHECK(m.counters().copied == 1);
    CHECK(open_like(c, {9, 9}, 37).first_position == (cache ? 32 : 0)); // nobody
    release(m, c);
    CHECK(open_like(c, a, 20).first_position == (cache ? 32 : 20)); // more of it is cached
    for (const auto id : {a, b, c})
      release(m, id);
    CHECK(m.counters().in_use == 0);
  }
}

TEST_CASE("positions that sequences have are counted, those of shared blocks once; no block is ever unusable") {
  block_manager m(16, true);
  ask(m, a, 20, tokens(20));
  CHECK(m.counters().slots_used == 20);
  for (int i = 0; i < 12; ++i)
    ask(m, a, 1);
  CHECK(m.counters().slots_used == 32);
  ask(m, a, 1);
  CHECK(m.counters().slots_used == 33);
  CHECK(m.counters().in_use == 3);
  // A fork shares all blocks until it writes.
  block_request r;
  r.forks.push_back({a, b});
  m.serve(r);
  CHECK(m.counters().slots_used == 33);
  ask(m, b, 1); // its own copy of the last block, with 2 positions
  CHECK(m.counters().in_use == 4);
  CHECK(m.counters().slots_used == 35);
  // Answers of 10, 100 and 1,000 tokens fill 62, 89 and 99 % of their blocks.
  for (const int length : {10, 100, 1000}) {
    block_manager other(64, true);
    ask(other, c, length, tokens(length));
    const auto counts = other.counters();
    CHECK(counts.slots_used == static_cast<std::uint64_t>(length));
    const double filled = double(counts.slots_used) / double(counts.in_use * kernels::block_tokens);
    CHECK(filled == doctest::Approx(length == 10 ? 0.625 : length == 100 ? 0.893 : 0.992).epsilon(0.001));
    CHECK(counts.unusable == 0);
  }
  release(m, a);
  release(m, b);
  CHECK(m.counters().slots_used == 0);
  CHECK(m.counters().unusable == 0);
}

TEST_CASE("a demand is cut to the available blocks, and refused without any") {
  block_manager m(2, true);
  CHECK(ask(m, a, 100, tokens(100)).rows == 32);
  CHECK(ask(m, a, 1).rows == 0);
  CHECK(ask(m, b, 5, tokens(5)).rows == 0);
  CHECK(m.counters().in_use == 2);
  release(m, a);
  CHECK(ask(m, b, 5, tokens(5), 2).rows == 0);
  CHECK(ask(m, b, 5, tokens(5), 1).rows == 5);
}

TEST_CASE(
  "sequences of different salts share no blocks, with any hash; those of the same do, and host memory keeps them "
  "apart") {
  const auto same_hash = [](std::uint64_t, std::span<const token_id>) { return std::uint64_t{7}; };
  for (const auto hash : {block_manager::hash_fn(block_pool::content_hash), block_manager::hash_fn(same_hash)}) {
    block_manager m(4, true, 16, hash);
    const auto prompt = tokens(48);
    std::uint32_t last = 0;
    const auto cached = [&](prefix_salt salt) { // then all is committed and given back
      const sequence_id id{100 + ++last, 0};
      block_request r;
      r.swap = {true, true};
      r.demands.push_back({.sequence = id, .rows = 48, .open = prompt, .salt = salt});
      const auto granted = m.serve(r).answers.at(0);
      REQUIRE(granted.first_position + granted.rows == 48);
      commit(m, id, {prompt->begin() + granted.first_position, prompt->end()});
      release(m, id);
      return granted.first_position;
    };
    const auto one = salted(0, 1), other = salted(0, 2);
    CHECK(cached(0) == 0);
    CHECK(cached(one) == 0); // what was of no salt goes to host memory
    CHECK(cached(one) == 32);
    CHECK(cached(other) == 0);
    CHECK(cached(0) == 32);
    CHECK(cached(one) == 32);
    CHECK(cached(salted(one, 1)) == 0);
  }
}

TEST_CASE("a full block is found again by its content, the last prompt token is always computed") {
  block_manager m(8, true);
  auto prompt = tokens(32);
  ask(m, a, 32, prompt);
  commit(m, a, *prompt);
  release(m, a);
  CHECK(m.counters().cached == 2);
  auto again = ask(m, b, 32, prompt);
  CHECK(again.first_position == 16);
  CHECK(again.rows == 16);
  auto longer = ask(m, c, 40, tokens(40));
  CHECK(longer.first_position == 32);
  CHECK(longer.rows == 8);
  CHECK(m.counters().found_tokens == 48);
}

TEST_CASE("uncommitted tokens are not shared") {
  block_manager m(8, true);
  ask(m, a, 32, tokens(32));
  CHECK(ask(m, b, 32, tokens(32)).first_position == 0);
}

TEST_CASE("without a prefix cache nothing is kept or found") {
  block_manager m(8, false);
  ask(m, a, 32, tokens(32));
  commit(m, a, *tokens(32));
  CHECK(ask(m, b, 32, tokens(32)).first_position == 0);
  release(m, a);
  release(m, b);
  CHECK(m.counters().cached == 0);
}

TEST_CASE("equal content computed twice is stored once") {
  block_manager m(8, true);
  ask(m, a, 20, tokens(20));
  ask(m, b, 20, tokens(20));
  CHECK(m.counters().in_use == 4);
  commit(m, a, *tokens(16));
  commit(m, b, *tokens(16));
  CHECK(m.counters().in_use == 3);
  release(m, a);
  release(m, b);
  CHECK(m.counters().in_use == 0);
  CHECK(m.counters().cached == 1);
}

TEST_CASE("colliding hashes never share blocks of different content") {
  block_manager m(16, true, 0, [](std::uint64_t, std::span<const token_id>) -> std::uint64_t { return 7; });
  ask(m, a, 40, tokens(40));
  commit(m, a, *tokens(32));
  CHECK(ask(m, b, 40, tokens(40, 1)).first_position == 0);
  commit(m, b, *tokens(32, 1));
  // b's second block after a's first: same tokens, another predecessor.
  std::vector<token_id> mixed(*tokens(16));
  auto tail = tokens(24, 17);
  mixed.insert(mixed.end(), tail->begin(), tail->end());
  CHECK(ask(m, c, 40, std::make_shared<const std::vector<token_id>>(mixed)).first_position == 16);
  CHECK(ask(m, {4, 0}, 40, tokens(40)).first_position == 32);
}

TEST_CASE("the least recently released block is evicted first, the end of a chain before its beginning") {
  block_manager m(4, true);
  ask(m, a, 32, tokens(32));
  commit(m, a, *tokens(32));
  release(m, a);
  ask(m, b, 32, tokens(32, 500));
  commit(m, b, *tokens(32, 500));
  release(m, b);
  CHECK(m.counters().cached == 4);
  ask(m, c, 16, tokens(16, 900));
  CHECK(m.counters().evicted == 1);
  CHECK(ask(m, a, 33, tokens(33)).first_position == 16);
}

TEST_CASE("a fork shares everything, and the first to write the partial block copies it") {
  block_manager m(8, true);
  ask(m, a, 20, tokens(20));
  block_request fork;
  fork.forks.push_back({a, {1, 1}});
  fork.forks.push_back({a, {1, 2}});
  m.serve(fork);
  CHECK(m.counters().in_use == 2);
  block_request r;
  for (std::uint32_t i = 0; i < 3; ++i)
    r.demands.push_back({{1, i}, 1, nullptr, 0});
  auto grant = m.serve(r);
  CHECK(grant.moves.size() == 2);
  CHECK(m.counters().in_use == 4); // one shared full block, three partial ones
  CHECK(m.counters().copied == 2);
  for (auto& x : grant.answers) {
    CHECK(x.first_position == 20);
    CHECK(grant.tables[static_cast<std::size_t>(x.first_block)] == grant.tables[0]);
  }
  for (std::uint32_t i = 0; i < 3; ++i)
    release(m, {1, i});
  CHECK(m.counters().in_use == 0);
}

TEST_CASE("forks after a full block copy nothing") {
  block_manager m(8, true);
  ask(m, a, 32, tokens(32));
  block_request r;
  r.forks.push_back({a, {1, 1}});
  r.demands.push_back({a, 1, nullptr, 0});
  r.demands.push_back({{1, 1}, 1, nullptr, 0});
  CHECK(m.serve(r).moves.empty());
  CHECK(m.counters().in_use == 4);
}

TEST_CASE("a fork of a part goes on behind it, and overwrites no cached content") {
  block_manager m(8, true);
  ask(m, a, 40, tokens(40));
  commit(m, a, *tokens(32));
  block_request r;
  r.forks.push_back({a, b, 20});
  r.releases.push_back(a);
  r.demands.push_back({b, 20, nullptr, 0, 20});
  const auto grant = m.serve(r);
  CHECK(grant.answers[0].first_position == 20);
  CHECK(grant.answers[0].rows == 20);
  REQUIRE(grant.moves.size() == 1);
  CHECK(grant.moves[0].what == block_move::kind::copy);
  CHECK(m.counters().in_use == 3);
  // Its own blocks are cached behind the one that both share.
  auto other = *tokens(20);
  for (token_id t = 900; t < 920; ++t)
    other.push_back(t);
  commit(m, b, {other.begin() + 16, other.begin() + 32});
  release(m, b);
  CHECK(ask(m, c, 40, tokens(40)).first_position == 32);
  CHECK(ask(m, {4, 0}, 40, std::make_shared<const std::vector<token_id>>(other)).first_position == 32);
}

TEST_CASE("a later demand does not get the blocks that an earlier one was refused") {
  block_manager m(8, true);
  ask(m, a, 80, tokens(80));
  commit(m, a, *tokens(80));
  release(m, a);
  block_request r;
  r.demands.push_back({b, 100, tokens(100), 4}); // five blocks are found, which leaves fewer than four
  r.demands.push_back({c, 16, tokens(16, 900), 4});
  auto grant = m.serve(r);
  CHECK(grant.answers[0].rows == 0);
  CHECK(grant.answers[1].rows == 0);
  CHECK(m.counters().in_use == 0);
}

// -- the host tier ----------------------------------------------------------------------------------------------------

namespace {

constexpr swap_decision always{true, true};

block_grant ask_with(block_manager& m, swap_decision swap, sequence_id id, int rows, token_list open,
                     int watermark = 0) {
  block_request r;
  r.demands.push_back({id, rows, std::move(open), watermark});
  r.swap = swap;
  return m.serve(r);
}

/// Computes `prompt`, a multiple of 16 tokens, and leaves it cached.
void compute(block_manager& m, sequence_id id, const token_list& prompt) {
  ask_with(m, always, id, static_cast<int>(prompt->size()), prompt);
  commit(m, id, *prompt);
  release(m, id);
}

using kind = block_move::kind;

std::vector<kind> kinds(const block_grant& grant) {
  std::vector<kind> all;
  for (const auto& move : grant.moves)
    all.push_back(move.what);
  return all;
}

} // namespace

TEST_CASE("an evicted block is swapped out, and swapped in for a sequence that starts with its content") {
  block_manager m(2, true, 4);
  compute(m, a, tokens(32));
  auto grant = ask_with(m, always, b, 32, tokens(32, 500));
  CHECK(kinds(grant) == std::vector{kind::swap_out, kind::swap_out});
  CHECK(m.counters().host_in_use == 2);
  const auto swapped_out = grant.moves;
  commit(m, b, *tokens(32, 500));
  release(m, b);
  grant = ask_with(m, always, c, 17, tokens(17));
  REQUIRE(grant.answers.at(0).rows == 1);
  CHECK(grant.answers[0].first_position == 16);
  CHECK(kinds(grant) == std::vector{kind::swap_out, kind::swap_in, kind::swap_out});
  CHECK(grant.moves[1].from == swapped_out[1].to); // the end of the chain went first
  CHECK(grant.moves[1].to == grant.tables.at(0));
  CHECK(grant.moves[0].from == grant.moves[1].to); // into the block just swapped out
  CHECK(m.counters().swapped_out == 4);
  CHECK(m.counters().swapped_in == 1);
  CHECK(m.counters().host_total == 4);
}

TEST_CASE("content still in host memory is not swapped out again, and its slot is reused last") {
  block_manager m(1, true, 2);
  compute(m, a, tokens(16));
  compute(m, b, tokens(16, 500));
  auto grant = ask_with(m, always, c, 17, tokens(17, 500)); // needs two blocks: refused, and nothing is moved
  CHECK(grant.answers.at(0).rows == 0);
  CHECK(grant.moves.empty());
  compute(m, a, tokens(16)); // recomputed although it is in host memory, for the logits of its last token
  CHECK(m.counters().swapped_out == 2);
  compute(m, b, tokens(16, 900));
  CHECK(m.counters().swapped_out == 2); // the first is in host memory already
  compute(m, b, tokens(16, 1000));
  CHECK(m.counters().swapped_out == 3); // in the slot of the second
  CHECK(m.counters().host_in_use == 2);
}

TEST_CASE("a slot about to be read is not overwritten by an eviction that makes room for it") {
  block_manager m(3, true, 1);
  compute(m, a, tokens(48));
  ask_with(m, always, b, 16, tokens(16, 500)); // swaps out the end of a's chain
  release(m, b);
  ask_with(m, always, b, 48, tokens(48, 700)); // a's beginning takes the one slot
  commit(m, b, *tokens(48, 700));
  release(m, b);
  const auto grant = ask_with(m, always, c, 33, tokens(33));
  REQUIRE(grant.answers.at(0).rows == 17);
  CHECK(grant.answers[0].first_position == 16);
  REQUIRE(!grant.moves.empty());
  CHECK(grant.moves[0].what == kind::swap_in); // b's end had to go: there was no slot for it
  CHECK(kinds(grant) ==
        std::vector{kind::swap_in, kind::swap_out, kind::swap_out}); // then the slot is free for the next
  CHECK(grant.moves[1].to == grant.moves[0].from);
}

TEST_CASE("nothing is swapped out or in when that does not pay") {
  block_manager m(2, true, 4);
  compute(m, a, tokens(32));
  CHECK(ask_with(m, {false, true}, b, 32, tokens(32, 500)).moves.empty());
  commit(m, b, *tokens(32, 500));
  release(m, b);
  CHECK(kinds(ask_with(m, {true, false}, a, 32, tokens(32))) == std::vector{kind::swap_out, kind::swap_out});
  release(m, a);
  const auto grant = ask_with(m, {true, false}, b, 32, tokens(32, 500));
  CHECK(grant.answers.at(0).first_position == 0);
  CHECK(grant.moves.empty());
}

TEST_CASE("a chain is found across both memories, and stays one when a swapped-out part of it is recomputed") {
  block_manager m(4, true, 8);
  compute(m, a, tokens(64));
  ask_with(m, always, b, 16, tokens(16, 500)); // swaps out the last of four
  release(m, b);
  auto grant = ask_with(m, always, c, 64, tokens(64));
  CHECK(grant.answers.at(0).first_position == 48);
  CHECK(grant.moves.empty()); // the last token is always computed
  commit(m, c, *tokens(16, 48));
  release(m, c);
  compute(m, b, tokens(64, 800)); // all of a is swapped out; the last block keeps its content
  CHECK(m.counters().host_in_use == 4);
  grant = ask_with(m, {true, false}, c, 16, tokens(16)); // the first is recomputed
  commit(m, c, *tokens(16));
  release(m, c);
  grant = ask_with(m, always, c, 49, tokens(49));
  CHECK(grant.answers.at(0).first_position == 48); // and its successors are found
  CHECK(m.counters().swapped_in == 2);
}

TEST_CASE("colliding hashes never swap in different content") {
  block_manager m(2, true, 8, [](std::uint64_t, std::span<const token_id>) -> std::uint64_t { return 7; });
  compute(m, a, tokens(32));
  compute(m, a, tokens(32, 1));
  compute(m, a, tokens(32, 2));
  CHECK(ask_with(m, always, b, 17, tokens(17, 3)).answers.at(0).first_position == 0);
  release(m, b);
  CHECK(ask_with(m, always, b, 17, tokens(17)).answers.at(0).first_position == 16);
}

TEST_CASE("a grant says what is left") {
  block_manager m(8, true);
  block_request r;
  const auto prompt = tokens(40);
  r.demands.push_back({a, 40, prompt, 0});
  auto left = m.serve(r);
  CHECK(left.free_blocks == 5);
  CHECK(left.cached_blocks == 0);
  r = {};
  r.commits.push_back({a, {prompt->begin(), prompt->begin() + 32}});
  r.releases.push_back(a);
  left = m.serve(r);
  CHECK(left.free_blocks == 6);
  CHECK(left.cached_blocks == 2);
}

TEST_CASE("the map says what each block holds, as the counters do") {
  block_manager m(6, true);
  CHECK(m.map() == "ffffff");
  const auto prompt = tokens(40);
  CHECK(ask(m, a, 40, prompt).rows == 40);
  commit(m, a, {prompt->begin(), prompt->begin() + 32});
  CHECK(ask(m, b, 40, prompt).rows == 8); // of its own, behind the two that it shares
  CHECK(m.map() == "2211ff");
  release(m, a);
  CHECK(m.map() == "11f1ff");
  release(m, b);
  CHECK(m.map() == "ccffff");
  CHECK(ask(m, c, 96, tokens(96, 1000)).rows == 96); // evicts
  CHECK(m.map() == "111111");
  CHECK(m.counters().in_use == 6);
}

TEST_CASE("many sequences share a block, and of a large pool a character is the block in most use") {
  block_manager m(40'000, true);
  const auto prompt = tokens(17);
  ask(m, a, 17, prompt);
  commit(m, a, {prompt->begin(), prompt->begin() + 16});
  for (std::uint64_t i = 0; i < 11; ++i)
    ask(m, {100 + i, 0}, 17, prompt);
  const auto map = m.map();
  CHECK(map.size() == 13'334);         // three blocks each
  CHECK(map.substr(0, 6) == "91111f"); // 12 sequences, 13 blocks
}

TEST_CASE("a snapshot stays as long as its block is in host memory, and no longer") {
  block_pool pool(1, 1, block_pool::content_hash);
  pool.snapshots.emplace(0, 4);
  constexpr swap_decision worth{.swap_out = true, .swap_in = true}, not_worth{};
  block_grant grant;
  const auto block_of = [&](const token_list& its) { // commits it with a snapshot, and lets go
    const auto block = pool.acquire(worth, &grant);
    block_content content;
    content.hash = pool.hash(0, *its);
    std::ranges::copy(*its, content.tokens.begin());
    const auto id = pool.put(block, content);
    pool.snapshots->attach(id, pool.snapshots->take().value());
    pool.unreference(block);
    return id;
  };
  const auto in_host = [&](const token_list& its) {
    block_pool::chain at;
    return pool.follow(at, *its).slot;
  };
  const auto first = tokens(16), second = tokens(16, 100);
  const auto content = block_of(first);
  pool.unreference(pool.acquire(worth, &grant)); // evicted, and swapped out
  REQUIRE(in_host(first));
  CHECK(pool.snapshots->find(content));
  pool.unreference(pool.restore(*in_host(first), worth, grant));
  pool.unreference(pool.acquire(not_worth, &grant)); // evicted: host memory still has it
  REQUIRE(in_host(first));
  CHECK(pool.snapshots->find(content));
  pool.unreference(pool.restore(*in_host(first), worth, grant));
  pool.unreference(pool.acquire(not_worth, nullptr)); // likewise, for whoever wants no moves
  CHECK(pool.snapshots->find(content));
  const auto other = block_of(second);
  pool.unreference(pool.acquire(worth, &grant)); // takes its place
  CHECK_FALSE(in_host(first));
  CHECK_FALSE(pool.snapshots->find(content));
  CHECK(pool.snapshots->find(other));
  const auto last = block_of(first);
  pool.unreference(pool.acquire(not_worth, &grant)); // nowhere
  CHECK_FALSE(pool.snapshots->find(last));
}
