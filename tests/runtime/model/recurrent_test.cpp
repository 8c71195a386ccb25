// Models with recurrent layers against transformers, and their states under random schedules.
#include "runtime/model/decoder/memory_estimate.hpp"
#include "runtime/model/measuring/forwarding_backend.hpp"
#include "runtime/model/recurrent_layers.hpp"
#include "runtime/model/tensor_names.hpp"
#include "tests/runtime/model/decoder_checks.hpp"

using namespace troupe;
using namespace troupe::test;

namespace {

const std::vector<std::string> recurrent_models{"granite-hybrid", "inkling",    "lfm2",      "lfm3",  "nemotron-h",
                                                "qwen3-5",        "qwen3-next", "qwen4-exp", "zamba2"};

/// Random, of a few kB (make_recurrent_models.py).
const std::vector<std::string> tiny_recurrent_models{
  "bailing-hybrid", "bamba",          "falcon-h1",   "falcon-h1-normed",    "falcon-mamba", "granite-hybrid-dense",
  "inkling",        "jamba",          "kimi-linear", "lfm2-adjusted",       "lfm2-moe",     "mamba",
  "mamba2",         "nemotron-h-moe", "olmo-hybrid", "olmo-hybrid-rotated", "qwen3-5-moe",  "zamba2"};

std::vector<std::string> all_recurrent_models() {
  std::vector<std::string> all;
  for (const auto& name : recurrent_models)
    all.push_back("families/" + name);
  for (const auto& name : tiny_recurrent_models)
    all.push_back("tiny_families/" + name);
  return all;
}

/// A model whose sequences have states in slots: those that run, then snapshots.
class stateful_engine {
public:
  stateful_engine(const model_source& source, int threads, precision as, int running, int snapshots)
    : backend_(kernels::make_cpu_backend({threads, targets().back()})),
      weights_(load_weights(*source.tensors, source.config, *backend_, as)),
      decoder_(weights_, *backend_, max_rows, 512),
      cache_(backend_->make_kv_cache(kv_shape_of(source.config, as, pool_blocks))),
      ops_(dynamic_cast<kernels::recurrent_ops&>(*backend_)),
      states_(ops_.make_state_cache(state_shape_of(source.config, running, snapshots, most_state_guesses))) {}

  struct part {
    std::vector<token_id> tokens;
    int position = 0, pending = 0;
    std::int32_t slot = 0;
    std::vector<std::int32_t> blocks = {};
  };

  std::vector<row_logits> step(const std::vector<part>& parts, const std::vector<kernels::state_save>& saves = {}) {
    std::vector<token_id> tokens;
    std::vector<std::int32_t> tables, wanted;
    std::vector<kernels::sequence_rows> sequences;
    std::vector<kernels::sequence_state> states;
    for (const auto& p : parts) {
      const auto rows = static_cast<std::int32_t>(p.tokens.size());
      sequences.push_back({static_cast<std::int32_t>(tokens.size()), rows, p.position,
                           static_cast<std::int32_t>(tables.size()), p.position + rows});
      states.push_back({p.slot, p.pending});
      tokens.insert(tokens.end(), p.tokens.begin(), p.tokens.end());
      tables.insert(tables.end(), p.blocks.begin(), p.blocks.end());
    }
    wanted.resize(tokens.size());
    std::iota(wanted.begin(), wanted.end(), 0);
    const auto vocab = as_size(weights_->config.vocab);
    const auto memory = backend_->allocate(wanted.size() * vocab * sizeof(float));
    const kernels::recurrent_step recurrent{states_.get(), states, saves};
    decoder_.forward(tokens, {sequences, tables, &recurrent}, wanted, *cache_,
                     {memory.get(), dtype::f32, wanted.size(), vocab, vocab});
    std::vector<row_logits> result;
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      const auto* row = static_cast<const float*>(memory.get()) + i * vocab;
      result.emplace_back(row, row + vocab);
    }
    return result;
  }

  void copy(std::int32_t from, std::int32_t to) {
    const kernels::state_copy one{from, to};
    ops_.copy_states(*states_, {&one, 1});
  }

private:
  std::unique_ptr<kernels::backend> backend_;
  std::shared_ptr<const model_weights> weights_;
  decoder decoder_;
  std::unique_ptr<kernels::kv_cache> cache_;
  kernels::recurrent_ops& ops_;
  std::unique_ptr<kernels::state_cache> states_;
};

} // namespace

