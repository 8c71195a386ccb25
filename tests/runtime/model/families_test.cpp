// Every family of models against transformers: logits, greedy tokens, and schedule invariance.
#include "runtime/model/memory_estimate.hpp"
#include "runtime/model/tensor_names.hpp"
#include "tests/runtime/model/decoder_checks.hpp"

using namespace troupe;
using namespace troupe::test;

namespace {

const std::vector<std::string> family_models{"gemma2",  "gemma3", "gpt-neox", "gpt-oss", "gpt2",      "granite",
                                             "mixtral", "olmo2",  "opt",      "phi3",    "qwen3-moe", "smollm3"};

/// Random, of a few kB (make_family_models.py).
const std::vector<std::string> tiny_family_models{
  "falcon", "falcon-alibi",        "falcon-new", "gemma",      "gemma3-scaled",     "glm",
  "glm4",   "gpt-neox-sequential", "gpt2-wide",  "granitemoe", "nemotron",          "olmo3",
  "phi",    "phi3-longrope",       "qwen2-moe",  "stablelm",   "stablelm-parallel", "starcoder2"};

} // namespace

TEST_CASE("Tiny families: transformers' logits at several positions, in f32 on every target") {
  for (const auto& model : tiny_family_models)
    for (const isa target : targets()) {
      CAPTURE(model);
      CAPTURE(std::string(to_string(target)));
      const auto source = open("tiny_families/" + model);
      CHECK(check_tensors(*source.tensors, source.config).empty());
      engine e(source, target, 1, dtype::f32);
      const auto document = json::document::load(data() / "tiny_families" / model / "expected.json");
      const auto ids = list<token_id>(document.root()["ids"]);
      const auto positions = list<int>(document.root()["positions"]);
      json::array expected;
      REQUIRE(!document.root()["logits"].get(expected));
      const auto got = e.step({{ids, 0, first_blocks(ids.size())}});
      for (std::size_t i = 0; i < positions.size(); ++i) {
        CAPTURE(positions[i]);
        CHECK(largest_difference(got[static_cast<std::size_t>(positions[i])], list<float>(expected.at(i))) < 2e-4);
      }
    }
}

TEST_CASE("Families: logits, greedy tokens and log-probabilities are transformers', in f32 on every target") {
  for (const auto& model : family_models)
    for (const isa target : targets())
      check_golden("families/" + model, target);
}

TEST_CASE("Families: computed in bf16, logits stay within what rounding explains") {
  for (const auto& model : family_models) {
    CAPTURE(model);
    const auto source = open("families/" + model);
    engine e(source, targets().back(), 2, dtype::bf16);
    const auto document = json::document::load(data() / "families" / model / "expected.json");
    json::array cases;
    REQUIRE(!document.root()["cases"].get(cases));
    for (json::value c : cases) {
      const auto ids = list<token_id>(c["ids"]);
      const auto expected = list<float>(c["last_logits"]);
      const auto got = e.step({{ids, 0, first_blocks(ids.size())}}, true).back();
      const double worst = largest_difference(got, expected);
      // Where two experts are nearly as good, rounding may swap them.
      CHECK(worst < bf16_bound(source.config, expected) * (source.config.experts.count > 0 ? 4 : 1));
      CHECK(worst > 2e-4); // else it was not computed in bf16
    }
  }
}

TEST_CASE("Families: memory estimates are what loading takes, also of experts and learned positions") {
  for (const std::string model : {"families/gpt2", "families/gpt-oss", "tiny_families/qwen2-moe", "families/opt"})
    for (const auto how : {kernels::quantization::none, kernels::quantization::int8}) {
      CAPTURE(model);
      const auto source = open(model);
      const auto backend = kernels::make_cpu_backend({.threads = 1});
      const precision as{dtype::bf16, how};
      const auto weights = load_weights(*source.tensors, source.config, *backend, as);
      CHECK(weights->bytes == estimate_memory(*source.tensors, source.config, as, *backend, {}).weights);
    }
}

TEST_CASE("Families: logits do not depend on the schedule") {
  std::mt19937 random(7);
  for (const auto& model : family_models)
    for (const dtype compute : {dtype::f32, dtype::bf16})
      check_schedules("families/" + model, targets().back(), compute, random);
}
