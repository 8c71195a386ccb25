// Every family of models against transformers: logits, greedy tokens, and schedule invariance.
#include "runtime/model/decoder/memory_estimate.hpp"
#include "runtime/model/tensor_names.hpp"
#include "tests/runtime/model/decoder_checks.hpp"

using namespace troupe;
using namespace troupe::test;

namespace {

const std::vector<std::string> family_models{
  "afmoe",        "bloom",          "cohere2-moe", "nanochat",      "exaone-moe", "glm4-moe-lite", "hy-v3",
  "mellum",       "deepseek-v32",   "deepseek-v4", "mimo-v2-flash", "step3p7",    "glm-moe-dsa",   "minicpm3",
  "muse-glimmer", "mistral-large4", "olmoe",       "youtu",         "cohere2",    "exaone4",       "gemma2",
  "gemma3",       "gemma4",         "glm4-moe",    "gpt-neox",      "gpt-oss",    "gpt2",          "granite",
  "llama4",       "mixtral",        "olmo2",       "opt",           "phi3",       "phi3-longrope", "phi4-longrope",
  "qwen3-moe",    "smollm3"};

/// Random, of a few kB (make_family_models.py).
const std::vector<std::string> tiny_family_models{
  "deepseek-v2", "deepseek-v2-lite", "deepseek-v3", "deepseek-wide", "falcon", "falcon-alibi", "falcon-new", "gemma",
  "gemma3-scaled", "glm", "glm4", "gpt-neox-sequential", "gpt2-wide", "granitemoe", "nemotron", "olmo3", "phi",
  "phi3-longrope", "qwen2-moe", "stablelm", "stablelm-parallel", "starcoder2",
  // Of 2025 and 2026.
  "apertus", "arcee", "cohere", "cohere-normed", "dots1", "ernie4.5", "ernie4.5-moe", "exaone4-full", "gemma4",
  "gemma3n", "gemma4-experts", "gemma4-keys", "glm4-moe-grouped", "hunyuan", "hunyuan-moe", "llama4", "minimax-m2",
  "ministral3", "mistral4", "seed-oss", "smallthinker", "smallthinker-softmax",
  // Of late 2026, and older ones that were left out.
  "gpt-bigcode", "gpt-bigcode-heads", "gptj", "granite-swa", "internlm3", "mpt", "olmoe", "phimoe", "solar-open",
  "axk1", "hy-v4", "laguna", "laguna-elements", "longcat-flash", "minimax-m3",
  // The texts of multimodal models.
  "exaone4.5", "glm4v", "llava", "mistral3", "qwen2-vl", "qwen2.5-vl", "qwen3-vl", "qwen3-vl-moe", "smolvlm"};

/// A backend that has only the ops which every backend has.
class basic_backend final : public kernels::backend {
public:
  std::string description() const override { return "basic"; }
  kernels::buffer allocate(std::size_t bytes) override { return cpu_->allocate(bytes); }
  kernels::buffer upload(std::span<const float> values) override { return cpu_->upload(values); }
  std::unique_ptr<kernels::kv_cache> make_kv_cache(const kernels::kv_shape& shape) override {
    return cpu_->make_kv_cache(shape);
  }
  std::unique_ptr<kernels::matrix> pack(std::span<const kernels::stored_matrix> stacked, dtype compute,
                                        kernels::quantization how) override {
    return cpu_->pack(stacked, compute, how);
  }
  std::unique_ptr<kernels::matrix> pack_gate_up(const kernels::stored_matrix& gate, const kernels::stored_matrix& up,
                                                dtype compute, kernels::quantization how) override {
    return cpu_->pack_gate_up(gate, up, compute, how);
  }
  std::unique_ptr<kernels::matrix> load_table(const kernels::stored_matrix& table) override {
    return cpu_->load_table(table);
  }
  void embed(const kernels::tensor& out, const kernels::matrix& table, const std::int32_t* tokens) override {
    cpu_->embed(out, table, tokens);
  }
  void rms_norm(const kernels::tensor& out, const kernels::tensor& x, const float* weight, float eps,
                const std::int32_t* rows) override {
    cpu_->rms_norm(out, x, weight, eps, rows);
  }
  void linear(const kernels::tensor& out, const kernels::tensor& in, const kernels::matrix& w, const float* bias,
              kernels::store how) override {
    cpu_->linear(out, in, w, bias, how);
  }
  void linear_silu_gate(const kernels::tensor& out, const kernels::tensor& in, const kernels::matrix& gate_up,
                        const float* bias) override {
    cpu_->linear_silu_gate(out, in, gate_up, bias);
  }
  void rope_write_kv(const kernels::tensor& qkv, int heads, const kernels::head_norm& norm,
                     const kernels::rope_rows& rope, kernels::kv_cache& cache, int layer,
                     const kernels::batch& step) override {
    cpu_->rope_write_kv(qkv, heads, norm, rope, cache, layer, step);
  }
  void attention(const kernels::tensor& out, const kernels::tensor& qkv, int heads, float scale, int window,
                 const kernels::kv_cache& cache, int layer, const kernels::batch& step) override {
    cpu_->attention(out, qkv, heads, scale, window, cache, layer, step);
  }
  void copy_blocks(kernels::kv_cache& cache, std::span<const kernels::block_copy> copies) override {
    cpu_->copy_blocks(cache, copies);
  }
  void download(float* to, const kernels::tensor& from) override { cpu_->download(to, from); }

private:
  std::unique_ptr<kernels::backend> cpu_ = kernels::make_cpu_backend({.threads = 1});
};

} // namespace

