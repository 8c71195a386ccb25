#include "api/openai/chat_messages.hpp"
#include "api/openai/openai_request.hpp"
#include "api/server/websocket_frames.hpp"
#include "tests/api/openai/fake_service.hpp"

#include <doctest/doctest.h>

using namespace troupe;
using namespace troupe::test;

namespace {

generation_request parse(dialect speaks, std::string_view body, int max_context = 200) {
  const auto parsed = json::document::parse(body, "the body", errc::bad_request);
  return parse_generation(speaks, field_reader(parsed.root()), *byte_model(max_context));
}

generation_request completion(std::string_view body) { return parse(dialect::completions, body); }

generation_request chat(std::string_view body) { return parse(dialect::chat, body); }

std::string text_of(const std::vector<token_id>& ids) { return byte_model()->decode(ids, false); }

/// The fault that `f` throws; code internal where it throws none.
template <class F>
error fault_of(F f) {
  try {
    f();
  } catch (const failure& caught) {
    return caught.what_failed();
  }
  return {errc::internal, "nothing was wrong", "nothing"};
}

struct bad_field {
  const char* fields; // beside a good prompt or good messages
  const char* param;
  errc code = errc::bad_request;
};

void check_refused(dialect speaks, const std::string& start, const bad_field& bad) {
  const auto body = start + bad.fields + "}";
  CAPTURE(body);
  const auto fault = fault_of([&] { parse(speaks, body); });
  CHECK(fault.param == bad.param);
  CHECK(fault.code == bad.code);
  // One sentence that names the field.
  CHECK(fault.message.find('`') != std::string::npos);
}

// Wrong in completions and chats alike.
const bad_field bad_fields[] = {
  {R"("temperature":-0.1)", "temperature"},
  {R"("temperature":2.1)", "temperature"},
  {R"("temperature":"1")", "temperature"},
  {R"("temperature":true)", "temperature"},
  {R"("temperature":[1])", "temperature"},
  {R"("temperature":1e300)", "temperature"},
  {R"("top_p":-0.5)", "top_p"},
  {R"("top_p":1.5)", "top_p"},
  {R"("top_p":{})", "top_p"},
  {R"("top_k":-2)", "top_k"},
  {R"("top_k":1.5)", "top_k"},
  {R"("top_k":"4")", "top_k"},
  {R"("top_k":2147483648)", "top_k"},
  {R"("min_p":-0.1)", "min_p"},
  {R"("min_p":1.1)", "min_p"},
  {R"("min_p":"0")", "min_p"},
  {R"("repetition_penalty":0)", "repetition_penalty"},
  {R"("repetition_penalty":-1)", "repetition_penalty"},
  {R"("repetition_penalty":101)", "repetition_penalty"},
  {R"("repetition_penalty":"1")", "repetition_penalty"},
  {R"("presence_penalty":2.5)", "presence_penalty"},
  {R"("presence_penalty":-2.5)", "presence_penalty"},
  {R"("presence_penalty":false)", "presence_penalty"},
  {R"("frequency_penalty":2.5)", "frequency_penalty"},
  {R"("frequency_penalty":-2.5)", "frequency_penalty"},
  {R"("frequency_penalty":"x")", "frequency_penalty"},
  {R"("logit_bias":[])", "logit_bias"},
  {R"("logit_bias":1)", "logit_bias"},
  {R"("logit_bias":{"a":1})", "logit_bias"},
  {R"("logit_bias":{"":1})", "logit_bias"},
  {R"("logit_bias":{"1x":1})", "logit_bias"},
  {R"("logit_bias":{" 1":1})", "logit_bias"},
  {R"("logit_bias":{"-1":1})", "logit_bias"},
  {R"("logit_bias":{"257":1})", "logit_bias"},
  {R"("logit_bias":{"99999999999":1})", "logit_bias"},
  {R"("logit_bias":{"1":101})", "logit_bias"},
  {R"("logit_bias":{"1":-101})", "logit_bias"},
  {R"("logit_bias":{"1":"1"})", "logit_bias"},
  {R"("logit_bias":{"1":null})", "logit_bias"},
  {R"("seed":1.5)", "seed"},
  {R"("seed":"1")", "seed"},
  {R"("seed":true)", "seed"},
  {R"("max_tokens":0)", "max_tokens"},
  {R"("max_tokens":-1)", "max_tokens"},
  {R"("max_tokens":1.0)", "max_tokens"},
  {R"("max_tokens":"5")", "max_tokens"},
  {R"("max_tokens":9223372036854775808)", "max_tokens"},
  {R"("max_tokens":200)", "max_tokens"},
  {R"("min_tokens":-1)", "min_tokens"},
  {R"("min_tokens":"1")", "min_tokens"},
  {R"("max_tokens":4,"min_tokens":5)", "min_tokens"},
  {R"("ignore_eos":1)", "ignore_eos"},
  {R"("ignore_eos":"true")", "ignore_eos"},
  {R"("n":0)", "n"},
  {R"("n":129)", "n"},
  {R"("n":-1)", "n"},
  {R"("n":1.5)", "n"},
  {R"("n":"2")", "n"},
  {R"("stop":1)", "stop"},
  {R"("stop":"")", "stop"},
  {R"("stop":["a",""])", "stop"},
  {R"("stop":["a",1])", "stop"},
  {R"("stop":{"a":1})", "stop"},
  {R"("stop_token_ids":1)", "stop_token_ids"},
  {R"("stop_token_ids":["a"])", "stop_token_ids"},
  {R"("stop_token_ids":[1.5])", "stop_token_ids"},
  {R"("stop_token_ids":[-1])", "stop_token_ids"},
  {R"("stop_token_ids":[257])", "stop_token_ids"},
  {R"("skip_special_tokens":0)", "skip_special_tokens"},
  {R"("add_special_tokens":"no")", "add_special_tokens"},
  {R"("return_token_ids":1)", "return_token_ids"},
  {R"("priority":1.5)", "priority"},
  {R"("priority":1000001)", "priority"},
  {R"("timeout":0)", "timeout"},
  {R"("timeout":-1)", "timeout"},
  {R"("timeout":"1s")", "timeout"},
  {R"("stream":1)", "stream"},
  {R"("stream":"yes")", "stream"},
  {R"("stream_options":{"include_usage":true})", "stream_options"},
  {R"("stream":true,"stream_options":true)", "stream_options"},
  {R"("stream":true,"stream_options":{"include_usage":1})", "stream_options.include_usage"},
  {R"("stream":true,"stream_options":{"continuous_usage_stats":true})", "stream_options.continuous_usage_stats",
   errc::unsupported},
  {R"("model":1)", "model"},
  {R"("model":"other")", "model", errc::not_found},
  {R"("response_format":"json")", "response_format"},
  {R"("response_format":{"type":"json_object"})", "response_format", errc::unsupported},
  {R"("response_format":{})", "response_format", errc::unsupported},
  {R"("guided_json":{})", "guided_json", errc::unsupported},
  {R"("guided_regex":"a*")", "guided_regex", errc::unsupported},
  {R"("guided_choice":["a"])", "guided_choice", errc::unsupported},
  {R"("guided_grammar":"root")", "guided_grammar", errc::unsupported},
  {R"("structured_outputs":{"json":{}})", "structured_outputs", errc::unsupported},
  {R"("use_beam_search":true)", "use_beam_search", errc::unsupported},
  {R"("length_penalty":0.5)", "length_penalty", errc::unsupported},
  {R"("best_of":2)", "best_of", errc::unsupported},
  {R"("prompt_logprobs":1)", "prompt_logprobs", errc::unsupported},
  {R"("allowed_token_ids":[1])", "allowed_token_ids", errc::unsupported},
  {R"("bad_words":["x"])", "bad_words", errc::unsupported},
  {R"("include_stop_str_in_output":true)", "include_stop_str_in_output", errc::unsupported},
  {R"("truncate_prompt_tokens":5)", "truncate_prompt_tokens", errc::unsupported},
  {R"("logits_processors":["x"])", "logits_processors", errc::unsupported},
};

const bad_field bad_completions[] = {
  {R"("x":0)", "prompt"},
  {R"("prompt":null)", "prompt"},
  {R"("prompt":1)", "prompt"},
  {R"("prompt":{})", "prompt"},
  {R"("prompt":[])", "prompt"},
  {R"("prompt":[[]])", "prompt"},
  {R"("prompt":"","add_special_tokens":false)", "prompt"},
  {R"("prompt":["a",""],"add_special_tokens":false)", "prompt"},
  {R"("prompt":[1,"a"])", "prompt"},
  {R"("prompt":["a",1])", "prompt"},
  {R"("prompt":[1,2.5])", "prompt"},
  {R"("prompt":[1,-2])", "prompt"},
  {R"("prompt":[1,257])", "prompt"},
  {R"("prompt":[[1],[2,9999999999]])", "prompt"},
  {R"("prompt":[null])", "prompt"},
  {R"("prompt":[[["a"]]])", "prompt"},
  {R"("prompt":["a","a","a","a","a","a","a","a","a"],"n":128)", "n"},
  {R"("prompt":"a","logprobs":true)", "logprobs"},
  {R"("prompt":"a","logprobs":-1)", "logprobs"},
  {R"("prompt":"a","logprobs":21)", "logprobs"},
  {R"("prompt":"a","suffix":"b")", "suffix", errc::unsupported},
  {R"("prompt":"a","echo":"yes")", "echo"},
  {R"("prompt":"a","echo":true,"logprobs":0)", "echo", errc::unsupported},
};

const bad_field bad_chats[] = {
  {R"("x":0)", "messages"},
  {R"("messages":"hi")", "messages"},
  {R"("messages":[])", "messages"},
  {R"("messages":["hi"])", "messages[0]"},
  {R"("messages":[{}])", "messages[0].role"},
  {R"("messages":[{"role":1,"content":"x"}])", "messages[0].role"},
  {R"("messages":[{"role":"","content":"x"}])", "messages[0].role"},
  {R"("messages":[{"role":"user"}])", "messages[0].content"},
  {R"("messages":[{"role":"user","content":null}])", "messages[0].content"},
  {R"("messages":[{"role":"user","content":1}])", "messages[0].content"},
  {R"("messages":[{"role":"user","content":{"text":"x"}}])", "messages[0].content"},
  {R"("messages":[{"role":"user","content":"x"},{"role":"user","content":[1]}])", "messages[1].content[0]"},
  {R"("messages":[{"role":"user","content":[{"type":"text"}]}])", "messages[0].content[0].text"},
  {R"("messages":[{"role":"user","content":[{"type":"text","text":1}]}])", "messages[0].content[0].text"},
  {R"("messages":[{"role":"user","content":[{"type":"text","text":"a"},{"type":"image_url","image_url":{}}]}])",
   "messages[0].content[1].type", errc::unsupported},
  {R"("messages":[{"role":"user","content":[{"type":"input_audio","input_audio":{}}]}])", "messages[0].content[0].type",
   errc::unsupported},
  {R"("messages":[{"role":"raise","content":"x"}])", "messages"},
  {R"("messages":[{"role":"assistant","tool_calls":[1]}])", "messages[0].tool_calls[0]"},
  {R"("messages":[{"role":"assistant","tool_calls":[{"id":"a"}]}])", "messages[0].tool_calls[0].function"},
  {R"("messages":[{"role":"assistant","tool_calls":[{"function":{}}]}])", "messages[0].tool_calls[0].function.name"},
  {R"("messages":[{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":"{"}}]}])",
   "messages[0].tool_calls[0].function.arguments"},
};

