// Tensor parallelism against the same threads as one rank: both are loaded, and take short turns, so that neighbours on
// the machine disturb both alike.
//
//   troupe_ranks_bench MODEL [RANKS] [THREADS OF EACH] [TURNS] [none|int8|int4]
#include "runtime/engine/loading/named_precision.hpp"
#include "runtime/execution/device.hpp"
#include "runtime/import/model_source.hpp"
#include "runtime/model/decoder/decoder.hpp"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <numeric>

using namespace troupe;
using bench_clock = std::chrono::steady_clock;

namespace {

constexpr int prompt_rows = 256, decode_steps = 8, batch_sequences = 8, ranked_context = 512;

class side {
public:
  side(const model_source& source, const compute_options& options)
    : device_(open_device(options, nullptr)),
      backend_(device_->open()),
      precision_(precision_of(options, *source.tensors, device_->capabilities())),
      weights_(load_weights(*source.tensors, source.config, *backend_, precision_)),
      decoder_(weights_, *backend_, prompt_rows, ranked_context),
      cache_(backend_->make_kv_cache(kv_shape_of(source.config, precision_, blocks))),
      logits_(backend_->allocate(batch_sequences * vocab() * sizeof(float))),
      table_(blocks) {
    std::iota(table_.begin(), table_.end(), 0);
  }

  std::string description() const { return device_->description(); }

  /// Milliseconds.
  double prefill() {
    const kernels::sequence_rows who{0, prompt_rows, 0, 0, prompt_rows};
    return step(prompt_rows, {&who, 1}, {{prompt_rows - 1}});
  }

  /// Milliseconds of some steps of so many sequences, whose contexts hold what was there.
  double decode(int sequences) {
    double all = 0;
    for (int i = 0; i < decode_steps; ++i) {
      std::vector<kernels::sequence_rows> who;
      std::vector<std::int32_t> rows;
      for (int s = 0; s < sequences; ++s) {
        who.push_back({s, 1, prompt_rows + i, s * blocks_each, prompt_rows + i + 1});
        rows.push_back(s);
      }
      all += step(static_cast<std::size_t>(sequences), who, rows);
    }
    return all;
  }

private:
  static constexpr int blocks_each = ranked_context / kernels::block_tokens, blocks = batch_sequences * blocks_each;

  std::size_t vocab() const { return static_cast<std::size_t>(weights_->config.vocab); }

  double step(std::size_t rows, std::span<const kernels::sequence_rows> who, const std::vector<std::int32_t>& wanted) {
    const std::vector<token_id> tokens(rows, 5);
    const kernels::tensor out{logits_.get(), kernels::dtype::f32, wanted.size(), vocab(), vocab()};
    const auto start = bench_clock::now();
    decoder_.forward(tokens, {who, table_}, wanted, *cache_, out);
    return std::chrono::duration<double, std::milli>(bench_clock::now() - start).count();
  }

  std::shared_ptr<const device> device_;
  std::unique_ptr<kernels::backend> backend_;
  precision precision_;
  std::shared_ptr<const model_weights> weights_;
  decoder decoder_;
  std::unique_ptr<kernels::kv_cache> cache_;
  kernels::buffer logits_;
  std::vector<std::int32_t> table_;
};

double middle(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

/// Medians of both, and of the ratio of neighbouring turns: above 1, ranks are faster.
template <class Run>
void compare(const char* what, side& one, side& ranks, int turns, const Run& run) {
  std::vector<double> first, second, ratios;
  for (int i = -1; i < turns; ++i) { // the first turn touches memory
    const bool swapped = i % 2 != 0;
    const double early = run(swapped ? ranks : one), late = run(swapped ? one : ranks);
    if (i < 0)
      continue;
    first.push_back(swapped ? late : early);
    second.push_back(swapped ? early : late);
    ratios.push_back(first.back() / second.back());
  }
  std::printf("%-18s %9.2f ms  %9.2f ms   medians' ratio %.3f   median of ratios %.3f\n", what, middle(first),
              middle(second), middle(first) / middle(second), middle(ratios));
}

} // namespace

int main(int argc, char** argv) try {
  const auto number = [&](int i, int otherwise) { return argc > i ? std::atoi(argv[i]) : otherwise; };
  const int ranks = number(2, 2), threads = number(3, 1), turns = number(4, 30);
  const auto source = open_model(argc > 1 ? argv[1] : "synthetic:llama-135m");
  compute_options options;
  options.device = "cpu";
  options.quantize = argc > 5 ? argv[5] : "int8";
  options.threads = ranks * threads;
  side one(source, options);
  options.tensor_parallel = ranks;
  side shared(source, options);
  std::printf("%s, %s: %s | %s\n", source.name.c_str(), options.quantize.c_str(), one.description().c_str(),
              shared.description().c_str());
  compare("prefill, 256", one, shared, turns, [](side& s) { return s.prefill(); });
  compare("decode, batch 1", one, shared, turns, [](side& s) { return s.decode(1); });
  compare("decode, batch 8", one, shared, turns, [](side& s) { return s.decode(batch_sequences); });
  return 0;
} catch (const std::exception& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return 1;
}
