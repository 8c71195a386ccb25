// Masks for which there is no memory: their threads go on, for an exception there would end the process.
#include "runtime/execution/constrained_text.hpp"
#include "runtime/execution/mask_workers.hpp"
#include "runtime/techniques/guides/guide_cache.hpp"
#include "runtime/tokenizer/tokenizer.hpp"
#include "tests/actors/failing_memory.hpp"
#include "tests/test_data.hpp"

#include <doctest/doctest.h>

#include <deque>
#include <functional>
#include <memory>
#include <new>
#include <utility>

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
