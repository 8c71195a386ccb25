// Masks for which there is no memory: their threads go on, for an exception there would end the process.
#include "runtime/execution/constrained_text.hpp"
#include "runtime/execution/mask_workers.hpp"
#include "runtime/techniques/guides/guide_cache.hpp"
#include "runtime/tokenizer/tokenizer.hpp"
#include "tests/actors/failing_memory.hpp"
#include "tests/test_data.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <deque>
#include <functional>
#include <future>
#include <memory>
#include <new>
#include <utility>
#include <vector>

using namespace troupe;

TEST_CASE("whichever allocation fails while a mask is made, or while it is said why there is none, nothing is thrown") {
  const auto words = tokenizer::load(golden("llama-gqa"));
  constexpr token_id end = 1;
  guides::guide_cache cache(words, {end});
  std::deque<std::function<void()>> jobs;
  const auto workers = std::make_shared<mask_workers>(
    0, [&](std::function<void()> job) { jobs.push_back(std::move(job)); });
  auto asked = std::make_shared<request>();
  asked->prompt = {5};
  asked->follows = cache.get({.what = guides::guide_source::kind::regex, .text = "[0-9]+"}, false);
  for (const auto* text : {"1", "x"}) // the second one does not follow the guide
    for (int nth = 1;; ++nth) {
      CAPTURE(text);
      CAPTURE(nth);
      jobs.clear();
      const constrained_text followed(workers, sampling_start{asked, words->encode(text, false)}, std::span(&end, 1));
      const auto job = std::move(jobs.front());
      test::failing_allocation failing(nth);
      bool threw = false;
      failing.arm();
      try {
        job();
      } catch (const std::bad_alloc&) {
        threw = true;
      }
      failing.disarm();
      REQUIRE_FALSE(threw);
      REQUIRE(followed.next());
      if (failing.happened() || *text == 'x')
        CHECK(followed.next()->why);
      if (!failing.happened())
        break;
    }
}

TEST_CASE("threads that make masks need no memory to go on to the next one") {
  struct {
    test::failing_allocation failing{1};
    std::atomic<int> made = 0;
    std::promise<void> all;
  } its;
  constexpr int jobs = 300;
  const std::array<char, 3> lanes{};
  mask_workers workers(1);
  workers.post(lanes.data(), [&its] { its.failing.arm(); }); // on that thread
  for (std::size_t i = 0; i < jobs; ++i)
    workers.post(&lanes.at(i % lanes.size()), [&its] {
      if (++its.made < jobs)
        return;
      its.failing.disarm();
      its.all.set_value();
    });
  its.all.get_future().wait();
  CHECK_FALSE(its.failing.happened());
}

TEST_CASE("a job of masks for which there is no memory is none, and others follow in their order") {
  const char lane = 0;
  int posted = 0;
  for (int nth = 1;; ++nth) {
    CAPTURE(nth);
    std::vector<int> made;
    std::promise<void> held, all;
    mask_workers workers(1);
    workers.post(&lane, [until = held.get_future().share()] { until.wait(); });
    workers.post(&lane, [&] { made.push_back(1); });
    test::failing_allocation failing(nth);
    bool threw = false;
    failing.arm();
    try {
      workers.post(nth % 2 == 0 ? &lane : &lane + 1, [&made] { made.push_back(2); });
    } catch (const std::bad_alloc&) {
      threw = true;
    }
    failing.disarm();
    CHECK(threw == failing.happened());
    workers.post(&lane, [&] { made.push_back(3); });
    workers.post(&lane + 1, [] {});
    workers.post(&lane, [&] { all.set_value(); });
    held.set_value();
    all.get_future().wait();
    CHECK(std::ranges::count(made, 2) == (threw ? 0 : 1));
    std::erase(made, 2);
    CHECK(made == std::vector{1, 3});
    if (!threw && ++posted == 2) // to both lanes
      break;
  }
}
