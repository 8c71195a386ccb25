#include "runtime/scheduling/lengths/length_model.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <string>

using namespace troupe;

namespace {

answer_length::shares only(std::size_t bucket) {
  answer_length::shares result{};
  result[bucket] = 1;
  return result;
}

/// Requests of several kinds, whose answers' lengths follow their kind: short chats, summaries, code, lists. Those of a
/// kind share a system prompt.
class mixture {
public:
  explicit mixture(unsigned seed) : random_(seed) {}

  struct one {
    length_signs signs;
    std::int32_t tokens;
    bool cut;
  };

  one next() {
    struct kind {
      double median, spread;
      std::int32_t least_prompt, most_prompt, most;
      bool guided;
    };
    static constexpr kind kinds[] = {{25, 0.6, 150, 400, 512, false},
                                     {120, 0.3, 1500, 6000, 256, false},
                                     {600, 0.7, 300, 1500, 2048, false},
                                     {60, 0.2, 200, 500, 400, true}};
    const auto which = std::discrete_distribution<std::size_t>{5, 2, 1, 2}(random_);
    const auto& is = kinds[which];
    one result;
    auto& signs = result.signs;
    signs.prompt_tokens = std::uniform_int_distribution(is.least_prompt, is.most_prompt)(random_);
    signs.most = is.most;
    signs.constrained = is.guided;
    signs.chat = true;
    signs.client = 1 + random_() % 6;
    const auto blocks = std::min<std::int32_t>(signs.prompt_tokens / 16, 8);
    for (std::int32_t i = 0; i < blocks; ++i) // the first four are the system prompt's
      signs.chain.push_back(i < 4 ? which * 100 + static_cast<std::uint64_t>(i) : random_());
    const auto length = std::lognormal_distribution<double>(std::log(is.median), is.spread)(random_);
    result.cut = length >= is.most;
    result.tokens = result.cut ? is.most : std::max(1, static_cast<std::int32_t>(length));
    return result;
  }

private:
  std::mt19937 random_;
};

length_scores taught(length_model& model, mixture& of, int answers) {
  const auto before = model.scores();
  for (int i = 0; i < answers; ++i) {
    const auto one = of.next();
    model.learn(one.signs, one.tokens, one.cut, model.predict(one.signs));
  }
  auto after = model.scores();
  after.answers -= before.answers;
  after.log_loss -= before.log_loss;
  after.marginal_log_loss -= before.marginal_log_loss;
  for (std::size_t i = 0; i < after.deciles.size(); ++i)
    after.deciles[i] -= before.deciles[i];
  return after;
}

} // namespace

TEST_CASE("lengths fall into buckets that double") {
  CHECK(answer_length::bucket_of(-5) == 0);
  CHECK(answer_length::bucket_of(0) == 0);
  CHECK(answer_length::bucket_of(1) == 0);
  CHECK(answer_length::bucket_of(2) == 1);
  CHECK(answer_length::bucket_of(3) == 1);
  CHECK(answer_length::bucket_of(4) == 2);
  CHECK(answer_length::bucket_of(std::numeric_limits<std::int64_t>::max()) == answer_length::buckets - 1);
}

TEST_CASE("what is left of an answer is told from what it has already") {
  const answer_length eight(only(3), 1000); // 8 to 15
  CHECK(eight.mean_left(0) == doctest::Approx(11.5));
  CHECK(eight.mean_left(7) == doctest::Approx(4.5));
  CHECK(eight.mean_left(14) == doctest::Approx(1));
  CHECK(eight.mean_left(20) == doctest::Approx(1)); // it goes on all the same
  CHECK(eight.quantile_left(0.5, 0) == doctest::Approx(11.5));
  CHECK(eight.quantile_left(0.999, 0) == doctest::Approx(15).epsilon(0.01));
  answer_length::shares both{};
  both[2] = 3, both[6] = 1; // 4 to 7, or 64 to 127
  const answer_length mixed(both, 1000);
  CHECK(mixed.mean_left(0) == doctest::Approx(0.75 * 5.5 + 0.25 * 95.5));
  CHECK(mixed.mean_left(7) == doctest::Approx(95.5 - 7)); // the shorter ones have ended by now
  CHECK(mixed.quantile_left(0.5, 0) < 8);
  CHECK(mixed.quantile_left(0.9, 0) > 63);
}

