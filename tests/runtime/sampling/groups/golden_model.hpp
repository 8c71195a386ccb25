// A golden checkpoint as a language model, for tests of strategies.
#pragma once

#include "kernels/cpu/cpu_backend.hpp"
#include "runtime/engine/loading/weight_loading.hpp"
#include "runtime/import/model_source.hpp"
#include "runtime/model/decoder/decoder.hpp"
#include "runtime/model/decoder/memory_estimate.hpp"
#include "tests/runtime/sampling/groups/groups_test_data.hpp"

#include <memory>
#include <numeric>
#include <string>

namespace troupe::test {

inline constexpr int golden_context = 256;

/// A golden checkpoint in f32; each call computes the whole sequence.
class golden_model {
public:
  explicit golden_model(const std::string& name)
    : source_(open_model((data() / "golden" / name).string())),
      backend_(kernels::make_cpu_backend({1, kernels::available_isas().back()})),
      weights_(load_weights(*source_.tensors, source_.config, *backend_, kernels::dtype::f32)),
      decoder_(weights_, *backend_, golden_context, golden_context),
      cache_(backend_->make_kv_cache(
        kv_shape_of(source_.config, kernels::dtype::f32, golden_context / kernels::block_tokens))),
      logits_(backend_->allocate(vocab() * sizeof(float))),
      blocks_(golden_context / kernels::block_tokens) {
    std::iota(blocks_.begin(), blocks_.end(), 0);
  }

  std::size_t vocab() const { return static_cast<std::size_t>(source_.config.vocab); }
  const std::vector<token_id>& eos_ids() const { return source_.generation.stops; }
  std::shared_ptr<const tokenizer> words() const { return source_.load_tokenizer(); }

  std::vector<float> logits_after(std::span<const token_id> tokens) {
    const auto rows = static_cast<std::int32_t>(tokens.size());
    const std::vector<kernels::sequence_rows> who{{0, rows, 0, 0}};
    const std::vector<std::int32_t> wanted{rows - 1};
    const kernels::tensor out{logits_.get(), kernels::dtype::f32, 1, vocab(), vocab()};
    decoder_.forward(tokens, {who, blocks_}, wanted, *cache_, out);
    std::vector<float> result(vocab());
    backend_->download(result.data(), out);
    return result;
  }

private:
  model_source source_;
  std::unique_ptr<kernels::backend> backend_;
  std::shared_ptr<const model_weights> weights_;
  decoder decoder_;
  std::unique_ptr<kernels::kv_cache> cache_;
  kernels::buffer logits_;
  std::vector<std::int32_t> blocks_;
};

} // namespace troupe::test
