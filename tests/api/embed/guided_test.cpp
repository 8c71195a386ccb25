// Guides through the engine's public interface: answers follow them, whatever else runs; a guide that is wrong or
// hostile costs its own request only.
#include "api/embed/engine.hpp"
#include "runtime/chat/output/call_format.hpp"
#include "runtime/guide/guide.hpp"
#include "runtime/techniques/beams/technique.hpp"
#include "runtime/techniques/guides/guide_sources.hpp"
#include "runtime/techniques/guides/technique.hpp"
#include "runtime/techniques/speculation/technique.hpp"
#include "runtime/techniques/stochastic_beams/technique.hpp"
#include "runtime/techniques/watermark/technique.hpp"
#include "runtime/tokenizer/tokenizer.hpp"
#include "tests/listener.hpp"

#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <ctime>
#include <random>
#include <thread>

using namespace troupe;
using namespace troupe::testing;

namespace {

using guides::guide_source;

engine_options guided_engine() {
  engine_options o;
  o.model = golden("llama-gqa");
  o.kv_cache_bytes = 16 << 20;
  o.max_context = 512;
  o.compute.threads = 1;
  return o;
}

std::shared_ptr<const guide_source> guide_of(guide_source::kind what, std::string text, std::string after = {}) {
  return std::make_shared<const guide_source>(
    guide_source{.what = what, .text = std::move(text), .after = std::move(after)});
}

generation guided_request(std::shared_ptr<const guide_source> guide, int max_tokens, std::uint64_t seed = 1) {
  generation g;
  g.prompt = {0, 54, 51};
  g.sampling.max_tokens = max_tokens;
  g.sampling.seed = seed;
  g.skip_special_tokens = false; // a guide counts them, too
  g.sampling.techniques.set(guides::following(std::move(guide)));
  return g;
}

heard answer_of(const engine& e, generation g) {
  listener l;
  e.submit(std::move(g), l.sink());
  REQUIRE(l.wait());
  return l.result();
}

/// What this process has computed, on all threads. A busy machine does not change it.
std::chrono::nanoseconds computed() {
  timespec used{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
  return std::chrono::seconds(used.tv_sec) + std::chrono::nanoseconds(used.tv_nsec);
}

/// Whether a whole answer, or one cut by its limit, is what the guide allows.
void check_follows(const generation& g, const heard& h) {
  const auto words = tokenizer::load(golden("llama-gqa"));
  const auto guide = guides::compile_guide(*guides::source_of(g), guides::guide_vocabulary::of(*words));
  for (const auto& [index, text] : h.text) {
    CAPTURE(text);
    for (const auto& banned : guides::source_of(g)->banned)
      CHECK(text.find(banned) == std::string::npos);
    if (guides::source_of(g)->what == guide_source::kind::anything)
      continue;
    guides::guide_state state(guide);
    const auto begin = guides::source_of(g)->after.empty() ? 0 : text.find(guides::source_of(g)->after);
    if (begin == std::string::npos) {
      CHECK(h.finish.at(index) == finish_reason::length);
      continue;
    }
    const auto guided = text.substr(begin + guides::source_of(g)->after.size());
    if (guided.find("\xEF\xBF\xBD") != std::string::npos)
      continue; // cut within a character
    CHECK(state.advance(guided));
    if (h.finish.at(index) == finish_reason::stop)
      CHECK(state.can_end());
  }
}

const char* const small_schema = R"({"type":"object","properties":{"name":{"type":"string","maxLength":12},
  "citizen":{"type":"boolean"},"years":{"type":"array","items":{"type":"integer","minimum":0,"maximum":99},
  "maxItems":3}},"required":["name","citizen","years"],"additionalProperties":false})";

/// Of calls in Hermes' format, which may come behind other text, or must come.
std::shared_ptr<const guide_source> guide_of_calls(call_choice choice) {
  chat_output what;
  what.format.calls = find_call_format("hermes");
  what.tools = {offered_tool("noble", small_schema), offered_tool("heart", "")};
  what.choice = choice;
  return guides::output_guide(what, nullptr);
}

/// With reasoning at its beginning, and without these texts.
std::shared_ptr<const guide_source> bounded_by(guide_source guide, std::vector<std::string> banned) {
  guide.thinking = {"<think>", "</think>", "</think>", true};
  guide.banned = std::move(banned);
  return std::make_shared<const guide_source>(std::move(guide));
}

