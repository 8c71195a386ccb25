#include "api/server/wire/websocket_frames.hpp"
#include "tests/api/openai/parse_request.hpp"

#include <doctest/doctest.h>

#include <algorithm>

using namespace troupe;
using namespace troupe::test;

TEST_CASE("Every sampling field arrives") {
  const auto request = completion(
    R"({"prompt":[97,98],"temperature":0.5,"top_k":7,"top_p":0.25,"min_p":0.125,"repetition_penalty":1.5,
        "presence_penalty":-1,"frequency_penalty":2,"logit_bias":{"3":-100,"4":2.5},"seed":12345,"max_tokens":9,
        "min_tokens":2,"ignore_eos":true,"stop_token_ids":[5,6],"stop":["x","yz"],"n":3,"logprobs":4,
        "skip_special_tokens":false,"priority":2,"timeout":1.5,"stream":true,"stream_options":{"include_usage":true},
        "return_token_ids":true})");
  REQUIRE(request.prompts.size() == 1);
  const auto& one = request.prompts.front();
  CHECK(one.prompt == std::vector<token_id>{97, 98});
  CHECK(one.sampling.temperature == 0.5f);
  CHECK(one.sampling.top_k == 7);
  CHECK(one.sampling.top_p == 0.25f);
  CHECK(one.sampling.min_p == 0.125f);
  CHECK(one.sampling.repetition_penalty == 1.5f);
  CHECK(one.sampling.presence_penalty == -1);
  CHECK(one.sampling.frequency_penalty == 2);
  const auto& biases = one.sampling.logit_bias;
  CHECK(std::vector(biases.begin(), biases.end()) == std::vector<std::pair<token_id, float>>{{3, -100.f}, {4, 2.5f}});
  CHECK(one.sampling.seed == 12345);
  CHECK(one.sampling.max_tokens == 9);
  CHECK(one.sampling.min_tokens == 2);
  CHECK(one.sampling.ignore_eos);
  const auto& stop_ids = one.sampling.stop_token_ids;
  CHECK(std::vector(stop_ids.begin(), stop_ids.end()) == std::vector<token_id>{5, 6});
  REQUIRE(one.sampling.stop.size() == 2);
  CHECK(one.sampling.stop[0] == "x");
  CHECK(one.sampling.stop[1] == "yz");
  CHECK(one.sampling.n == 3);
  CHECK(one.sampling.logprobs == 4);
  CHECK_FALSE(one.skip_special_tokens);
  CHECK(one.priority == -2);
  CHECK(one.timeout == std::chrono::milliseconds(1500));
  CHECK(request.stream);
  CHECK(request.include_usage);
  CHECK(request.return_token_ids);
}

TEST_CASE("`cache_salt` arrives, and is a text of at least a byte") {
  CHECK(completion(R"({"prompt":["a","b"],"cache_salt":"mine"})").prompts.at(1).cache_salt == "mine");
  CHECK(completion(R"({"prompt":"a","cache_salt":null})").prompts.at(0).cache_salt.empty());
  for (const auto& salt : {std::string("\"\""), '"' + std::string(1025, 'x') + '"'}) {
    const auto fault = fault_of([&] { completion(R"({"prompt":"a","cache_salt":)" + salt + "}"); });
    CHECK(fault.message == "`cache_salt` must have 1 to 1024 bytes");
    CHECK(fault.param == "cache_salt");
  }
}

TEST_CASE(
  "The text of a chat's answer begins anew, unless a message is continued; completions continue their prompts") {
  CHECK_FALSE(completion(R"({"prompt":"a"})").prompts.at(0).begins_text);
  CHECK(chat(R"({"messages":[{"role":"user","content":"a"}]})").prompts.at(0).begins_text);
  CHECK_FALSE(chat(R"({"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b"}],
                       "continue_final_message":true})")
                .prompts.at(0)
                .begins_text);
}

