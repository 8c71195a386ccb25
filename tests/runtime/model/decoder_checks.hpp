// Checks of the decoder that the tests of several kinds of checkpoints share: a loaded model with its cache, golden
// logits, and schedule invariance.
#pragma once

#include "kernels/cpu/cpu_backend.hpp"
#include "runtime/import/model_source.hpp"
#include "runtime/model/decoder/decoder.hpp"
#include "runtime/support/json/json.hpp"
#include "tests/runtime/model/model_test_data.hpp"
#include "tests/sanitized.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <numeric>
#include <random>

namespace troupe::test {

using kernels::dtype;
using kernels::isa;

inline constexpr int max_context = 2048;
inline constexpr int max_rows = 1024;
inline constexpr int pool_blocks = 128;

using row_logits = std::vector<float>;

/// A chunk of one sequence in a step: tokens at consecutive positions, over the sequence's blocks.
struct chunk {
  std::vector<token_id> tokens;
  int first_position = 0;
  std::vector<std::int32_t> blocks;
  int length = 0; // of the sequence, for its rotation; 0: it ends with the chunk
};

/// Learned positions end; others go on for ever.
inline int positions_of(const model_config& config) {
  return config.positions == position_type::learned ? std::min(max_context, config.max_context) : max_context;
}

/// A loaded model with a decoder and a KV cache.
class engine {
public:
  engine(const model_source& source, isa target, int threads, precision precision)
    : engine(source, kernels::make_cpu_backend({threads, target}), precision) {}

  engine(const model_source& source, std::unique_ptr<kernels::backend> backend, precision precision)
    : engine(source, std::move(backend), precision,
             [&](kernels::backend& on) { return load_weights(*source.tensors, source.config, on, precision); }) {}