TEST_CASE("Recurrent: a backend without products of low rank refuses blocks to whose products layers add some") {
  const auto cpu = kernels::make_cpu_backend({.threads = 1});
  forwarding_backend backend(*cpu); // which forwards no such products
  const auto source = open("families/zamba2");
  CHECK(failure_of([&] { load_weights(*source.tensors, source.config, backend, dtype::f32); }) ==
        "models of the family `zamba2` need products with pairs of low rank beside those of blocks that layers share, "
        "which CPUs and NVIDIA GPUs compute; this is " +
          cpu->description());
  precision sparse(dtype::f32);
  sparse.sparsity = {0.5f, 0};
  CHECK(failure_of([&] { load_weights(*source.tensors, source.config, *cpu, sparse); }) ==
        "`sparsity` is not for models of the family `zamba2`, whose layers share an MLP");
}

TEST_CASE("Recurrent: layers that use one block hold its weights once, each part of a model for itself") {
  const auto source = open("tiny_families/zamba2"); // blocks a, b, none, a, none, b
  const auto cpu = kernels::make_cpu_backend({.threads = 1});
  const auto whole = load_weights(*source.tensors, source.config, *cpu, dtype::f32);
  CHECK(whole->layer(0).qkv == whole->layer(3).qkv);
  CHECK(whole->layer(1).mlp.down == whole->layer(5).mlp.down);
  CHECK(whole->layer(0).qkv != whole->layer(1).qkv);
  CHECK(whole->layer(2).qkv == nullptr);
  auto later = source.config;
  later.span = layer_span{2, 6, false, true};
  const auto part = load_weights(*source.tensors, later, *cpu, dtype::f32);
  CHECK(part->layer(3).qkv != nullptr);
  CHECK(part->layer(3).qkv != part->layer(5).qkv);
  CHECK(part->bytes == estimate_memory(*source.tensors, later, dtype::f32, *cpu, {}).weights);
  CHECK(later.cached_layers() == 2);
}

TEST_CASE("Recurrent: what OLMo Hybrid's, Mamba 1's and Zamba 2's layers add is part of the result") {
  const auto with = [&](const std::string& model, const std::function<void(model_config&)>& change) {
    auto source = open("tiny_families/" + model);
    std::vector<token_id> ids(30);
    for (std::size_t i = 0; i < ids.size(); ++i)
      ids[i] = static_cast<token_id>(2 + i % 40);
    change(source.config);
    engine e(source, targets().back(), 1, dtype::f32);
    return e.step({{ids, 0, first_blocks(ids.size())}}).back();
  };
  const auto changes = [&](const std::string& model, const std::function<void(model_config&)>& change) {
    return largest_difference(with(model, change), with(model, [](model_config&) {})) > 1e-2;
  };
  CHECK(changes("olmo-hybrid", [](model_config& c) { c.recurrent.most_learned = 1; }));
  CHECK(changes("olmo-hybrid", [](model_config& c) { c.unrotated.clear(); }));
  CHECK(changes("jamba", [](model_config& c) { c.recurrent.norm_eps = 0.5f; }));
  CHECK(changes("falcon-mamba", [](model_config& c) { c.recurrent.parts_norm = false; }));
  CHECK(changes("zamba2", [](model_config& c) { c.shared_blocks.mlp_rank = 0; }));
  CHECK(changes("zamba2", [](model_config& c) { c.shared_blocks.attention_rank = 0; }));
  CHECK(changes("zamba2", [](model_config& c) { c.attention_scale *= 2; }));
}

TEST_CASE("Recurrent: logits, greedy tokens and log-probabilities are transformers', in f32 on every target") {
  for (const auto& model : recurrent_models)
    for (const isa target : targets())
      // transformers limits Zamba's time steps where it reads several tokens, not where it reads one behind a cache.
      check_golden("families/" + model, target, model == "zamba2" ? 2e-3 : 1e-3);
}

TEST_CASE("Recurrent: transformers' logits of tiny models at several positions, in f32 on every target") {
  for (const auto& model : tiny_recurrent_models)
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
      REQUIRE(positions.size() > 3);
      const auto got = e.step({{ids, 0, first_blocks(ids.size())}});
      for (std::size_t i = 0; i < positions.size(); ++i) {
        CAPTURE(positions[i]);
        CHECK(largest_difference(got[as_size(positions[i])], list<float>(expected.at(i))) < 2e-4);
      }
    }
}

