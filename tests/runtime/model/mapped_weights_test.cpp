// Weights that stay in their file, all or some of them, give the bits of weights in memory.
#include "runtime/checkpoint/packed/packed_cache.hpp"
#include "runtime/engine/loading/weight_loading.hpp"
#include "runtime/model/decoder/memory_estimate.hpp"
#include "tests/kernels/sharded/sharded_support.hpp"
#include "tests/runtime/model/decoder_checks.hpp"

using namespace troupe;
using namespace troupe::test;
using kernels::quantization;

namespace {

namespace fs = std::filesystem;

/// Logits of a prompt in two chunks and of single rows of two sequences, for several passes.
std::vector<row_logits> logits_of(engine& e, int vocab) {
  std::mt19937 random(3);
  const auto blocks = first_blocks(64), others = first_blocks(64, 4);
  auto all = e.step({{random_tokens(random, 21, vocab), 0, blocks, 64}});
  const auto add = [&](const std::vector<chunk>& step) {
    for (auto& row : e.step(step))
      all.push_back(std::move(row));
  };
  add({{random_tokens(random, 9, vocab), 21, blocks, 64}, {random_tokens(random, 5, vocab), 0, others, 64}});
  for (int i = 0; i < 3; ++i)
    add({{random_tokens(random, 1, vocab), 30 + i, blocks, 64}, {random_tokens(random, 1, vocab), 5 + i, others, 64}});
  return all;
}

bool same_bits(const std::vector<row_logits>& a, const std::vector<row_logits>& b) {
  return std::ranges::equal(a, b, [](const auto& x, const auto& y) {
    return x.size() == y.size() && std::memcmp(x.data(), y.data(), x.size() * sizeof(float)) == 0;
  });
}

struct mapped_model {
  model_source source;
  precision as;
  fs::path folder;
  std::vector<std::string> lines = {};

  std::unique_ptr<engine> load(const std::string& weights, std::size_t budget = all_weights,
                               std::unique_ptr<kernels::backend> backend = kernels::make_cpu_backend({.threads = 2})) {
    lines.clear();
    compute_options options;
    options.weights = weights;
    options.packed_cache = folder.string();
    options.packed_cache_bytes = std::size_t(1) << 40;
    return std::make_unique<engine>(source, std::move(backend), as, [&](kernels::backend& on) {
      return load_weights(
        source, options, as, on, {}, [&](std::string line) { lines.push_back(std::move(line)); }, {}, budget);
    });
  }

  std::size_t packed_bytes() const {
    const auto backend = kernels::make_cpu_backend({.threads = 1});
    return estimate_memory(*source.tensors, source.config, as, *backend, {8, 1, 64}).packed;
  }

  fs::path file() const {
    for (const auto& entry : fs::directory_iterator(folder))
      if (entry.path().extension() == ".packed")
        return entry.path();
    return {};
  }
};

} // namespace

TEST_CASE(
  "Weights have the same bits in memory, mapped, and read from disk layer by layer, from a cold and a warm file") {
  for (const std::string model :
       {"golden/llama-gqa", "golden/llama-mha-tied", "gguf/mixed.gguf", "gguf/llama3-q8_0.gguf", "families/mixtral",
        "families/gpt-oss", "families/qwen3-next", "families/gemma4", "tiny_families/deepseek-v3",
        "tiny_families/gemma3n", "tiny_families/longcat-flash"})
    for (const precision& as : {precision{dtype::bf16}, precision{dtype::f32, quantization::int8}}) {
      CAPTURE(model);
      CAPTURE(size_of(as.compute));
      const temp_folder folder;
      const auto source = open_model((data() / model).string());
      engine in_memory(source, kernels::make_cpu_backend({.threads = 2}), as);
      const auto expected = logits_of(in_memory, source.config.vocab);
      int case_number = 0;
      std::vector<std::pair<std::string, double>> cases{{"mapped", 0.5}, {"auto", 0.1}};
      if (model == "golden/llama-mha-tied" || model == "families/mixtral")
        cases = {{"mapped", 2}, {"mapped", 0.5}, {"mapped", 0}, {"auto", 2}, {"auto", 0.6}, {"resident", 2}};
      for (const auto& [weights, part] : cases) {
        CAPTURE(weights);
        CAPTURE(part);
        mapped_model m{open_model((data() / model).string()), as, folder.path() / std::to_string(case_number++)};
        const auto all = m.packed_bytes();
        const auto budget = part > 1 ? all_weights : static_cast<std::size_t>(part * static_cast<double>(all));
        for (int start = 0; start < 2; ++start) {
          CAPTURE(start);
          const auto loaded = m.load(weights, budget);
          CHECK(same_bits(logits_of(*loaded, source.config.vocab), expected));
          const bool in_file = weights != "resident" && (weights == "mapped" || part < 1 || start == 1);
          CHECK((loaded->weights().pager != nullptr) == in_file);
          CHECK(std::ranges::any_of(m.lines, [](const std::string& line) {
                  return line.find("each token reads ") != line.npos;
                }) == (part < 1));
          if (part < 1)
            CHECK(loaded->weights().pager->read_bytes() > 0);
        }
      }
    }
}