  /// `load`: the weights, for a backend.
  engine(const model_source& source, std::unique_ptr<kernels::backend> backend, precision precision,
         const std::function<std::shared_ptr<const model_weights>(kernels::backend&)>& load)
    : backend_(std::move(backend)),
      weights_(load(*backend_)),
      decoder_(weights_, *backend_, max_rows, positions_of(source.config)),
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
      sequences.push_back({first, rows, c.first_position, static_cast<std::int32_t>(tables.size()),
                           c.length > 0 ? c.length : c.first_position + rows});
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

inline std::vector<std::int32_t> first_blocks(std::size_t tokens, std::int32_t from = 0) {
  std::vector<std::int32_t> blocks((tokens + kernels::block_tokens - 1) / kernels::block_tokens);
  std::iota(blocks.begin(), blocks.end(), from);
  return blocks;
}

inline double log_probability(const row_logits& logits, token_id token) {
  const double top = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (float l : logits)
    sum += std::exp(l - top);
  return logits[static_cast<std::size_t>(token)] - top - std::log(sum);
}

inline double root_mean_square(const row_logits& v) {
  double sum = 0;
  for (float x : v)
    sum += double(x) * x;
  return std::sqrt(sum / double(v.size()));
}

/// How far logits computed in bf16 may be from those in f32. Each of the eight values that a layer rounds on its way
/// (weights and inputs of four linear ops; K and V are of the same kind) and the two at the head contribute an
/// independent relative error of at most u = 2^-9, u / sqrt(3) on average; they add up as squares. Over a vocabulary,
/// the largest of the normally distributed errors is about 3.5 deviations out. (The worst seen is 0.4 of it.)
inline double bf16_bound(const model_config& config, const row_logits& expected) {
  const double deviation = 0x1p-9 / std::sqrt(3.0) * std::sqrt(8.0 * config.layers + 2);
  return 3.5 * deviation * root_mean_square(expected);
}

inline std::vector<token_id> random_tokens(std::mt19937& random, std::size_t count, int vocab) {
  std::vector<token_id> tokens(count);
  for (auto& t : tokens)
    t = static_cast<token_id>(random() % static_cast<unsigned>(vocab));
  return tokens;
}

/// All targets of this machine. Sanitizers are too slow for that: with them only the fastest target, and the kernels'
/// own tests cover the others.
inline std::vector<isa> targets() {
  auto all = kernels::available_isas();
  if (troupe::testing::sanitized())
    all.erase(all.begin(), all.end() - 1);
  return all;
}

inline model_source open(const std::string& model) { return open_model((data() / model).string()); }

/// Logits, greedy tokens and log-probabilities of a checkpoint in the tests' data are transformers', in f32.
inline void check_golden(const std::string& model, isa target, double logprob_bound = 1e-3) {
  CAPTURE(model);
  CAPTURE(std::string(to_string(target)));
  const auto source = open(model);
  engine e(source, target, 2, dtype::f32);
  const auto document = json::document::load(data() / model / "expected.json");
  json::array cases;
  REQUIRE(!document.root()["cases"].get(cases));
  double worst = 0, worst_logprob = 0;
  for (json::value c : cases) {
    const auto ids = list<token_id>(c["ids"]), greedy = list<token_id>(c["greedy"]["ids"]);
    const auto margins = list<double>(c["greedy"]["margins"]), logprobs = list<double>(c["greedy"]["logprobs"]);
    const auto blocks = first_blocks(ids.size() + greedy.size());
    auto logits = e.step({{ids, 0, blocks}}, true).back();
    worst = std::max(worst, largest_difference(logits, list<float>(c["last_logits"])));
    // Continue with the expected token, even if a small margin lets another one win here. Beyond a border of LongRoPE,
    // all is computed again.
    auto all = ids;
    const auto border = as_size(rope_border(source.config.rope, source.config.max_context));
    for (std::size_t i = 0; i < greedy.size(); ++i) {
      CAPTURE(i);
      const auto best = std::max_element(logits.begin(), logits.end()) - logits.begin();
      CHECK((best == greedy[i] || margins[i] <= 1e-3));
      worst_logprob = std::max(worst_logprob, std::abs(log_probability(logits, greedy[i]) - logprobs[i]));
      all.push_back(greedy[i]);
      const bool crosses = border > 0 && all.size() == border + 1;
      logits = crosses ? e.step({{all, 0, blocks}}, true).back()
                       : e.step({{{greedy[i]}, static_cast<int>(all.size()) - 1, blocks}}).back();
    }
  }
  CHECK(worst < 2e-4);
  CHECK(worst_logprob < logprob_bound);
}

/// Logits of a tiny checkpoint are transformers' at several positions, in f32. Each is computed from the start, as far as
/// a rotation may depend on the length.
inline void check_tiny(const model_source& source, const std::string& model, isa target) {
  CAPTURE(model);
  CAPTURE(std::string(to_string(target)));
  engine e(source, target, 1, dtype::f32);
  const auto document = json::document::load(data() / model / "expected.json");
  const auto ids = list<token_id>(document.root()["ids"]);
  const auto positions = list<int>(document.root()["positions"]);
  json::array expected;
  REQUIRE(!document.root()["logits"].get(expected));
  REQUIRE(positions.size() > 3);
  for (std::size_t i = 0; i < positions.size() && positions[i] < source.config.max_context; ++i) {
    CAPTURE(positions[i]);
    const std::vector<token_id> until(ids.begin(), ids.begin() + positions[i] + 1);
    const auto got = e.step({{until, 0, first_blocks(until.size())}}, true).back();
    CHECK(largest_difference(got, list<float>(expected.at(i))) < 2e-4);
  }
}

/// Logits computed in bf16 stay within `times` of what rounding explains.
inline void check_bf16(const model_source& source, const std::string& model, isa target, double times = 1) {
  CAPTURE(model);
  CAPTURE(std::string(to_string(target)));
  engine e(source, target, 2, dtype::bf16);
  const auto document = json::document::load(data() / model / "expected.json");
  json::array cases;
  REQUIRE(!document.root()["cases"].get(cases));
  for (json::value c : cases) {
    const auto ids = list<token_id>(c["ids"]);
    const auto expected = list<float>(c["last_logits"]);
    const double worst = largest_difference(e.step({{ids, 0, first_blocks(ids.size())}}, true).back(), expected);
    CHECK(worst < bf16_bound(source.config, expected) * times);
    CHECK(worst > 2e-4); // else it was not computed in bf16
  }
}

/// A backend for each of three random schedules, 1 to 3.
using backend_maker = std::function<std::unique_ptr<kernels::backend>(int round)>;

/// Logits are bit-equal under random schedules, on as many threads or on what `make` makes.
inline void check_schedules(const std::string& model, isa target, precision as, std::mt19937& random,
                            const backend_maker& make = {}) {
  CAPTURE(model);
  CAPTURE(std::string(to_string(target)));
  CAPTURE(size_of(as.compute));
  CAPTURE(as.sparsity.down);
  CAPTURE(as.sparsity.up);
  const auto source = open(model);
  // The first goes past a partition of attention; the last begins with three blocks of the second.
  const int vocab = source.config.vocab;
  std::vector<std::vector<token_id>> transcripts{random_tokens(random, 275, vocab), random_tokens(random, 90, vocab),
                                                 random_tokens(random, 1, vocab), random_tokens(random, 49, vocab)};
  const int length = 275; // of all sequences, as far as rotations ask: those of other lengths may share no blocks
  constexpr std::size_t shared = 3 * kernels::block_tokens;
  std::copy_n(transcripts[1].begin(), shared, transcripts[3].begin());
  std::vector<std::vector<row_logits>> solo;
  {
    engine e(source, target, 1, as);
    for (const auto& tokens : transcripts)
      solo.push_back(e.step({{tokens, 0, first_blocks(tokens.size()), length}}));
  }
  for (int threads = 1; threads <= 3; ++threads) {
    CAPTURE(threads);
    engine e(source, make ? make(threads) : kernels::make_cpu_backend({threads, target}), as);
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
                          position, blocks[s], length});
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

} // namespace troupe::test
