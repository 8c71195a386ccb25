#include "runtime/scheduling/blocks/block_manager.hpp"
#include "tests/rounds.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <random>
#include <set>

using namespace troupe;

namespace {

using kind = block_move::kind;
constexpr sequence_id first_sequence{1, 0}, second_sequence{2, 0};

token_list count_from(int first, int n) {
  std::vector<token_id> t(static_cast<std::size_t>(n));
  std::iota(t.begin(), t.end(), first);
  return std::make_shared<const std::vector<token_id>>(std::move(t));
}

/// Computes `prompt`, a multiple of 16 tokens, and leaves it cached. Returns what the release was answered.
block_grant leave_cached(block_manager& m, const token_list& prompt, prefix_salt salt = 0) {
  block_request open;
  open.demands.push_back(
    {.sequence = first_sequence, .rows = static_cast<std::int32_t>(prompt->size()), .open = prompt, .salt = salt});
  const auto granted = m.serve(open).answers.at(0);
  REQUIRE(granted.first_position + granted.rows == std::ssize(*prompt));
  block_request done;
  done.commits.push_back({first_sequence, {prompt->begin() + granted.first_position, prompt->end()}});
  done.releases.push_back(first_sequence);
  return m.serve(done);
}

/// Of full blocks.
std::int32_t cached_tokens(block_manager& m, const token_list& prompt, prefix_salt salt = 0) {
  block_request ask;
  ask.lookups.push_back({second_sequence, prompt, salt});
  return m.serve(ask).found.at(0).blocks * kernels::block_tokens;
}

block_keys some_keys() {
  block_keys::secret secret{};
  secret[0] = std::byte{1};
  return {secret, {1, 2}};
}

std::vector<block_image_ptr> images_of(const image_pool& pool, std::size_t n) {
  std::vector<block_image_ptr> all;
  for (std::size_t i = 0; i < n; ++i)
    all.push_back(pool.take());
  return all;
}

std::vector<block_move> of_kind(const block_grant& grant, kind what) {
  std::vector<block_move> all;
  std::ranges::copy_if(grant.moves, std::back_inserter(all), [what](auto& m) { return m.what == what; });
  return all;
}

} // namespace

TEST_CASE("what is committed is saved once, a few blocks in each grant, as there are images") {
  block_manager m(8, true);
  const auto images = std::make_shared<const image_pool>(4, 3);
  m.keep_outside({some_keys(), images, 2});
  const auto prompt = count_from(0, 64);
  auto grant = leave_cached(m, prompt);
  auto saves = of_kind(grant, kind::save);
  REQUIRE(saves.size() == 2);
  CHECK(grant.unsaved);
  auto key = some_keys().root(0);
  for (int i = 0; i < 2; ++i) {
    const auto& image = *saves[static_cast<std::size_t>(i)].image;
    key = some_keys().next(key, std::span(*prompt).subspan(std::size_t(i) * 16, 16));
    CHECK(image.key == key);
    CHECK(image.place == i);
    CHECK(std::equal(image.tokens.begin(), image.tokens.end(), prompt->begin() + i * 16));
  }
  grant = m.serve({});
  CHECK(of_kind(grant, kind::save).size() == 1); // there are three images
  CHECK(grant.unsaved);
  CHECK(m.serve({}).moves.empty());
  saves.clear();
  grant = m.serve({});
  CHECK(of_kind(grant, kind::save).size() == 1);
  CHECK_FALSE(grant.unsaved);
  CHECK(m.counters().kept == 4);
  leave_cached(m, prompt);
  CHECK(m.serve({}).moves.empty()); // nothing of it is new
}

TEST_CASE("unsaved content is saved when it is evicted, before its block is used otherwise, or counted as lost") {
  block_manager m(1, true);
  const auto images = std::make_shared<const image_pool>(4, 1);
  m.keep_outside({some_keys(), images, 0});
  leave_cached(m, count_from(0, 16));
  block_request open;
  open.demands.push_back({.sequence = first_sequence, .rows = 16, .open = count_from(100, 16)});
  auto grant = m.serve(open);
  REQUIRE(of_kind(grant, kind::save).size() == 1);
  CHECK(grant.moves[0].from == grant.tables.at(0));
  block_request done;
  done.commits.push_back({first_sequence, *count_from(100, 16)});
  done.releases.push_back(first_sequence);
  m.serve(done);
  open.demands[0].open = count_from(200, 16);
  CHECK(of_kind(m.serve(open), kind::save).empty()); // the image is still on its way
  CHECK(m.counters().kept == 1);
  CHECK(m.counters().unkept == 1);
}

