#include "tests/fuzz/connection_seeds.hpp"

#include "tests/api/server/drive_connection.hpp"

#include <algorithm>
#include <charconv>

namespace troupe::test {

namespace {

// A part begins with this byte and a letter; behind the other byte is its body.
constexpr char part_mark = '\x1e', body_mark = '\x1f';
constexpr char verbatim = 'v', sized = 's', in_chunks = 'c', framed = 'f', waits = 'w';

std::string part(char kind, const std::string& head, const std::string& body = {}) {
  return std::string{part_mark, kind} + head + (body.empty() ? "" : body_mark + body);
}

std::string get(const std::string& target, const std::string& headers = {}) {
  return part(verbatim, "GET " + target + " HTTP/1.1\r\nHost: localhost\r\n" + headers + "\r\n");
}

std::string post(const std::string& path, const std::string& body, char kind = sized) {
  return part(kind, "POST " + path + " HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n", body);
}

std::string completion(const std::string& fields) {
  return post("/v1/completions", "{\"prompt\":\"once\"," + fields + '}');
}

std::string chat(const std::string& messages, const std::string& fields = {}) {
  return post("/v1/chat/completions", "{\"messages\":[" + messages + ']' + fields + '}');
}

const std::string wait{part_mark, waits};

const std::string upgrade = get("/v1/ws",
                                "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
                                "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nOrigin: http://page.example\r\n");

std::string frame(const std::string& text) { return part(framed, "", text); }

const std::string user = R"({"role":"user","content":"Tell me"})";
const std::string call = R"({"id":"c","type":"function","function":{"name":"f","arguments":"{\"k\":[1,2.5e3]}"}})";
const std::string tools =
  R"(,"tools":[{"type":"function","function":{"name":"f","description":"d","parameters":{"type":"object",)"
  R"("properties":{"k":{"type":"array","items":{"type":"number"}}},"required":["k"]}}}],"tool_choice":"auto")";

std::string chunked_body(const std::string& body) {
  std::string result = "Transfer-Encoding: chunked\r\n\r\n";
  for (std::size_t at = 0; at < body.size(); at += 40) {
    const auto piece = body.substr(at, 40);
    char size[8];
    result.append(size, std::to_chars(size, size + sizeof size, piece.size(), 16).ptr) += "\r\n" + piece + "\r\n";
  }
  return result += "0\r\n\r\n";
}

std::string as_frame(const std::string& text) {
  std::string result = "\x81";
  const int width = text.size() < 126 ? 0 : text.size() < 65536 ? 2 : 8;
  result += static_cast<char>(0x80 | (width == 0 ? text.size() : width == 2 ? 126u : 127u));
  for (int i = width - 1; i >= 0; --i)
    result += static_cast<char>(text.size() >> (8 * i));
  return result + std::string(4, '\0') + text;
}

/// A client's habit, then its parts.
std::string script(unsigned char habit, const std::vector<std::string>& all) {
  std::string result(1, static_cast<char>(habit));
  for (const auto& one : all)
    result += one;
  return result;
}

} // namespace

std::string connection_bytes(std::string_view input) {
  std::string result(input.substr(0, 1));
  for (auto at = input.find(part_mark); at < input.size();) {
    const auto end = std::min(input.find(part_mark, at + 1), input.size());
    auto one = input.substr(at + 1, end - at - 1);
    at = end;
    const auto kind = one.empty() ? verbatim : one.front();
    one.remove_prefix(std::min<std::size_t>(one.size(), 1));
    const auto head = std::string(one.substr(0, one.find(body_mark)));
    const auto body = std::string(one.substr(std::min(one.size(), head.size() + 1)));
    switch (kind) {
      case sized: result += head + "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body; break;
      case in_chunks: result += head + chunked_body(body); break;
      case framed: result += as_frame(body); break;
      case waits: result += client_waits; break;
      default: result += head + body;
    }
  }
  return result;
}