// Beside good messages.
const bad_field bad_chat_fields[] = {
  {R"("tools":{})", "tools"},
  {R"("tools":[1])", "tools[0]"},
  {R"("tools":[{"type":"function"}])", "tools[0].function"},
  {R"("tools":[{"function":{"description":"x"}}])", "tools[0].function.name"},
  {R"("tool_choice":"required")", "tool_choice", errc::unsupported},
  {R"("tool_choice":{"type":"function","function":{"name":"f"}})", "tool_choice", errc::unsupported},
  {R"("tool_choice":"maybe")", "tool_choice"},
  {R"("functions":[{"name":"f"}])", "functions", errc::unsupported},
  {R"("function_call":"auto")", "function_call", errc::unsupported},
  {R"("audio":{"voice":"x"})", "audio", errc::unsupported},
  {R"("modalities":["text","audio"])", "modalities", errc::unsupported},
  {R"("chat_template":"{{ x }}")", "chat_template", errc::unsupported},
  {R"("chat_template_kwargs":[])", "chat_template_kwargs"},
  {R"("add_generation_prompt":"no")", "add_generation_prompt"},
  {R"("add_generation_prompt":true,"continue_final_message":true)", "continue_final_message"},
  {R"("logprobs":1)", "logprobs"},
  {R"("top_logprobs":2)", "top_logprobs"},
  {R"("logprobs":true,"top_logprobs":21)", "top_logprobs"},
  {R"("logprobs":true,"top_logprobs":1.5)", "top_logprobs"},
  {R"("max_completion_tokens":0)", "max_completion_tokens"},
  {R"("max_completion_tokens":1000)", "max_completion_tokens"},
  {R"("echo":true)", "echo", errc::unsupported},
};

} // namespace