TEST_CASE("what goes on from the middle of another sequence is kept under its own keys") {
  block_manager m(8, true);
  m.keep_outside({some_keys(), std::make_shared<const image_pool>(4, 8), 8});
  const auto salt = salted(0, 3);
  const auto prompt = count_from(0, 48);
  block_request open;
  open.demands.push_back({.sequence = first_sequence, .rows = 48, .open = prompt, .salt = salt});
  m.serve(open);
  for (const int shared : {32, 0}) {
    block_request on;
    if (shared == 32)
      on.commits.push_back({first_sequence, *prompt});
    on.releases.push_back(second_sequence);
    m.serve(on);
    block_request fork;
    fork.forks.push_back({first_sequence, second_sequence, shared});
    fork.demands.push_back({.sequence = second_sequence, .rows = 16, .open = nullptr, .from = shared});
    m.serve(fork);
    block_request done;
    const auto other = count_from(700 + shared, 16);
    done.commits.push_back({second_sequence, *other});
    const auto saves = of_kind(m.serve(done), kind::save);
    REQUIRE(saves.size() == 1);
    auto key = some_keys().root(salt);
    for (int i = 0; i < shared / 16; ++i)
      key = some_keys().next(key, std::span(*prompt).subspan(std::size_t(i) * 16, 16));
    CHECK(saves[0].image->key == some_keys().next(key, *other));
  }
}

TEST_CASE("a lookup says how much of a prompt is cached, in both memories, and the key to go on from") {
  block_manager m(4, true, 8);
  m.keep_outside({some_keys(), std::make_shared<const image_pool>(4, 8), 8});
  const auto prompt = count_from(0, 64);
  leave_cached(m, prompt);
  block_request evict;
  evict.swap = {true, true};
  evict.demands.push_back({.sequence = second_sequence, .rows = 48, .open = count_from(700, 48)});
  m.serve(evict);
  block_request ask;
  ask.lookups.push_back({first_sequence, prompt, 0});
  ask.lookups.push_back({first_sequence, count_from(1, 64), 0});
  ask.lookups.push_back({first_sequence, prompt, salted(0, 2)});
  const auto found = m.serve(ask).found;
  REQUIRE(found.size() == 3);
  CHECK(found[0].blocks == 4);
  auto key = some_keys().root(0);
  for (int i = 0; i < 4; ++i)
    key = some_keys().next(key, std::span(*prompt).subspan(std::size_t(i) * 16, 16));
  CHECK(found[0].key == key);
  CHECK(found[1].blocks == 0);
  CHECK(found[1].key == some_keys().root(0));
  CHECK(found[2].key == some_keys().root(salted(0, 2)));
}

TEST_CASE("arrivals are adopted behind what is cached, loaded before they are used, and evict no part of their chain") {
  block_manager m(4, true);
  const image_pool images(4, 8);
  m.keep_outside({some_keys(), std::make_shared<const image_pool>(4, 8), 8});
  const auto prompt = count_from(0, 100);
  leave_cached(m, count_from(0, 32)); // the oldest
  leave_cached(m, count_from(500, 32));
  block_request r;
  r.arrivals.push_back({prompt, 0, 2, images_of(images, 4)});
  r.demands.push_back({.sequence = second_sequence, .rows = 0, .open = prompt});
  auto grant = m.serve(r);
  const auto loads = of_kind(grant, kind::load);
  REQUIRE(loads.size() == 2); // there is room for two
  CHECK(loads[0].image == r.arrivals[0].images[0]);
  CHECK(m.counters().adopted == 2);
  CHECK(m.counters().unwanted == 2);
  CHECK(m.counters().cached == 4);
  CHECK(cached_tokens(m, prompt) == 64);
  CHECK(m.counters().kept == 4); // what came from there is not kept again
  // The end of the chain goes first.
  block_request more;
  more.demands.push_back({.sequence = first_sequence, .rows = 16, .open = count_from(900, 16)});
  m.serve(more);
  CHECK(cached_tokens(m, prompt) == 48);
}

