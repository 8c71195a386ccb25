// `echo` with `logprobs`, `prompt_logprobs` and `max_tokens: 0`: what is asked of the engine, and what is answered.
#include "api/openai/openai_response.hpp"
#include "api/server/wire/websocket_frames.hpp"
#include "runtime/techniques/speculation/technique.hpp"
#include "tests/api/openai/parse_request.hpp"

#include <doctest/doctest.h>

using namespace troupe;
using namespace troupe::test;

namespace {

sampled_token scored(token_id id, float logprob, std::vector<token_logprob> top = {}) {
  return {id, logprob, std::move(top), {}};
}

token_event of_prompt(std::vector<sampled_token> tokens) {
  token_event e;
  e.prompt = std::move(tokens);
  return e;
}

token_event of_answer(std::string text, std::vector<sampled_token> tokens, std::uint32_t index = 0) {
  token_event e;
  e.index = index;
  e.text = std::move(text);
  for (const auto& token : tokens)
    e.token_ids.push_back(token.id);
  e.logprobs = std::move(tokens);
  return e;
}

token_event last(token_event e) {
  e.finish = finish_reason::length;
  return e;
}

/// The part of `text` from `from` up to the next `to`.
std::string between(const std::string& text, const std::string& from, const std::string& to) {
  const auto start = text.find(from);
  return start == text.npos ? "nothing" : text.substr(start, text.find(to, start) - start);
}

const auto ab = std::vector<sampled_token>{scored('a', 0), scored('b', -1, {{'x', -0.5f}, {'b', -1}})};

} // namespace

TEST_CASE("echo with logprobs has the prompt scored, with as many alternatives") {
  const auto one = completion(R"({"prompt":"a","echo":true,"logprobs":3,"max_tokens":2})");
  CHECK(one.prompts.at(0).sampling.prompt_logprobs == 3);
  CHECK(one.prompts.at(0).sampling.logprobs == 3);
  CHECK(one.prompts.at(0).sampling.max_tokens == 2);
  CHECK(one.prompt_logprobs == -1);
  CHECK(completion(R"({"prompt":"a","echo":true})").prompts.at(0).sampling.prompt_logprobs == -1);
  CHECK(completion(R"({"prompt":"a","logprobs":3})").prompts.at(0).sampling.prompt_logprobs == -1);
}

TEST_CASE("prompt_logprobs are asked of the engine alone or beside those of echo") {
  const auto alone = completion(R"({"prompt":"a","prompt_logprobs":2})");
  CHECK(alone.prompt_logprobs == 2);
  CHECK(alone.prompts.at(0).sampling.prompt_logprobs == 2);
  CHECK(alone.prompts.at(0).sampling.max_tokens == 16);
  const auto both = completion(R"({"prompt":"a","prompt_logprobs":2,"echo":true,"logprobs":5})");
  CHECK(both.prompt_logprobs == 2);
  CHECK(both.prompts.at(0).sampling.prompt_logprobs == 5);
  const auto of_chat = chat(R"({"messages":[{"role":"user","content":"x"}],"prompt_logprobs":0,"max_tokens":0})");
  CHECK(of_chat.prompt_logprobs == 0);
  CHECK(of_chat.prompts.at(0).sampling.scores_only());
}

