#include "kernels/cpu/cpu_backend.hpp"
#include "runtime/engine/loader.hpp"
#include "runtime/import/model_source.hpp"
#include "runtime/model/decoder.hpp"
#include "runtime/model/memory_estimate.hpp"
#include "runtime/model/tensor_names.hpp"
#include "runtime/support/json.hpp"
#include "tests/runtime/model/model_test_data.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <numeric>
#include <random>

using namespace troupe;
using namespace troupe::test;
using kernels::dtype;
using kernels::isa;

namespace {

constexpr int max_context = 2048;
constexpr int max_rows = 1024;
constexpr int pool_blocks = 128;

using row_logits = std::vector<float>;

/// A chunk of one sequence in a step: tokens at consecutive positions, over the sequence's blocks.
struct chunk {
  std::vector<token_id> tokens;
  int first_position = 0;
  std::vector<std::int32_t> blocks;
};

/// A loaded model with a decoder and a KV cache.
class engine {
public:
  engine(const model_source& source, isa target, int threads, precision precision)
    : backend_(kernels::make_cpu_backend({threads, target})),
      weights_(load_weights(*source.tensors, source.config, *backend_, precision)),
      decoder_(weights_, *backend_, max_rows, max_context),
      cache_(backend_->make_kv_cache(kv_shape_of(source.config, precision.compute, pool_blocks))),
      logits_(backend_->allocate(static_cast<std::size_t>(max_rows) * vocab() * sizeof(float))) {}

  std::size_t vocab() const { return static_cast<std::size_t>(weights_->config.vocab); }
  decoder& graph() { return decoder_; }
  kernels::kv_cache& cache() { return *cache_; }
  kernels::tensor logits(std::size_t rows) const { return {logits_.get(), dtype::f32, rows, vocab(), vocab()}; }
  const model_weights& weights() const { return *weights_; }

  /// One forward pass over all chunks; the logits of all of their rows, or of each chunk's last.
  std::vector<row_logits> step(const std::vector<chunk>& chunks, bool last_only = false) {
    std::vector<token_id> tokens;
    std::vector<std::int32_t> tables, wanted;
    std::vector<kernels::sequence_rows> sequences;
    for (const auto& c : chunks) {
      const auto first = static_cast<std::int32_t>(tokens.size()), rows = static_cast<std::int32_t>(c.tokens.size());
      sequences.push_back({first, rows, c.first_position, static_cast<std::int32_t>(tables.size())});
      tokens.insert(tokens.end(), c.tokens.begin(), c.tokens.end());
      tables.insert(tables.end(), c.blocks.begin(), c.blocks.end());
      for (std::int32_t r = last_only ? rows - 1 : 0; r < rows; ++r)
        wanted.push_back(first + r);
    }
    const auto out = logits(wanted.size());
    decoder_.forward(tokens, {sequences, tables}, wanted, *cache_, out);
    std::vector<row_logits> result(wanted.size(), row_logits(vocab()));
    for (std::size_t i = 0; i < wanted.size(); ++i)
      backend_->download(result[i].data(),
                         {static_cast<float*>(logits_.get()) + i * vocab(), dtype::f32, 1, vocab(), vocab()});
    return result;
  }

private:
  std::unique_ptr<kernels::backend> backend_;
  std::shared_ptr<const model_weights> weights_;
  decoder decoder_;
  std::unique_ptr<kernels::kv_cache> cache_;
  kernels::buffer logits_;
};

std::vector<std::int32_t> first_blocks(std::size_t tokens, std::int32_t from = 0) {
  std::vector<std::int32_t> blocks((tokens + kernels::block_tokens - 1) / kernels::block_tokens);
  std::iota(blocks.begin(), blocks.end(), from);
  return blocks;
}

double log_probability(const row_logits& logits, token_id token) {
  const double top = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (float l : logits)
    sum += std::exp(l - top);
  return logits[static_cast<std::size_t>(token)] - top - std::log(sum);
}

double root_mean_square(const row_logits& v) {
  double sum = 0;
  for (float x : v)
    sum += double(x) * x;
  return std::sqrt(sum / double(v.size()));
}

/// How far logits computed in bf16 may be from those in f32. Each of the eight values that a layer rounds on its way
/// (weights and inputs of four linear ops; K and V are of the same kind) and the two at the head contribute an
/// independent relative error of at most u = 2^-9, u / sqrt(3) on average; they add up as squares. Over a vocabulary,
/// the largest of the normally distributed errors is about 3.5 deviations out. (The worst seen is 0.4 of it.)
double bf16_bound(const model_config& config, const row_logits& expected) {
  const double deviation = 0x1p-9 / std::sqrt(3.0) * std::sqrt(8.0 * config.layers + 2);
  return 3.5 * deviation * root_mean_square(expected);
}

std::vector<token_id> random_tokens(std::mt19937& random, std::size_t count, int vocab) {
  std::vector<token_id> tokens(count);
  for (auto& t : tokens)
    t = static_cast<token_id>(random() % static_cast<unsigned>(vocab));
  return tokens;
}

/// All targets of this machine. Sanitizers are too slow for that: with them only the fastest target, and the kernels'
/// own tests cover the others.
std::vector<isa> targets() {
  auto all = kernels::available_isas();
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  all.erase(all.begin(), all.end() - 1);
#endif
  return all;
}

model_source open(const std::string& model) { return open_model((data() / model).string()); }

} // namespace