TEST_CASE("Bad fields are refused by name") {
  for (const auto& bad : bad_fields) {
    check_refused(dialect::completions, R"({"prompt":"a",)", bad);
    check_refused(dialect::chat, R"({"messages":[{"role":"user","content":"a"}],)", bad);
  }
  for (const auto& bad : bad_completions)
    check_refused(dialect::completions, "{", bad);
  for (const auto& bad : bad_chats)
    check_refused(dialect::chat, "{", bad);
  for (const auto& bad : bad_chat_fields)
    check_refused(dialect::chat, R"({"messages":[{"role":"user","content":"a"}],)", bad);
}

TEST_CASE("Complaints say what was expected and what was found") {
  CHECK(fault_of([] { completion(R"({"prompt":"a","temperature":3})"); }).message ==
        "`temperature` must be a number between 0 and 2, not 3");
  CHECK(fault_of([] { completion(R"({"prompt":"a","temperature":"hot"})"); }).message ==
        "`temperature` must be a number between 0 and 2, not a string");
  CHECK(fault_of([] { completion(R"({"prompt":"a","n":1.5})"); }).message ==
        "`n` must be an integer between 1 and 128, not 1.5");
  CHECK(fault_of([] { completion(R"({"prompt":"a","max_tokens":500})"); }).message ==
        "`max_tokens` is 500, but the prompt of 2 tokens leaves 198 of the context of 200");
}

