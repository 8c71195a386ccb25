// Runs steps on a GPU: queues each step and returns. Owns the compute stream, the copy stream, KV memory and
// activations; shares the weights. While step n computes, the inputs of step n + 1 are uploaded, and KV blocks that no
// step in flight uses are copied, swapped out and swapped in. Tokens that a plan does not know yet are in the sampler's
// slots once the event that came with the slots has happened. As one stage of several it reads and passes on rows in
// pinned host memory, with an event for the next stage to wait for. Hidden states that plans want are copied there,
// too. Decode steps are padded to few sizes, recorded once and replayed; padding rows write to a block of their own,
// and to no state.
#pragma once

#include "kernels/cuda/cuda_backend.hpp"
#include "kernels/recurrent.hpp"
#include "runtime/execution/buffer_pool.hpp"
#include "runtime/execution/gpu/block_hazards.hpp"
#include "runtime/execution/gpu/step_graphs.hpp"
#include "runtime/execution/step_runner.hpp"
#include "runtime/model/decoder/decoder.hpp"

#include <deque>
#include <memory>
#include <span>
#include <vector>

namespace troupe {

class gpu_step_runner final : public step_runner {
public:
  /// Logits that are lent at the same time: those of two steps in flight, and of the step being run.
  static constexpr std::size_t logits_buffers = 3;

  gpu_step_runner(runner_spec spec, std::unique_ptr<kernels::cuda::cuda_backend> backend, bool graphs,
                  bool timed = false);
  ~gpu_step_runner() override;

  void receive(const step_tokens& tokens) override;
  step_output run(const step_plan& plan, const stage_rows* before = nullptr) override;
  void move(std::span<const block_move> moves) override;
  std::size_t block_bytes() const override { return cache_->shape.block_bytes(); }
  double device_ms() override;

private:
  struct timed_step {
    std::shared_ptr<kernels::cuda::event> began, done;
  };

  struct rows_in_use {
    std::shared_ptr<const float> rows;
    std::shared_ptr<kernels::cuda::event> read;
  };

  /// Adds what attention has counted since the last time, as far as it has come to the host, and asks for more.
  void tell_softmax();
  void add_softmax();

  void copy_blocks();
  void move_states(std::span<const block_move> moves);
  void move_blocks(std::span<const block_move> moves);
  void lay_out(const step_plan& plan, int rows);
  layer_span part_of_model() const;
  std::size_t row_bytes() const;
  void give_states(const step_plan& plan, step_output& output);
  const std::int32_t* wait_for_slots(const step_plan& plan);
  /// Waits for them, and puts them in place of placeholders.
  void read_tokens(const std::int32_t* slots);
  void read_rows(const step_plan& plan, const stage_rows& before);

  std::int32_t blocks_; // of the KV cache, without the one of padding rows
  std::unique_ptr<kernels::cuda::cuda_backend> backend_;
  bool graphs_wanted_, timed_;
  bool reads_tokens_; // the host does
  std::size_t vocab_;
  int most_decodes_;         // rows of the largest padded decode step
  std::size_t logits_bytes_; // of a step
  decoder decoder_;
  std::unique_ptr<kernels::kv_cache> cache_;     // the last block belongs to padding rows
  std::unique_ptr<kernels::state_cache> states_; // of recurrent layers; or null
  std::size_t image_offset_, state_offset_;
  kernels::buffer host_pool_;               // pinned host memory, [host_blocks] of block_bytes
  std::vector<kernels::block_copy> copies_; // not queued yet
  kernels::buffer decode_logits_;           // [most_decodes_, vocab], f32: output of recorded steps
  buffer_pool logits_;                      // logits_bytes_ each; grows if all are still lent
  std::deque<step_tokens> tokens_known_;    // of the last steps sampled, also those that the device has not sampled yet
  kernels::buffer own_slots_;               // a copy of the sampler's slots, if that is on another device; or null
  std::vector<token_id> slot_tokens_;       // the tokens last sampled for each slot, if the host has chosen them
  std::deque<rows_in_use> reading_;         // of stages before
  buffer_pool passed_, hidden_;             // pinned host memory
  kernels::buffer normed_states_;           // f32 [states_at_once, hidden]: what is copied to it
  block_hazards hazards_;
  step_graphs graphs_;
  std::deque<timed_step> timings_; // not added up yet
  double device_ms_ = 0;
  std::shared_ptr<softmax_tally> softmax_; // null: nothing is counted
  kernels::buffer softmax_here_;           // pinned host memory, as much as cuda_backend::softmax has
  kernels::cuda::event softmax_came_;      // of the copy that is on its way
  bool softmax_asked_ = false;             // one is
  std::uint64_t sums_told_ = 0, recomputed_told_ = 0;

  // The step being run, with padding rows.
  std::vector<token_id> slots_or_tokens_, tokens_; // with placeholders, and with 0 or tokens instead
  std::vector<kernels::sequence_rows> sequences_;
  std::vector<std::int32_t> tables_, logit_rows_;
};

} // namespace troupe