TEST_CASE("an answer becomes no longer than its limit") {
  answer_length::shares long_ones{};
  long_ones[2] = 1, long_ones[10] = 1;
  const answer_length cut(long_ones, 100);
  CHECK(cut.share(100) == doctest::Approx(0.5));
  CHECK(cut.share(5000) == doctest::Approx(0.5));
  CHECK(cut.share_below(100) == doctest::Approx(0.5));
  CHECK(cut.quantile_left(0.99, 0) <= 100);
  CHECK(cut.mean_left(100) == 0);
  CHECK(cut.quantile_left(0.9, 100) == 0);
  for (std::int32_t produced = 0; produced < 100; ++produced) {
    CHECK(cut.mean_left(produced) >= 1);
    CHECK(cut.mean_left(produced) <= 100 - produced);
  }
  CHECK(answer_length({}, 7).mean_left(0) > 0); // nothing is known
}

TEST_CASE("predictions beat the histogram of all answers, and are calibrated, soon and on new requests") {
  for (unsigned seed = 1; seed <= 3; ++seed) {
    CAPTURE(seed);
    length_model model;
    mixture of(seed);
    taught(model, of, 200);
    const auto scores = taught(model, of, 2000);
    CHECK(scores.answers == 2000);
    MESSAGE("log loss ", scores.log_loss / 2000, " of ", scores.marginal_log_loss / 2000);
    CHECK(scores.log_loss < 0.9 * scores.marginal_log_loss);
    for (const auto tenth : scores.deciles)
      CHECK(tenth < 600); // an even tenth is 200; buckets are coarse
  }
}

TEST_CASE("requests that share nothing are told apart by what else is known of them") {
  std::mt19937 random(7);
  length_model model;
  double better = 0;
  for (int i = 0; i < 1500; ++i) {
    length_signs signs{.prompt_tokens = i % 2 ? 4000 : 100, .most = 1000, .constrained = i % 2 == 0};
    signs.client = random();
    const auto tokens = static_cast<std::int32_t>(i % 2 ? 200 + random() % 100 : 5 + random() % 5);
    const auto predicted = model.predict(signs);
    if (i >= 500)
      better += predicted.share(tokens);
    model.learn(signs, tokens, false, predicted);
  }
  CHECK(better / 1000 > 0.5); // the marginal's would be a quarter
}

TEST_CASE("an answer that was cut counts as longer, not as exactly as long") {
  length_model model;
  length_signs shorter{.chain = {1}, .prompt_tokens = 20, .most = 64}, longer = shorter;
  longer.most = 4096;
  for (int i = 0; i < 50; ++i) {
    model.learn(longer, 1500, false, model.predict(longer));
    model.learn(shorter, 64, true, model.predict(shorter));
  }
  CHECK(model.predict(shorter).share(64) > 0.9);
  CHECK(model.predict(longer).share(1500) > 0.8);
}

TEST_CASE("what was learned is saved and loaded whole; anything else is refused and changes nothing") {
  length_model model;
  mixture of(5), later(6);
  taught(model, of, 300);
  const auto bytes = model.saved();
  length_model again;
  REQUIRE(again.load(bytes));
  CHECK(again.saved() == bytes);
  CHECK(again.seen() == 300);
  for (int i = 0; i < 20; ++i) {
    const auto signs = later.next().signs;
    CHECK(again.predict(signs).mean_left(0) == model.predict(signs).mean_left(0));
  }
  taught(again, of, 10); // places in the list are its own

  length_model fresh;
  const auto empty = fresh.saved();
  auto damaged = bytes;
  for (std::size_t i = 0; i < damaged.size(); i += 997) {
    damaged[i] = static_cast<char>(damaged[i] ^ 1);
    CHECK_FALSE(fresh.load(damaged));
    damaged[i] = bytes[i];
  }
  for (const auto size : {std::size_t(0), std::size_t(5), bytes.size() / 2, bytes.size() - 1})
    CHECK_FALSE(fresh.load(std::string_view(bytes).substr(0, size)));
  CHECK_FALSE(fresh.load(bytes + "x"));
  CHECK(fresh.saved() == empty);
}

TEST_CASE("however many beginnings there are, few are kept, and those in use stay") {
  length_model model;
  std::mt19937_64 random(1);
  const length_signs used{.chain = {42}, .prompt_tokens = 30, .most = 100};
  for (std::size_t i = 0; i < 3 * length_model::most_beginnings; ++i) {
    const length_signs other{.chain = {random()}, .prompt_tokens = 30, .most = 100};
    model.learn(other, 4, false, model.predict(other));
    if (i % 100 == 0)
      model.learn(used, 90, false, model.predict(used));
  }
  CHECK(model.saved().size() < 4 << 20);
  CHECK(model.predict(used).share(90) > 0.5);
}