TEST_CASE("Golden checkpoints: logits, greedy tokens and log-probabilities are transformers', in f32 on every target") {
  for (const auto& model : golden_models)
    for (const isa target : targets()) {
      CAPTURE(model);
      CAPTURE(std::string(to_string(target)));
      const auto source = open("golden/" + model);
      engine e(source, target, 2, dtype::f32);
      const auto document = json::document::load(data() / "golden" / model / "expected.json");
      json::array cases;
      REQUIRE(!document.root()["cases"].get(cases));
      double worst = 0, worst_logprob = 0;
      for (json::value c : cases) {
        const auto ids = list<token_id>(c["ids"]), greedy = list<token_id>(c["greedy"]["ids"]);
        const auto margins = list<double>(c["greedy"]["margins"]), logprobs = list<double>(c["greedy"]["logprobs"]);
        const auto blocks = first_blocks(ids.size() + greedy.size());
        auto logits = e.step({{ids, 0, blocks}}, true).back();
        worst = std::max(worst, largest_difference(logits, list<float>(c["last_logits"])));
        // Continue with the expected token, even if a small margin lets another one win here.
        for (std::size_t i = 0; i < greedy.size(); ++i) {
          CAPTURE(i);
          const auto best = std::max_element(logits.begin(), logits.end()) - logits.begin();
          CHECK((best == greedy[i] || margins[i] <= 1e-3));
          worst_logprob = std::max(worst_logprob, std::abs(log_probability(logits, greedy[i]) - logprobs[i]));
          logits = e.step({{{greedy[i]}, static_cast<int>(ids.size() + i), blocks}}).back();
        }
      }
      CHECK(worst < 2e-4);
      CHECK(worst_logprob < 1e-3);
    }
}

TEST_CASE("Golden checkpoints: computed in bf16, logits stay within what rounding explains") {
  for (const auto& model : golden_models)
    for (const isa target : targets()) {
      CAPTURE(model);
      CAPTURE(std::string(to_string(target)));
      const auto source = open("golden/" + model);
      engine e(source, target, 2, dtype::bf16);
      const auto document = json::document::load(data() / "golden" / model / "expected.json");
      json::array cases;
      REQUIRE(!document.root()["cases"].get(cases));
      for (json::value c : cases) {
        const auto ids = list<token_id>(c["ids"]);
        const auto expected = list<float>(c["last_logits"]);
        const auto got = e.step({{ids, 0, first_blocks(ids.size())}}, true).back();
        const double worst = largest_difference(got, expected);
        CHECK(worst < bf16_bound(source.config, expected));
        CHECK(worst > 2e-4); // else it was not computed in bf16
      }
    }
}

