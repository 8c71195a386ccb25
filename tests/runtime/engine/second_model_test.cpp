#include "runtime/engine/loading/second_model.hpp"

#include "runtime/engine/loading/loader.hpp"
#include "runtime/techniques/speculation/draft_model.hpp"
#include "runtime/techniques/speculation/technique.hpp"

#include "tests/test_data.hpp"

#include <doctest/doctest.h>

using namespace troupe;

namespace {

engine_options with_draft(const std::string& model, const std::string& draft) {
  engine_options o;
  o.model = golden(model);
  if (!draft.empty())
    o.techniques["draft"] = {draft};
  o.compute.device = "cpu";
  o.compute.threads = 1;
  o.kv_cache_bytes = 4 << 20;
  o.max_context = 128;
  o.max_sequences = 4;
  return o;
}

std::string refusal_of(const engine_options& options) {
  try {
    load_model(options, {});
  } catch (const failure& f) {
    CHECK((f.what_failed().code == errc::not_found ||
           f.what_failed().param == (options.techniques.contains("draft") ? "draft" : "amateur")));
    return f.what();
  }
  return {};
}

} // namespace

TEST_CASE("a draft model is loaded with its target, and both KV caches fit in what was asked for") {
  const auto alone = load_model(with_draft("llama-gqa", ""), {});
  CHECK_FALSE(alone->guesses.make_model);
  std::string lines;
  const auto both = load_model(with_draft("llama-gqa", golden("llama-gqa")),
                               [&](const load_status& s) { lines += s.line + "\n"; });
  REQUIRE(both->guesses.make_model);
  CHECK(both->info.techniques.find<guessing_models>(speculation_technique)->draft == "llama-gqa");
  const auto own = replica_of(both);
  CHECK(own.plan.blocks == replica_of(alone).plan.blocks / 2); // the draft is as large as its target
  CHECK(both->info.weight_bytes == alone->info.weight_bytes);
  CHECK(lines.find("with the draft model llama-gqa") != std::string::npos);
  const auto guesses = both->guesses.make_model(own);
  const auto& spec = static_cast<const draft_model&>(*guesses).spec();
  CHECK(spec.runner.blocks == own.plan.blocks);
  CHECK(spec.runner.sizes.context == 128);
  CHECK(spec.sampler.eos_ids == own.sampler().eos_ids);
  CHECK(spec.target_vocab == both->info.vocab_size);
}

TEST_CASE("an amateur is loaded beside model and draft, and all KV caches fit in what was asked for") {
  auto options = with_draft("llama-gqa", golden("llama-gqa"));
  options.techniques["amateur"] = options.techniques["draft"];
  std::string lines;
  const auto all = load_model(options, [&](const load_status& s) { lines += s.line + "\n"; });
  REQUIRE(all->seconds.size() == 1);
  const auto alone = load_model(with_draft("llama-gqa", ""), {});
  CHECK(alone->seconds.empty());
  CHECK(replica_of(all).plan.blocks == replica_of(alone).plan.blocks / 3);
  CHECK(all->seconds[0].sizes.context == 128);
  CHECK(all->seconds[0].sizes.rows == replica_of(all).plan.limits.step_tokens);
  CHECK(lines.find("with the draft model llama-gqa; with the amateur model llama-gqa") != std::string::npos);
  CHECK(lines.find("loading llama-gqa") != std::string::npos);
}

TEST_CASE("an amateur of another vocabulary is refused in a sentence") {
  auto options = with_draft("llama-gqa", "");
  options.techniques["amateur"] = {golden("qwen2")};
  CHECK(refusal_of(options).starts_with("the amateur model qwen2 has another vocabulary than llama-gqa: "));
  options.techniques["amateur"] = {"/no/such/folder"};
  CHECK_FALSE(refusal_of(options).empty());
}

TEST_CASE("a draft model of another vocabulary is refused in a sentence") {
  const auto other = refusal_of(with_draft("llama-gqa", golden("qwen2")));
  CHECK(other.find("the draft model qwen2 has another vocabulary than llama-gqa: ") == 0);
  CHECK(refusal_of(with_draft("llama-gqa", "synthetic:llama-135m")).find("the draft model has no tokenizer") !=
        std::string::npos);
  CHECK_FALSE(refusal_of(with_draft("llama-gqa", "/no/such/folder")).empty());
  auto backwards = with_draft("llama-gqa", golden("llama-gqa"));
  backwards.model = "synthetic:llama-135m";
  backwards.kv_cache_bytes = 64 << 20;
  CHECK(refusal_of(backwards).find("only the draft model has a tokenizer") != std::string::npos);
}

TEST_CASE("the first token that differs between two vocabularies is named") {
  const auto json = [](const std::string& vocabulary) {
    return tokenizer::parse(R"({"model":{"type":"BPE","vocab":)" + vocabulary + R"(,"merges":[]}})", "test");
  };
  const auto one = json(R"({"a":0,"b":1,"c":2})");
  CHECK_FALSE(vocabulary_difference(*one, *json(R"({"a":0,"b":1,"c":2})")).has_value());
  CHECK(vocabulary_difference(*one, *json(R"({"a":0,"x":1,"c":2})")) == "token 1 is \"b\", not \"x\"");
  CHECK(vocabulary_difference(*one, *json(R"({"a":0,"b":1})")) == "it has 3 tokens, not 2");
}