TEST_CASE("Nothing is generated with max_tokens 0, where the prompt is echoed or scored") {
  for (const auto* fields : {R"("echo":true)", R"("echo":true,"logprobs":1)", R"("prompt_logprobs":1)"}) {
    CAPTURE(fields);
    const auto request = completion(std::string(R"({"prompt":["ab",[97]],"max_tokens":0,)") + fields + "}");
    REQUIRE(request.prompts.size() == 2);
    for (const auto& one : request.prompts) {
      CHECK(one.sampling.scores_only());
      CHECK_NOTHROW(one.sampling.validate(257));
    }
  }
  // A prompt that gets no answer may fill the context of 200.
  const auto text = std::string(199, 'x');
  CHECK(completion("{\"prompt\":\"" + text + R"(","echo":true,"max_tokens":0})").prompts.at(0).prompt.size() == 200);
  CHECK(fault_of([&] { completion("{\"prompt\":\"" + text + R"(","echo":true,"max_tokens":1})"); }).param == "prompt");
  CHECK(fault_of([&] { completion("{\"prompt\":\"x" + text + R"(","echo":true,"max_tokens":0})"); }).param == "prompt");
  CHECK(fault_of([&] { completion(R"({"prompt":"a","max_tokens":0})"); }).message ==
        "`max_tokens` must be at least 1, not 0, unless the prompt is scored by `prompt_logprobs` or `echo`");
}

TEST_CASE("The scores of one answer are bounded, over prompts and choices") {
  std::string prompts = "\"" + std::string(180, 'x') + "\"";
  for (int i = 1; i < 300; ++i)
    prompts += ",\"" + std::string(180, 'x') + "\"";
  const auto ask = [&](const std::string& fields) {
    return fault_of([&] { completion("{\"prompt\":[" + prompts + "]," + fields + "}"); }).param;
  };
  CHECK(ask(R"("echo":true,"logprobs":18)") == "nothing"); // 300 prompts of 181 tokens, 19 entries each
  CHECK(ask(R"("echo":true,"logprobs":19)") == "logprobs");
  CHECK(ask(R"("echo":true,"logprobs":5,"n":3)") == "nothing");
  CHECK(ask(R"("echo":true,"logprobs":6,"n":3)") == "logprobs");
  CHECK(ask(R"("prompt_logprobs":19)") == "prompt_logprobs");
  CHECK(ask(R"("echo":true,"max_tokens":0)") == "nothing");
}

TEST_CASE("An echoed prompt's log-probabilities precede the answer's") {
  response_writer writer(completion(R"({"prompt":[97,98],"echo":true,"logprobs":1,"n":2})"), byte_model());
  writer.add(0, of_prompt({ab[0]}));
  writer.add(0, of_prompt({ab[1]}));
  writer.add(0, last(of_answer("c", {scored('c', -0.25f, {{'c', -0.25f}})})));
  writer.add(0, last(of_answer("d", {scored('d', -2, {{'c', -0.25f}})}, 1)));
  const auto body = writer.body();
  CHECK(between(body, R"({"index":0)", R"(,"finish_reason")") ==
        R"({"index":0,"text":"abc","logprobs":{"tokens":["a","b","c"],"token_logprobs":[null,-1,-0.25],)"
        R"("top_logprobs":[null,{"x":-0.5,"b":-1},{"c":-0.25}],"text_offset":[0,1,2]})");
  CHECK(between(body, R"({"index":1)", R"(,"finish_reason")") ==
        R"({"index":1,"text":"abd","logprobs":{"tokens":["a","b","d"],"token_logprobs":[null,-1,-2],)"
        R"("top_logprobs":[null,{"x":-0.5,"b":-1},{"c":-0.25,"d":-2}],"text_offset":[0,1,2]})");
}

TEST_CASE("A ranked stream sends its scored prompt at once, and its last piece with the choice's score") {
  response_writer writer(
    completion(R"({"prompt":[97,98],"echo":true,"logprobs":1,"best_of":3,"stream":true,"max_tokens":1})"),
    byte_model());
  CHECK(writer.chunk(0, of_prompt({ab[0]})).empty());
  CHECK(between(writer.chunk(0, of_prompt({ab[1]})), R"("text":)", R"(,"top_logprobs")") ==
        R"("text":"ab","logprobs":{"tokens":["a","b"],"token_logprobs":[null,-1])");
  CHECK(writer.chunk(0, last(of_answer("c", {scored('c', -0.25f)}))).empty());
  done_event done;
  done.choices = {{0, finish_reason::length, 1, -0.25, -0.25}};
  writer.add(0, done);
  const auto final_piece = writer.last_chunks(0);
  CHECK(between(final_piece, R"("text":)", R"(,"top_logprobs")") ==
        R"("text":"c","logprobs":{"tokens":["c"],"token_logprobs":[-0.25])");
  CHECK(final_piece.find(R"("cumulative_logprob":-0.25,"score":-0.25})") != std::string::npos);
}

TEST_CASE("A prompt that is only scored answers with its arrays alone") {
  response_writer writer(completion(R"({"prompt":["ab"],"echo":true,"logprobs":0,"max_tokens":0})"), byte_model());
  writer.add(0, of_prompt({scored(bos, 0)}));
  writer.add(0, last(of_prompt({scored('a', -3), scored('b', -1)})));
  done_event done;
  done.choices = {{0, finish_reason::length, 0}};
  done.prompt_tokens = 3;
  writer.add(0, done);
  const auto body = writer.body();
  // The special token has no part in the text.
  CHECK(between(body, R"({"index":0)", R"(,"usage")") ==
        R"({"index":0,"text":"ab","logprobs":{"tokens":["<s>","a","b"],"token_logprobs":[null,-3,-1],)"
        R"("top_logprobs":[null,{"a":-3},{"b":-1}],"text_offset":[0,0,1]},"finish_reason":"length",)"
        R"("stop_reason":null}])");
  CHECK(body.find(R"("prompt_tokens":3,"completion_tokens":0,"total_tokens":3)") != std::string::npos);
}

TEST_CASE("An echo without logprobs has no arrays, even if the engine scored it") {
  response_writer writer(completion(R"({"prompt":[97,98],"echo":true,"max_tokens":0})"), byte_model());
  writer.add(0, last(of_prompt(ab)));
  CHECK(between(writer.body(), R"({"index":0)", R"(,"finish_reason")") == R"({"index":0,"text":"ab","logprobs":null)");
}

TEST_CASE("A streamed echo with logprobs is one piece, sent once the whole prompt is scored") {
  response_writer writer(completion(R"({"prompt":[97,98],"echo":true,"logprobs":0,"n":2,"stream":true})"),
                         byte_model());
  CHECK(writer.chunk(0, of_prompt({ab[0]})).empty());
  const auto arrays = std::string(
    R"({"tokens":["a","b"],"token_logprobs":[null,-1],"top_logprobs":[null,{"b":-1}],"text_offset":[0,1]})");
  CHECK(between(writer.chunk(0, of_prompt({ab[1]})), R"({"index")", "]}\n") ==
        R"({"index":0,"text":"ab","logprobs":)" + arrays + R"(,"finish_reason":null})");
  CHECK(between(writer.chunk(0, of_answer("c", {scored('c', -2)})), R"({"index")", "]}\n") ==
        R"({"index":0,"text":"c","logprobs":{"tokens":["c"],"token_logprobs":[-2],"top_logprobs":[{"c":-2}],)"
        R"("text_offset":[2]},"finish_reason":null})");
  // The other choice has the same prompt.
  CHECK(between(writer.chunk(0, of_answer("d", {scored('d', -2)}, 1)), R"({"index")", "]}\n") ==
        R"({"index":1,"text":"abd","logprobs":{"tokens":["a","b","d"],"token_logprobs":[null,-1,-2],)"
        R"("top_logprobs":[null,{"b":-1},{"d":-2}],"text_offset":[0,1,2]},"finish_reason":null})");
}

TEST_CASE("A stream that only scores ends with the echo") {
  response_writer writer(completion(R"({"prompt":[97,98],"echo":true,"logprobs":0,"max_tokens":0,"stream":true})"),
                         byte_model());
  CHECK(writer.chunk(0, of_prompt({ab[0]})).empty());
  const auto chunk = writer.chunk(0, last(of_prompt({ab[1]})));
  CHECK(chunk.find(R"("text":"ab")") != std::string::npos);
  CHECK(chunk.find(R"("token_logprobs":[null,-1])") != std::string::npos);
  CHECK(chunk.find(R"("finish_reason":"length")") != std::string::npos);
}

TEST_CASE("prompt_logprobs are listed as vLLM does") {
  response_writer writer(completion(R"({"prompt":[97,98],"prompt_logprobs":1})"), byte_model());
  writer.add(0, of_prompt(ab));
  writer.add(0, last(of_answer("c", {})));
  CHECK(between(writer.body(), R"("prompt_logprobs")", R"(}],"usage")") ==
        R"("prompt_logprobs":[null,{"98":{"logprob":-1,"rank":2,"decoded_token":"b"},)"
        R"("120":{"logprob":-0.5,"rank":1,"decoded_token":"x"}}])");
}

TEST_CASE("A chat's prompt_logprobs belong to the answer, and a rank that is not known is null") {
  response_writer writer(chat(R"({"messages":[{"role":"user","content":"x"}],"prompt_logprobs":0})"), byte_model());
  writer.add(0, of_prompt({scored('a', 0), scored('b', -7)}));
  writer.add(0, last(of_answer("c", {})));
  CHECK(writer.body().ends_with(R"(,"prompt_logprobs":[null,{"98":{"logprob":-7,"rank":null,"decoded_token":"b"}}]})"));
}

TEST_CASE("A frame may ask for a prompt's scores, and gets them ahead of its tokens") {
  const auto ask = [](std::string_view text) {
    return parse_frame_body(parse_frame(text), *byte_model()).prompts.front();
  };
  const auto asked = ask(R"({"type":"generate","id":"a","prompt":"x","prompt_logprobs":1,"max_tokens":0})");
  CHECK(asked.sampling.scores_only());
  CHECK(asked.sampling.prompt_logprobs == 1);
  CHECK(prompt_frame("a", 0, ab, *byte_model()) ==
        R"({"type":"prompt","id":"a","position":0,"token_ids":[97,98],"logprobs":[)"
        R"({"token":"a","logprob":null,"bytes":[97],"top_logprobs":[]},)"
        R"({"token":"b","logprob":-1,"bytes":[98],"top_logprobs":[{"token":"x","logprob":-0.5,"bytes":[120]},)"
        R"({"token":"b","logprob":-1,"bytes":[98]}]}]})");
  CHECK(prompt_frame("a", 5, {ab[1]}, *byte_model()).find("null") == std::string::npos);
}

TEST_CASE("speculate and prediction reach the engine") {
  const auto kind = [](const std::string& name) {
    return speculation_of(
      completion("{\"prompt\":\"a\",\"speculate\":" + name + "}").prompts.at(0).sampling.techniques);
  };
  CHECK(kind("null") == speculation::automatic);
  CHECK(kind(R"("auto")") == speculation::automatic);
  CHECK(kind(R"("off")") == speculation::off);
  CHECK(kind(R"("draft")") == speculation::draft);
  CHECK(kind(R"("ngram")") == speculation::ngram);
  CHECK(kind(R"("lookahead")") == speculation::lookahead);
  CHECK(fault_of([&] { kind(R"("fast")"); }).message ==
        R"(`speculate` must be one of "auto", "off", "draft", "mtp", "ngram", "lookahead", "jacobi", not "fast")");

  const std::string user = R"({"messages":[{"role":"user","content":"x"}],"prediction":{"type":"content","content":)";
  CHECK(text_of(chat(user + R"("int x;"}})").prompts.at(0).prediction) == "int x;");
  CHECK(
    text_of(chat(user + R"([{"type":"text","text":"int "},{"type":"text","text":"x;"}]}})").prompts.at(0).prediction) ==
    "int x;");
  CHECK(text_of(completion(R"({"prompt":"a","prediction":{"type":"content","content":"b"},"speculate":"ngram"})")
                  .prompts.at(0)
                  .prediction) == "b");
  const auto long_one = fault_of([&] { chat(user + '"' + std::string(201, 'x') + "\"}}"); });
  CHECK(long_one.message == "`prediction.content` has 201 tokens, which cannot fit into the context of 200");
  CHECK(long_one.param == "prediction.content");
}
