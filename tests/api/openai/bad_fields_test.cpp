#include "tests/api/openai/parse_request.hpp"

#include <doctest/doctest.h>

using namespace troupe;
using namespace troupe::test;

namespace {

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
  {R"("logit_bias":[1])", "logit_bias"},
  {R"("logit_bias":1)", "logit_bias"},
  {R"("logit_bias":{"":1})", "logit_bias"},
  {R"("logit_bias":{"ab":101})", "logit_bias"},
  {R"("logit_bias":{"ab":"1"})", "logit_bias"},
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
  {R"("max_tokens":-2)", "max_tokens"},
  {R"("max_tokens":1.5)", "max_tokens"},
  {R"("max_tokens":1e30)", "max_tokens"},
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
  {R"("model":1)", "model"},
  {R"("model":"other")", "model", errc::not_found},
  {R"("response_format":"json")", "response_format"},
  {R"("response_format":{"type":"json"})", "response_format.type"},
  {R"("response_format":{"type":"json_schema"})", "response_format.json_schema"},
  {R"("guided_json":1)", "guided_json"},
  {R"("guided_regex":["a"])", "guided_regex"},
  {R"("guided_choice":[])", "guided_choice"},
  {R"("guided_regex":"a","structured_outputs":{"json":{}})", "guided_regex"},
  {R"("guided_whitespace_pattern":"[ ]?")", "guided_whitespace_pattern", errc::unsupported},
  {R"("prompt_logprobs":-1)", "prompt_logprobs"},
  {R"("prompt_logprobs":21)", "prompt_logprobs"},
  {R"("prompt_logprobs":true)", "prompt_logprobs"},
  {R"("prompt_logprobs":0,"stream":true)", "prompt_logprobs"},
  {R"("prompt_logprobs":0,"max_tokens":0,"n":2)", "n"},
  {R"("prompt_logprobs":0,"max_tokens":0,"best_of":3)", "best_of"},
  {R"("prompt_logprobs":0,"max_tokens":0,"num_beams":3)", "num_beams"},
  {R"("prompt_logprobs":0,"max_tokens":0,"use_beam_search":true)", "num_beams"},
  {R"("prompt_logprobs":0,"max_tokens":0,"min_tokens":1)", "min_tokens"},
  {R"("speculate":"fast")", "speculate"},
  {R"("speculate":true)", "speculate"},
  {R"("speculate":3)", "speculate"},
  {R"("prediction":"x")", "prediction"},
  {R"("prediction":{})", "prediction.type"},
  {R"("prediction":{"type":"text","content":"x"})", "prediction.type"},
  {R"("prediction":{"type":"content"})", "prediction.content"},
  {R"("prediction":{"type":"content","content":3})", "prediction.content"},
  {R"("prediction":{"type":"content","content":["x"]})", "prediction.content[0]"},
  {R"("prediction":{"type":"content","content":[{"type":"text"}]})", "prediction.content[0].text"},
  {R"("prediction":{"type":"content","content":[{"type":"text","text":"x"},{"type":"image_url"}]})",
   "prediction.content[1].type", errc::unsupported},
  {R"("prediction":{"type":"content","content":"x"},"speculate":"off")", "prediction"},
  {R"("prediction":{"type":"content","content":"x"},"speculate":"draft")", "prediction"},
  {R"("allowed_token_ids":[])", "allowed_token_ids"},
  {R"("allowed_token_ids":[257])", "allowed_token_ids"},
  {R"("allowed_token_ids":["1"])", "allowed_token_ids"},
  {R"("bad_words":[1])", "bad_words"},
  {R"("bad_words":["x",""])", "bad_words"},
  {R"("dry_sequence_breakers":[""])", "dry_sequence_breakers"},
  {R"("samplers":["top_k","beam"])", "samplers"},
  {R"("samplers":["top_k","top_k"])", "samplers"},
  {R"("samplers":3)", "samplers"},
  {R"("mirostat":1)", "mirostat"},
  {R"("mirostat":3)", "mirostat"},
  {R"("typical_p":1.1)", "typical_p"},
  {R"("xtc_probability":-1)", "xtc_probability"},
  {R"("smoothing_curve":0.5)", "smoothing_curve"},
  {R"("no_repeat_ngram_size":257)", "no_repeat_ngram_size"},
  {R"("dry_range":20000)", "dry_range"},
  {R"("watermark":3)", "watermark"},
  {R"("watermark":"red")", "watermark.type"},
  {R"("watermark":"green")", "watermark.key"},
  {R"("watermark":{"type":"green","key":""})", "watermark.key"},
  {R"("watermark":{"type":"green","key":7})", "watermark.key"},
  {R"("watermark":{"type":"green","key":"k","gama":0.5})", "watermark.gama"},
  {R"("watermark":{"type":"green","key":"k","gamma":0})", "watermark.gamma"},
  {R"("watermark":{"type":"green","key":"k","gamma":1})", "watermark.gamma"},
  {R"("watermark":{"type":"green","key":"k","delta":21})", "watermark.delta"},
  {R"("watermark":{"type":"green","key":"k","context_width":2})", "watermark.context_width"},
  {R"("watermark":{"type":"green","key":"k","scheme":"min","context_width":9})", "watermark.context_width"},
  {R"("watermark":{"type":"green","key":"k","scheme":"max"})", "watermark.scheme"},
  {R"("watermark":{"type":"gumbel","key":"k","scheme":"selfhash"})", "watermark.scheme"},
  {R"("watermark":{"type":"gumbel","key":"k","delta":1})", "watermark.delta"},
  {R"("watermark":{"type":"gumbel","key":"k"},"temperature":0)", "temperature"},
  {R"("watermark":{"type":"green","key":"k"},"num_beams":2)", "watermark"},
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
  {R"("prompt":"a","echo":true,"max_tokens":0,"n":2)", "n"},
  {R"("prompt":"a","logprobs":1,"max_tokens":0)", "max_tokens"},
  {R"("prompt":["a","b"],"prediction":{"type":"content","content":"x"})", "prediction"},
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
  {R"("messages":[{"role":"user","content":"raise"}])", "messages"},
  {R"("messages":[{"role":"assistant","tool_calls":[1]}])", "messages[0].tool_calls[0]"},
  {R"("messages":[{"role":"assistant","tool_calls":[{"id":"a"}]}])", "messages[0].tool_calls[0].function"},
  {R"("messages":[{"role":"assistant","tool_calls":[{"function":{}}]}])", "messages[0].tool_calls[0].function.name"},
  {R"("messages":[{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":["{"]}}]}])",
   "messages[0].tool_calls[0].function.arguments"},
};