TEST_CASE("What is no JSON object is refused") {
  for (const std::string body : {"", "{", "nonsense", "{\"prompt\":\"a\",}", "{\"temperature\":1e999}", "{\"a\":01}",
                                 "{\"a\":NaN}", "{\"prompt\":\"\xff\"}", "{} {}", "[1]", "3", "null"}) {
    CAPTURE(body);
    CHECK(fault_of([&] { completion(body); }).code == errc::bad_request);
  }
  const std::string deep = "{\"prompt\":" + std::string(5000, '[') + std::string(5000, ']') + "}";
  CHECK(fault_of([&] { completion(deep); }).code == errc::bad_request);
}

TEST_CASE("Prompts that do not fit the context are refused by their field") {
  const std::string text(200, 'x');
  CHECK(fault_of([&] { completion("{\"prompt\":\"" + text + "\"}"); }).param == "prompt");
  CHECK(fault_of([&] { chat(R"({"messages":[{"role":"user","content":")" + text + "\"}]}"); }).param == "messages");
  // 199 tokens with BOS: room for one.
  const auto tight = completion("{\"prompt\":\"" + std::string(198, 'x') + "\"}");
  CHECK(tight.prompts.front().sampling.max_tokens == 1);
}

TEST_CASE("Values that ask for nothing are accepted") {
  const auto request = completion(
    R"({"prompt":"a","model":"org/bytes","suffix":null,"best_of":1,"use_beam_search":false,
        "response_format":{"type":"text"},"logprobs":null,"stream_options":null,"stop":null,"stop_token_ids":[],
        "logit_bias":{},"user":"u","seed":null,"guided_json":null,"bad_words":[],
        "modalities":["text"],"metadata":{"a":"b"},"store":false,"unheard_of":1})");
  const auto& sampling = request.prompts.front().sampling;
  CHECK(sampling.logprobs == -1);
  CHECK(sampling.stop.empty());
  CHECK(sampling.max_tokens == 16);
  CHECK_FALSE(request.stream);
}

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

