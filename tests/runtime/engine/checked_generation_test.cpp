#include "runtime/engine/checked_generation.hpp"
#include "runtime/techniques/amateur/technique.hpp"
#include "runtime/techniques/dola/technique.hpp"
#include "runtime/techniques/speculation/technique.hpp"

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

/// Of a model beside which there is such an amateur, as `values` keep it.
generation_limits with_amateur(int context, int vocab, technique_values& values) {
  values.set(amateur_technique, std::make_shared<const second_facts>(second_facts{context, vocab}));
  auto with = limits;
  with.techniques.values = &values;
  return with;
}

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
  CHECK(checked.sampling.max_tokens == 8);
  CHECK(checked.sampling.temperature == 0.5f);
  CHECK(check(ask({1}, 3), limits).sampling.max_tokens == 3);
  CHECK(check(ask(std::vector<token_id>(19, 0)), limits).sampling.max_tokens == 1);
}

TEST_CASE("Cached prefixes are shared by requests of the same salt alone") {
  const auto salt = [](const char* text, float beta = 0) {
    auto asked = ask({1, 2, 3});
    asked.cache_salt = text;
    asked.sampling.techniques.set(contrasted_by({.beta = beta}));
    technique_values values;
    const auto features = check(asked, with_amateur(20, 50, values)).features;
    return features ? features->salt : 0;
  };
  CHECK(salt("") == 0);
  CHECK(salt("one") == salt("one"));
  CHECK(salt("one") != salt("other"));
  CHECK(salt("one") != 0);
  CHECK(salt("one", 0.5f) != salt("one"));
  CHECK(salt("", 0.5f) != 0);
}

TEST_CASE("A prompt is refused when it is empty, too long or has unknown ids") {
  CHECK(refusal(ask({})).message == "the prompt must have at least one token");
  CHECK(refusal(ask(std::vector<token_id>(20, 0))).message ==
        "This model's maximum context length is 20 tokens. However, the prompt has 20 tokens, and may have 19 to leave "
        "room for an answer.");
  CHECK(refusal(ask({1, 50})).message == "the prompt names token 50, but the vocabulary has 50");
  CHECK(refusal(ask({-1})).message == "the prompt names token -1, but the vocabulary has 50");
  CHECK(refusal(ask({-1})).param == "prompt");
  CHECK(refusal(ask({-1})).code == errc::bad_request);
}

TEST_CASE("A prompt that is only scored may fill the context, and nothing is generated") {
  auto asked = ask(std::vector<token_id>(20, 0), 0);
  asked.sampling.prompt_logprobs = 0;
  const auto checked = check(asked, limits);
  CHECK(checked.sampling.max_tokens == 0);
  CHECK(checked.sampling.scores_only());
  asked.prompt.push_back(0);
  CHECK(refusal(asked).message ==
        "This model's maximum context length is 20 tokens. However, the prompt has 21 tokens, and may have 20.");
  asked = ask({1}, 0);
  CHECK(refusal(asked).param == "max_tokens");
  asked.sampling.prompt_logprobs = 0;
  asked.sampling.n = 2;
  CHECK(refusal(asked).param == "max_tokens");
  asked.sampling.n = 1;
  asked.sampling.min_tokens = 1;
  CHECK(refusal(asked).param == "min_tokens");
}

TEST_CASE("A prediction is refused when it is longer than the context or has unknown ids") {
  auto asked = ask({1});
  asked.prediction = std::vector<token_id>(20, 0);
  CHECK_NOTHROW(check(asked, limits));
  asked.prediction.push_back(0);
  CHECK(refusal(asked).message == "the prediction has 21 tokens; the context is 20");
  CHECK(refusal(asked).param == "prediction");
  asked.prediction = {50};
  CHECK(refusal(asked).message == "the prediction names token 50, but the vocabulary has 50");
  CHECK(refusal(asked).param == "prediction");
}

TEST_CASE("Guesses of a draft model need one") {
  auto asked = ask({1});
  asked.sampling.techniques.set(speculated_by(speculation::draft));
  CHECK(refusal(asked).param == "speculate");
  auto with_draft = limits;
  technique_values values;
  values.set(speculation_technique, std::make_shared<const guessing_models>(guessing_models{.draft = "small"}));
  with_draft.techniques.values = &values;
  CHECK_NOTHROW(check(asked, with_draft));
}

TEST_CASE("A contrast needs an amateur, whose context and vocabulary its request must fit") {
  auto asked = ask({1, 2, 3}, 100);
  asked.sampling.techniques.set(contrasted_by({.beta = 0.5f}));
  CHECK(refusal(asked).message == "`contrastive_beta` needs an amateur model, given with --amateur");
  CHECK(refusal(asked).param == "contrastive_beta");
  technique_values values;
  const auto with = with_amateur(8, 40, values);
  CHECK(check(asked, with).sampling.max_tokens == 5);
  asked.prompt.assign(8, 1);
  CHECK_THROWS_WITH_AS(check(asked, with),
                       "the prompt has 8 tokens; with `contrastive_beta` at most 7 fit into the amateur model's "
                       "context of 8",
                       failure);
  asked.sampling.prompt_logprobs = 0;
  asked.sampling.max_tokens = 0;
  CHECK(check(asked, with).sampling.techniques.empty()); // nothing is chosen
  asked = ask({1, 40}, 100);
  CHECK(check(asked, with).sampling.max_tokens == 18);
  asked.sampling.techniques.set(contrasted_by({.beta = 1}));
  CHECK_THROWS_WITH_AS(check(asked, with), "the prompt names token 40, but the amateur model's vocabulary has 40",
                       failure);
}

TEST_CASE("Layers to be contrasted with are named by the model's, on a device that has their logits") {
  auto asked = ask({1, 2, 3}, 100);
  asked.sampling.techniques.set(contrasted_with(dola_layers("low")));
  auto model = limits;
  model.techniques.layers = 8;
  const auto layers = [&] {
    const auto fitted = check(asked, model).sampling.techniques;
    const auto& found = *layers_of(fitted.contrast());
    return std::vector(found.begin(), found.end());
  };
  CHECK(layers() == std::vector{0, 2});
  model.techniques.tied = true;
  CHECK(layers() == std::vector{2});
  asked.sampling.techniques.set(contrasted_with(dola_layers({7, 1})));
  CHECK(layers() == std::vector{1, 7});
  model.techniques.layers = 7;
  CHECK_THROWS_WITH_AS(check(asked, model), "`dola_layers` must consist of layers from 0 to 6, not 7", failure);
  model.techniques.layers = 8;
  asked.sampling.prompt_logprobs = 0, asked.sampling.max_tokens = 0;
  CHECK(check(asked, model).sampling.techniques.empty()); // nothing is chosen
  model.techniques.looks_inside = false;
  CHECK_THROWS_WITH_AS(check(asked, model),
                       "`dola_layers` is not supported on this device, only on the CPU (--device cpu)", failure);
}

TEST_CASE("An interface may check the length of a prompt early, under its own name for it") {
  check_prompt_length(19, 20, "messages");
  try {
    check_prompt_length(20, 20, "messages");
    FAIL("accepted");
  } catch (const failure& f) {
    CHECK(f.what_failed().message ==
          "This model's maximum context length is 20 tokens. However, `messages` has 20 tokens, and may have 19 to "
          "leave room for an answer.");
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
