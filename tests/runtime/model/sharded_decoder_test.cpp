// Tensor parallelism: whatever the model, any number of ranks gives the bits of one.
#include "runtime/engine/loading/weight_loading.hpp"
#include "runtime/model/decoder/memory_estimate.hpp"
#include "tests/kernels/sharded/sharded_support.hpp"
#include "tests/rounds.hpp"
#include "tests/runtime/model/decoder_checks.hpp"

#include <filesystem>

using namespace troupe;
using namespace troupe::test;
using kernels::quantization;
using kernels::testing::make_ranks;

namespace {

/// All checkpoints in the tests' data that can be run.
std::vector<std::string> all_checkpoints() {
  std::vector<std::string> all;
  for (const char* folder : {"golden", "tiny", "families", "tiny_families", "quantised"})
    for (const auto& entry : std::filesystem::directory_iterator(data() / folder))
      if (std::filesystem::exists(entry.path() / "config.json"))
        all.push_back(std::string(folder) + "/" + entry.path().filename().string());
  for (const char* file : {"llama3-q8_0", "mixed", "qwen2-bf16"})
    all.push_back("gguf/" + std::string(file) + ".gguf");
  std::ranges::sort(all);
  return all;
}

/// Logits of prompts and single rows, alone and mixed, over some steps.
std::vector<row_logits> logits_of(const model_source& source, std::unique_ptr<kernels::backend> backend, precision as) {
  engine e(source, std::move(backend), as);
  std::mt19937 random(3);
  const int vocab = source.config.vocab;
  const auto first = random_tokens(random, 41, vocab), second = random_tokens(random, 7, vocab);
  const auto blocks = first_blocks(64), others = first_blocks(64, 4);
  auto all = e.step({{first, 0, blocks, 64}});
  for (const auto& step :
       {std::vector<chunk>{{random_tokens(random, 1, vocab), 41, blocks, 64}, {second, 0, others, 64}},
        std::vector<chunk>{{random_tokens(random, 1, vocab), 42, blocks, 64},
                           {random_tokens(random, 3, vocab), 7, others, 64}},
        std::vector<chunk>{{random_tokens(random, 1, vocab), 43, blocks, 64}}})
    for (auto& row : e.step(step))
      all.push_back(std::move(row));
  return all;
}

bool same_bits(const std::vector<row_logits>& a, const std::vector<row_logits>& b) {
  return std::ranges::equal(a, b, [](const auto& x, const auto& y) {
    return x.size() == y.size() && std::memcmp(x.data(), y.data(), x.size() * sizeof(float)) == 0;
  });
}

} // namespace

TEST_CASE("Every checkpoint gives the same bits on 1 to 4 ranks, in f32, bf16, int8 and int4") {
  const auto target = targets().back();
  const auto models = all_checkpoints();
  CHECK(models.size() > 60);
  std::size_t cases = 0;
  for (const auto& model : models)
    for (const precision& as :
         {precision{dtype::f32}, precision{dtype::bf16}, precision{dtype::bf16, quantization::int8},
          precision{dtype::f32, quantization::int4}}) {
      ++cases;
      if (rounds(4) == 1 && (cases / 4 + cases) % 4 != 0)
        continue; // sanitizers: each checkpoint in one of them, in turn
      CAPTURE(model);
      CAPTURE(size_of(as.compute));
      CAPTURE(static_cast<int>(as.weights));
      const auto source = open(model);
      const auto alone = logits_of(source, kernels::make_cpu_backend({.threads = 1, .target = target}), as);
      for (std::size_t ranks = 1; ranks <= 4; ++ranks) {
        if ((cases / 4 + cases + ranks) % 2 == 0 && as.compute != dtype::f32)
          continue; // half of them, in turn
        CAPTURE(ranks);
        CHECK(same_bits(logits_of(source, make_ranks(target, ranks, ranks == 2 ? 2 : 1), as), alone));
      }
    }
}

TEST_CASE("Ranks give the same bits on every target") {
  for (const isa target : targets())
    for (const std::string model : {"golden/llama-gqa", "families/mixtral", "tiny_families/deepseek-v3"})
      for (const precision& as :
           {precision{dtype::f32}, precision{dtype::bf16}, precision{dtype::bf16, quantization::int8}}) {
        CAPTURE(model);
        CAPTURE(std::string(to_string(target)));
        const auto source = open(model);
        CHECK(same_bits(logits_of(source, make_ranks(target, 3), as),
                        logits_of(source, kernels::make_cpu_backend({.threads = 1, .target = target}), as)));
      }
}

TEST_CASE("Logits on two, three and four ranks do not depend on the schedule") {
  std::mt19937 random(17);
  const auto target = targets().back();
  const auto ranks = [&](int round) { return make_ranks(target, static_cast<std::size_t>(round) + 1); };
  precision sparse{dtype::bf16};
  sparse.sparsity = {0.8f, 0.5f};
  check_schedules("golden/llama-gqa", target, sparse, random, ranks);
  for (const std::string model :
       {"golden/mistral-swa", "golden/llama-mqa-rope3", "families/gpt-oss", "tiny_families/deepseek-v2",
        "families/deepseek-v4", "tiny_families/falcon-alibi", "tiny_families/laguna", "tiny_families/longcat-flash"})
    for (const precision& as : {precision{dtype::f32}, precision{dtype::bf16, quantization::int8}})
      check_schedules(model, target, as, random, ranks);
}

TEST_CASE("Weights on ranks need the estimated memory, and a packed cache keeps them apart from those of one rank") {
  const auto target = targets().back();
  const temp_folder folder;
  const auto source = open("golden/qwen3");
  const precision as{dtype::bf16, quantization::int8};
  std::vector<std::string> lines;
  const auto load = [&](kernels::backend& backend) {
    lines.clear();
    const auto weights = load_weights(source, {.threads = 1, .packed_cache = folder.path().string()}, as, backend, {},
                                      [&](std::string line) { lines.push_back(std::move(line)); });
    CHECK(weights->bytes == estimate_memory(*source.tensors, source.config, as, backend, {64, 1, 256}).weights);
    return std::ranges::any_of(lines,
                               [](const auto& line) { return line.find("packed weights come from") != line.npos; });
  };
  CHECK(!load(*kernels::make_cpu_backend({.threads = 1, .target = target})));
  for (const std::size_t ranks : {2, 3}) {
    CHECK(!load(*make_ranks(target, ranks)));
    CHECK(load(*make_ranks(target, ranks)));
  }
  CHECK(load(*kernels::make_cpu_backend({.threads = 1, .target = target})));
}

TEST_CASE("The scratch of ranks is estimated: more than that of one, as each arranges all inputs") {
  const auto source = open("golden/llama-gqa");
  const auto scratch = [&](kernels::backend& backend) {
    return estimate_memory(*source.tensors, source.config, dtype::bf16, backend, {64, 8, 256}).scratch;
  };
  const auto target = targets().back();
  const auto one = scratch(*kernels::make_cpu_backend({.threads = 1, .target = target}));
  CHECK(scratch(*make_ranks(target, 2)) > one);
  CHECK(scratch(*make_ranks(target, 4)) > scratch(*make_ranks(target, 2)));
}