TEST_CASE("Prompts come as text, ids, or a list of either") {
  CHECK(text_of(completion(R"({"prompt":"ab"})").prompts.at(0).prompt) == "<s>ab");
  CHECK(text_of(completion(R"({"prompt":"ab","add_special_tokens":false})").prompts.at(0).prompt) == "ab");
  const auto texts = completion(R"({"prompt":["a","b"]})");
  CHECK(texts.prompts.size() == 2);
  CHECK(text_of(texts.prompts.at(1).prompt) == "<s>b");
  const auto mixed = completion(R"({"prompt":[[97],"b"],"echo":true})");
  CHECK(text_of(mixed.prompts.at(0).prompt) == "a");
  CHECK(mixed.echoes == std::vector<std::string>{"a", "b"});
}

TEST_CASE("The prompts of a request share its lists") {
  const auto request = completion(R"({"prompt":["a","bc"],"stop":"x","stop_token_ids":[5],"logit_bias":{"3":1}})");
  REQUIRE(request.prompts.size() == 2);
  const auto &one = request.prompts[0].sampling, &other = request.prompts[1].sampling;
  CHECK(&one.stop[0] == &other.stop[0]);
  CHECK(one.stop_token_ids.begin() == other.stop_token_ids.begin());
  CHECK(one.logit_bias.begin() == other.logit_bias.begin());
}

TEST_CASE("Every list that a client sends is bounded") {
  const auto repeated = [](int times, const std::string& what) {
    std::string all;
    for (int i = 0; i < times; ++i)
      all += (i ? "," : "") + what;
    return all;
  };
  std::string biases = "\"0\":1";
  for (int i = 1; i < 1025; ++i)
    biases += ",\"" + std::to_string(i) + "\":1";
  const std::pair<std::string, const char*> too_long[] = {
    {R"("prompt":"a","stop":[)" + repeated(65, R"("x")") + "]", "stop"},
    {R"("prompt":"a","stop":")" + std::string(4097, 'x') + "\"", "stop"},
    {R"("prompt":"a","stop":[)" + repeated(2, "\"" + std::string(2049, 'x') + "\"") + "]", "stop"},
    {R"("prompt":"a","stop_token_ids":[)" + repeated(1025, "7") + "]", "stop_token_ids"},
    {R"("prompt":"a","logit_bias":{)" + biases + "}", "logit_bias"},
    {R"("prompt":"a","modalities":[)" + repeated(17, R"("text")") + "]", "modalities"},
    {R"("prompt":[)" + repeated(1025, R"("a")") + "]", "prompt"},
    {R"("prompt":[)" + repeated(9, R"("a")") + R"(],"n":114)", "n"},
    {R"("prompt":[)" + repeated(200, "7") + "]", "prompt"},
    {R"("prompt":[[)" + repeated(200, "7") + "]]", "prompt"},
  };
  for (const auto& [fields, param] : too_long) {
    CAPTURE(fields);
    CHECK(fault_of([&] { completion("{" + fields + "}"); }).param == param);
  }
  const auto ids = "{\"tokens\":[" + repeated(1 << 18, "97");
  const auto text_of_ids = [](const std::string& body) {
    return parse_detokenize(field_reader(json::document::parse(body, "the body", errc::bad_request).root()),
                            *byte_model());
  };
  CHECK(text_of_ids(ids + "]}").size() == 1 << 18);
  CHECK(fault_of([&] { text_of_ids(ids + ",97]}"); }).param == "tokens");
}

TEST_CASE("The first prompt that is too long ends a request before the next is tokenised") {
  auto model = byte_model();
  int tokenised = 0;
  model->encode = [&](std::string_view text, bool) {
    ++tokenised;
    return std::vector<token_id>(text.size(), 7);
  };
  const auto body = json::document::parse(R"({"prompt":["a",")" + std::string(200, 'b') + R"(","c","d"]})", "the body",
                                          errc::bad_request);
  const auto fault = fault_of([&] { parse_generation(dialect::completions, field_reader(body.root()), *model); });
  CHECK(fault.param == "prompt");
  CHECK(tokenised == 2);
}

