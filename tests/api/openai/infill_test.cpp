// Filling in a middle: `suffix` of completions, and llama.cpp's /infill.
#include "api/openai/infill.hpp"

#include "tests/api/openai/run_job.hpp"

#include <doctest/doctest.h>

using namespace troupe;
using namespace troupe::test;

namespace {

std::shared_ptr<served_model> infilling_model() {
  auto model = byte_model();
  model->vocab_size = 270;
  model->infill = infill_tokens{.prefix = 260, .suffix = 261, .middle = 262, .pad = 263, .file = 264};
  return model;
}

generation suffixed(const std::string& fields) {
  const auto request = parsed(
    '{' + fields + '}',
    [](const field_reader& body, const auto& m) { return parse_generation(dialect::completions, body, *m); },
    infilling_model());
  return request.prompts.at(0);
}

generation_job infill(const std::string& fields) {
  return parsed(
    '{' + fields + '}', [](const field_reader& body, const auto& m) { return infill_job(body, m, {}); },
    infilling_model());
}

using ids = std::vector<token_id>;

} // namespace

TEST_CASE("A suffix turns a completion's prompt into one for a middle") {
  CHECK(suffixed(R"("prompt":"a","suffix":"b")").prompt == ids{bos, 260, 'a', 261, 'b', 262});
  CHECK(suffixed(R"("prompt":[97],"suffix":"b")").prompt == ids{bos, 260, 'a', 261, 'b', 262});
  CHECK(suffixed(R"("prompt":"a","suffix":"")").prompt == ids{bos, 'a'});
  CHECK(suffixed(R"("prompt":"a","suffix":null)").prompt == ids{bos, 'a'});
  const auto stops = suffixed(R"("prompt":"a","suffix":"b","stop_token_ids":[5])").sampling.stop_token_ids;
  CHECK(ids(stops.begin(), stops.end()) == ids{5, 263, 264});
  CHECK(suffixed(R"("prompt":"a")").sampling.stop_token_ids.empty());
  CHECK(fault_of([] { suffixed(R"("prompt":"a","suffix":"b","echo":true)"); }).param == "suffix");
  CHECK(fault_of([] { suffixed(R"("prompt":"a","suffix":5)"); }).param == "suffix");
  CHECK(fault_of([] { suffixed(R"("prompt":"a","suffix":")" + std::string(300, 'x') + '"'); }).code ==
        errc::bad_request);
  const auto untaught = fault_of([] { completion(R"({"prompt":"a","suffix":"b"})"); });
  CHECK(untaught.message ==
        "`suffix` needs a model that was taught to fill in the middle of a text; the tokenizer of `org/bytes` has no "
        "tokens for that");
}

TEST_CASE("llama.cpp's /infill makes the same prompt, with what was typed and other files") {
  CHECK(infill(R"("input_prefix":"a","input_suffix":"b")").prompts.at(0).prompt == ids{bos, 260, 'a', 261, 'b', 262});
  CHECK(infill(R"("input_prefix":"a","input_suffix":"","prompt":"c")").prompts.at(0).prompt ==
        ids{bos, 260, 'a', 'c', 261, 262});
  const auto files = infill(R"("input_prefix":"a","input_suffix":"b","input_extra":[{"filename":"f","text":"t"}])");
  const auto& prompt = files.prompts.at(0).prompt;
  CHECK(ids(prompt.begin(), prompt.begin() + 5) == ids{bos, 264, 'f', '\n', 't'});
  CHECK(told_sampling(infill(R"("input_prefix":"a","input_suffix":"b")").prompts.at(0).sampling) ==
        "temperature 0.8, top_k 40, top_p 0.95, min_p 0.05"); // llama.cpp's
  const auto limited = infill(R"("input_prefix":"a","input_suffix":"b","n_predict":7,"top_k":40,"temperature":0.1)");
  CHECK(limited.prompts.at(0).sampling.max_tokens == 7);
  CHECK(limited.prompts.at(0).sampling.top_k == 40);
  CHECK(infill(R"("input_prefix":"a","input_suffix":"b","n_predict":-1)").prompts.at(0).sampling.max_tokens == 194);
  CHECK(infill(R"("input_prefix":"a","input_suffix":"b","n_predict":9999)").prompts.at(0).sampling.max_tokens == 194);
  const auto vim = infill(
    R"("input_prefix":"a","input_suffix":"b","samplers":["top_k","top_p","infill"],"cache_prompt":true,"n_indent":2,)"
    R"("t_max_prompt_ms":500,"t_max_predict_ms":1000,"response_fields":["content"],"stream":false)");
  CHECK(vim.notes == std::vector<std::string>{"`samplers`: \"infill\" is not known here and has no effect"});
}

TEST_CASE("what is wrong with a request to fill in is told by its field") {
  const auto param = [](const std::string& fields) { return fault_of([&] { infill(fields); }).param; };
  CHECK(param(R"("input_prefix":"a")") == "input_suffix");
  CHECK(param(R"("input_suffix":"a")") == "input_prefix");
  CHECK(param(R"("input_prefix":"a","input_suffix":5)") == "input_suffix");
  CHECK(param(R"("input_prefix":"a","input_suffix":"b","prompt":["c"])") == "prompt");
  CHECK(param(R"("input_prefix":"a","input_suffix":"b","input_extra":["c"])") == "input_extra[0]");
  CHECK(param(R"("input_prefix":"a","input_suffix":"b","input_extra":[{"filename":"c"}])") == "input_extra[0].text");
  CHECK(param(R"("input_prefix":"a","input_suffix":"b","n_predict":-2)") == "n_predict");
  CHECK(param(R"("input_prefix":"a","input_suffix":"b","n":2)") == "n");
  CHECK(param(R"("input_prefix":")" + std::string(199, 'x') + R"(","input_suffix":"b")") == "input_prefix");
  const auto untaught = fault_of([] {
    parsed(R"({"input_prefix":"a","input_suffix":"b"})",
           [](const field_reader& body, const auto& m) { return infill_job(body, m, {}); });
  });
  CHECK(untaught.message.starts_with("`input_prefix` needs a model that was taught"));
}

TEST_CASE("an answer of /infill has llama.cpp's members") {
  auto job = infill(R"("input_prefix":"a","input_suffix":"b","n_predict":5)");
  CHECK(job.writer->take(0, said("xy")).empty());
  CHECK(job.writer->take(0, ended(6, 2, finish_reason::length)).empty());
  const auto body = job.writer->body();
  CHECK(body.starts_with(R"({"index":0,"content":"xy","tokens":[],"id_slot":0,"stop":true,"model":"org/bytes",)"
                         R"("tokens_predicted":2,"tokens_evaluated":6,"tokens_cached":1,"truncated":false,)"
                         R"("stop_type":"limit","stopping_word":"")"));
  CHECK(body.find(R"("timings":{"cache_n":1,"prompt_n":5,"prompt_ms":2)") != std::string::npos);
  auto stream = infill(R"("input_prefix":"a","input_suffix":"b","stream":true)");
  CHECK(stream.stream);
  CHECK(stream.writer->take(0, said("x")) ==
        "data: {\"index\":0,\"content\":\"x\",\"tokens\":[],\"id_slot\":0,\"stop\":false,\"tokens_predicted\":1,"
        "\"tokens_evaluated\":6}\n\n");
  CHECK(stream.writer->take(0, ended(6, 1)).empty());
  CHECK(stream.writer->end().starts_with(R"(data: {"index":0,"content":"","tokens":[],"id_slot":0,"stop":true)"));
  auto warm = infill(R"("input_prefix":"a","input_suffix":"b","n_predict":0)");
  CHECK(warm.prompts.at(0).sampling.max_tokens == 1);
  warm.writer->take(0, said("x"));
  warm.writer->take(0, ended(6, 1));
  CHECK(warm.writer->body().starts_with(R"({"index":0,"content":"")"));
}
