// LongRoPE through the whole engine: all positions of a sequence are rotated by its length, and what was cached is
// computed again where generation crosses the original context.
#include "runtime/support/json/json.hpp"
#include "tests/api/embed/small_engine.hpp"
#include "tests/runtime/model/model_test_data.hpp"

#include <cmath>

using namespace troupe;
using namespace troupe::testing;
using troupe::test::list;

namespace {

engine_options longrope(const std::string& name) {
  auto o = small();
  o.model = test_data() + "/families/" + name;
  o.compute.dtype = "f32";
  return o;
}

engine ready(const engine_options& o) {
  auto e = engine::start(o);
  e.wait_until_ready();
  return e;
}

} // namespace

TEST_CASE("Generation that crosses the original context gives transformers' tokens and log-probabilities") {
  for (const std::string name : {"phi3-longrope", "phi4-longrope"})
    for (const int variant : {0, 1, 2}) {
      CAPTURE(name);
      CAPTURE(variant);
      auto options = longrope(name);
      options.prefix_cache = variant != 1;
      options.step_tokens = variant == 2 ? 7 : 512;
      const auto e = ready(options);
      const auto document = json::document::load(test_data() + "/families/" + name + "/expected.json");
      json::array cases;
      REQUIRE(!document.root()["cases"].get(cases));
      for (json::value c : cases) {
        const auto ids = list<token_id>(c["ids"]), greedy = list<token_id>(c["greedy"]["ids"]);
        const auto margins = list<double>(c["greedy"]["margins"]), logprobs = list<double>(c["greedy"]["logprobs"]);
        CAPTURE(ids.size());
        auto asked = ask(ids, static_cast<int>(greedy.size()));
        asked.sampling.ignore_eos = true;
        asked.sampling.logprobs = 0;
        if (variant == 2)
          asked.prediction = greedy;
        const auto heard = run(e, asked);
        const auto& got = heard.ids.at(0);
        REQUIRE(got.size() == greedy.size());
        for (std::size_t i = 0; i < greedy.size(); ++i) {
          CAPTURE(i);
          if (margins[i] <= 1e-3)
            break; // another token may win here
          CHECK(got[i] == greedy[i]);
          CHECK(std::abs(heard.tokens.at(0)[i].logprob - logprobs[i]) < 1e-3);
        }
      }
      CHECK(idle(e));
    }
}

TEST_CASE("A prompt is scored by the rotation of its own length") {
  const auto e = ready(longrope("phi3-longrope"));
  const auto document = json::document::load(test_data() + "/families/phi3-longrope/expected.json");
  json::array cases;
  REQUIRE(!document.root()["cases"].get(cases));
  for (json::value c : cases) { // all of it, and its continuation as the end of a longer prompt
    auto ids = list<token_id>(c["ids"]);
    const auto greedy = list<token_id>(c["greedy"]["ids"]);
    const auto logprobs = list<double>(c["greedy"]["logprobs"]);
    ids.push_back(greedy[0]);
    auto asked = ask(ids, 0);
    asked.sampling.prompt_logprobs = 0;
    const auto scored = run(e, asked);
    REQUIRE(scored.prompt.size() == ids.size());
    if (ids.size() != 65) // at 65, one more token than was computed with short factors
      CHECK(std::abs(scored.prompt.back().logprob - logprobs[0]) < 1e-3);
    else
      CHECK(std::abs(scored.prompt.back().logprob - logprobs[0]) > 1e-3);
  }
}

TEST_CASE("Prefixes are cached on each side of the original context, and by salts of clients") {
  const auto e = ready(longrope("phi3-longrope"));
  const auto cached = [&](int tokens, const char* salt = "") {
    std::vector<token_id> prompt;
    for (int i = 0; i < tokens; ++i)
      prompt.push_back(20 + i);
    auto asked = ask(prompt, 1);
    asked.cache_salt = salt;
    const auto heard = run(e, asked);
    REQUIRE(heard.done);
    return heard.done->cached_tokens;
  };
  CHECK(cached(64) == 0);
  CHECK(cached(60) == 48);
  CHECK(cached(100) == 0);
  CHECK(cached(100) == 96);
  CHECK(cached(50) == 48);
  CHECK(cached(100, "mine") == 0);
  CHECK(cached(100, "mine") == 96);
  CHECK(cached(60, "mine") == 0);
  CHECK(cached(100, "yours") == 0);
}