TEST_CASE("Seeds are any 64 bits, and random by default") {
  const auto seed_of = [](const std::string& seed) {
    return completion("{\"prompt\":\"a\",\"seed\":" + seed + "}").prompts.front().sampling.seed;
  };
  CHECK(seed_of("18446744073709551615") == 18446744073709551615u);
  CHECK(seed_of("9223372036854775808") == 9223372036854775808u);
  CHECK(seed_of("-1") == 18446744073709551615u);
  CHECK(seed_of("null") != seed_of("null"));
}

TEST_CASE("Fields that a request leaves out take the model's defaults") {
  auto model = byte_model();
  model->defaults.sampling.temperature = 0.75f;
  model->defaults.sampling.top_k = 20;
  const auto parsed = json::document::parse(R"({"prompt":"a","top_k":5})", "the body", errc::bad_request);
  const auto request = parse_generation(dialect::completions, field_reader(parsed.root()), *model);
  CHECK(request.prompts.front().sampling.temperature == 0.75f);
  CHECK(request.prompts.front().sampling.top_k == 5);
}

TEST_CASE("Integers may be written as other servers' clients write them") {
  const auto request = completion(R"({"prompt":[1.0,2],"top_k":40.0,"n":2.0,"seed":7.0,"max_tokens":3.0,)"
                                  R"("stop_token_ids":[5.0],"logprobs":2e0})");
  CHECK(request.prompts.front().prompt == std::vector<token_id>{1, 2});
  const auto& sampling = request.prompts.front().sampling;
  CHECK(sampling.top_k == 40);
  CHECK(sampling.n == 2);
  CHECK(sampling.seed == 7);
  CHECK(sampling.max_tokens == 3);
  CHECK(std::ranges::equal(sampling.stop_token_ids, std::vector<token_id>{5}));
  CHECK(sampling.logprobs == 2);
}

TEST_CASE("llama.cpp's names of fields are taken") {
  const auto sampling = [](const std::string& fields) {
    return completion(R"({"prompt":"a",)" + fields + "}").prompts.front().sampling;
  };
  CHECK(sampling(R"("n_predict":5)").max_tokens == 5);
  CHECK(sampling(R"("n_predict":-1)").max_tokens == 198); // all there is room for
  CHECK(sampling(R"("max_tokens":-1)").max_tokens == 198);
  CHECK(sampling(R"("n_predict":5,"max_tokens":4)").max_tokens == 4);
  CHECK(sampling(R"("repeat_penalty":1.5,"repeat_last_n":32)").repetition_penalty == 1.5f);
  CHECK(sampling(R"("repeat_penalty":1.5,"repeat_last_n":32)").repetition_penalty_range == 32);
  CHECK(sampling(R"("repeat_penalty":1.5,"repeat_last_n":-1)").repetition_penalty_range == 0);
  CHECK(sampling(R"("repeat_penalty":1.5,"repeat_last_n":0)").repetition_penalty == 1);
  CHECK(sampling(R"("dry_multiplier":1,"dry_penalty_last_n":-1)").dry_range == 0);
  CHECK(sampling(R"("dry_multiplier":1,"dry_penalty_last_n":64)").dry_range == 64);
  CHECK(sampling(R"("dry_multiplier":1,"dry_penalty_last_n":0)").dry_multiplier == 0);
  CHECK(std::ranges::equal(sampling(R"("logit_bias":[[5,1.5],[6,false]])").logit_bias,
                           sampling(R"("logit_bias":{"5":1.5,"6":-100})").logit_bias));
  CHECK(fault_of([&] { sampling(R"("logit_bias":[[257,1]])"); }).param == "logit_bias");
  CHECK(fault_of([&] { sampling(R"("logit_bias":[5])"); }).param == "logit_bias");
  CHECK(fault_of([&] { sampling(R"("logit_bias":[[5,true]])"); }).param == "logit_bias");
  CHECK(fault_of([&] { sampling(R"("repeat_penalty":"a")"); }).param == "repeat_penalty");
  CHECK(fault_of([&] { sampling(R"("n_predict":-2)"); }).param == "n_predict");
}