TEST_CASE("Recurrent: computed in bf16, logits stay within what rounding explains") {
  for (const auto& model : recurrent_models) { // a state adds up the roundings of all positions before
    const auto source = open("families/" + model);
    check_bf16(source, "families/" + model, targets().back(), source.config.experts.count > 0 ? 6 : 3);
  }
}

TEST_CASE("Recurrent: memory estimates are what loading takes") {
  for (const auto& model : all_recurrent_models())
    for (const auto how : {kernels::quantization::none, kernels::quantization::int8}) {
      CAPTURE(model);
      const auto source = open(model);
      const auto backend = kernels::make_cpu_backend({.threads = 1});
      const precision as{dtype::bf16, how};
      const auto weights = load_weights(*source.tensors, source.config, *backend, as);
      const auto estimate = estimate_memory(*source.tensors, source.config, as, *backend, {});
      CHECK(weights->bytes == estimate.weights);
      const auto shape = state_shape_of(source.config, 1, 1, most_state_guesses);
      CHECK(estimate.state == shape.slot_bytes());
      CHECK(estimate.sequence_state + estimate.state == shape.bytes());
    }
}

TEST_CASE("Recurrent: bits depend on no chunks, guesses, forks or snapshots, on any number of threads") {
  std::mt19937 random(9);
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  for (const auto& model : all_recurrent_models()) {
    CAPTURE(model);
    const auto source = open(model);
    const dtype compute = below(2) == 0 ? dtype::f32 : dtype::bf16;
    constexpr int sequences = 3;
    const int length = source.config.indexer ? 150 : 75; // so that positions are chosen
    const auto block_count = (length + kernels::block_tokens - 1) / kernels::block_tokens;
    std::vector<std::vector<token_id>> transcripts;
    std::vector<std::vector<row_logits>> solo;
    for (int s = 0; s < sequences; ++s) {
      transcripts.push_back(random_tokens(random, length, source.config.vocab));
      stateful_engine alone(source, 1, compute, 1, 0);
      solo.push_back(alone.step({{transcripts.back(), 0, 0, 0, first_blocks(length)}}));
    }
    for (int threads = 1; threads <= 2; ++threads) {
      stateful_engine e(source, threads, compute, sequences + 1, sequences);
      std::vector<int> done(sequences, 0), saved(sequences, 0);
      std::vector<std::int32_t> slots{0, 1, 2};
      std::int32_t spare = 3;
      bool equal = true;
      while (std::ranges::any_of(done, [&](int d) { return d < length; })) {
        std::vector<stateful_engine::part> parts;
        std::vector<kernels::state_save> saves;
        std::vector<std::pair<std::size_t, int>> counted;
        for (std::size_t s = 0; s < sequences; ++s) {
          if (done[s] == length || below(4) == 0)
            continue;
          const int rows = std::min(length - done[s], 1 + below(below(3) == 0 ? 30 : 5));
          const int kept = below(2) == 0 ? rows : std::max(rows - most_state_guesses, below(2));
          const auto from = transcripts[s].begin() + done[s];
          stateful_engine::part part{{from, from + rows}, done[s], rows - kept, slots[s]};
          part.blocks = first_blocks(length, static_cast<std::int32_t>(s) * block_count);
          const int right = kept + (rows > kept ? below(rows - kept + 1) : 0); // of guesses, that are accepted
          for (int i = right; i < rows; ++i)
            part.tokens[as_size(i)] = static_cast<token_id>(below(source.config.vocab));
          if (kept > 0 && below(2) == 0) {
            saves.push_back(
              {static_cast<std::int32_t>(parts.size()), 1 + below(kept), static_cast<std::int32_t>(sequences + 1 + s)});
            saved[s] = done[s] + saves.back().rows;
          }
          parts.push_back(std::move(part));
          counted.emplace_back(s, right);
        }
        if (parts.empty())
          continue;
        const auto got = e.step(parts, saves);
        std::size_t row = 0;
        for (std::size_t i = 0; i < parts.size(); ++i) {
          const auto [s, right] = counted[i];
          for (int r = 0; r < right; ++r)
            equal = equal && got[row + as_size(r)] == solo[s][as_size(done[s] + r)];
          row += parts[i].tokens.size();
          done[s] += right;
        }
        if (const auto s = as_size(below(sequences)); saved[s] > 0 && below(4) == 0) { // on from its snapshot
          e.copy(static_cast<std::int32_t>(sequences + 1 + s), spare);
          std::swap(slots[s], spare);
          done[s] = saved[s];
        }
      }
      CHECK(equal);
    }
  }
}