TEST_CASE("Families that need no further ops run on a backend that has none, with the same bits; others are refused") {
  for (const std::string model : {"families/phi3", "families/smollm3", "tiny_families/glm", "golden/qwen3",
                                  "tiny_families/seed-oss", "tiny_families/ernie4.5"}) {
    CAPTURE(model);
    const auto source = open(model);
    std::mt19937 random(5);
    const auto ids = random_tokens(random, 40, source.config.vocab);
    engine all(source, targets().back(), 1, dtype::f32), basic(source, std::make_unique<basic_backend>(), dtype::f32);
    CHECK(all.step({{ids, 0, first_blocks(ids.size())}}) == basic.step({{ids, 0, first_blocks(ids.size())}}));
  }
  for (const std::string model :
       {"families/gemma2", "families/olmo2", "families/gpt2", "families/opt", "families/granite", "families/mixtral",
        "tiny_families/stablelm", "tiny_families/deepseek-wide", "tiny_families/hunyuan", "tiny_families/ministral3",
        "families/llama4", "families/gemma4", "tiny_encoders/bert"}) {
    CAPTURE(model);
    const auto source = open(model);
    basic_backend backend;
    CHECK(failure_of([&] { load_weights(*source.tensors, source.config, backend, dtype::f32); }) ==
          "models of the family `" + source.config.family +
            "` need operations that not every device has; this is basic");
  }
  const auto gates = open("tiny_families/gemma3n");
  basic_backend backend;
  CHECK(failure_of([&] { load_weights(*gates.tensors, gates.config, backend, dtype::f32); }) ==
        "models of the family `gemma3n_text` need gates that few inputs pass; this is basic");
  const auto distances = open("families/inkling");
  CHECK(
    failure_of([&] { load_weights(*distances.tensors, distances.config, backend, dtype::f32); }) ==
    "models of the family `inkling_text` need learned numbers for distances and short convolutions beside attention, "
    "which CPUs and NVIDIA GPUs compute; this is basic");
  const auto indexed = open("families/deepseek-v32");
  CHECK(failure_of([&] { load_weights(*indexed.tensors, indexed.config, backend, dtype::f32); }) ==
        "models of the family `deepseek_v32` need attention over positions that an indexer chooses, which CPUs and "
        "NVIDIA GPUs compute; this is basic");
  const auto compressed = open("families/deepseek-v4");
  CHECK(failure_of([&] { load_weights(*compressed.tensors, compressed.config, backend, dtype::f32); }) ==
        "models of the family `deepseek_v4` need attention over compressed keys, which CPUs and NVIDIA GPUs compute; "
        "this is "
        "basic");
  auto later = open("families/glm-moe-dsa");
  later.config.span = layer_span{1, 4, false, true};
  const auto cpu = kernels::make_cpu_backend({.threads = 1});
  CHECK(failure_of([&] { load_weights(*later.tensors, later.config, *cpu, dtype::f32); }) ==
        "models of the family `glm_moe_dsa` cannot be divided ahead of layer 1, which takes the choice of positions of "
        "the layer before");
  auto tables = open("families/deepseek-v4");
  tables.config.hashed = {true, true, true, false};
  tables.config.span = layer_span{1, 4, false, true};
  CHECK(failure_of([&] { load_weights(*tables.tensors, tables.config, *cpu, dtype::f32); }) ==
        "models of the family `deepseek_v4` cannot be divided ahead of layer 1, whose experts depend on tokens: those "
        "layers belong to the first part");
  auto halves = open("tiny_families/longcat-flash");
  halves.config.span = layer_span{1, 4, false, true};
  CHECK(
    failure_of([&] { load_weights(*halves.tensors, halves.config, *cpu, dtype::f32); }) ==
    "models of the family `longcat_flash` cannot be divided ahead of layer 1, behind which what experts of the layer "
    "before give is added");
  CHECK(failure_of([&] {
          precision few(dtype::f32);
          few.attention_threshold = 0.1f;
          load_weights(*indexed.tensors, indexed.config, *cpu, few);
        }) ==
        "`attention_threshold` is not for models of the family `deepseek_v32`, whose attention sees chosen positions "
        "alone");
}

