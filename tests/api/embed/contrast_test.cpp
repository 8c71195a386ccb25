// Contrastive decoding through the whole engine: the answers of PyTorch, and what it may be combined with.
#include "runtime/support/json/json.hpp"
#include "runtime/techniques/amateur/technique.hpp"
#include "runtime/techniques/guidance/technique.hpp"
#include "runtime/techniques/guides/technique.hpp"
#include "tests/api/embed/small_engine.hpp"

using namespace troupe;
using namespace troupe::testing;

namespace {

std::vector<token_id> token_ids_of(json::value list) {
  std::vector<token_id> ids;
  for (auto v : json::array(list))
    ids.push_back(static_cast<token_id>(std::int64_t(v)));
  return ids;
}

engine_options with_amateur(const std::string& model = "qwen3", const std::string& amateur = "qwen2") {
  auto options = small(model);
  options.techniques["amateur"] = {golden(amateur)};
  options.compute.dtype = "f32";
  return options;
}

generation contrasted_request(std::vector<token_id> prompt, float alpha, float beta, int tokens = 24) {
  auto g = ask(std::move(prompt), tokens);
  g.sampling.techniques.set(contrasted_by({.beta = beta, .alpha = alpha}));
  return g;
}

const std::vector<token_id> five_tokens{5, 90, 33, 71, 20};

} // namespace

TEST_CASE("contrasted greedy answers are PyTorch's, in any chunks and with a warm cache") {
  const auto document = json::document::load(test_data() + "/contrasts.json");
  int answers = 0, bound = 0, changed = 0;
  for (auto [names, cases] : json::object(json::value(document.root())["amateurs"])) {
    const std::string both(names);
    CAPTURE(both);
    const auto slash = both.find('/');
    for (const int step_tokens : {512, 5}) {
      auto options = with_amateur(both.substr(0, slash), both.substr(slash + 1));
      options.step_tokens = step_tokens;
      const auto e = engine::start(options);
      e.wait_until_ready();
      for (auto one : json::array(cases)) {
        const auto expected = token_ids_of(one["answer"]);
        std::vector<double> margins;
        for (auto m : json::array(one["margins"]))
          margins.push_back(double(m));
        const auto binding = std::ranges::find_if(margins, [](double m) { return m < 2e-3; }) - margins.begin();
        const auto ids = token_ids_of(one["ids"]);
        const auto plain = run(e, ask(ids, 24)); // its prefix is cached without the amateur's
        const auto heard = run(
          e,
          contrasted_request(ids, static_cast<float>(double(one["alpha"])), static_cast<float>(double(one["beta"]))));
        REQUIRE(heard.done);
        const auto& found = heard.ids.at(0);
        REQUIRE(std::ssize(found) >= binding);
        CHECK(std::vector(found.begin(), found.begin() + binding) ==
              std::vector(expected.begin(), expected.begin() + binding));
        ++answers;
        bound += static_cast<int>(binding);
        changed += found != plain.ids.at(0);
      }
      CHECK(idle(e));
    }
  }
  CHECK(answers == 36);
  CHECK(bound > 36 * 8);
  CHECK(changed > 18);
}

TEST_CASE("several answers, guides, log-probabilities, processors and watermarks work with a contrast") {
  const auto e = engine::start(with_amateur());
  e.wait_until_ready();
  auto several = contrasted_request(five_tokens, 0.2f, 1);
  several.sampling.n = 3;
  several.sampling.temperature = 1;
  several.sampling.logprobs = 2;
  const auto three = run(e, several);
  REQUIRE(three.done);
  CHECK(three.ids.size() == 3);
  several.sampling.n = 1;
  CHECK(run(e, several).ids.at(0) == three.ids.at(0));
  auto chosen = contrasted_request(five_tokens, 0.5f, 2);
  chosen.sampling.techniques.set(
    guides::following({.what = guides::guide_source::kind::choice, .choices = {"yes", "no"}}));
  const auto answer = run(e, chosen);
  REQUIRE(answer.done);
  CHECK((answer.text.at(0) == "yes" || answer.text.at(0) == "no"));
  auto longer = contrasted_request(five_tokens, 1, 1, 40); // one token is plausible, but may not be an end
  longer.sampling.min_tokens = 40;
  CHECK(run(e, longer).ids.at(0).size() == 40);
  CHECK(idle(e));
}

TEST_CASE("what a contrast cannot have is refused in one sentence") {
  auto options = small("qwen3");
  const auto without = engine::start(options), with = engine::start(with_amateur());
  without.wait_until_ready(), with.wait_until_ready();
  const auto refused = [](const engine& by, generation g, const std::string& field) {
    const auto answer = run(by, std::move(g));
    REQUIRE(answer.failed);
    CHECK(answer.failed->code == errc::bad_request);
    CHECK(answer.failed->param == field);
    return answer.failed->message;
  };
  CHECK(refused(without, contrasted_request(five_tokens, 0.1f, 1), "contrastive_beta") ==
        "`contrastive_beta` needs an amateur model, given with --amateur");
  auto pair = contrasted_request(five_tokens, 0.1f, 1);
  pair.sampling.techniques.set(guided_by(2));
  CHECK(refused(with, pair, "contrastive_beta") == "`contrastive_beta` must be 0 with `guidance_scale`, not 1.");
  auto scored = contrasted_request(five_tokens, 0.1f, 1, 0); // nothing is chosen
  scored.sampling.prompt_logprobs = 0;
  CHECK(run(with, scored).done);
}