TEST_CASE("Seeds are any 64 bits, and random where none is given") {
  const auto seed_of = [](const std::string& seed) {
    return completion("{\"prompt\":\"a\",\"seed\":" + seed + "}").prompts.front().sampling.seed;
  };
  CHECK(seed_of("18446744073709551615") == 18446744073709551615u);
  CHECK(seed_of("9223372036854775808") == 9223372036854775808u);
  CHECK(seed_of("-1") == 18446744073709551615u);
  CHECK(seed_of("null") != seed_of("null"));
}

TEST_CASE("What a request leaves out comes from the model's defaults") {
  auto model = byte_model();
  model->defaults.temperature = 0.75f;
  model->defaults.top_k = 20;
  const auto parsed = json::document::parse(R"({"prompt":"a","top_k":5})", "the body", errc::bad_request);
  const auto request = parse_generation(dialect::completions, field_reader(parsed.root()), *model);
  CHECK(request.prompts.front().sampling.temperature == 0.75f);
  CHECK(request.prompts.front().sampling.top_k == 5);
}

TEST_CASE("A chat goes through the template, tools and variables included") {
  const auto prompt_of = [](std::string_view body) { return text_of(chat(body).prompts.at(0).prompt); };
  CHECK(prompt_of(R"({"messages":[{"role":"user","content":"x"}]})") == "user: x\nassistant:");
  CHECK(prompt_of(R"({"messages":[{"role":"user","content":[{"type":"text","text":"x"},
                      {"type":"text","text":"y"}]}]})") == "user: x\ny\nassistant:");
  CHECK(prompt_of(R"({"messages":[{"role":"user","content":"x"}],"add_generation_prompt":false})") == "user: x\n");
  CHECK(prompt_of(R"({"messages":[{"role":"user","content":"x"},{"role":"assistant","content":" Once "}],
                      "continue_final_message":true})") == "user: x\nassistant:  Once");
  const std::string tools = R"("tools":[{"type":"function","function":{"name":"f"}}])";
  const std::string messages = R"({"messages":[{"role":"user","content":"x"}],)";
  CHECK(prompt_of(messages + tools + "}") == "tool f\nuser: x\nassistant:");
  CHECK(prompt_of(messages + tools + R"(,"tool_choice":"none"})") == "user: x\nassistant:");
  CHECK(prompt_of(messages + R"("chat_template_kwargs":{"thinking":true},"reasoning_effort":"low"})") ==
        "thinking\nreasoning_effort\nuser: x\nassistant:");
}

TEST_CASE("A chat may use the rest of the context unless it says otherwise") {
  const std::string messages = R"({"messages":[{"role":"user","content":"x"}])";
  CHECK(chat(messages + "}").prompts.front().sampling.max_tokens == 200 - 18);
  CHECK(chat(messages + R"(,"max_tokens":3})").prompts.front().sampling.max_tokens == 3);
  CHECK(chat(messages + R"(,"max_tokens":3,"max_completion_tokens":4})").prompts.front().sampling.max_tokens == 4);
  CHECK(chat(messages + R"(,"logprobs":true,"top_logprobs":5})").prompts.front().sampling.logprobs == 5);
  CHECK(chat(messages + R"(,"logprobs":true})").prompts.front().sampling.logprobs == 0);
  CHECK(chat(messages + R"(,"logprobs":false,"top_logprobs":0})").prompts.front().sampling.logprobs == -1);
}

