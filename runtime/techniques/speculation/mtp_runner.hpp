// Runs a model's layers of multi-token prediction for draft_model. A row is a token with the hidden state of the
// position before it, which comes as a pipeline's rows come from the stage before. The hidden states that it gives are
// what the next guess reads. Its plans have rows, logits and hidden states, nothing else. For synchronous backends in
// host memory.
#pragma once

#include "runtime/execution/step_runner.hpp"
#include "runtime/model/decoder/decoder.hpp"
#include "runtime/model/decoder/mtp_layers.hpp"

#include <memory>
#include <vector>

namespace troupe {

struct mtp_spec {
  std::shared_ptr<const mtp_weights> layers;
  std::shared_ptr<const model_weights> embedding, head; // the model's, or its first and last stage's
};

class mtp_runner final : public step_runner {
public:
  /// `runner.weights` are those of the layers.
  mtp_runner(std::shared_ptr<const mtp_spec> spec, const runner_spec& runner,
             std::unique_ptr<kernels::backend> backend);

  void receive(const step_tokens&) override {}
  step_output run(const step_plan& plan, const stage_rows* before) override;
  void move(std::span<const block_move>) override {}
  std::size_t block_bytes() const override { return cache_->shape.block_bytes(); }

  /// Bytes of its buffers beside the decoder's.
  static std::size_t row_bytes(const model_config& config, kernels::dtype compute, int rows);

private:
  void normalise(const kernels::tensor& to, const kernels::tensor& from, const norm_weights& norm,
                 const std::int32_t* rows = nullptr);
  void join(const step_plan& plan, const kernels::tensor& states);

  std::shared_ptr<const mtp_spec> spec_;
  std::unique_ptr<kernels::backend> backend_;
  decoder decoder_;
  std::unique_ptr<kernels::kv_cache> cache_;
  kernels::buffer embedded_; // [rows, hidden], f32
  kernels::buffer joined_;   // [rows, 2 hidden], in the compute type
  std::vector<float> logits_, hidden_;
};

} // namespace troupe
