// Tree searches whose answers a reward model values, through the engine's public interface: what it likes is found, the
// same in a crowd as alone, and what goes wrong with it ends single requests. tests/data/tiny_reward likes the letter o.
#include "runtime/techniques/tree_search/technique.hpp"
#include "tests/api/embed/small_engine.hpp"
#include "tests/runtime/techniques/tree_search/edit_search.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <deque>

using namespace troupe;
using namespace troupe::testing;

namespace {

engine_options judged_engine(const std::string& reward = test_data() + "/tiny_reward") {
  auto options = small();
  options.techniques["reward_model"] = {reward};
  return options;
}

generation searching(search_value value, std::vector<token_id> prompt = {0, 54, 51}) {
  auto request = ask(std::move(prompt), 6);
  request.sampling.techniques.set(searched_by({.simulations = 120, .branching = 8, .parallel = 5, .value = value}));
  request.sampling.ignore_eos = true;
  return request;
}

long liked(const std::string& text) { return std::ranges::count(text, 'o'); }

std::string text_of(const heard& h) {
  REQUIRE(h.done);
  return h.text.at(0);
}

} // namespace

TEST_CASE("A search whose value is a reward model's finds what that likes, which the likeliest answer has not") {
  const auto e = engine::start(judged_engine());
  CHECK(e.wait_until_ready()->judge != nullptr);
  const auto likeliest = run(e, searching(search_value::likelihood));
  CHECK(e.stats().total.model.judged_answers == 0);
  const auto liked_best = run(e, searching(search_value::model));
  CHECK(liked(text_of(liked_best)) > liked(text_of(likeliest)));
  const auto& choice = liked_best.done->choices.front();
  CHECK(choice.score > 0);
  CHECK(choice.score < 1);
  CHECK(choice.cumulative_logprob < 0);
  CHECK(e.stats().total.model.judged_answers == 120);
  CHECK(idle(e));
}

TEST_CASE("Judged searches find the same in a crowd, whatever the prompts of the others") {
  const auto e = engine::start(judged_engine());
  e.wait_until_ready();
  std::vector<generation> all;
  for (token_id i = 0; i < 6; ++i) {
    all.push_back(searching(search_value::model, {0, 54 + i, 51}));
    all.back().sampling.temperature = i % 2 == 0 ? 0.f : 1.f;
    all.back().sampling.seed = static_cast<std::uint64_t>(i);
    all.back().sampling.n = 2;
  }
  std::deque<listener> crowd(all.size());
  for (std::size_t i = 0; i < all.size(); ++i)
    e.submit(all[i], crowd[i].sink());
  for (auto& one : crowd)
    REQUIRE(one.wait());
  for (std::size_t i = 0; i < all.size(); ++i) {
    CAPTURE(i);
    const auto alone = run(e, all[i]), together = crowd[i].result();
    CHECK(text_of(alone) == text_of(together));
    CHECK(alone.ids == together.ids);
    for (std::size_t n = 0; n < 2; ++n)
      CHECK(alone.done->choices.at(n).score == together.done->choices.at(n).score);
  }
}

TEST_CASE("What a reward model cannot read ends that search alone, by a sentence") {
  const auto e = engine::start(judged_engine());
  e.wait_until_ready();
  const auto too_long = run(e, searching(search_value::model, std::vector<token_id>(300, 54)));
  REQUIRE(too_long.failed);
  CHECK(too_long.failed->code == errc::bad_request);
  CHECK(too_long.failed->param == "search");
  CHECK(too_long.failed->message.find("whose context is 256") != std::string::npos);
  CHECK(run(e, searching(search_value::model)).done);
  CHECK(idle(e));
}

TEST_CASE("A cancelled search, and an engine that stops, leave no judging behind") {
  const auto e = engine::start(judged_engine());
  e.wait_until_ready();
  auto endless = searching(search_value::model);
  testing::edit_search(endless.sampling)->simulations = 60'000;
  testing::edit_search(endless.sampling)->branching = 4;
  listener l;
  const auto handle = e.submit(endless, l.sink());
  while (e.stats().total.model.judged_answers < 20)
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  handle.cancel();
  REQUIRE(l.wait());
  CHECK(idle(e));
  CHECK(run(e, searching(search_value::model)).done);
  listener other;
  e.submit(endless, other.sink());
  e.stop();
  REQUIRE(other.wait());
}

TEST_CASE("An engine whose reward model cannot judge does not start; one without refuses such a search") {
  const auto failed = [](const std::string& reward) {
    const auto e = engine::start(judged_engine(reward));
    try {
      e.wait_until_ready();
    } catch (const failure& f) {
      return f.what_failed();
    }
    return error{};
  };
  CHECK(failed(golden("qwen2")).message.find("cannot judge answers") != std::string::npos);
  CHECK(failed("/no/such/folder").message.find("/no/such/folder") != std::string::npos);

  const auto plain = engine::start(small());
  CHECK(plain.wait_until_ready()->judge == nullptr);
  const auto refused = run(plain, searching(search_value::model));
  REQUIRE(refused.failed);
  CHECK(refused.failed->message.find("--reward-model") != std::string::npos);
}