TEST_CASE("A text that cannot fit into the context is refused before it is tokenised") {
  auto model = byte_model(200);
  model->most_bytes_per_token = 4;
  model->render = [](const chat_input&) { return std::string(10'000, 'x'); };
  bool tokenised = false;
  model->encode = [&](std::string_view, bool) {
    tokenised = true;
    return std::vector<token_id>(1, 97);
  };
  const auto fault = [&](dialect speaks, const std::string& body) {
    const auto parsed = json::document::parse(body, "the body", errc::bad_request);
    return fault_of([&] { parse_generation(speaks, field_reader(parsed.root()), *model); });
  };
  const auto message = fault(dialect::completions, "{\"prompt\":\"" + std::string(804, 'x') + "\"}").message;
  CHECK(message ==
        "This model's maximum context length is 200 tokens. However, `prompt` is a text of 804 bytes, which has more.");
  CHECK(fault(dialect::completions, "{\"prompt\":[\"" + std::string(804, 'x') + "\"]}").param == "prompt");
  CHECK(fault(dialect::chat, R"({"messages":[{"role":"user","content":"x"}]})").param == "messages");
  CHECK_FALSE(tokenised);
  CHECK(fault(dialect::completions, "{\"prompt\":\"" + std::string(803, 'x') + "\"}").code == errc::internal);
  CHECK(tokenised);
}

TEST_CASE("A time limit is at least a millisecond and at most the server's") {
  const auto asked = [](const std::string& seconds) {
    return completion("{\"prompt\":\"a\",\"timeout\":" + seconds + "}").prompts.front().timeout;
  };
  using std::chrono::milliseconds;
  CHECK(asked("1e-9") == milliseconds(1));
  CHECK(asked("0.001") == milliseconds(1));
  CHECK(asked("1.5") == milliseconds(1500));
  CHECK(asked("null") == milliseconds(0));
  CHECK(timeout_of(milliseconds(0), milliseconds(500)) == milliseconds(500));
  CHECK(timeout_of(milliseconds(500), milliseconds(500)) == milliseconds(500));
  CHECK(timeout_of(milliseconds(900'000), milliseconds(0)) == milliseconds(900'000));
  const auto fault = fault_of([] { timeout_of(milliseconds(501), milliseconds(500)); });
  CHECK(fault.code == errc::bad_request);
  CHECK(fault.param == "timeout");
  CHECK(fault.message == "`timeout` must be at most the server's limit of 500 ms, not 501 ms");
}

TEST_CASE("Models without a tokenizer take ids alone") {
  auto model = byte_model();
  model->encode = nullptr;
  model->decode = nullptr;
  model->token_bytes = nullptr;
  model->render = nullptr;
  const auto ask = [&](dialect speaks, const char* body) {
    const auto parsed = json::document::parse(body, "the body", errc::bad_request);
    return parse_generation(speaks, field_reader(parsed.root()), *model);
  };
  CHECK(ask(dialect::completions, R"({"prompt":[1,2]})").prompts.size() == 1);
  CHECK(fault_of([&] { ask(dialect::completions, R"({"prompt":"a"})"); }).param == "prompt");
  CHECK(fault_of([&] { ask(dialect::completions, R"({"prompt":[1],"echo":true})"); }).param == "echo");
  CHECK(fault_of([&] { ask(dialect::completions, R"({"prompt":[1],"stop":"x"})"); }).param == "stop");
  CHECK(fault_of([&] { ask(dialect::chat, R"({"messages":[{"role":"user","content":"x"}]})"); }).param == "messages");
}

TEST_CASE("Errors of frames name their request") {
  const auto fault = [](std::string_view text) -> std::pair<std::string, std::string> {
    try {
      parse_frame(text);
    } catch (const bad_frame& bad) {
      return {bad.id, bad.why.param};
    }
    return {"nothing", "was wrong"};
  };
  using pair = std::pair<std::string, std::string>;
  CHECK(fault("nonsense") == pair{"", ""});
  CHECK(fault("[]") == pair{"", ""});
  CHECK(fault("{}") == pair{"", "id"});
  CHECK(fault(R"({"type":"generate"})") == pair{"", "id"});
  CHECK(fault(R"({"type":"generate","id":1})") == pair{"", "id"});
  CHECK(fault(R"({"type":"generate","id":""})") == pair{"", "id"});
  CHECK(fault("{\"type\":\"generate\",\"id\":\"" + std::string(257, 'x') + "\"}") == pair{"", "id"});
  CHECK(fault(R"({"id":"a"})") == pair{"a", "type"});
  CHECK(fault(R"({"id":"a","type":"dance"})") == pair{"a", "type"});
  CHECK(fault(R"({"id":"a","type":1})") == pair{"a", "type"});
}

TEST_CASE("A frame asks for one completion or one chat") {
  const auto ask = [](std::string_view text) {
    return parse_frame_body(parse_frame(text), *byte_model()).prompts.front();
  };
  CHECK(text_of(ask(R"({"type":"generate","id":"a","prompt":"x"})").prompt) == "<s>x");
  CHECK(text_of(ask(R"({"type":"generate","id":"a","messages":[{"role":"user","content":"x"}]})").prompt) ==
        "user: x\nassistant:");
  CHECK(fault_of([&] { ask(R"({"type":"generate","id":"a","prompt":["x","y"]})"); }).param == "prompt");
  CHECK(fault_of([&] { ask(R"({"type":"generate","id":"a"})"); }).param == "prompt");
  CHECK(fault_of([&] { ask(R"({"type":"generate","id":"a","prompt":"x","messages":[]})"); }).param == "messages");
  CHECK(fault_of([&] { ask(R"({"type":"generate","id":"a","prompt":"x","echo":true})"); }).param == "echo");
}

TEST_CASE("Texts are tokenised and detokenised") {
  const auto tokens = [](std::string_view body) {
    const auto parsed = json::document::parse(body, "the body", errc::bad_request);
    return parse_tokenize(field_reader(parsed.root()), *byte_model()).ids;
  };
  CHECK(tokens(R"({"prompt":"ab"})") == std::vector<token_id>{bos, 97, 98});
  CHECK(tokens(R"({"prompt":"ab","add_special_tokens":false})") == std::vector<token_id>{97, 98});
  CHECK(tokens(R"({"prompt":"","add_special_tokens":false})").empty());
  CHECK(text_of(tokens(R"({"messages":[{"role":"u","content":"x"}],"add_generation_prompt":false})")) == "u: x\n");
  CHECK(fault_of([&] { tokens("{}"); }).param == "prompt");
  CHECK(fault_of([&] { tokens(R"({"prompt":[1]})"); }).param == "prompt");
  CHECK(fault_of([&] { tokens(R"({"prompt":"a","messages":[]})"); }).param == "messages");

  const auto text = [](std::string_view body) {
    const auto parsed = json::document::parse(body, "the body", errc::bad_request);
    return parse_detokenize(field_reader(parsed.root()), *byte_model());
  };
  CHECK(text(R"({"tokens":[256,97,98]})") == "<s>ab");
  CHECK(text(R"({"tokens":[256,97,98],"skip_special_tokens":true})") == "ab");
  CHECK(text(R"({"tokens":[]})").empty());
  CHECK(fault_of([&] { text("{}"); }).param == "tokens");
  CHECK(fault_of([&] { text(R"({"tokens":[257]})"); }).param == "tokens");
  CHECK(fault_of([&] { text(R"({"tokens":"a"})"); }).param == "tokens");
}