TEST_CASE("Tiny families: transformers' logits at several positions, in f32 on every target") {
  for (const auto& model : tiny_family_models)
    for (const isa target : targets()) {
      CAPTURE(model);
      const auto source = open("tiny_families/" + model);
      const auto lines = check_tensors(*source.tensors, source.config);
      CHECK(lines.size() == (source.config.multimodal.empty() ? 0 : 1));
      check_tiny(source, "tiny_families/" + model, target);
    }
}

TEST_CASE("Families: logits, greedy tokens and log-probabilities are transformers', in f32 on every target") {
  for (const auto& model : family_models)
    for (const isa target : targets())
      check_golden("families/" + model, target);
  for (const std::string model : {"gemma3n", "smallthinker", "smallthinker-softmax"})
    for (const isa target : targets())
      check_golden("tiny_families/" + model, target);
}

TEST_CASE("Families: computed in bf16, logits stay within what rounding explains") {
  for (const auto& model : family_models) {
    const auto source = open("families/" + model);
    // Where two experts are nearly as good, rounding may swap them. Weights that were not trained amplify roundings.
    const bool trained = source.config.rope.type != rope_type::longrope;
    check_bf16(source, "families/" + model, targets().back(), source.config.experts.count > 0 ? 4 : trained ? 1 : 10);
  }
}

TEST_CASE("Families: memory estimates are what loading takes, also of experts and learned positions") {
  for (const std::string model : {"families/gpt2",
                                  "families/gpt-oss",
                                  "tiny_families/qwen2-moe",
                                  "families/opt",
                                  "tiny_families/deepseek-v3",
                                  "families/gemma4",
                                  "families/llama4",
                                  "families/nanochat",
                                  "families/deepseek-v32",
                                  "families/mimo-v2-flash",
                                  "families/step3p7",
                                  "families/deepseek-v4",
                                  "tiny_families/apertus",
                                  "tiny_encoders/bert",
                                  "tiny_encoders/modernbert",
                                  "tiny_families/gemma3n",
                                  "tiny_families/longcat-flash",
                                  "tiny_families/hy-v4",
                                  "families/mistral-large4",
                                  "tiny_families/minimax-m3"})
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
  for (const precision as :
       {precision(dtype::f32), precision(dtype::bf16), precision{dtype::bf16, kernels::quantization::int8}})
    for (const std::string model : {"gemma3n", "hy-v4", "laguna", "longcat-flash", "minimax-m3", "smallthinker"})
      check_schedules("tiny_families/" + model, targets().back(), as, random);
}

TEST_CASE("MiniMax M3: the blocks that heads choose are part of the result") {
  std::mt19937 random(13);
  const auto source = open("tiny_families/minimax-m3");
  const auto ids = random_tokens(random, 60, source.config.vocab);
  const auto with = [&](const std::function<void(model_config&)>& change) {
    auto other = open("tiny_families/minimax-m3");
    change(other.config);
    engine e(other, targets().back(), 1, dtype::f32);
    return e.step({{ids, 0, first_blocks(ids.size())}}, true).back();
  };
  const auto expected = with([](model_config&) {});
  CHECK(largest_difference(with([](model_config& c) { c.indexer.top += 5; }), expected) > 1e-2);
  CHECK(largest_difference(with([](model_config& c) { c.indexer.newest = 3; }), expected) > 1e-2);
  CHECK(largest_difference(with([](model_config& c) { c.indexer.at[1] = false; }), expected) > 1e-2);
}

