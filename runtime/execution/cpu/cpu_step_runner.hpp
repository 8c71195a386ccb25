// Runs steps on a backend whose calls return when their work is done and whose memory is the host's: the CPU's. Owns KV
// memory and activations, borrows the weights.
#pragma once

#include "runtime/execution/buffer_pool.hpp"
#include "runtime/execution/step_runner.hpp"
#include "runtime/model/model.hpp"

#include <vector>

namespace troupe {

struct loaded_model;

class cpu_step_runner final : public step_runner {
public:
  cpu_step_runner(std::shared_ptr<const loaded_model> model, std::unique_ptr<kernels::backend> backend);

  void take(const step_tokens& tokens) override;
  step_output run(const step_plan& plan) override;

private:
  std::shared_ptr<const loaded_model> model_;
  std::unique_ptr<kernels::backend> backend_;
  decoder decoder_;
  std::unique_ptr<kernels::kv_cache> cache_;
  std::vector<token_id> slot_tokens_; // the token last sampled for each slot
  std::vector<token_id> tokens_;      // of the step being run
  std::vector<kernels::block_copy> copies_;
  buffer_pool logits_;
};

} // namespace troupe