std::vector<std::shared_ptr<const guide_source>> some_guides() {
  using kind = guide_source::kind;
  auto compact = guide_source{.what = kind::json_schema, .text = small_schema, .compact = true};
  guide_source choice{.what = kind::choice};
  choice.choices = {"the noble citizens", "the noble friends", "your heart"};
  return {guide_of(kind::json_schema, small_schema),
          std::make_shared<const guide_source>(compact),
          std::make_shared<const guide_source>(choice),
          guide_of(kind::regex, "[0-9]{1,3} noble (citizens|friends) of [A-Z][a-z]{2,8}\\."),
          guide_of(kind::json_object, ""),
          guide_of(kind::regex, "The end\\.", "e"),
          guide_of_calls(call_choice::automatic),
          guide_of_calls(call_choice::required),
          guide_of(kind::grammar, "root ::= (\"The \" word \".\\n\")+\nword ::= [a-z]{1,6}\n"),
          bounded_by({.what = kind::anything}, {}),
          bounded_by({.what = kind::anything}, {"e", "the noble", "o"}),
          bounded_by({.what = kind::json_schema, .text = small_schema, .after = "</think>"}, {"7", "ab"})};
}

generation random_guided(std::mt19937& rng) {
  const auto pick = [&](int lo, int hi) { return std::uniform_int_distribution<int>(lo, hi)(rng); };
  const auto guides = some_guides();
  auto g = guided_request(pick(0, 3) == 0 ? nullptr : guides[rng() % guides.size()], pick(5, 60), rng());
  g.sampling.thinking_budget = pick(-1, 20);
  g.prompt.clear();
  std::mt19937 shared(static_cast<unsigned>(pick(0, 1)));
  for (int i = 0, n = pick(1, 90); i < n; ++i)
    g.prompt.push_back(static_cast<token_id>(5 + (i < 40 ? shared() : rng()) % 700));
  auto& s = g.sampling;
  s.temperature = pick(0, 2) * 0.6f;
  s.n = pick(0, 3) == 0 ? pick(2, 3) : 1;
  s.logprobs = pick(-2, 2);
  s.logprobs = std::max(s.logprobs, -1);
  s.ignore_eos = pick(0, 2) == 0;
  s.min_tokens = pick(0, 2) == 0 ? pick(1, 5) : 0;
  if (pick(0, 3) == 0)
    s.repetition_penalty = 1.2f;
  if (pick(0, 4) == 0)
    s.top_p = 0.9f;
  if (pick(0, 4) == 0)
    s.techniques.set(watermarks::marked_by(
      std::make_shared<const watermarks::options>(watermarks::options{.key = watermarks::key_of("k")})));
  if (pick(0, 5) == 0) {
    sampling_params beams;
    beams.temperature = 0;
    beams.max_tokens = std::min(s.max_tokens, 20);
    beams.n = pick(2, 3);
    beams.logprobs = s.logprobs;
    if (pick(0, 1)) {
      beams.techniques.set(stochastic_beams(beams.n));
      beams.temperature = 1;
      beams.seed = s.seed;
    } else {
      beams.techniques.set(troupe::beams({.width = beams.n}));
    }
    s = beams;
    g.prompt.resize(std::min<std::size_t>(g.prompt.size(), 30));
  } else if (pick(0, 5) == 0) {
    s.n = 1;
    s.best_of = 2;
  }
  return g;
}

} // namespace

TEST_CASE("guided requests of every kind give the same bits in a crowd as alone, and follow their guides") {
  auto alone = guided_engine();
  alone.prefix_cache = false;
  alone.techniques["speculate"] = {"off"};
  const auto reference = engine::start(alone);
  reference.wait_until_ready();
  std::uint64_t preemptions = 0;
  for (unsigned seed = 1; seed <= 3; ++seed) {
    CAPTURE(seed);
    std::mt19937 rng(seed);
    std::vector<generation> work;
    std::vector<heard> expected;
    for (int i = 0; i < 14; ++i) {
      work.push_back(random_guided(rng));
      expected.push_back(answer_of(reference, work.back()));
      if (guides::source_of(work.back()) && !expected.back().failed)
        check_follows(work.back(), expected.back());
    }
    auto options = alone;
    options.techniques["speculate"] = {"auto"};
    options.compute.threads = static_cast<int>(1 + seed % 3);
    options.step_tokens = seed == 2 ? 9 : 512;
    options.max_sequences = static_cast<int>(3 + 3 * seed);
    options.prefix_cache = seed % 2 == 0;
    if (seed != 2) {
      options.max_context = 256;
      options.kv_cache_bytes = 18 * reference.model()->kv_cache_bytes / reference.stats().total.blocks.total;
    }
    const auto crowd = engine::start(options);
    crowd.wait_until_ready();
    for (int round = 0; round < 2; ++round) {
      std::vector<listener> listeners(work.size());
      for (std::size_t i = 0; i < work.size(); ++i) {
        auto g = work[i];
        g.sampling.techniques.set(speculated_by(rng() % 2 ? speculation::automatic : speculation::lookahead));
        if (rng() % 2 && expected[i].ids.contains(0))
          g.prediction = expected[i].ids.at(0);
        crowd.submit(g, listeners[i].sink());
      }
      for (std::size_t i = 0; i < work.size(); ++i) {
        CAPTURE(i);
        REQUIRE(listeners[i].wait());
        CHECK(same(listeners[i].result(), expected[i]));
      }
    }
    preemptions += crowd.stats().total.scheduler.preemptions;
  }
  CHECK(preemptions > 0);
}