// Beside good messages.
const bad_field bad_chat_fields[] = {
  {R"("tools":{})", "tools"},
  {R"("tools":[1])", "tools[0]"},
  {R"("tools":[{"type":"function"}])", "tools[0].function"},
  {R"("tools":[{"function":{"description":"x"}}])", "tools[0].function.name"},
  {R"("tools":[{"type":"custom","custom":{"name":"f"}}])", "tools[0].type", errc::unsupported},
  {R"("tools":[{"function":{"name":"a b"}}])", "tools[0].function.name"},
  {R"("tools":[{"function":{"name":"f"}},{"function":{"name":"f"}}])", "tools"},
  {R"("tools":[{"function":{"name":"f","parameters":1}}])", "tools[0].function.parameters"},
  {R"("tools":[{"function":{"name":"f","strict":1}}])", "tools[0].function.strict"},
  {R"("tools":[{"function":{"name":"f"}}],"tool_choice":"required")", "tool_choice", errc::unsupported}, // no parser
  {R"("tools":[{"function":{"name":"f"}}],"tool_choice":{"type":"x","function":{"name":"f"}})", "tool_choice.type",
   errc::unsupported},
  {R"("tools":[{"function":{"name":"f"}}],"tool_choice":{"function":{"name":"g"}})", "tool_choice"},
  {R"("tools":[{"function":{"name":"f"}}],"tool_choice":{"function":{}})", "tool_choice.function.name"},
  {R"("tools":[{"function":{"name":"f"}}],"tool_choice":{})", "tool_choice.function"},
  {R"("tools":[],"tool_choice":"required")", "tool_choice"},
  {R"("parallel_tool_calls":1)", "parallel_tool_calls"},
  {R"("include_reasoning":"x")", "include_reasoning"},
  {R"("tool_choice":"required")", "tool_choice"},
  {R"("tool_choice":{"type":"function","function":{"name":"f"}})", "tool_choice"},
  {R"("tool_choice":"maybe")", "tool_choice"},
  {R"("tools":[{"function":{"name":"f"}}],"tool_choice":{"type":"allowed_tools"})", "tool_choice.allowed_tools"},
  {R"("tools":[{"function":{"name":"f"}}],"tool_choice":{"type":"allowed_tools","allowed_tools":{"mode":"x"}})",
   "tool_choice.allowed_tools.mode"},
  {R"("tools":[{"function":{"name":"f"}}],"tool_choice":{"type":"allowed_tools","allowed_tools":{"mode":"auto"}})",
   "tool_choice.allowed_tools.tools"},
  {R"("tools":[{"function":{"name":"f"}}],"tool_choice":{"type":"allowed_tools","allowed_tools":{"mode":"auto",)"
   R"("tools":[{"type":"function","function":{"name":"g"}}]}})",
   "tool_choice"},
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
  {R"("logprobs":true,"max_tokens":0)", "max_tokens"},
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

TEST_CASE("Errors name the expectation and the value found") {
  CHECK(fault_of([] { completion(R"({"prompt":"a","temperature":3})"); }).message ==
        "`temperature` must be a number between 0 and 2, not 3");
  CHECK(fault_of([] { completion(R"({"prompt":"a","temperature":"hot"})"); }).message ==
        "`temperature` must be a number between 0 and 2, not a string");
  CHECK(fault_of([] { completion(R"({"prompt":"a","n":1.5})"); }).message ==
        "`n` must be an integer between 1 and 128, not 1.5");
  CHECK(
    fault_of([] { completion(R"({"prompt":"a","max_tokens":500})"); }).message ==
    "This model's maximum context length is 200 tokens. However, you requested 502 tokens: 2 in `prompt` and 500 in "
    "`max_tokens`, which may be at most 198.");
}

TEST_CASE("A body that is no JSON object is refused") {
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
