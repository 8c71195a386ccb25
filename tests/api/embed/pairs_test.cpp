// Classifier-free guidance through the whole engine: transformers' answers, and what it may be combined with.
#include "runtime/support/json/json.hpp"
#include "runtime/techniques/guidance/technique.hpp"
#include "tests/api/embed/small_engine.hpp"

using namespace troupe;
using namespace troupe::testing;

namespace {

std::vector<token_id> ids_of(json::value list) {
  std::vector<token_id> ids;
  if (!list.is_array())
    return ids;
  for (auto v : json::array(list))
    ids.push_back(static_cast<token_id>(std::int64_t(v)));
  return ids;
}

generation guided_request(std::vector<token_id> prompt, std::vector<token_id> negative, float scale, int tokens = 24) {
  auto g = ask(std::move(prompt), tokens);
  g.negative_prompt = std::move(negative);
  g.sampling.techniques.set(guided_by(scale));
  return g;
}

} // namespace

TEST_CASE("guided greedy answers are transformers', in any chunks and with a warm cache") {
  const auto document = json::document::load(test_data() + "/pairs.json");
  for (auto [name, cases] : json::object(json::value(document.root())["answers"])) {
    CAPTURE(std::string(name));
    for (const int step_tokens : {512, 5}) {
      auto options = small(std::string(name));
      options.compute.dtype = "f32";
      options.step_tokens = step_tokens;
      const auto e = engine::start(options);
      e.wait_until_ready();
      int answers = 0;
      for (auto one : json::array(cases)) {
        const auto expected = ids_of(one["answer"]);
        std::vector<double> margins;
        for (auto m : json::array(one["margins"]))
          margins.push_back(double(m));
        const auto binding = static_cast<std::size_t>(std::ranges::find_if(margins, [](double m) { return m < 2e-3; }) -
                                                      margins.begin());
        const auto heard = run(
          e, guided_request(ids_of(one["ids"]), ids_of(one["negative"]), static_cast<float>(double(one["scale"]))));
        REQUIRE(heard.done);
        const auto& found = heard.ids.at(0);
        REQUIRE(found.size() >= binding);
        CHECK(std::vector(found.begin(), found.begin() + static_cast<std::ptrdiff_t>(binding)) ==
              std::vector(expected.begin(), expected.begin() + static_cast<std::ptrdiff_t>(binding)));
        CHECK(heard.done->completion_tokens == found.size());
        CHECK(heard.done->prompt_tokens == ids_of(one["ids"]).size());
        ++answers;
      }
      CHECK(answers == 9);
      CHECK(idle(e));
    }
  }
}

TEST_CASE("guidance of scale 1 is none, and the last token of the prompt stands for a negative prompt") {
  const auto e = engine::start(small());
  e.wait_until_ready();
  const std::vector<token_id> prompt{5, 90, 33, 71, 20};
  auto sampled = guided_request(prompt, {7, 8, 9}, 1);
  sampled.sampling.temperature = 1;
  sampled.sampling.seed = 3;
  sampled.sampling.logprobs = 2;
  auto plain = sampled;
  plain.negative_prompt.clear();
  CHECK(same(run(e, sampled), run(e, plain)));
  const auto given = run(e, guided_request(prompt, {20}, 2)), absent = run(e, guided_request(prompt, {}, 2));
  REQUIRE(given.done);
  CHECK(same(given, absent));
  CHECK(run(e, guided_request({20}, {20}, 5)).ids == run(e, ask({20}, 24)).ids); // nothing to lead away from
}

TEST_CASE("a pair that is cancelled, stopped by a text or out of time leaves nothing behind") {
  const auto e = engine::start(roomy());
  e.wait_until_ready();
  auto endless = guided_request(std::vector<token_id>(40, 20), {30, 31}, 2, 2000);
  endless.sampling.ignore_eos = true;
  listener l;
  auto handle = e.submit(endless, l.sink());
  REQUIRE(l.wait_for_tokens(3));
  handle.cancel();
  REQUIRE(l.wait());
  CHECK(l.result().finish.at(0) == finish_reason::cancelled);
  CHECK(idle(e));
  const auto whole = run(e, endless);
  REQUIRE(whole.done);
  REQUIRE(whole.text.at(0).size() > 12);
  auto stopped = endless;
  stopped.sampling.stop = {whole.text.at(0).substr(10, 2)};
  const auto cut = run(e, stopped);
  CHECK(cut.finish.at(0) == finish_reason::stop);
  CHECK(whole.text.at(0).starts_with(cut.text.at(0)));
  CHECK(idle(e));
  auto hurried = endless;
  hurried.timeout = std::chrono::milliseconds(1);
  const auto late = run(e, hurried);
  if (late.failed) // it had no token yet, or none was expected in time
    CHECK((late.failed->code == errc::timeout || late.failed->code == errc::overloaded));
  else
    CHECK(late.finish.at(0) == finish_reason::timeout);
  CHECK(idle(e));
}

TEST_CASE("what a pair cannot have is refused in one sentence") {
  auto options = small();
  options.max_sequences = 1;
  const auto one = engine::start(options), e = engine::start(small());
  one.wait_until_ready(), e.wait_until_ready();
  const auto refused = [](const engine& by, generation g) {
    const auto answer = run(by, std::move(g));
    REQUIRE(answer.failed);
    CHECK(answer.failed->code == errc::bad_request);
    return answer.failed->message;
  };
  CHECK(refused(one, guided_request({5}, {6}, 2)) ==
        "`guidance_scale` takes 2, but at most 1 sequences can run at once");
  CHECK(
    refused(e, guided_request({5}, std::vector<token_id>(512, 5), 2)) ==
    "This model's maximum context length is 512 tokens. However, `negative_prompt` has 512 tokens, and may have 511 "
    "to leave room for an answer.");
  CHECK(refused(e, guided_request({5}, {100000}, 2)).starts_with("the negative_prompt names token 100000"));
  const auto cut = run(e, guided_request({5}, std::vector<token_id>(505, 6), 2));
  REQUIRE(cut.done);
  CHECK(cut.ids.at(0).size() <= 7); // what the context leaves behind the negative prompt
}
