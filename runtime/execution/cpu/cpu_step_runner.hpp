// Runs steps, or one stage of them, on a synchronous backend in host memory: the CPU's. Owns KV memory and activations,
// borrows the weights.
#pragma once

#include "kernels/block_transfer.hpp"
#include "kernels/recurrent.hpp"
#include "runtime/execution/buffer_pool.hpp"
#include "runtime/execution/step_runner.hpp"
#include "runtime/model/decoder/decoder.hpp"
#include "runtime/techniques/hooks.hpp"

#include <span>
#include <vector>

namespace troupe {

class cpu_step_runner final : public step_runner {
public:
  /// `threads`: of the backend.
  cpu_step_runner(runner_spec spec, std::unique_ptr<kernels::backend> backend, int threads);

  void receive(const step_tokens& tokens) override;
  step_output run(const step_plan& plan, const stage_rows* before = nullptr) override;
  void move(std::span<const block_move> moves) override;
  std::size_t block_bytes() const override { return cache_->shape.block_bytes(); }
  std::size_t skipped_bytes() const override;
  const kernels::activation_sparsity* sparsity() const override;

  static std::size_t logits_bytes(std::size_t rows, std::size_t vocab) { return rows * vocab * sizeof(float); }

private:
  void take_tokens(const step_plan& plan);
  layer_hook hook_of(const step_plan& plan, const stage_rows* before);
  void conclude(const step_plan& plan, step_output& output);
  std::shared_ptr<const stage_rows> pass_on();
  void move_alike(std::span<const block_move> moves);
  void move_states();

  std::unique_ptr<kernels::backend> backend_;
  kernels::thread_pool* pool_ = nullptr; // the backend's, whose cores it shares with other engines; null: it has ranks
  const int threads_;
  decoder decoder_;
  std::unique_ptr<kernels::kv_cache> cache_;
  std::unique_ptr<kernels::state_cache> states_;   // of recurrent layers; or null
  std::vector<std::unique_ptr<inner_rows>> inner_; // of the techniques that have any
  std::size_t image_offset_, state_offset_;
  std::vector<token_id> slot_tokens_; // the token last sampled for each slot
  std::vector<token_id> tokens_;      // of the step being run
  kernels::buffer host_pool_;         // [host_blocks] of block_bytes; takes memory as it is written to
  std::vector<kernels::block_copy> copies_;
  std::vector<kernels::state_copy> state_copies_;
  std::vector<kernels::state_export> state_exports_;
  std::vector<kernels::state_import> state_imports_;
  std::vector<kernels::block_export> exports_;
  std::vector<kernels::block_import> imports_;
  buffer_pool logits_, hidden_, passed_;
};

} // namespace troupe
