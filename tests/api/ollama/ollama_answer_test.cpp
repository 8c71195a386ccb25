#include "api/ollama/ollama_answer.hpp"

#include "api/ollama/ollama_embeddings.hpp"
#include "api/ollama/ollama_models.hpp"
#include "runtime/chat/output/call_format.hpp"
#include "tests/api/openai/run_job.hpp"

#include <doctest/doctest.h>

using namespace troupe;
using namespace troupe::test;

namespace {

generation_job ollama_job_of(ollama_call call, const std::string& fields, bool leaves = false) {
  auto served = byte_model();
  served->leaves = leaves;
  return parsed(R"({"model":"org/bytes",)" + fields + '}',
                [&](const field_reader& body, const auto& model) { return ollama_job(call, body, model, {}); }, served);
}

std::string without_time(const std::string& text) { return without(text, R"("created_at":")"); }

const std::string times =
  R"("total_duration":7500000,"load_duration":0,"prompt_eval_count":18,"prompt_eval_duration":2000000,)"
  R"("eval_count":3,"eval_duration":4500000})";

} // namespace

TEST_CASE("Ollama's whole answers have the text, the reason and the times in nanoseconds") {
  auto job = ollama_job_of(ollama_call::generate, R"("prompt":"x","stream":false)");
  CHECK(!job.stream);
  CHECK(job.writer->take(0, said("a\"")).empty());
  CHECK(job.writer->take(0, said("b")).empty());
  CHECK(job.writer->take(0, ended(18, 3)).empty());
  std::string context;
  for (const unsigned char c : std::string("user: x\nassistant:a\"b"))
    context += (context.empty() ? "" : ",") + std::to_string(c);
  CHECK(without_time(job.writer->body()) ==
        R"({"model":"org/bytes","created_at":"X","response":"a\"b","done":true,"done_reason":"stop","context":[)" +
          context + "]," + times);
}

TEST_CASE("Ollama's streams are lines of objects, the last of which has no text") {
  auto job = ollama_job_of(ollama_call::chat, R"("messages":[{"role":"user","content":"x"}])");
  CHECK(job.stream);
  CHECK(job.writer->stream_type() == "application/x-ndjson");
  CHECK(without_time(job.writer->take(0, said("hey"))) ==
        R"({"model":"org/bytes","created_at":"X","message":{"role":"assistant","content":"hey"},"done":false})"
        "\n");
  CHECK(job.writer->take(0, said("")).empty());
  CHECK(job.writer->take(0, ended(18, 3, finish_reason::length)).empty());
  CHECK(without_time(job.writer->end()) ==
        R"({"model":"org/bytes","created_at":"X","message":{"role":"assistant","content":""},"done":true,)"
        R"("done_reason":"length",)" +
          times + '\n');
  CHECK(job.writer->fail({errc::device, "it \"broke\"", {}}) == "{\"error\":\"it \\\"broke\\\"\"}\n");
}

TEST_CASE("A model that is to be loaded is loaded") {
  auto job = ollama_job_of(ollama_call::generate, R"("prompt":"")");
  CHECK(job.prompts.empty());
  CHECK(!job.stream);
  CHECK(without_time(job.writer->body()) ==
        R"({"model":"org/bytes","created_at":"X","response":"","done_reason":"load","done":true})");
  CHECK(without_time(ollama_job_of(ollama_call::chat, R"("messages":[])").writer->body()) ==
        R"({"model":"org/bytes","created_at":"X","message":{"role":"assistant","content":""},)"
        R"("done_reason":"load","done":true})");
}

TEST_CASE("A model that is to be unloaded is unloaded: there is no prompt, and `keep_alive` is 0") {
  bool leaves = true;
  const auto reason = [&](ollama_call call, const std::string& fields) {
    const auto body = ollama_job_of(call, fields, leaves).writer->body();
    const auto at = body.find(R"("done_reason":")") + 15;
    return body.substr(at, body.find('"', at) - at);
  };
  for (const char* zero : {"0", "\"0\"", "\"0s\"", "0.0"}) {
    const auto keep = std::string(R"("keep_alive":)") + zero;
    CHECK(reason(ollama_call::generate, keep) == "unload");
    CHECK(reason(ollama_call::generate, R"("prompt":"","stream":true,)" + keep) == "unload");
    CHECK(reason(ollama_call::chat, keep) == "unload");
    CHECK(reason(ollama_call::chat, R"("messages":[],)" + keep) == "unload");
    CHECK(!ollama_job_of(ollama_call::generate, R"("prompt":"x",)" + keep).prompts.empty());
  }
  CHECK(reason(ollama_call::generate, R"("keep_alive":"5m")") == "load");
  CHECK(reason(ollama_call::chat, R"("keep_alive":-1)") == "load");
  CHECK(ollama_job_of(ollama_call::chat, R"("keep_alive":0)", true).notes.empty());
  leaves = false; // no request could load it again
  CHECK(reason(ollama_call::chat, R"("keep_alive":0)") == "load");
  CHECK(ollama_job_of(ollama_call::generate, R"("keep_alive":0)").notes.size() == 1);
  CHECK(ollama_job_of(ollama_call::generate, R"("keep_alive":"5m")").notes.empty());
}

TEST_CASE("Ollama's answers have log-probabilities if asked for") {
  auto job = ollama_job_of(ollama_call::generate, R"("prompt":"x","logprobs":true,"top_logprobs":1)");
  CHECK(job.prompts.at(0).sampling.logprobs == 1);
  auto e = said("a");
  e.logprobs.push_back({.id = 'a', .logprob = -0.5f, .top = {{'a', -0.5f}}});
  CHECK(without_time(job.writer->take(0, e)) ==
        R"({"model":"org/bytes","created_at":"X","response":"a","logprobs":[{"token":"a","logprob":-0.5,"bytes":[97],)"
        R"("top_logprobs":[{"token":"a","logprob":-0.5,"bytes":[97]}]}],"done":false})"
        "\n");
}

TEST_CASE("Times are written as in RFC 3339") {
  const auto now = ollama_time();
  CHECK(now.size() == 27);
  CHECK(now[10] == 'T');
  CHECK(now.back() == 'Z');
}

TEST_CASE("Ollama's clients see the model that is served") {
  auto model = byte_model();
  model->family = "llama";
  model->weights = "BF16";
  model->weight_bytes = 2048;
  model->parameters = 1'234'000'000;
  model->device = "cpu, avx2";
  const std::string details =
    R"("details":{"parent_model":"","format":"","family":"llama","families":["llama"],"parameter_size":"1.2B",)"
    R"("quantization_level":"BF16"})";
  const auto tags = ollama_tags({{.model = model}});
  CHECK(without(without(tags, R"("modified_at":")"), R"("digest":")") ==
        R"({"models":[{"name":"org/bytes:latest","model":"org/bytes:latest","size":2048,"digest":"X",)" + details +
          R"(,"modified_at":"X"}]})");
  const auto digest = tags.substr(tags.find(R"("digest":")") + 10, 65);
  CHECK(digest.find_first_not_of("0123456789abcdef") == 64);
  CHECK(ollama_running({{.model = model}}).find(digest) != std::string::npos);
  CHECK(ollama_running({{.model = model}}).find(R"("size_vram":0,"context_length":200)") != std::string::npos);
  model->device = "cuda:0";
  CHECK(ollama_running({{.model = model}}).find(R"("size_vram":2048)") != std::string::npos);
  const auto show = [&](const std::string& body) {
    return parsed(
      body, [](const field_reader& b, const auto& m) { return ollama_show(b, *m); }, model);
  };
  const auto shown = show(R"({"model":"org/bytes"})");
  CHECK(shown.find(details) != std::string::npos);
  CHECK(shown.find(R"("llama.context_length":200)") != std::string::npos);
  CHECK(shown.find(R"("capabilities":["completion","embedding"])") != std::string::npos);
  CHECK(shown.find(R"("parameters":"temperature 0.8\ntop_k 40\ntop_p 0.95\nmin_p 0.05")") != std::string::npos);
  CHECK(fault_of([&] { show(R"({"model":"other"})"); }).code == errc::not_found);
}

TEST_CASE("Ollama's clients see the size of a model that is not loaded, and tell it by the same digest once it is") {
  const auto away = ollama_tags(
    {{.name = "org/bytes", .now = known_model::state::unloaded, .files = {4096, "Q4_K_M"}}});
  CHECK(away.find(R"("name":"org/bytes:latest","model":"org/bytes:latest","size":4096,)") != std::string::npos);
  CHECK(away.find(R"("quantization_level":"Q4_K_M")") != std::string::npos);
  CHECK(away.find(R"("parameter_size":"")") != std::string::npos);
  auto model = byte_model();
  model->weight_bytes = 2048;
  const auto digest = away.substr(away.find(R"("digest":)"), 76);
  const known_model there{.name = "org/bytes", .model = model, .files = {4096, "Q4_K_M"}};
  CHECK(ollama_tags({there}).find(R"("size":4096,)" + digest) != std::string::npos);
  CHECK(ollama_running({there}).find(R"("size":2048,)" + digest) != std::string::npos);
}

TEST_CASE("Tools are promised only where the template shows them") {
  auto model = byte_model();
  model->format.calls = find_call_format("json");
  const auto capabilities = [&] {
    return parsed(R"({"model":"org/bytes:latest"})",
                  [](const field_reader& b, const auto& m) { return ollama_show(b, *m); }, model);
  };
  CHECK(capabilities().find(R"("tools")") != std::string::npos);
  model->render = [](const chat_input&) { return std::string("user: x"); };
  CHECK(capabilities().find(R"("tools")") == std::string::npos);
  model->render = [](const chat_input&) -> std::string { throw failure(errc::bad_request, "no", "messages"); };
  CHECK(capabilities().find(R"("tools")") == std::string::npos);
}

TEST_CASE("Names of models have Ollama's tag, and what is there is pulled at once") {
  auto model = byte_model();
  CHECK(listed_name(*model) == "org/bytes:latest");
  model->id = "host:80/org/bytes:7b";
  CHECK(listed_name(*model) == "host:80/org/bytes:7b");
  const auto pull = [](const std::string& body) {
    return parsed(body, [](const field_reader& b, const auto& m) { return ollama_pull(b, *m); });
  };
  CHECK(pull(R"({"model":"org/bytes:latest"})").back() == R"({"status":"success"})");
  CHECK(fault_of([&] { pull(R"({"name":"other"})"); }).code == errc::not_found);
  CHECK(ollama_version() == R"({"version":"0.12.11"})");
}

TEST_CASE("Ollama's embeddings have length 1, the older ones are as pooled") {
  const auto embed = [](const std::string& fields) {
    return parsed(R"({"model":"org/bytes",)" + fields + '}',
                  [](const field_reader& body, const auto& model) { return ollama_embed_job(body, model, {}); });
  };
  auto job = embed(R"("input":["ab","c"])");
  REQUIRE(job.prompts.size() == 2);
  CHECK(text_of(job.prompts[0].prompt) == "<s>ab");
  CHECK(job.prompts[0].embed == pooling::last);
  auto done = ended(3, 0);
  done.embedding = {3, 4, 0, 0};
  job.writer->take(1, done);
  done.embedding = {0, 0, 2, 0};
  job.writer->take(0, done);
  CHECK(job.writer->body() ==
        R"({"model":"org/bytes","embeddings":[[0,0,1,0],[0.6,0.8,0,0]],"total_duration":7500000,"load_duration":0,)"
        R"("prompt_eval_count":6})");
  const std::string long_text(300, 'x');
  CHECK(embed(R"("input":")" + long_text + '"').prompts.at(0).prompt.size() == 200);
  CHECK(fault_of([&] { embed(R"("truncate":false,"input":")" + long_text + '"'); }).param == "input");
  CHECK(fault_of([&] { embed(R"("input":[1])"); }).param == "input");
  CHECK(embed(R"("input":[])").writer->body().find(R"("embeddings":[])") != std::string::npos);

  auto old = parsed(R"({"model":"org/bytes","prompt":"ab"})",
                    [](const field_reader& body, const auto& model) { return ollama_embedding_job(body, model); });
  done.embedding = {3, 4, 0, 0};
  old.writer->take(0, done);
  CHECK(old.writer->body() == R"({"embedding":[3,4,0,0]})");
}
