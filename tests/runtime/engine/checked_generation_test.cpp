#include "runtime/engine/checked_generation.hpp"

#include <doctest/doctest.h>

#include <functional>

using namespace troupe;
using std::chrono::milliseconds;

namespace {

generation ask(std::vector<token_id> prompt, int max_tokens = 16) {
  generation g;
  g.prompt = std::move(prompt);
  g.sampling.max_tokens = max_tokens;
  return g;
}

constexpr generation_limits limits{.vocab_size = 50, .max_context = 20, .timeout = milliseconds(500)};

error refusal(const generation& asked) {
  try {
    check(asked, limits);
  } catch (const failure& f) {
    return f.what_failed();
  }
  return {};
}

} // namespace

TEST_CASE("A valid generation keeps its parameters, and its answer fits the context") {
  auto asked = ask(std::vector<token_id>(12, 7), 100);
  asked.sampling.temperature = 0.5f;
  const auto checked = check(asked, limits);
  CHECK(checked.sampling->max_tokens == 8);
  CHECK(checked.sampling->temperature == 0.5f);
  CHECK(check(ask({1}, 3), limits).sampling->max_tokens == 3);
  CHECK(check(ask(std::vector<token_id>(19, 0)), limits).sampling->max_tokens == 1);
}

TEST_CASE("A prompt is refused when it is empty, too long or has unknown ids") {
  CHECK(refusal(ask({})).message == "the prompt must have at least one token");
  CHECK(refusal(ask(std::vector<token_id>(20, 0))).message ==
        "the prompt has 20 tokens; at most 19 fit into the context of 20");
  CHECK(refusal(ask({1, 50})).message == "the prompt names token 50, but the vocabulary has 50");
  CHECK(refusal(ask({-1})).message == "the prompt names token -1, but the vocabulary has 50");
  CHECK(refusal(ask({-1})).param == "prompt");
  CHECK(refusal(ask({-1})).code == errc::bad_request);
}

TEST_CASE("A prediction is refused when it is longer than the context or has unknown ids") {
  auto asked = ask({1});
  asked.prediction.assign(20, 7);
  CHECK(refusal(asked).message.empty());
  asked.prediction.push_back(7);
  CHECK(refusal(asked).message == "`prediction` has 21 tokens; at most 20 fit into the context");
  CHECK(refusal(asked).param == "prediction");
  asked.prediction = {50};
  CHECK(refusal(asked).message == "the prediction names token 50, but the vocabulary has 50");
  CHECK(refusal(asked).param == "prediction");
}

TEST_CASE("A draft model is refused when there is none") {
  auto asked = ask({1});
  asked.sampling.speculate = speculation::draft;
  CHECK(refusal(asked).message == "`speculate` asks for a draft model, but none is loaded");
  CHECK(refusal(asked).param == "speculate");
  auto with = limits;
  with.draft_model = true;
  CHECK(check(asked, with).sampling->speculate == speculation::draft);
}

TEST_CASE("An interface may check the length of a prompt early, under its own name for it") {
  check_prompt_length(19, 20, "messages");
  try {
    check_prompt_length(20, 20, "messages");
    FAIL("accepted");
  } catch (const failure& f) {
    CHECK(f.what_failed().message == "`messages` has 20 tokens; at most 19 fit into the context of 20");
    CHECK(f.what_failed().param == "messages");
  }
}

TEST_CASE("Sampling parameters are refused with the generation, by name") {
  auto asked = ask({1});
  asked.sampling.top_p = 1.5f;
  CHECK(refusal(asked).param == "top_p");
  asked = ask({1});
  asked.sampling.stop_token_ids = {50};
  CHECK(refusal(asked).param == "stop_token_ids");
  asked = ask({1}, 4);
  asked.sampling.min_tokens = 5;
  CHECK(refusal(asked).param == "min_tokens");
}

TEST_CASE("A timeout is the shorter of request and limit, and a longer request is refused") {
  auto asked = ask({1});
  CHECK(check(asked, limits).timeout == milliseconds(500));
  asked.timeout = milliseconds(300);
  CHECK(check(asked, limits).timeout == milliseconds(300));
  asked.timeout = milliseconds(501);
  CHECK(refusal(asked).param == "timeout");
  CHECK(check(asked, {.vocab_size = 50, .max_context = 20}).timeout == milliseconds(501));
}
