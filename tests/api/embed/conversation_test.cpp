// Questions in words, and their answers, through the engine.
#include "api/embed/conversation.hpp"
#include "tests/api/embed/small_engine.hpp"

#include <atomic>
#include <future>
#include <optional>
#include <stop_token>

using namespace troupe;
using namespace troupe::testing;

namespace {

/// A model whose answers are written down (tests/data/scripted).
engine_options scripted(const std::string& file = "") {
  engine_options o;
  o.model = test_data() + "/scripted" + file;
  o.kv_cache_bytes = 16 << 20;
  o.compute.threads = 1;
  return o;
}

question asking(std::string text) {
  return {.messages = {{"user", std::move(text)}}, .sampling = sampling_params{.temperature = 0}};
}

const tool_offer weather{"get_weather", "The weather of a city",
                         R"({"type":"object","properties":{"city":{"type":"string"}}})"};

} // namespace

TEST_CASE("generate answers a text or a conversation, with as many tokens as the context holds") {
  for (const auto* file : {"", "/scripted.gguf"}) {
    const auto e = engine::start(scripted(file));
    std::string streamed;
    const auto answer = e.generate(asking("Good morning"), [&](std::string_view text) { streamed += text; });
    CHECK(answer.text == "Hello, world!");
    CHECK(streamed == answer.text);
    CHECK(answer.finish == finish_reason::stop);
    CHECK(answer.calls.empty());
    CHECK(answer.done.completion_tokens > 0);
    const auto counted = e.generate(asking("count"));
    auto brief = asking("count");
    brief.max_tokens = 3;
    const auto cut = e.generate(brief);
    CHECK(cut.finish == finish_reason::length);
    CHECK(cut.done.completion_tokens == 3);
    CHECK(counted.text.starts_with(cut.text));
    CHECK(e.generate({.text = "Good morning"}).done.prompt_tokens > 0);
    CHECK(idle(e));
  }
}

TEST_CASE("an answer is as long as the context allows, unless it ends or is asked to") {
  const auto e = engine::start(small());
  question asked{.text = "a", .sampling = sampling_params{.temperature = 0, .ignore_eos = true}};
  const auto whole = e.generate(asked);
  CHECK(whole.done.prompt_tokens + whole.done.completion_tokens == 512);
  CHECK(whole.finish == finish_reason::length);
  asked.max_tokens = 5;
  CHECK(e.generate(asked).done.completion_tokens == 5);
}

TEST_CASE("a question without a seed gets a random one") {
  const auto e = engine::start(small());
  question asked{.text = "a", .sampling = sampling_params{.ignore_eos = true}, .max_tokens = 40};
  const auto first = e.generate(asked).text;
  CHECK(e.generate(asked).text != first);
  asked.seed = 0;
  const auto zero = e.generate(asked).text;
  CHECK(e.generate(asked).text == zero);
  asked.seed.reset();
  asked.sampling->seed = 5;
  const auto five = e.generate(asked).text;
  CHECK(five != zero);
  CHECK(e.generate(asked).text == five);
  asked.seed = 0;
  CHECK(e.generate(asked).text == zero);
}

TEST_CASE("numbers of a question that mean nothing are refused by name") {
  const auto e = engine::start(small());
  const auto refused = [&](const question& asked) {
    try {
      e.generate(asked);
    } catch (const failure& f) {
      CHECK(f.what_failed().code == errc::bad_request);
      return f.what_failed().param + ": " + f.what();
    }
    return std::string();
  };
  CHECK(refused({.text = "a", .max_tokens = -5}) ==
        "max_tokens: `max_tokens` must be 0 (no limit of its own) or more, not -5");
  CHECK(refused({.text = "a", .timeout = std::chrono::milliseconds(-1)}) ==
        "timeout: `timeout` must be 0 (no limit of its own) or more, not -1");
  CHECK(refused({.text = "a", .timeout = std::chrono::milliseconds::max()})
          .starts_with("timeout: `timeout` must be at most"));
}