TEST_CASE("Ranks read their shards of mapped weights, with the bits of one") {
  const temp_folder folder;
  const precision as{dtype::bf16, quantization::int8};
  for (const std::string model : {"golden/llama-gqa", "families/mixtral"}) {
    mapped_model m{open_model((data() / model).string()), as, folder.path()};
    const auto vocab = m.source.config.vocab;
    engine in_memory(m.source, targets().back(), 2, as);
    const auto expected = logits_of(in_memory, vocab);
    for (int start = 0; start < 2; ++start)
      CHECK(same_bits(
        logits_of(*m.load("mapped", m.packed_bytes() / 2, kernels::testing::make_ranks(targets().back(), 3)), vocab),
        expected));
  }
}

TEST_CASE("A damaged block is told of by the step that reads it; the next load packs again") {
  const temp_folder folder;
  mapped_model m{open_model((data() / "golden/llama-gqa").string()), dtype::bf16, folder.path()};
  const auto vocab = m.source.config.vocab;
  const auto expected = logits_of(*m.load("mapped"), vocab);
  auto bytes = content(m.file());
  bytes[bytes.size() / 2] ^= 16;
  write(m.file(), bytes);
  const auto name = m.file().string();
  {
    const auto loaded = m.load("mapped"); // says nothing
    CHECK(failure_of([&] { logits_of(*loaded, vocab); }).starts_with(name + " is damaged, in the matrix `model."));
    CHECK(!fs::exists(name));
    CHECK(failure_of([&] { logits_of(*loaded, vocab); }).find(" is damaged") != std::string::npos);
  }
  CHECK(same_bits(logits_of(*m.load("mapped"), vocab), expected));
}

TEST_CASE("A head that is the embedding matrix is in memory once, where its packed form is exact") {
  const auto weights_of = [](const std::string& model, precision as) {
    const auto source = open_model((data() / model).string());
    const auto backend = kernels::make_cpu_backend({.threads = 1});
    const auto weights = load_weights(*source.tensors, source.config, *backend, as);
    CHECK(weights->bytes == estimate_memory(*source.tensors, source.config, as, *backend, {8, 1, 64}).weights);
    CHECK(weights->head_gives_embedding == (weights->embedding_memory == nullptr));
    return weights->head_gives_embedding;
  };
  CHECK(weights_of("golden/llama-mha-tied", dtype::f32));
  CHECK(!weights_of("golden/llama-mha-tied", {dtype::f32, quantization::int8})); // rounded
  CHECK(!weights_of("golden/llama-gqa", dtype::f32));                            // another matrix
}

TEST_CASE("Weights that cannot be mapped are refused in one sentence") {
  const auto backend = kernels::make_cpu_backend({.threads = 1});
  const auto refusal = [&](const model_source& source, compute_options options) {
    options.weights = "mapped";
    return failure_of([&] { load_weights(source, options, dtype::bf16, *backend, {}, [](auto) {}); });
  };
  const auto model = open_model((data() / "golden/qwen3").string());
  CHECK(refusal(model, {}) ==
        "`weights` can be mapped only where they are kept: there is no folder to keep them in (--packed-cache)");
  const temp_folder folder;
  compute_options options;
  options.packed_cache = folder.path().string();
  CHECK(refusal(open_model("synthetic:llama-135m"), options) ==
        "`weights` mapped is for models in files, which synthetic:llama-135m is not");
  const auto need = memory_estimate{.weights = 100, .packed = 90};
  CHECK(budget_beside(model, {}, dtype::bf16, *backend, need, 10, 110) == all_weights);
  CHECK(failure_of([&] { budget_beside(model, {}, dtype::bf16, *backend, need, 10, 109); }).find("needs 110") !=
        std::string::npos);
}