TEST_CASE("arrivals without their predecessors are dropped") {
  block_manager m(4, true);
  const image_pool images(4, 8);
  block_request r;
  r.arrivals.push_back({count_from(0, 64), 0, 1, images_of(images, 2)});
  CHECK(m.serve(r).moves.empty());
  CHECK(m.counters().unwanted == 2);
  CHECK(m.counters().in_use == 0);
  CHECK(m.counters().cached == 0);
}

TEST_CASE(
  "what is known already, has no predecessor, or is beyond its chain is not adopted; its blocks are free again") {
  block_manager m(8, true);
  const image_pool images(4, 16);
  const auto prompt = count_from(0, 64);
  leave_cached(m, count_from(0, 48));
  const auto adopted = [&](const token_list& tokens, prefix_salt salt, std::int32_t first, std::size_t n) {
    block_request r;
    r.arrivals.push_back({tokens, salt, first, images_of(images, n)});
    return of_kind(m.serve(r), kind::load).size();
  };
  CHECK(adopted(prompt, 0, 1, 3) == 1); // the fourth is new
  CHECK(m.counters().cached == 4);
  CHECK(adopted(count_from(900, 64), 0, 1, 1) == 0);
  CHECK(adopted(prompt, salted(0, 5), 2, 1) == 0);
  CHECK(adopted(count_from(900, 40), 0, 0, 3) == 2);
  CHECK(adopted(prompt, 0, -1, 1) == 0);
  CHECK(adopted(prompt, 0, 5, 1) == 0);
  CHECK(m.counters().in_use == 0);
  CHECK(m.counters().adopted == 3);
  CHECK(cached_tokens(m, prompt, salted(0, 5)) == 0);
}

TEST_CASE("a cache without prefixes adopts nothing") {
  block_manager m(4, false);
  const image_pool images(4, 2);
  block_request r;
  r.arrivals.push_back({count_from(0, 32), 0, 0, images_of(images, 2)});
  CHECK(m.serve(r).moves.empty());
  CHECK(m.counters().in_use == 0);
}

TEST_CASE("images are lent up to a bound and come back when dropped, also after their pool") {
  auto pool = std::make_unique<image_pool>(100, 2);
  auto one = pool->take(), two = pool->take();
  REQUIRE(one);
  CHECK(one->bytes.size() == 100);
  CHECK(pool->take() == nullptr);
  one->place = 7;
  one.reset();
  one = pool->take();
  REQUIRE(one);
  CHECK(one->place == 0);
  pool.reset();
  two->bytes[99] = std::byte{1};
}

namespace {

/// Blocks that hold hashes of their chain, moved as listed, beside a block manager under random calls.
class exchanger {
public:
  explicit exchanger(unsigned seed) : rng_(seed) { manager_.keep_outside({some_keys(), images_, 2}); }

  void step() {
    switch (rng_() % 5) {
      case 0:
      case 1: open(); break;
      case 2:
      case 3: release(); break;
      case 4: arrive(); break;
    }
    check();
  }

  void end() {
    while (!running_.empty())
      release();
    CHECK(manager_.counters().in_use == 0);
    CHECK(manager_.counters().adopted > 0);
    CHECK(manager_.counters().kept > 0);
  }

private:
  std::vector<token_id> some_tokens() {
    std::vector<token_id> t((1 + rng_() % 5) * 16 + 1);
    for (std::size_t i = 0; i < t.size(); ++i)
      t[i] = static_cast<token_id>(i % 16 == 0 ? rng_() % 3 : i);
    return t;
  }

  /// What the block at that place of a chain holds.
  static std::uint64_t content_of(std::span<const token_id> tokens, std::int32_t place) {
    std::uint64_t h = 1;
    for (std::int32_t i = 0; i <= place; ++i)
      h = block_pool::content_hash(h, tokens.subspan(std::size_t(i) * 16, 16));
    return h;
  }