TEST_CASE("a stop token ends an answer where it is, and a timeout with what it has, or an error") {
  const auto e = engine::start(roomy());
  question asked{.text = "a", .sampling = sampling_params{.temperature = 0, .ignore_eos = true, .n = 8}};
  std::stop_source stopping;
  bool cut_short = false;
  for (int tries = 0; !cut_short && tries < 20; ++tries) { // on a busy machine it may be over before it is stopped
    stopping = {};
    std::string streamed;
    const auto answer = e.generate(
      asked,
      [&](std::string_view text) {
        streamed += text;
        stopping.request_stop();
      },
      stopping.get_token());
    cut_short = answer.finish == finish_reason::cancelled;
    CHECK(answer.text == streamed);
    CHECK_FALSE(streamed.empty());
  }
  CHECK(cut_short);
  CHECK(e.generate(asked, {}, stopping.get_token()).finish == finish_reason::cancelled); // from the beginning
  asked.timeout = std::chrono::milliseconds(1);
  try {
    const auto cut = e.generate(asked);
    CHECK(cut.finish == finish_reason::timeout);
  } catch (const failure& f) { // it had no token yet, or none was expected in time
    CHECK((f.what_failed().code == errc::timeout || f.what_failed().code == errc::overloaded));
  }
  CHECK(idle(e));
}

TEST_CASE("a question that is stopped, or whose time is over, does not wait for the model to load") {
  std::promise<void> loading, answered;
  std::optional<engine> e;
  auto go_on = answered.get_future().share();
  std::atomic<bool> told = false;
  e = engine::start(small(), [&, go_on](const load_status& s) {
    if (s.now != load_status::stage::loading || told.exchange(true))
      return;
    loading.set_value();
    go_on.wait(); // the loader waits for its listener
  });
  loading.get_future().wait();
  std::stop_source stopping;
  stopping.request_stop();
  CHECK(e->generate({.text = "a"}, {}, stopping.get_token()).finish == finish_reason::cancelled);
  try {
    e->generate({.text = "a", .timeout = std::chrono::milliseconds(1)});
    FAIL("it was answered");
  } catch (const failure& f) {
    CHECK(f.what_failed().code == errc::timeout);
  }
  answered.set_value();
  CHECK(e->generate({.text = "a", .max_tokens = 1}).done.completion_tokens == 1);
}

TEST_CASE("generate takes reasoning and calls apart, and a conversation goes on behind them") {
  const auto e = engine::start(scripted());
  const auto thought = e.generate(asking("think"));
  CHECK_FALSE(thought.reasoning.empty());
  CHECK_FALSE(thought.text.empty());
  CHECK(thought.text.find("think>") == std::string::npos);
  auto asked = asking("the weather, please");
  asked.tools = {weather};
  answer_reader reader(prepare(*e.model(), asked));
  token_event said;
  said.text = "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris\"}}\n</tool_call>";
  CHECK(reader.add(said) == "");
  said.text.clear();
  said.finish = finish_reason::stop;
  CHECK(reader.add(said) == "");
  const auto answer = std::move(reader).finish({});
  REQUIRE(answer.calls.size() == 1);
  CHECK(answer.calls[0].name == "get_weather");
  CHECK(answer.calls[0].arguments == R"({"city": "Paris"})");
  CHECK(answer.text == "");
  asked.messages.push_back({"assistant", answer.text, answer.calls});
  asked.messages.push_back({.role = "tool", .content = "sunny", .call_id = answer.calls[0].id});
  const auto told = e.generate(asked);
  CHECK(told.calls.empty());
  CHECK_FALSE(told.text.empty());
}

TEST_CASE("what generate cannot do is a failure with a sentence") {
  const auto e = engine::start(scripted());
  auto wrong = asking("weather");
  wrong.tools = {{"f", "", "{"}};
  CHECK_THROWS_AS(e.generate(wrong), failure);
  auto hot = asking("Good morning");
  hot.sampling = sampling_params{.temperature = -1};
  CHECK_THROWS_AS(e.generate(hot), failure);
  struct enough {};
  CHECK_THROWS_AS(e.generate(asking("count"), [](std::string_view) { throw enough(); }), enough);
  CHECK(idle(e));
  auto nowhere = scripted();
  nowhere.model = golden("no-such-model");
  CHECK_THROWS_AS(engine::start(nowhere).generate(asking("Good morning")), failure);
  e.stop();
  CHECK_THROWS_AS(e.generate(asking("Good morning")), failure);
}