TEST_CASE("a schema's answer is a whole document, and forced text takes fewer steps than tokens") {
  const auto e = engine::start(guided_engine());
  e.wait_until_ready();
  auto g = guided_request(
    guide_of(guide_source::kind::regex, "The noble citizens of the noble friends shall make their heart\\."), 100);
  g.sampling.techniques.set(speculated_by(speculation::off));
  const auto before = e.stats().total.scheduler.steps;
  const auto h = answer_of(e, g);
  CHECK(h.text.at(0) == "The noble citizens of the noble friends shall make their heart.");
  CHECK(h.finish.at(0) == finish_reason::stop);
  const auto steps = e.stats().total.scheduler.steps - before;
  CAPTURE(steps);
  CAPTURE(h.ids.at(0).size());
  CHECK(2 * steps < h.ids.at(0).size());
}

TEST_CASE("a guide that cannot be compiled, or for nothing, is refused by the name of its field") {
  const auto e = engine::start(guided_engine());
  e.wait_until_ready();
  auto source = guide_source{.what = guide_source::kind::regex, .text = "(", .field = "guided_regex"};
  auto why = answer_of(e, guided_request(std::make_shared<const guide_source>(source), 10)).failed;
  REQUIRE(why.has_value());
  CHECK(why->code == errc::bad_request);
  CHECK(why->param == "guided_regex");
  source.text = "a";
  auto scored = guided_request(std::make_shared<const guide_source>(source), 0);
  scored.sampling.prompt_logprobs = 0;
  CHECK(answer_of(e, scored).failed->param == "guided_regex");
}

TEST_CASE("a hostile guide costs its own request, and its neighbours next to nothing") {
  auto options = guided_engine();
  options.max_sequences = 8;
  const auto e = engine::start(options);
  e.wait_until_ready();
  auto neighbour = guided_request(nullptr, 200);
  neighbour.sampling.ignore_eos = true;
  const auto guided_neighbour = guided_request(guide_of(guide_source::kind::regex, "([a-z]{1,8} ){60}"), 120);
  const auto expected = answer_of(e, neighbour), expected_guided = answer_of(e, guided_neighbour);
  std::vector<listener> hostile(4);
  const char* const patterns[] = {"(.*a.{18}b)*(c|d){1,300}", "((a*)*b)*.*(x.{14}y)", "(a|b|ab)*.{0,400}.*c.{12}d",
                                  "("};
  for (std::size_t i = 0; i < hostile.size(); ++i)
    e.submit(guided_request(guide_of(guide_source::kind::regex, patterns[i]), 60, i), hostile[i].sink());
  listener free, guided;
  const auto began = std::chrono::steady_clock::now();
  e.submit(neighbour, free.sink());
  e.submit(guided_neighbour, guided.sink());
  REQUIRE(free.wait());
  REQUIRE(guided.wait());
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
  MESSAGE("the neighbours took ", took.count(), " s");
  CHECK(same(free.result(), expected));
  CHECK(same(guided.result(), expected_guided));
  for (auto& h : hostile) {
    REQUIRE(h.wait());
    const auto result = h.result();
    CHECK((result.done || result.failed->code == errc::bad_request));
  }
}

TEST_CASE("a guide that compiles quickly does not wait for those that take long") {
  const auto e = engine::start(guided_engine());
  e.wait_until_ready();
  const auto hard = [](int which) {
    std::string patterns = "{\"type\":\"string\"}";
    for (int i = 1; i < 10; ++i)
      patterns += R"(,{"pattern":"a.{)" + std::to_string(i) + R"(}b"})";
    return guide_of(guide_source::kind::json_schema,
                    R"({"allOf":[)" + patterns + R"(],"title":")" + std::to_string(which) + "\"}");
  };
  std::atomic<bool> first = false;
  for (int tries = 0; !first && tries < 5; ++tries) { // on a busy machine its thread may come too late
    std::vector<listener> patient(2);
    for (std::size_t i = 0; i < patient.size(); ++i)
      e.submit(guided_request(hard(2 * tries + static_cast<int>(i)), 2), patient[i].sink());
    listener quick;
    const auto pattern = "[a-z]{" + std::to_string(4 + tries) + '}';
    e.submit(guided_request(guide_of(guide_source::kind::regex, pattern), 2), [&, sink = quick.sink()](event what) {
      if (!std::holds_alternative<token_event>(what))
        first = patient.back().result().text.empty(); // still waits for its guide
      sink(std::move(what));
    });
    REQUIRE(quick.wait());
    CHECK(quick.result().done);
    for (auto& p : patient) {
      REQUIRE(p.wait());
      CHECK(p.result().done);
    }
  }
  CHECK(first);
}

