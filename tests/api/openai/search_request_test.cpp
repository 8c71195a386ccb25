// The fields `search` and `do_sample`.
#include "runtime/sampling/judging.hpp"
#include "runtime/techniques/beams/technique.hpp"
#include "runtime/techniques/tree_search/technique.hpp"
#include "tests/api/openai/parse_request.hpp"

#include <doctest/doctest.h>

#include <string>

using namespace troupe;
using namespace troupe::test;

namespace {

sampling_params searching_of(const std::string& fields) {
  return completion(R"({"prompt":"a",)" + fields + "}").prompts.front().sampling;
}

std::string blamed_for(const std::string& fields) {
  return fault_of([&] { searching_of(fields); }).param;
}

} // namespace

TEST_CASE("Every member of search arrives; what is left out has its usual value") {
  const auto p = searching_of(R"("n":2,"search":{"method":"mcts","simulations":40,"branching":3,"parallel":4,
    "exploration":1.5,"length_penalty":0.5,"value":"likelihood"})");
  const auto& search = *search_of(p.techniques.find(tree_search_technique));
  CHECK(search.simulations == 40);
  CHECK(search.branching == 3);
  CHECK(search.parallel == 4);
  CHECK(search.exploration == 1.5f);
  CHECK(search.length_penalty == 0.5f);
  CHECK(p.width() == 4);
  CHECK(p.grouped());
  CHECK(p.ranked());
  const auto usual = searching_of(R"("search":{})");
  CHECK(search_of(usual.techniques.find(tree_search_technique))->simulations == 64);
  CHECK(searching_of(R"("search":{"simulations":3})").width() == 3);
  CHECK_FALSE(searching_of(R"("search":null)").grouped());
}

TEST_CASE("A search that is not understood, or contradicts other fields, is refused by its field") {
  CHECK(blamed_for(R"("search":"mcts")") == "search");
  CHECK(blamed_for(R"("search":{"method":"beam"})") == "search");
  CHECK(blamed_for(R"("search":{"depth":3})") == "search");
  CHECK(blamed_for(R"("search":{"value":"human"})") == "search");
  CHECK(blamed_for(R"("search":{"simulations":0})") == "search.simulations");
  CHECK(blamed_for(R"("search":{"simulations":1e9})") == "search.simulations");
  CHECK(blamed_for(R"("search":{"branching":65})") == "search.branching");
  CHECK(blamed_for(R"("search":{},"num_beams":2)") == "num_beams");
  CHECK(blamed_for(R"("search":{},"best_of":2)") == "best_of");
  CHECK(blamed_for(R"("search":{},"stream":true,"n":2)") == "stream");
  const auto model = fault_of([&] { searching_of(R"("search":{"value":"model"})"); });
  CHECK(model.code == errc::unsupported);
  CHECK(model.param == "search");
  CHECK(model.message.find("--reward-model") != std::string::npos);
}

TEST_CASE("A search that is valued by a reward model brings what that reads ahead of the answers") {
  const auto judging = [] {
    const auto model = byte_model();
    model->judge = judge_of({{"reward_model", {"some"}}});
    return model;
  }();
  const auto parsed = [&](dialect speaks, const std::string& body) {
    const auto document = json::document::parse(body, "the body", errc::bad_request);
    return parse_generation(speaks, field_reader(document.root()), *judging).prompts;
  };
  const auto text = parsed(dialect::completions, R"({"prompt":["ab","c"],"search":{"value":"model"}})");
  REQUIRE(text.size() == 2);
  CHECK(text[0].sampling.judged());
  REQUIRE(text[1].sampling.judged_behind);
  CHECK(text[0].sampling.judged_behind->text == "ab"); // without what begins a text
  CHECK(text[1].sampling.judged_behind->text == "c");
  CHECK(text[1].sampling.judged_behind->messages.empty());

  const std::string chat = R"("messages":[{"role":"user","content":[{"type":"text","text":"a\"b"}]},)"
                           R"({"role":"assistant","content":"so"}],"search":{"value":"model"})";
  const auto whole = parsed(dialect::chat, "{" + chat + "}").front().sampling.judged_behind;
  REQUIRE(whole);
  CHECK(whole->messages == R"([{"role": "user", "content": "a\"b"}, {"role": "assistant", "content": "so"}])");
  CHECK_FALSE(whole->continues_last);
  const auto more = parsed(dialect::chat,
                           "{" + chat + R"(,"continue_final_message":true,"add_generation_prompt":false})");
  CHECK(more.front().sampling.judged_behind->continues_last);

  CHECK_FALSE(parsed(dialect::chat, R"({"messages":[{"role":"user","content":"a"}],"search":{}})")
                .front()
                .sampling.judged_behind);
  CHECK(fault_of([&] {
          parsed(dialect::completions, R"({"prompt":"a","search":{"value":"model","length_penalty":1}})");
        }).param == "search");
}

TEST_CASE("Beams are drawn where do_sample says so, or temperature and filters would have no effect") {
  const auto drawn = [](const std::string& fields) {
    const auto asked = searching_of(fields);
    const auto* how = beams_of(asked);
    return how && how->sampled;
  };
  CHECK_FALSE(drawn(R"("num_beams":2)"));
  CHECK_FALSE(drawn(R"("num_beams":2,"temperature":0)"));
  CHECK(drawn(R"("num_beams":2,"do_sample":true)"));
  CHECK(drawn(R"("num_beams":2,"temperature":0.7)"));
  CHECK(drawn(R"("num_beams":2,"top_p":0.5)"));
  CHECK(drawn(R"("num_beams":2,"typical_p":0.5)"));
  CHECK_FALSE(drawn(R"("num_beams":2,"stochastic_beams":true,"temperature":0.7)"));
  CHECK_FALSE(drawn(R"("num_beams":2,"repetition_penalty":1.2,"logit_bias":{"3":1},"stop":"x")"));
  CHECK(blamed_for(R"("num_beams":2,"do_sample":false,"top_p":0.5)") == "top_p");
  CHECK(blamed_for(R"("num_beams":2,"do_sample":true,"temperature":0)") == "temperature");
  CHECK(blamed_for(R"("num_beams":4,"do_sample":true,"num_beam_groups":2,"diversity_penalty":1)") == "num_beam_groups");
  CHECK(blamed_for(R"("do_sample":"yes")") == "do_sample");
  CHECK(searching_of(R"("do_sample":false)").greedy());
  CHECK_FALSE(searching_of(R"("do_sample":true)").greedy());
}
