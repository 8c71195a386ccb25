// A second model whose logits are contrasted with those of the first (contrast_scores). Owns a runner on a device, and
// the KV blocks: a sequence's new tokens are computed behind those that still hold, and the sequence that was not asked
// for longest loses its blocks when they run out. The logits are a function of the tokens alone, whatever was computed
// before. For devices whose logits are in host memory; made, used and destroyed by one thread.
#pragma once

#include "runtime/execution/step_runner.hpp"

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

namespace troupe {

class device;

class amateur_model {
public:
  /// `spec.sizes.rows`: of one pass; `spec.blocks` hold at least one sequence of `spec.sizes.context` tokens. Throws
  /// failure(unsupported) if the device has memory of its own, device_error.
  amateur_model(const device& on, runner_spec spec);
  ~amateur_model();

  /// The logits [vocab] that follow `tokens`, the whole transcript of a sequence, until the next call. Computes what is
  /// new, in as many passes as it takes. Throws failure(bad_request) if there are none or they do not fit into the
  /// context or the blocks, device_error.
  std::span<const float> logits_after(sequence_id id, std::span<const token_id> tokens);

  /// The sequence has ended.
  void forget(sequence_id id);

  std::int32_t free_blocks() const { return static_cast<std::int32_t>(free_.size()); }

private:
  struct sequence {
    std::vector<token_id> computed; // tokens whose K/V is in the blocks
    std::vector<std::int32_t> blocks;
    std::uint64_t asked = 0; // the last call for it
  };

  void drop_blocks(sequence& s);
  void reserve(sequence& s, std::size_t tokens);

  runner_spec spec_;
  std::unique_ptr<step_runner> runner_;
  step_output output_; // of the last pass
  std::map<sequence_id, sequence> sequences_;
  std::vector<std::int32_t> free_;
  std::uint64_t calls_ = 0, steps_ = 0;
};

} // namespace troupe
