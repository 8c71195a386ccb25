// DoLa through the whole engine: the answers of PyTorch, and what it may be combined with.
#include "runtime/support/json/json.hpp"
#include "runtime/techniques/amateur/technique.hpp"
#include "runtime/techniques/dola/technique.hpp"
#include "runtime/techniques/guidance/technique.hpp"
#include "runtime/techniques/guides/technique.hpp"
#include "tests/api/embed/small_engine.hpp"

using namespace troupe;
using namespace troupe::testing;

namespace {

template <class T>
std::vector<T> dola_numbers(json::value list) {
  std::vector<T> values;
  for (auto v : json::array(list))
    values.push_back(static_cast<T>(v.is_double() ? double(v) : static_cast<double>(std::int64_t(v))));
  return values;
}

dola_layers layers_named_by(json::value v) {
  std::string_view word;
  return v.get(word) ? dola_layers(dola_numbers<int>(v)) : dola_layers(word);
}

generation layered_request(std::vector<token_id> prompt, dola_layers layers, int tokens = 24) {
  auto g = ask(std::move(prompt), tokens);
  g.sampling.techniques.set(contrasted_with(std::move(layers)));
  return g;
}

const std::vector<token_id> some_tokens{5, 90, 33, 71, 20};

} // namespace

TEST_CASE("greedy answers that are contrasted with layers are PyTorch's, in any chunks and with a warm cache") {
  const auto document = json::document::load(test_data() + "/contrasts.json");
  int answers = 0, bound = 0, changed = 0;
  for (auto [name, cases] : json::object(json::value(document.root())["layers"]))
    for (const int step_tokens : {512, 5}) {
      CAPTURE(name);
      auto options = small();
      options.model = test_data() + "/" + std::string(name);
      options.compute.dtype = "f32";
      options.step_tokens = step_tokens;
      const auto e = engine::start(options);
      e.wait_until_ready();
      for (auto one : json::array(cases)) {
        const auto expected = dola_numbers<token_id>(one["answer"]);
        const auto logprobs = dola_numbers<float>(one["logprobs"]);
        const auto margins = dola_numbers<double>(one["margins"]);
        const auto binding = static_cast<std::size_t>(std::ranges::find_if(margins, [](double m) { return m < 2e-4; }) -
                                                      margins.begin());
        auto asked = layered_request(dola_numbers<token_id>(one["ids"]), layers_named_by(one["layers"]));
        asked.sampling.logprobs = 0;
        const auto heard = run(e, asked);
        REQUIRE(heard.done);
        const auto& found = heard.ids.at(0);
        REQUIRE(found.size() >= binding);
        for (std::size_t i = 0; i < binding; ++i) {
          REQUIRE(found[i] == expected[i]);
          CHECK(std::abs(heard.tokens.at(0)[i].logprob - logprobs[i]) < 2e-4);
        }
        asked.sampling.techniques = {};
        changed += run(e, asked).ids.at(0) != found;
        ++answers;
        bound += static_cast<int>(binding);
      }
      CHECK(idle(e));
    }
  CHECK(answers == 48);
  CHECK(bound > 48 * 12);
  CHECK(changed > 24);
}

TEST_CASE("several answers, guides, log-probabilities, processors and steps of many work with layers") {
  auto options = small();
  const auto e = engine::start(options);
  e.wait_until_ready();
  auto several = layered_request(some_tokens, dola_layers({0, 1, 2}));
  several.sampling.n = 3;
  several.sampling.temperature = 1;
  several.sampling.logprobs = 2;
  several.sampling.repetition_penalty = 1.2f;
  const auto three = run(e, several);
  REQUIRE(three.done);
  CHECK(three.ids.size() == 3);
  several.sampling.n = 1;
  CHECK(run(e, several).ids.at(0) == three.ids.at(0));
  several.sampling.techniques = {};
  CHECK(run(e, several).ids.at(0) != three.ids.at(0));
  auto chosen = layered_request(some_tokens, dola_layers("low"));
  chosen.sampling.techniques.set(
    guides::following({.what = guides::guide_source::kind::choice, .choices = {"yes", "no"}}));
  const auto answer = run(e, chosen);
  REQUIRE(answer.done);
  CHECK((answer.text.at(0) == "yes" || answer.text.at(0) == "no"));
  CHECK(idle(e));
}

TEST_CASE("requests with layers and with an amateur share an engine") {
  auto options = small("qwen3");
  options.techniques["amateur"] = {golden("qwen2")};
  const auto both = engine::start(options), plain = engine::start(small("qwen3"));
  both.wait_until_ready(), plain.wait_until_ready();
  std::vector<listener> listeners(4);
  for (std::size_t i = 0; i < listeners.size(); ++i) {
    auto g = ask(some_tokens, 30);
    if (i % 2 == 0)
      g.sampling.techniques.set(contrasted_with(dola_layers({0, 1})));
    else
      g.sampling.techniques.set(contrasted_by({.beta = 1}));
    both.submit(std::move(g), listeners[i].sink());
  }
  for (auto& l : listeners)
    REQUIRE(l.wait());
  const auto alone = run(plain, layered_request(some_tokens, dola_layers({0, 1}), 30));
  CHECK(same(listeners[0].result(), alone));
  CHECK(same(listeners[2].result(), alone));
  CHECK(listeners[1].result().ids == listeners[3].result().ids);
  CHECK(listeners[1].result().ids != alone.ids);
}

TEST_CASE("what layers cannot have is refused in one sentence") {
  const auto e = engine::start(small());
  e.wait_until_ready();
  const auto refused = [&](generation g) {
    const auto answer = run(e, std::move(g));
    REQUIRE(answer.failed);
    CHECK(answer.failed->code == errc::bad_request);
    CHECK(answer.failed->param == "dola_layers");
    return answer.failed->message;
  };
  CHECK(refused(layered_request(some_tokens, dola_layers({0, 3}))) ==
        "`dola_layers` must consist of layers from 0 to 2, not 3");
  auto pair = layered_request(some_tokens, dola_layers("low"));
  pair.sampling.techniques.set(guided_by(2));
  CHECK(refused(pair) == "`dola_layers` cannot be used with `guidance_scale`");
  auto scored = layered_request(some_tokens, dola_layers("low"), 0); // nothing is chosen
  scored.sampling.prompt_logprobs = 0;
  CHECK(run(e, scored).done);
}