TEST_CASE("Tool calls of earlier turns reach the template with their arguments opened") {
  auto model = byte_model();
  std::string seen;
  model->render = [&seen](const chat_input& input) {
    auto unlimited = jinja::meter::unlimited();
    seen = jinja::to_json(unlimited, input.messages);
    return std::string("p");
  };
  const auto parsed = json::document::parse(
    R"({"messages":[{"role":"assistant","content":null,"tool_calls":[{"id":"1","type":"function","function":{"name":"f",
        "arguments":"{\"x\":\"y\"}"}}]},{"role":"tool","content":"42","tool_call_id":"1"}]})",
    "the body", errc::bad_request);
  parse_generation(dialect::chat, field_reader(parsed.root()), *model);
  CHECK(seen ==
        R"([{"role": "assistant", "content": null, "tool_calls": [{"id": "1", "type": "function", )"
        R"("function": {"name": "f", "arguments": {"x": "y"}}}]}, )"
        R"({"role": "tool", "content": "42", "tool_call_id": "1"}])");
}

TEST_CASE("A name given twice in one object is refused, wherever a client's JSON is read") {
  const auto calls = [](int count, const std::string& more) {
    std::string list;
    for (int i = 0; i < count; ++i)
      list += (i ? "," : "") + (R"({"type":"function","function":{"name":"a","arguments":"{\"k\":1}"})" + more) + '}';
    return "[" + list + "]";
  };
  // Several lists of different lengths: whoever counts in one must not write into another.
  const auto later = calls(19, R"(,"a":1,"b":[1,2,3],"c":{"d":"e"})");
  const auto many = R"({"messages":[{"role":"assistant","tool_calls":)" + calls(300, "") + R"(,"tool_calls":)" + later +
    R"(,"tool_calls":)" + later + "}]}";
  for (int i = 0; i < 20; ++i)
    CHECK(fault_of([&] { chat(many); }).param == "messages[0].tool_calls");

  const auto message = [](const std::string& call) {
    return R"({"messages":[{"role":"assistant","tool_calls":[{)" + call + "}]}]}";
  };
  const auto refused = [](const std::string& body, const std::string& param) {
    CAPTURE(body);
    const auto fault = fault_of([&] { chat(body); });
    CHECK(fault.code == errc::bad_request);
    CHECK(fault.param == param);
    CHECK(fault.message.find("is given twice") != std::string::npos);
  };
  refused(message(R"("function":{"name":"a"},"function":"x")"), "messages[0].tool_calls[0].function");
  refused(message(R"("function":null,"function":{"name":"a"})"), "messages[0].tool_calls[0].function");
  refused(message(R"("function":{"name":"a","arguments":"{\"k\":{\"l\":1,\"l\":2}}"})"),
          "messages[0].tool_calls[0].function.arguments");
  refused(R"({"messages":[{"role":"user","content":"x"}],"max_tokens":1,"max_tokens":2})", "max_tokens");
  refused(R"({"messages":[{"role":"user","content":"x"}],"m\u0061x":1,"max":1})", "max");
  refused(R"({"messages":[{"role":"user","content":"x"}],"metadata":[1,[{"":1,"":2}]]})", "metadata[1][0].");
  refused(R"({"messages":[{"role":"user","content":"x"}],"logit_bias":{"1":1,"1":2}})", "logit_bias.1");
  const std::string name(500, 'n');
  refused(R"({"messages":[{"role":"user","content":"x"}],")" + name + R"(":1,")" + name + R"(":1})",
          "..." + name.substr(300));
  CHECK_THROWS_AS(parse_frame(R"({"type":"generate","id":"a","prompt":"x","prompt":"y"})"), bad_frame);
}