std::string request_bytes(std::string_view path, std::string_view body) {
  return connection_bytes('\0' + post(std::string(path), std::string(body)) + wait);
}

std::vector<std::string> connection_seeds() {
  return {
    script(0, {get("/health"), get("/v1/models"), get("/v1/models/org%2Fbytes?x=y"), get("/metrics"), get("/nothing")}),
    script(in_pieces_of_1, {get("http://localhost:80/v1/models"), get("/health", "Connection: close\r\n")}),
    script(0,
           {part(verbatim, "HEAD /health HTTP/1.1\r\nHost: [::1]:80\r\n\r\n"),
            part(verbatim,
                 "OPTIONS * HTTP/1.1\r\nHost: localhost\r\nOrigin: http://page.example\r\n"
                 "Access-Control-Request-Method: POST\r\n\r\n"),
            part(verbatim, "GET /health HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"),
            part(verbatim, "GET /health HTTP/1.0\r\n\r\n")}),
    script(in_pieces_of_7,
           {post("/tokenize", R"({"prompt":"a\u00e9"})"), post("/detokenize", R"({"tokens":[97,98]})"),
            get("/tokenizer_info"),
            post("/v1/watermark/detect", R"({"text":"abc","watermark":{"type":"gumbel","scheme":"min","key":"k"}})"),
            post("/tokenize", "{\"messages\":[" + user + "]}"), wait}),
    script(in_pieces_of_64,
           {post("/tokenize", R"({"prompt":")" + std::string(150, 'x') + "\"}", in_chunks), wait,
            post("/v1/completions", R"({"prompt":[1,2,3]})", in_chunks), wait}),
    script(0,
           {part(verbatim,
                 "POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                 "Content-Length: 14\r\nExpect: 100-continue\r\n\r\n"),
            wait, part(verbatim, R"({"prompt":"a"})"), wait}),
    script(
      0,
      {completion(R"("max_tokens":5,"temperature":0.5,"top_p":0.9,"top_k":3,"min_p":0.1,"seed":7,"n":2)"), wait,
       completion(R"("stream":true,"stream_options":{"include_usage":true},"stop":["x","yz"],"stop_token_ids":[3])"),
       wait, get("/health"), wait}),
    script(
      0,
      {completion(R"("logprobs":2,"echo":true,"max_tokens":0)"), wait,
       completion(R"("logprobs":1,"echo":true,"prompt_logprobs":3,"n":2)"), wait,
       completion(R"("logprobs":1,"echo":true,"stream":true,"speculate":"ngram")"), wait,
       chat(user, R"(,"prompt_logprobs":1,"prediction":{"type":"content","content":[{"type":"text","text":"x"}]})"),
       wait}),
    script(0,
           {completion(R"("logprobs":3,"logit_bias":{"5":-100,"6":1.5},"echo":true,"presence_penalty":1)"), wait,
            completion(R"("return_token_ids":true,"ignore_eos":true,"min_tokens":2,"repetition_penalty":1.1)"), wait,
            post("/v1/completions", R"({"prompt":["a","b",[1,2]],"stream":true,"n":2,"timeout":3})"), wait}),
    script(0,
           {chat(user), wait,
            chat(R"({"role":"system","content":[{"type":"text","text":"Be"}]},)" + user,
                 R"(,"stream":true,"logprobs":true,"top_logprobs":2,"max_completion_tokens":9)"),
            wait}),
    script(
      0,
      {chat(user + R"(,{"role":"assistant","content":null,"tool_calls":[)" + call + ',' + call +
              R"(]},{"role":"tool","tool_call_id":"c","content":"3"})",
            tools),
       wait, chat(R"({"role":"assistant","tool_calls":[)" + call + R"(],"tool_calls":[]},{"role":"raise"})"), wait,
       chat(user, R"(,"chat_template_kwargs":{"a":[1,{"b":null}]},"response_format":{"type":"text"},"seed":1)"), wait,
       chat(user, R"(,"response_format":{"type":"json_schema","json_schema":{"name":"n","schema":{"type":"array"}}})"),
       wait, chat(user, R"(,"structured_outputs":{"choice":["a","b"],"compact":false})"), wait,
       post("/tokenize", "{\"messages\":[" + user + ']' + tools + '}'), wait}),
    script(
      0,
      {post(
         "/api/generate",
         R"({"model":"org/bytes","prompt":"x","system":"s","context":[97],"think":"low","options":{"temperature":0.5,)"
         R"("num_predict":9,"num_ctx":64,"stop":["a"],"seed":-1,"repeat_last_n":-1}})"),
       wait, post("/api/generate", R"({"model":"org/bytes:latest","raw":true,"prompt":"late","stream":false})"), wait,
       post("/api/generate", R"({"model":"org/bytes","keep_alive":"5m"})"), wait,
       post(
         "/api/chat",
         "{\"model\":\"org/bytes\",\"format\":\"\",\"messages\":[" + user +
           R"(,{"role":"assistant","content":"","thinking":"t","tool_calls":[{"function":{"name":"f","arguments":{}}}]}]})"),
       wait, get("/api/tags"), get("/api/ps"), get("/api/version"), get("/"),
       post("/v1/requests/a/control", R"({"action":"end_reasoning"})"), get("/v1/requests/a"),
       post("/api/pull", R"({"name":"org/bytes"})"), post("/api/show", R"({"name":"org/bytes"})"), wait}),
    script(
      0,
      {post(
         "/v1/messages",
         R"({"model":"org/bytes","max_tokens":9,"stream":true,"system":[{"type":"text","text":"s","cache_control":{}}],)"
         R"("thinking":{"type":"enabled","budget_tokens":3},"stop_sequences":["a"],"messages":[)" +
           user + "]}"),
       wait,
       post(
         "/v1/messages",
         R"({"max_tokens":5,"tools":[{"name":"f","input_schema":{"type":"object"}},{"type":"bash_20250124","name":"b"}],)"
         R"("tool_choice":{"type":"any","disable_parallel_tool_use":true},"messages":[{"role":"user","content":"x"},)"
         R"({"role":"assistant","content":[{"type":"thinking","thinking":"t","signature":"s"},)"
         R"({"type":"tool_use","id":"1","name":"f","input":{}}]},)"
         R"({"role":"user","content":[{"type":"tool_result","tool_use_id":"1","content":"4","is_error":true}]}]})"),
       wait, post("/v1/messages/count_tokens", R"({"messages":[{"role":"user","content":[{"type":"image"}]}]})"), wait,
       part(verbatim,
            "GET /v1/models?limit=1&after_id=org%2Fbytes HTTP/1.1\r\nHost: localhost\r\nanthropic-version: "
            "2023-06-01\r\n\r\n"),
       wait, post("/infill", R"({"input_prefix":"a","input_suffix":"b","input_extra":[{"filename":"f","text":"t"}]})"),
       wait, post("/v1/completions", R"({"prompt":"a","suffix":"b"})"), wait}),
    script(0,
           {post("/v1/embeddings", R"({"input":["a",[98,99]],"dimensions":2,"encoding_format":"base64"})"), wait,
            post("/api/embed", R"({"model":"org/bytes","input":["a","b"],"truncate":true})"), wait,
            post("/api/embeddings", R"({"model":"org/bytes","prompt":"a"})"), wait,
            post("/v1/rerank", R"({"query":"a","documents":["b",{"text":"c"}],"top_n":1})"), wait,
            post("/score", R"({"text_1":"a","text_2":["b","c"]})"), wait}),
    script(
      0,
      {post("/v1/responses",
            R"({"input":"x","instructions":"i","stream":true,"metadata":{"a":"b"},"text":{"format":{"type":"text"}},)"
            R"("reasoning":{"effort":"low"},"include":["message.output_text.logprobs"],"top_logprobs":1})"),
       wait,
       post(
         "/v1/responses",
         R"({"input":[{"role":"user","content":[{"type":"input_text","text":"x"}]},{"type":"reasoning","summary":[]},)"
         R"({"type":"function_call","call_id":"1","name":"f","arguments":"{}"},)"
         R"({"type":"function_call_output","call_id":"1","output":"4"}],"store":false,)"
         R"("tools":[{"type":"function","name":"f","parameters":{"type":"object"},"strict":false}],)"
         R"("tool_choice":"auto","max_output_tokens":5})"),
       wait, post("/v1/responses", R"({"input":"x","previous_response_id":"resp_0"})"), get("/v1/responses/resp_0"),
       get("/v1/responses/resp_0/input_items"),
       part(verbatim, "DELETE /v1/responses/resp_0 HTTP/1.1\r\nHost: localhost\r\n\r\n"), wait}),
    script(0,
           {post("/v1/completions", R"({"prompt":"fail","stream":true})"), wait,
            post("/v1/completions", R"({"prompt":"late","stream":true})"), wait}),
    script(until_drained, {post("/v1/completions", R"({"prompt":"hold","stream":true})"), get("/health"), wait}),
    script(until_cut | until_aborted, {chat(R"({"role":"user","content":"hold"})", R"(,"stream":true)"), wait}),
    script(until_cut, {upgrade, wait, frame(R"({"type":"generate","id":"a","prompt":"hold"})"), wait}),
    script(until_aborted, {post("/v1/completions", R"({"prompt":"hold"})"), wait}),
    script(leaves_after_100, {post("/v1/completions", R"({"prompt":"a","stream":true})"), wait, get("/health"), wait}),
    script(leaves_after_1000 | in_pieces_of_7, {get("/metrics"), get("/metrics"), wait}),
    script(0,
           {upgrade, wait, frame(R"({"type":"generate","id":"a","prompt":"x","max_tokens":4,"logprobs":1,"n":2})"),
            wait, frame(R"({"type":"generate","id":"b","messages":[)" + user + "]}"), wait,
            frame(R"({"type":"generate","id":"a","prompt":"hold"})"), wait,
            frame(R"({"type":"generate","id":"a","prompt":"x"})"), frame(R"({"type":"cancel","id":"a"})"), wait,
            part(verbatim, std::string("\x88\x82\0\0\0\0\x03\xe8", 8)), wait}),
    script(in_pieces_of_1,
           {upgrade, wait, frame(R"({"type":"generate","id":"l","prompt":"late"})"),
            frame(R"({"type":"generate","id":"f","prompt":"fail"})"), frame("[]"), frame("{"), wait,
            part(verbatim, std::string("\x89\x81\0\0\0\0x", 7)), wait,
            part(verbatim, std::string("\x01\x82\0\0\0\0[1\x80\x81\0\0\0\0]", 15)), wait,
            part(verbatim, std::string("\x82\x81\0\0\0\0x", 7)), wait}),
    script(until_drained | until_aborted,
           {upgrade, wait, frame(R"({"type":"generate","id":"a","prompt":"hold"})"), wait}),
    script(leaves_after_1000, {upgrade, wait, frame(R"({"type":"generate","id":"a","prompt":"x","n":64})"), wait}),
    script(until_drained,
           {upgrade, wait, frame(R"({"type":"generate","id":"a","prompt":")" + std::string(9000, 'x') + "\"}"), wait,
            frame(std::string(17'000, ' ')), wait}),
  };
}

const std::vector<std::string>& connection_words() {
  static const std::vector<std::string> words{"\r\n",
                                              "\r\n\r\n",
                                              "\r\n ",
                                              ": ",
                                              "HTTP/1.0",
                                              "HTTP/1.1",
                                              "GET ",
                                              "POST ",
                                              "HEAD ",
                                              "OPTIONS ",
                                              "CONNECT ",
                                              "/v1/chat/completions",
                                              "/v1/completions",
                                              "/v1/ws",
                                              "/v1/models/",
                                              "/tokenize",
                                              "/detokenize",
                                              "/tokenizer_info",
                                              "/v1/watermark/detect",
                                              "/health",
                                              "/metrics",
                                              "/api/generate",
                                              "/api/chat",
                                              "/api/embed",
                                              "/v1/responses",
                                              "/v1/messages",
                                              "/v1/models?limit=1&before_id=",
                                              "anthropic-version: 2023-06-01\r\n",
                                              "/v1/embeddings",
                                              "/v1/rerank",
                                              "/score",
                                              "http://localhost/",
                                              "Host: localhost\r\n",
                                              "Content-Length: 0\r\n",
                                              "Content-Length: 18446744073709551615\r\n",
                                              "Transfer-Encoding: chunked\r\n",
                                              "Transfer-Encoding: gzip\r\n",
                                              "Connection: close\r\n",
                                              "Connection: keep-alive\r\n",
                                              "Expect: 100-continue\r\n",
                                              "Upgrade: websocket\r\n",
                                              "Sec-WebSocket-Version: 13\r\n",
                                              "Origin: null\r\n",
                                              "Content-Type: application/json\r\n",
                                              "Authorization: Bearer x\r\n",
                                              "0\r\n\r\n",
                                              "ffffffffffffffff\r\n",
                                              ";x=\"y\"",
                                              "{",
                                              "}",
                                              "[",
                                              "]",
                                              "[[[[[[[[[[[[[[[[",
                                              "{\"a\":{\"a\":{\"a\":",
                                              ",",
                                              ":",
                                              "\"",
                                              "\\",
                                              "\\u0000",
                                              "\\ud800",
                                              "\\ud83d\\ude00",
                                              "null",
                                              "true",
                                              "false",
                                              "0",
                                              "-1",
                                              "1e999",
                                              "-0.0",
                                              "2147483648",
                                              "9223372036854775808",
                                              "1e-320",
                                              "0.1",
                                              "\"messages\":",
                                              "\"role\":",
                                              "\"content\":",
                                              "\"tool_calls\":[",
                                              "\"function\":{",
                                              "\"arguments\":",
                                              "\"name\":",
                                              "\"type\":",
                                              "\"text\"",
                                              "\"prompt\":",
                                              "\"stream\":true,",
                                              "\"n\":",
                                              "\"stop\":",
                                              "\"logit_bias\":{",
                                              "\"tools\":[",
                                              "\"tool_choice\":",
                                              "\"chat_template_kwargs\":{",
                                              "\"response_format\":{",
                                              "\"structured_outputs\":{",
                                              "\"guided_regex\":\"",
                                              "\"logprobs\":",
                                              "\"max_tokens\":",
                                              "\"stop_token_ids\":[",
                                              "\"id\":",
                                              "\"generate\"",
                                              "\"cancel\"",
                                              "\"hold\"",
                                              "\"late\"",
                                              "\"fail\"",
                                              "\"raise\"",
                                              "\"assistant\"",
                                              "\"tool\"",
                                              "\"model\":",
                                              "\"timeout\":",
                                              "\"best_of\":",
                                              "\"num_beams\":",
                                              "\"num_beam_groups\":",
                                              "\"diversity_penalty\":1",
                                              "\"early_stopping\":\"never\"",
                                              "\"stochastic_beams\":true",
                                              "\"dola_layers\":[0,1],",
                                              "\"suffix\":",
                                              "\"echo\":true,",
                                              "\"prompt_logprobs\":1,",
                                              "\"max_tokens\":0,",
                                              "\"speculate\":\"ngram\",",
                                              "\"prediction\":{\"type\":\"content\",\"content\":\"x\"},",
                                              "\xff",
                                              "\xc3\xa9",
                                              "\xed\xa0\x80",
                                              "\xf0\x9f\x98\x80",
                                              "\x1ev",
                                              "\x1es",
                                              "\x1e"
                                              "c",
                                              "\x1e"
                                              "f",
                                              "\x1ew",
                                              "\x1f"};
  return words;
}

} // namespace troupe::test