  block_grant serve(const block_request& r) {
    auto grant = manager_.serve(r);
    for (const auto& m : grant.moves) {
      auto& image = outside_[m.image.get()];
      if (m.what == kind::save) {
        CHECK(pool_.at(std::size_t(m.from)) == expected_[m.image->key]);
        image = 0;
      } else if (m.what == kind::load) {
        pool_.at(std::size_t(m.to)) = image;
      } else {
        const bool in = m.what == kind::swap_in, out = m.what == kind::swap_out;
        (out ? host_ : pool_).at(std::size_t(m.to)) = (in ? host_ : pool_).at(std::size_t(m.from));
      }
    }
    return grant;
  }

  void open() {
    const auto tokens = std::make_shared<const std::vector<token_id>>(some_tokens());
    const sequence_id id{++last_, 0};
    block_request r;
    r.swap = {rng_() % 2 == 0, rng_() % 2 == 0};
    r.demands.push_back({.sequence = id, .rows = static_cast<std::int32_t>(tokens->size()), .open = tokens});
    const auto grant = serve(r);
    const auto& answer = grant.answers[0];
    if (answer.rows == 0)
      return;
    const auto table = std::span(grant.tables).subspan(std::size_t(answer.first_block), std::size_t(answer.blocks));
    for (std::int32_t i = 0; i < answer.first_position / 16; ++i)
      REQUIRE(pool_.at(std::size_t(table[std::size_t(i)])) == content_of(*tokens, i));
    const auto computed = (answer.first_position + answer.rows) / 16;
    auto key = some_keys().root(0);
    for (std::int32_t i = 0; i < computed; ++i) {
      key = some_keys().next(key, std::span(*tokens).subspan(std::size_t(i) * 16, 16));
      expected_[key] = content_of(*tokens, i);
      if (i >= answer.first_position / 16)
        pool_.at(std::size_t(table[std::size_t(i)])) = content_of(*tokens, i);
    }
    block_request c;
    c.commits.push_back({id, {tokens->begin() + answer.first_position, tokens->begin() + computed * 16}});
    serve(c);
    running_.push_back(id);
  }

  void release() {
    if (running_.empty())
      return;
    block_request r;
    r.releases.push_back(running_.back());
    running_.pop_back();
    serve(r);
  }

  void arrive() {
    const auto tokens = std::make_shared<const std::vector<token_id>>(some_tokens());
    const auto first = static_cast<std::int32_t>(rng_() % 3);
    block_request r;
    r.swap = {rng_() % 2 == 0, rng_() % 2 == 0};
    r.arrivals.push_back({tokens, 0, first, {}});
    for (std::int32_t i = first; (i + 1) * 16 <= std::ssize(*tokens); ++i)
      if (auto image = arriving_.take()) {
        outside_[image.get()] = content_of(*tokens, i);
        r.arrivals[0].images.push_back(std::move(image));
      }
    serve(r);
  }

  void check() {
    const auto c = manager_.counters();
    REQUIRE(c.in_use + c.cached <= c.total);
    if (running_.empty())
      REQUIRE(c.in_use == 0);
  }

  static constexpr std::int32_t blocks = 12, host_blocks = 5;
  std::mt19937 rng_;
  block_manager manager_{blocks, true, host_blocks};
  std::shared_ptr<const image_pool> images_ = std::make_shared<const image_pool>(1, 2);
  image_pool arriving_{1, 3};
  std::vector<std::uint64_t> pool_ = std::vector<std::uint64_t>(blocks);
  std::vector<std::uint64_t> host_ = std::vector<std::uint64_t>(host_blocks);
  std::map<const block_image*, std::uint64_t> outside_;
  std::map<block_key, std::uint64_t> expected_; // content by key
  std::vector<sequence_id> running_;
  std::uint64_t last_ = 0;
};

} // namespace

TEST_CASE("under random calls every cached block holds its chain's content, and counts are exact") {
  for (unsigned seed = 0; seed < static_cast<unsigned>(rounds(60)); ++seed) {
    CAPTURE(seed);
    exchanger e(seed);
    for (int i = 0; i < 600; ++i)
      e.step();
    e.end();
  }
}