TEST_CASE("Members of different objects may have one name, and very many names are told apart") {
  CHECK_NOTHROW(
    chat(R"({"messages":[{"role":"user","content":"x"},{"role":"user","content":"x"}],"a":{"a":{"a":1}}})"));
  std::string body = "{\"prompt\":\"a\"";
  for (int i = 0; i < 200'000; ++i)
    body += ",\"" + std::to_string(i) + "\":0";
  CHECK_NOTHROW(completion(body + "}"));
  CHECK(fault_of([&] { completion(body + ",\"765\":0}"); }).param == "765");
}

TEST_CASE("Messages that nest deeper than a template's values may are refused by their field") {
  for (const int depth : {150, 195, 196, 197, 198, 199, 200, 201, 250, 1000}) {
    CAPTURE(depth);
    const auto nested = std::string(static_cast<std::size_t>(depth), '[') +
      std::string(static_cast<std::size_t>(depth), ']');
    const auto message = R"({"messages":[{"role":"user","content":"x","more":)" + nested + "}]";
    const auto ask = [&] { chat(message + "}"); };
    if (depth < 199)
      CHECK_NOTHROW(ask());
    else
      CHECK(fault_of(ask).param.starts_with("messages"));
    CHECK(fault_of([&] { chat(message + R"(,"tool_choice":"x"})"); }).code == errc::bad_request);
  }
}

TEST_CASE("What a chat brings for its template is bounded in bytes and entries") {
  const std::string start = R"({"messages":[{"role":"user","content":"x"}],)",
                    hello = R"({"role":"user","content":"x"})";
  const auto refused = [](const std::string& body, const std::string& param) {
    const auto fault = fault_of([&] { chat(body); });
    CHECK(fault.param == param);
    CHECK(fault.message.find("may h") != std::string::npos); // have, hold
  };
  const auto text = [](std::size_t bytes) { return '"' + std::string(bytes, 'x') + '"'; };
  refused(start + R"("chat_template_kwargs":{"a":)" + text(most_variable_bytes) + "}}", "chat_template_kwargs");
  CHECK_NOTHROW(chat(start + R"("chat_template_kwargs":{"a":)" + text(most_variable_bytes - 100) + "}}"));
  std::string numbers;
  for (std::size_t i = 0; i < most_variable_bytes / 8; ++i)
    numbers += "1,";
  refused(start + R"("chat_template_kwargs":{"a":[)" + numbers + "1]}}", "chat_template_kwargs");
  refused(start + R"("reasoning_effort":)" + text(most_variable_bytes) + "}", "reasoning_effort");
  refused(start + R"("documents":[)" + text(most_message_bytes) + "]}", "documents");
  refused(start + R"("tools":[{"function":{"name":)" + text(most_tool_bytes) + "}}]}", "tools");
  refused(R"({"messages":[{"role":"user","content":)" + text(most_message_bytes) + "}]}", "messages");
  std::string many = hello;
  for (std::size_t i = 0; i < most_messages; ++i)
    many += ',' + hello;
  refused("{\"messages\":[" + many + "]}", "messages");
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
  CHECK(message == "`prompt` is a text of 804 bytes, which cannot fit into the context of 200 tokens");
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

TEST_CASE("Frames that cannot be served say which request they were about") {
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
  const auto ask = [](std::string_view text) { return parse_frame_body(parse_frame(text), *byte_model()); };
  CHECK(text_of(ask(R"({"type":"generate","id":"a","prompt":"x"})").prompt) == "<s>x");
  CHECK(text_of(ask(R"({"type":"generate","id":"a","messages":[{"role":"user","content":"x"}]})").prompt) ==
        "user: x\nassistant:");
  CHECK(fault_of([&] { ask(R"({"type":"generate","id":"a","prompt":["x","y"]})"); }).param == "prompt");
  CHECK(fault_of([&] { ask(R"({"type":"generate","id":"a"})"); }).param == "prompt");
  CHECK(fault_of([&] { ask(R"({"type":"generate","id":"a","prompt":"x","messages":[]})"); }).param == "messages");
  CHECK(fault_of([&] { ask(R"({"type":"generate","id":"a","prompt":"x","echo":true})"); }).param == "echo");
}

TEST_CASE("Texts are tokenised and put together again") {
  const auto tokens = [](std::string_view body) {
    const auto parsed = json::document::parse(body, "the body", errc::bad_request);
    return parse_tokenize(field_reader(parsed.root()), *byte_model());
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