TEST_CASE("a guide is given up with its request, and requests that share one are compiled together") {
  const auto e = engine::start(guided_engine());
  e.wait_until_ready();
  int last = 0;
  const auto hard = [&] { // refused once it has taken what it may
    std::string patterns;
    for (int i = 1; i < 250; ++i)
      patterns += R"({"pattern":"a.{)" + std::to_string(i) + R"(}b"},)";
    return guide_of(guide_source::kind::json_schema,
                    R"({"type":"string","allOf":[)" + patterns + R"({}],"title":")" + std::to_string(++last) + "\"}");
  };
  const auto refused_after = [&] {
    const auto begun = computed();
    const auto why = answer_of(e, guided_request(hard(), 2)).failed;
    REQUIRE(why.has_value());
    CHECK(why->message.find("too complex") != std::string::npos);
    return computed() - begun;
  };
  const auto alone = refused_after();
  std::vector<listener> left(8);
  const auto at_some_time = [](const auto& holds) { // on a busy machine this thread may give them up too late
    bool held = false;
    for (int tries = 0; !held && tries < 5; ++tries)
      held = holds();
    return held;
  };
  CHECK(at_some_time([&] {
    left = std::vector<listener>(8);
    for (auto& one : left)
      e.submit(guided_request(hard(), 2), one.sink()).cancel();
    return refused_after() < 4 * alone;
  }));

  std::vector<listener> crowd(600);              // more than one client's guides may wait
  const auto shared = guided_request(hard(), 2); // copies have the same use
  for (auto& one : crowd)
    e.submit(shared, one.sink());
  for (auto& one : crowd) {
    REQUIRE(one.wait());
    CHECK(one.result().failed->message.find("too complex") != std::string::npos);
  }
  CHECK(at_some_time([&] {
    const auto begun = computed();
    {
      left = std::vector<listener>(8);
      const auto ends = engine::start(guided_engine());
      ends.wait_until_ready();
      for (auto& one : left)
        ends.submit(guided_request(hard(), 2), one.sink());
      std::this_thread::sleep_for(alone / 4);
    }
    return computed() - begun < 4 * alone; // not as long as all of them take
  }));
}

TEST_CASE("reasoning stays within its budget, and leaves room for an answer") {
  const auto e = engine::start(guided_engine());
  e.wait_until_ready();
  auto g = guided_request(bounded_by({.what = guide_source::kind::anything}, {}), 60);
  g.sampling.thinking_budget = 7;
  g.sampling.ignore_eos = true;
  const auto bounded = answer_of(e, g);
  const auto words = tokenizer::load(golden("llama-gqa"));
  const auto end = words->encode("</think>", false);
  const auto& ids = bounded.ids.at(0);
  REQUIRE(ids.size() == 60);
  CHECK(std::vector(ids.begin() + 7, ids.begin() + 7 + std::ssize(end)) == end);
  g.sampling.thinking_budget = 1000;
  const auto cut = answer_of(e, g).ids.at(0);
  CHECK(std::search(cut.begin(), cut.end(), end.begin(), end.end()) == cut.begin() + 60 - 7 - std::ssize(end));
  g.sampling.techniques = {}; // all else is as without a budget
  const auto plain = answer_of(e, g).ids.at(0);
  CHECK(std::equal(ids.begin(), ids.begin() + 7, plain.begin()));
}

TEST_CASE("tokens that a policy withheld are counted") {
  const auto e = engine::start(guided_engine());
  e.wait_until_ready();
  auto g = guided_request(nullptr, 30);
  g.sampling.temperature = 0;
  const auto plain = answer_of(e, g);
  CHECK(plain.done->withheld_tokens == 0);
  const auto words = tokenizer::load(golden("llama-gqa"));
  const auto first = words->token_bytes(plain.ids.at(0).at(3));
  REQUIRE_FALSE(first.empty());
  g.sampling.techniques.set(guides::following({.what = guide_source::kind::anything, .banned = {first}}));
  const auto without = answer_of(e, g);
  CHECK(without.text.at(0).find(first) == std::string::npos);
  CHECK(without.done->withheld_tokens >= 1);
}