namespace {

block_destination_ptr destination(std::uint64_t request, const token_list& tokens, prefix_salt salt = 0) {
  return std::make_shared<const block_destination>(block_destination{request, 3, tokens, salt});
}

/// Demands `rows` more of the first sequence, and says that so many tokens of its prompt are computed.
block_grant grow_sent(block_manager& m, const token_list& prompt, int computed, int rows, bool opens = false) {
  block_request request;
  if (computed > 0)
    request.commits.push_back({first_sequence, {prompt->begin() + computed - 16, prompt->begin() + computed}});
  block_demand d{first_sequence, rows, nullptr};
  if (opens) {
    d.open = prompt;
    d.destination = destination(1, prompt);
  }
  request.demands.push_back(d);
  return m.serve(request);
}

std::vector<std::int32_t> places_sent(const block_grant& grant) {
  std::vector<std::int32_t> places;
  for (const auto& m : of_kind(grant, kind::save)) {
    CHECK(m.destination->request == 1);
    CHECK(m.destination->replica == 3);
    places.push_back(m.image->place);
  }
  return places;
}

} // namespace

TEST_CASE("the blocks of a sequence are sent as they are committed, once they are accepted, and each once") {
  block_manager m(10, true);
  m.send_with(std::make_shared<const image_pool>(8, 10));
  const auto prompt = count_from(0, 70);
  auto grant = grow_sent(m, prompt, 0, 16, true);
  REQUIRE(grant.offers.size() == 1);
  CHECK(grant.offers[0]->blocks() == 4);
  grant = grow_sent(m, prompt, 16, 16);
  CHECK(grant.offers.empty());
  CHECK(places_sent(grant).empty()); // nobody has accepted them
  m.accept(7, 0);                    // of nobody
  m.accept(1, 0);
  CHECK(places_sent(m.serve({})) == std::vector{0});
  m.accept(1, 0); // a second time
  CHECK(places_sent(grow_sent(m, prompt, 32, 16)) == std::vector{1});
  grow_sent(m, prompt, 48, 16);
  CHECK(places_sent(grow_sent(m, prompt, 64, 6)) == std::vector{3});
  CHECK(m.counters().sent == 4);
  CHECK(m.counters().sent_bytes == 4 * 8);
  CHECK(m.counters().kept == 0);
}

TEST_CASE("what the receiver has is not sent, what was found cached is") {
  block_manager m(10, true);
  m.send_with(std::make_shared<const image_pool>(8, 10));
  const auto prompt = count_from(0, 64);
  leave_cached(m, prompt);
  grow_sent(m, prompt, 0, 16, true); // finds three blocks, and computes the last
  m.accept(1, 1);
  CHECK(places_sent(m.serve({})) == std::vector{1, 2});
  block_request last;
  last.commits.push_back({first_sequence, {prompt->begin() + 48, prompt->end()}});
  CHECK(places_sent(m.serve(last)) == std::vector{3});
}

TEST_CASE("without images blocks wait to be sent, and with their sequence the transfer ends") {
  block_manager m(10, true);
  const auto pool = std::make_shared<const image_pool>(8, 1);
  m.send_with(pool);
  const auto prompt = count_from(0, 64);
  grow_sent(m, prompt, 0, 48, true);
  m.accept(1, 0);
  {
    auto grant = grow_sent(m, prompt, 16, 16);
    CHECK(places_sent(grant) == std::vector{0});
    CHECK_FALSE(grant.unsent);
    block_request next;
    next.commits.push_back({first_sequence, {prompt->begin() + 16, prompt->begin() + 32}});
    const auto more = m.serve(next);
    CHECK(places_sent(more).empty());
    CHECK(more.unsent);
  }
  CHECK(places_sent(m.serve({})) == std::vector{1});
  block_request end;
  end.commits.push_back({first_sequence, {prompt->begin() + 32, prompt->begin() + 48}});
  end.releases.push_back(first_sequence);
  const auto grant = m.serve(end);
  CHECK(places_sent(grant).empty());
  CHECK_FALSE(grant.unsent);
  m.accept(1, 0);
  CHECK(places_sent(m.serve({})).empty());
  CHECK(m.counters().in_use == 0);
}

TEST_CASE("who sends nothing makes no offers") {
  block_manager m(10, true);
  const auto grant = grow_sent(m, count_from(0, 64), 0, 16, true);
  CHECK(grant.answers.at(0).rows == 16);
  CHECK(grant.offers.empty());
}