TEST_CASE(
  "Tiny checkpoints: biases, windows by layer, odd head sizes, rope scaling and shards give transformers' logits") {
  for (const auto& model : tiny_models)
    for (const isa target : targets()) {
      CAPTURE(model);
      CAPTURE(std::string(to_string(target)));
      const auto source = open("tiny/" + model);
      CHECK(check_tensors(*source.tensors, source.config).empty());
      engine e(source, target, 1, dtype::f32);
      const auto document = json::document::load(data() / "tiny" / model / "expected.json");
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

TEST_CASE("Logits do not depend on chunks, neighbours, block tables, shared prefixes, rejected rows or threads") {
  std::mt19937 random(7);
  for (const auto& model : golden_models)
    for (const isa target : targets())
      for (const dtype compute : {dtype::f32, dtype::bf16}) {
        CAPTURE(model);
        CAPTURE(std::string(to_string(target)));
        CAPTURE(size_of(compute));
        const auto source = open("golden/" + model);
        // The first goes past a partition of attention; the last begins with three blocks of the second.
        const int vocab = source.config.vocab;
        std::vector<std::vector<token_id>> transcripts{
          random_tokens(random, 275, vocab), random_tokens(random, 90, vocab), random_tokens(random, 1, vocab),
          random_tokens(random, 49, vocab)};
        constexpr std::size_t shared = 3 * kernels::block_tokens;
        std::copy_n(transcripts[1].begin(), shared, transcripts[3].begin());
        std::vector<std::vector<row_logits>> solo;
        {
          engine e(source, target, 1, compute);
          for (const auto& tokens : transcripts)
            solo.push_back(e.step({{tokens, 0, first_blocks(tokens.size())}}));
        }
        for (int threads = 1; threads <= 3; ++threads) {
          CAPTURE(threads);
          engine e(source, target, threads, compute);
          std::vector<std::int32_t> pool(pool_blocks);
          std::iota(pool.begin(), pool.end(), 0);
          std::shuffle(pool.begin(), pool.end(), random);
          std::vector<std::vector<std::int32_t>> blocks;
          for (const auto& tokens : transcripts) {
            const auto count = first_blocks(tokens.size()).size();
            blocks.emplace_back(pool.end() - static_cast<std::ptrdiff_t>(count), pool.end());
            pool.resize(pool.size() - count);
          }
          std::copy_n(blocks[1].begin(), 3, blocks[3].begin());
          std::vector<std::size_t> done(transcripts.size(), 0);
          bool equal = true;
          for (bool working = true; working;) {
            working = false;
            std::vector<chunk> chunks;
            std::vector<std::pair<std::size_t, bool>> whose; // sequence, and whether its rows count
            for (std::size_t s = 0; s < transcripts.size(); ++s) {
              const auto left = transcripts[s].size() - done[s];
              if (left == 0)
                continue;
              working = true;
              if (s == 3 && done[3] == 0 && done[1] < shared)
                continue; // its prefix is not there yet
              if (s == 3 && done[3] == 0)
                done[3] = shared;
              if (random() % 3 == 0)
                continue;
              const auto rows = std::min(left, std::size_t{1} << random() % 7);
              const auto position = static_cast<int>(done[s]);
              const auto from = transcripts[s].begin() + position;
              const bool rejected = random() % 4 == 0; // as a draft that fails: its K and V are written again
              const auto count = std::min(rows, transcripts[s].size() - done[s]);
              chunks.push_back({rejected ? random_tokens(random, count, vocab)
                                         : std::vector<token_id>(from, from + static_cast<std::ptrdiff_t>(count)),
                                position, blocks[s]});
              whose.emplace_back(s, !rejected);
            }
            if (chunks.empty())
              continue;
            const auto got = e.step(chunks);
            std::size_t row = 0;
            for (std::size_t i = 0; i < chunks.size(); ++i)
              for (std::size_t r = 0; r < chunks[i].tokens.size(); ++r, ++row) {
                const auto [s, counts] = whose[i];
                if (!counts)
                  continue;
                const auto& expected = solo[s][static_cast<std::size_t>(chunks[i].first_position) + r];
                equal = equal && std::memcmp(got[row].data(), expected.data(), expected.size() * sizeof(float)) == 0;
                done[s] = static_cast<std::size_t>(chunks[i].first_position) + r + 1;
              }
          }
          CHECK(equal);
        }
      }
}

namespace {

/// A checkpoint with one tensor changed or hidden.
class altered final : public checkpoint {
public:
  altered(const checkpoint& base, std::string name, std::optional<tensor_info> info)
    : base_(base), name_(std::move(name)), info_(std::move(info)) {}

  std::string name() const override { return base_.name(); }
  std::vector<std::string> tensors() const override {
    auto names = base_.tensors();
    std::erase(names, name_);
    if (info_)
      names.push_back(name_);
    return names;
  }
  const tensor_info* find(std::string_view tensor) const override {
    if (tensor == name_)
      return info_ ? &*info_ : nullptr;
    return base_.find(tensor);
  }
  tensor_data read(std::string_view tensor) const override { return base_.read(tensor); }
  std::string where(std::string_view) const override { return "m.safetensors"; }

private:
  const checkpoint& base_;
  std::string name_;
  std::optional<tensor_info> info_;
};

} // namespace

TEST_CASE("Tensors that are missing, misshaped or of an unsupported type are refused by name before any is read") {
  const auto source = open("golden/qwen2");
  const auto said = [&](const std::string& tensor, std::optional<tensor_info> info) {
    const altered changed(*source.tensors, tensor, std::move(info));
    const auto checked = failure_of([&] { check_tensors(changed, source.config); });
    const auto backend = kernels::make_cpu_backend({.threads = 1});
    bool read = false;
    CHECK(failure_of([&] {
            load_weights(changed, source.config, *backend, dtype::f32, [&](auto, auto) { read = true; });
          }) == checked);
    CHECK(!read);
    return checked;
  };
  CHECK(said("model.layers.1.mlp.down_proj.weight", {}) ==
        "m.safetensors: tensor `model.layers.1.mlp.down_proj.weight` is missing, expected with the shape [112, 304]");
  CHECK(said("model.layers.0.self_attn.k_proj.bias", {}) ==
        "m.safetensors: tensor `model.layers.0.self_attn.k_proj.bias` is missing, expected with the shape [16]");
  CHECK(said("model.norm.weight", tensor_info{tensor_type::f32, {111}, 444}) ==
        "m.safetensors: tensor `model.norm.weight` has the shape [111], expected [112]");
  CHECK(said("model.embed_tokens.weight", tensor_info{tensor_type::f32, {112, 720}, 0}) ==
        "m.safetensors: tensor `model.embed_tokens.weight` has the shape [112, 720], expected [720, 112]");
  CHECK(said("model.norm.weight", tensor_info{tensor_type::f8_e4m3, {112}, 112}) ==
        "m.safetensors: tensor `model.norm.weight` is stored as F8_E4M3, supported are F32, F16 and BF16");
}

TEST_CASE("A load reports its progress to the end, can be cancelled, and needs the estimated memory") {
  using kernels::quantization;
  const precision all[] = {
    dtype::f32, dtype::bf16, {dtype::f32, quantization::int8}, {dtype::bf16, quantization::int4}};
  for (const auto& model : golden_models)
    for (const auto& compute : all) {
      CAPTURE(model);
      const auto source = open("golden/" + model);
      const auto backend = kernels::make_cpu_backend({.threads = 1});
      std::size_t last = 0, total = 0;
      const auto weights = load_weights(*source.tensors, source.config, *backend, compute, [&](auto done, auto all) {
        CHECK(done > last);
        CHECK((total == 0 || all == total));
        last = done;
        total = all;
      });
      CHECK(last == total);
      const auto need = estimate_memory(*source.tensors, source.config, compute, *backend, {64, 1, 256});
      CHECK(weights->bytes == need.weights);
      CHECK(need.kv_block == kv_shape_of(source.config, compute.compute, 1).block_bytes());
      struct stop {};
      CHECK_THROWS_AS(load_weights(*source.tensors, source.config, *backend, compute, [](auto, auto) { throw stop{}; }),
                      stop);
    }
}

TEST_CASE("Weights are computed in their stored type, f16 in f32, quantised ones in bf16") {
  CHECK(natural_compute(*open("golden/llama-gqa").tensors) == dtype::f32);
  CHECK(natural_compute(*open("golden/qwen2").tensors) == dtype::bf16);
  CHECK(natural_compute(*open("golden/llama-mqa-rope3").tensors) == dtype::f32);
  CHECK(natural_compute(*open("golden/llama-gqa").tensors, kernels::quantization::int4) == dtype::bf16);
}

TEST_CASE("Floats quantised at load give nearly the logits of the floats: int8 nearer than int4") {
  using kernels::quantization;
  for (const auto& model : golden_models) {
    CAPTURE(model);
    const auto source = open("golden/" + model);
    std::vector<token_id> ids(40);
    for (std::size_t i = 0; i < ids.size(); ++i)
      ids[i] = static_cast<token_id>(i * 37) % source.config.vocab;
    const auto logits = [&](precision precision) {
      engine e(source, targets().back(), 1, precision);
      return e.step({{ids, 0, first_blocks(ids.size())}});
    };
    const auto exact = logits(dtype::f32), int8 = logits({dtype::f32, quantization::int8}),
               int4 = logits({dtype::f32, quantization::int4});
    const auto error = [&](const std::vector<row_logits>& got) {
      double sum = 0, all = 0;
      for (std::size_t r = 0; r < exact.size(); ++r)
        for (std::size_t i = 0; i < exact[r].size(); ++i) {
          sum += std::pow(got[r][i] - exact[r][i], 2);
          all += std::pow(exact[r][i], 2);
        }
      return std::sqrt(sum / all);
    };
    CHECK(error(int8) > 0);
    CHECK(error(int8) < 0.02);
    CHECK(error(int4) > 2 * error(int8));
    CHECK(error(int4) < 0.2);
  }
}

TEST_CASE("Several decoders share the weights of one load") {
  const auto source = open("golden/llama-gqa");
  const auto backend = kernels::make_cpu_backend({.threads = 1});
  const auto weights = load_weights(*source.tensors, source.config, *backend, dtype::f32);
  const auto cache = backend->make_kv_cache(kv_shape_of(source.config, dtype::f32, 4));
  const std::vector<token_id> tokens{5, 6, 7};
  const std::vector<kernels::sequence_rows> sequences{{0, 3, 0, 0}};
  const std::vector<std::int32_t> table{2}, last{2};
  const auto vocab = static_cast<std::size_t>(source.config.vocab);
  std::vector<row_logits> results;
  for (int restart = 0; restart < 2; ++restart) { // an executor that was restarted
    const auto other = kernels::make_cpu_backend({.threads = 1});
    decoder d(weights, *other, 8, 64);
    row_logits logits(vocab);
    d.forward(tokens, {sequences, table}, last, *cache, {logits.data(), dtype::f32, 1, vocab, vocab});
    results.push_back(logits);
  }
  CHECK(results[0] == results[1]);
  CHECK(root_mean_square(results[0]) > 0.1);
}

TEST_CASE("A step that contradicts itself or the cache is refused before it is computed") {
  const auto source = open("golden/llama-gqa");
  engine e(source, targets().back(), 1, dtype::f32);
  const std::vector<std::int32_t> table{0, 1};
  const auto said = [&](std::vector<token_id> tokens, kernels::sequence_rows s, std::vector<std::int32_t> wanted,
                        std::vector<std::int32_t> blocks) {
    const std::vector<kernels::sequence_rows> sequences{s};
    return failure_of([&] {
      e.graph().forward(tokens, {sequences, blocks}, wanted, e.cache(), e.logits(wanted.size()));
    });
  };
  CHECK(said({1, 2}, {0, 2, 0, 0}, {0, 1}, table) == "");
  CHECK(said({1, 2}, {0, 2, 0, 0}, {}, table) == "");
  CHECK(said({1, 768}, {0, 2, 0, 0}, {0}, table) == "decoder: a token outside the vocabulary");
  CHECK(said({1, -1}, {0, 2, 0, 0}, {0}, table) == "decoder: a token outside the vocabulary");
  CHECK(said({1, 2}, {0, 1, 0, 0}, {0}, table) == "decoder: sequences that do not cover the rows in order");
  CHECK(said({1, 2}, {1, 2, 0, 0}, {0}, table) == "decoder: sequences that do not cover the rows in order");
  CHECK(said({1, 2}, {0, 2, 31, 0}, {0}, table) == "decoder: a block table that does not cover its sequence");
  CHECK(said({1, 2}, {0, 2, 0, 2}, {0}, table) == "decoder: a block table that does not cover its sequence");
  CHECK(said({1, 2}, {0, 2, 0, 0}, {0}, {pool_blocks}) == "decoder: a block outside the KV cache");
  CHECK(said({1, 2}, {0, 2, max_context - 1, 0}, {0}, table) == "decoder: a position beyond the context");
  CHECK(said({1, 2}, {0, 2, 0, 0}, {2}, table) == "decoder: logits of rows that are not there");
  CHECK(said(std::vector<token_id>(max_rows + 1, 1), {0, max_rows + 1, 0, 0}, {0}, table) ==
        "decoder: more rows than it was made for");
}