TEST_CASE("More positions than the context has are neither chosen nor planned for") {
  const auto most = [](int top, int group, int block) {
    return indexer_config{.heads = 1, .top = top, .group = group, .block = block}.top_within(100);
  };
  CHECK(most(99, 1, 0) == 99);
  CHECK(most(1 << 28, 1, 0) == 100);
  CHECK(most(96, 1, 32) == 96);
  CHECK(most(1 << 20, 1, 32) == 128); // whole blocks
  CHECK(most(79, 16, 0) == 79);
  CHECK(most((1 << 20) - 1, 16, 0) == 127); // whole groups, and the rest of one
  CHECK(indexer_config{.heads = 1, .top = 1023, .group = 16}.top_within(3) == 31);
  std::mt19937 random(14);
  for (const std::string model : {"families/deepseek-v32", "families/deepseek-v4", "families/qwen4-exp",
                                  "families/mistral-large4", "tiny_families/minimax-m3"}) {
    CAPTURE(model);
    const auto ids = random_tokens(random, 70, open(model).config.vocab);
    const auto with = [&](int positions) {
      auto other = open(model);
      auto& indexer = other.config.indexer;
      REQUIRE(indexer);
      const int unit = std::max(indexer.group, indexer.block);
      indexer.top = unit > 1 ? positions / unit * unit + indexer.group - 1 : positions;
      return other;
    };
    const auto logits_of = [&](const model_source& of) {
      engine e(of, targets().back(), 1, dtype::f32);
      return e.step({{ids, 0, first_blocks(ids.size())}}, true).back();
    };
    const auto planned = [&](const model_source& of, int context) {
      const auto backend = kernels::make_cpu_backend({1, targets().back()});
      return estimate_memory(*of.tensors, of.config, dtype::f32, *backend, {.rows = 64, .context = context});
    };
    const auto all = with(200), more = with(1 << 28); // of which choices would take 1 TB
    CHECK(logits_of(more) == logits_of(all));
    CHECK(planned(more, 100).activations == planned(all, 100).activations);
    const auto few = with(64);
    CHECK(planned(more, 10'000).activations > planned(few, 10'000).activations);
    // Scores of the positions that rows choose among are there at once, up to 8 MiB of them.
    CHECK(planned(few, 100'000).scratch > planned(few, 100).scratch + (std::size_t(5) << 20));
  }
}

TEST_CASE("SmallThinker: what the router reads, and which layers rotate, are parts of the result") {
  std::mt19937 random(12);
  const auto source = open("tiny_families/smallthinker");
  const auto ids = random_tokens(random, 30, source.config.vocab);
  const auto with = [&](const std::function<void(model_config&)>& change) {
    auto other = open("tiny_families/smallthinker");
    change(other.config);
    engine e(other, targets().back(), 1, dtype::f32);
    return e.step({{ids, 0, first_blocks(ids.size())}}, true).back();
  };
  const auto expected = with([](model_config&) {});
  CHECK(largest_difference(with([](model_config& c) { c.experts.early = false; }), expected) > 1e-2);
  CHECK(largest_difference(with([](model_config& c) { c.unrotated.clear(); }), expected) > 1e-2);
  CHECK(largest_difference(with([](model_config& c) { c.windows.assign(c.windows.size(), 0); }), expected) > 1e-2);
}

TEST_CASE("DeepSeek V4: streams, entries, the choice among them, and tables of experts are parts of the result") {
  std::mt19937 random(13);
  const auto ids = random_tokens(random, 150, open("families/deepseek-v4").config.vocab);
  const auto with = [&](const std::function<void(model_config&)>& change) {
    auto other = open("families/deepseek-v4");
    change(other.config);
    engine e(other, targets().back(), 1, dtype::f32);
    return e.step({{ids, 0, first_blocks(ids.size())}}, true).back();
  };
  const auto expected = with([](model_config&) {});
  CHECK(largest_difference(with([](model_config& c) { c.hyper.passes = 1; }), expected) > 1e-4);
  CHECK(largest_difference(with([](model_config& c) { c.indexer.top = 15; }), expected) > 1e-4);
  CHECK(largest_difference(with([](model_config& c) { c.compressed.window = 31; }), expected) > 1e-3);
  CHECK(largest_difference(with([](model_config& c) { c.rope.theta = 10000; }), expected) > 1e-3);
  CHECK(failure_of([&] {
          with([](model_config& c) { c.experts.count = 7; });
        }).find("`model.layers.0.ffn.gate.weight`") != std::string::npos);
}

TEST_CASE("Gemma 3n: streams, inputs of layers and gates that count are parts of the result") {
  std::mt19937 random(11);
  const auto source = open("tiny_families/gemma3n");
  const auto ids = random_tokens(random, 30, source.config.vocab);
  const auto with = [&](const std::function<void(model_config&)>& change) {
    auto other = open("tiny_families/gemma3n");
    change(other.config);
    engine e(other, targets().back(), 1, dtype::f32);
    return e.step({{ids, 0, first_blocks(ids.size())}}, true).back();
  };
  const auto expected = with([](model_config&) {});
  CHECK(largest_difference(with([](model_config& c) { c.gate_cutoffs.clear(); }), expected) > 1e-2);
  CHECK(largest_difference(with([](model_config& c) { c.altup.active = 0; }), expected) > 1e-2);
  CHECK(largest_difference(with([](model_config& c) { c.altup.scaled = false; }), expected) > 1e-2);
}
