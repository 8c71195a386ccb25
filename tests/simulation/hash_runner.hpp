// The step_runner of a hash_device: one stage of a replica. Checks what real runners trust: that blocks and slots exist, and
// that no two rows of a step write to one place. Used by one executor.
#pragma once

#include "kernels/recurrent.hpp"
#include "runtime/execution/step_runner.hpp"
#include "tests/simulation/hash_device.hpp"

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

namespace troupe::simulation {

/// States of sequences as hashes, by the rules of real ones.
class hash_states final : public kernels::state_cache {
public:
  hash_states(int running, int snapshots, int pending);

  /// The state behind each of a plan's rows. `salts`: of its sequences.
  std::vector<std::uint64_t> run(const step_plan& plan, const std::vector<token_id>& tokens,
                                 const std::vector<std::uint64_t>& salts);
  void copy(const kernels::state_copy& c);

private:
  std::vector<std::uint64_t> values_;           // by slot
  std::vector<std::vector<std::uint64_t>> log_; // of rows that are pending, by slot
};

class hash_runner final : public step_runner {
public:
  hash_runner(const runner_spec& spec, const hash_device_settings& settings);
  ~hash_runner() override;
  hash_runner(const hash_runner&) = delete;
  hash_runner& operator=(const hash_runner&) = delete;

  void receive(const step_tokens& tokens) override;
  step_output run(const step_plan& plan, const stage_rows* before = nullptr) override;
  void move(std::span<const block_move> moves) override;
  std::size_t block_bytes() const override { return hash_block_bytes(); }

private:
  std::uint64_t& at(std::vector<std::uint64_t>& of, std::int32_t block, std::int32_t offset = 0) const;
  std::vector<token_id> tokens_of(const step_plan& plan) const;
  step_output conclude(const step_plan& plan, const std::vector<token_id>& tokens,
                       const std::vector<std::uint64_t>& rows) const;

  hash_device_settings settings_;
  std::size_t image_offset_;
  std::vector<std::uint64_t> cache_, host_; // [blocks, block_tokens]
  std::unique_ptr<hash_states> states_;
  std::vector<token_id> slot_tokens_;
  std::shared_ptr<const std::int32_t> on_device_; // tokens of an asynchronous sampler
  kernels::device_event_ptr ready_;
};

} // namespace troupe::simulation
