// Samples tokens on a GPU, on a stream of its own. Queues a step's samples behind the event that came with its logits,
// leaves the tokens on the device for the next step, and copies them to the host, where `collect` appends them to their
// sequences. Sequence state is that of the host's sampler; the device itself counts a token that the host does not know
// yet. Guesses are sampled all at once, each as if those before it were right, and judged by `collect`. Sequences with
// samplers that the device lacks are sampled on the host, by a callback in the stream's order, from logits copied
// there; the tokens go back to the device. The logits of groups, of constrained sequences and of scored prompts
// are copied to the host, too. Prompts whose embeddings are wanted are pooled there. Samples the same tokens as
// cpu_step_sampler.
#pragma once

#include "kernels/cuda/device/sampling.hpp"
#include "kernels/cuda/device_scratch.hpp"
#include "runtime/execution/gpu/pinned_pool.hpp"
#include "runtime/execution/gpu/sampling_inputs.hpp"
#include "runtime/execution/host_judge.hpp"
#include "runtime/execution/prompt_pooling.hpp"
#include "runtime/execution/step_runner.hpp"
#include "runtime/sampling/sampler.hpp"

#include <deque>
#include <functional>
#include <map>
#include <vector>

namespace troupe {

class gpu_step_sampler final : public step_sampler {
public:
  /// Makes a sampler for at most two samples in flight, of at most `max_sequences` sequences and extra_logit_rows
  /// guesses. Allocates all memory, except for unusually long lists of penalties, biases and masks. EOS ids outside the
  /// vocabulary cannot be sampled and are ignored.
  gpu_step_sampler(std::vector<token_id> eos_ids, int vocab, int max_sequences, std::function<void()> sampled,
                   host_settings host = {});
  ~gpu_step_sampler() override;

  void prepare(const step_plan& plan) override { judge_.prepare(plan); }
  bool lacks_masks(const step_plan& plan) override;
  step_result collect_late() override { return judge_.collect_late(scratch_); }
  step_result settle(const verdict& its) override { return judge_.settle(its); }
  step_tokens sample(const std::shared_ptr<const step_plan>& plan, const step_output& logits) override;
  step_result collect() override;
  void check() const override;

  /// Upper limit of its device memory in bytes, with a bias for every token.
  static std::size_t memory(const step_sizes& sizes, int vocab);

private:
  struct sequence {
    sequence_state state;
    std::int32_t in_flight = 0;                  // samples
    std::shared_ptr<sequence_sampler> on_host{}; // used by the stream's callbacks alone; null: the device samples it
  };

  /// One demand that the host samples.
  struct host_draw {
    const sample_demand* demand = nullptr;
    std::shared_ptr<sequence_sampler> sampler;
    std::size_t row = 0; // of the copied logits
    step_result result;  // of this demand alone
    bool goes_on = false;
  };
  struct host_draws {
    std::shared_ptr<const step_plan> plan;
    std::vector<host_draw> draws;
    sampling_scratch scratch;
  };

  struct sample_in_flight {
    std::shared_ptr<const step_plan> plan;
    std::shared_ptr<const float> logits; // in use until collected
    std::shared_ptr<const float> hidden; // pinned, [plan.hidden_rows.size(), width]
    std::size_t width = 0;
    std::vector<const sample_demand*> demands; // of the plan, in the order of sampled rows
    kernels::buffer inputs;                    // pinned
    kernels::buffer results;                   // pinned sampled_rows
    std::vector<std::int32_t> judged_rows;     // of logits, for the host
    kernels::buffer judged_logits;             // pinned, [judged_rows.size(), vocab]
    std::shared_ptr<host_draws> host;          // null: none
    kernels::buffer host_logits, host_tokens;  // pinned, [rows, vocab] and [draws]
    std::shared_ptr<kernels::cuda::event> done;
  };

  void fetch_logits(const step_plan& plan, const step_output& logits, sample_in_flight& d);
  host_judge::logits_fn host_logits(const sample_in_flight& d) const;
  void draw_on_host(const step_output& logits, sample_in_flight& d);
  void collect_host_draws(sample_in_flight& d, step_result& result);
  void run(const sampling_inputs& inputs, sample_in_flight& d, std::size_t vocab);
  sampled_token finish(const kernels::cuda::sampled_row& row, sequence_state& state) const;

  std::vector<token_id> eos_ids_;
  std::size_t vocab_, max_sequences_, max_rows_;
  std::function<void()> sampled_;
  kernels::cuda::stream stream_;
  std::shared_ptr<std::int32_t> slots_; // device memory, [max_sequences]
  kernels::buffer results_, edited_;    // device memory, [max_rows] and [max_rows, vocab]
  kernels::cuda::device_scratch inputs_;
  pinned_pool pinned_inputs_, pinned_results_, pinned_logits_, pinned_tokens_;
  std::map<sequence_id, sequence> sequences_;
  std::deque<sample_in_flight> in_flight_;
  host_judge judge_;
  prompt_pooling pooling_;
  sampling_scratch scratch_;
  bool told_of_host_ = false;
};

} // namespace troupe
