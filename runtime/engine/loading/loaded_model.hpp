// A model in memory: what all replicas share, and what each has of its own. Immutable but for what techniques
// keep; shared by actors on any thread. A restarted replica finds its weights here.
#pragma once

#include "runtime/engine/engine_options.hpp"
#include "runtime/engine/kept_lengths.hpp"
#include "runtime/engine/loading/memory_ledger.hpp"
#include "runtime/execution/device.hpp"
#include "runtime/execution/model_counters.hpp"
#include "runtime/execution/step_runner.hpp"
#include "runtime/kv/kv_disk.hpp"
#include "runtime/model/decoder/weights.hpp"
#include "runtime/scheduling/cost/swap_policy.hpp"
#include "runtime/scheduling/routing/replica_role.hpp"
#include "runtime/scheduling/scheduler_limits.hpp"
#include "runtime/support/files/file_state.hpp"
#include "runtime/techniques/constraint.hpp"
#include "runtime/techniques/guesser.hpp"

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

namespace troupe {

struct generation_limits; // runtime/engine/checked_generation.hpp
struct model_replica;

/// A model beside the engine's, of a technique.
struct loaded_second {
  const technique* of = nullptr;
  std::shared_ptr<const model_weights> weights;
  troupe::precision precision = kernels::dtype::f32;
  step_sizes sizes;
  int vocab = 0;
};

/// How a technique guesses, beside a model in memory.
struct loaded_guesses {
  make_guesser make = {};
  /// What a guesser asks, beside a replica; empty: it needs nobody. Called by the thread that will use it.
  std::function<std::unique_ptr<guess_model>(const model_replica&)> make_model = {};
};

/// A stage's layers in memory.
struct loaded_stage {
  std::shared_ptr<const model_weights> weights;
  troupe::precision precision = kernels::dtype::f32;
};

/// How its blocks come to other replicas, and theirs to it.
struct block_exchange {
  std::size_t block_bytes = 0;             // 0: not at all
  std::array<std::uint64_t, 2> numerics{}; // the hash of the id that must be equal
  double copy_ms = 0;                      // of a block, out of one pool and into another
  std::size_t state_bytes = 0;             // of a snapshot of recurrent layers' states; 0: there are none
};

inline constexpr std::size_t most_sent_states = 4; // on their way at a time: each is the last of a prompt

/// What one replica has of its own.
struct replica_plan {
  std::vector<std::shared_ptr<const device>> stages = {}; // what each computes on, with the cores that are its own
  std::int32_t blocks = 0;                                // of the KV cache, in each stage
  std::int32_t host_blocks = 0;                           // of the host block pool
  std::int32_t snapshots = 0;                             // of recurrent layers' states, in each stage
  swap_rates swap = {};                                   // if host_blocks > 0
  std::size_t copy = 0; // 0: computes with the stages that replicas share; i: with loaded_model::copies[i - 1]
  scheduler_limits limits = {};
  replica_role role = replica_role::any;
  block_exchange exchange = {};

  /// Whether cached prefixes are of use to it: with recurrent layers, only behind snapshots of their states.
  bool finds_prefixes() const { return !limits.recurrent || snapshots > 0; }

  /// What its block manager sends elsewhere.
  std::optional<sent_elsewhere> sending() const;

  /// Samples, and has the models beside this one.
  const device& last() const { return *stages.back(); }
};

/// What all replicas of a model share.
struct loaded_model {
  model_info info;
  std::vector<file_state> files;    // that it was read from
  std::vector<loaded_stage> stages; // at least one, in order
  std::vector<loaded_stage> copies; // of the whole model, on other GPUs
  device_capabilities capabilities; // of every replica
  bool prefix_cache = true;
  bool strict_roles = false;              // for tests
  std::chrono::milliseconds role_idle{0}; // before a replica takes the other role; 0: roles stay
  std::chrono::milliseconds request_timeout{0}, ttft_timeout{0};
  std::vector<loaded_second> seconds; // that techniques run beside it
  loaded_guesses guesses;
  std::shared_ptr<kept_lengths> lengths = std::make_shared<kept_lengths>();
  std::shared_ptr<const troupe::kv_disk> kv_disk;            // where cached prefixes are kept; null: nowhere
  std::shared_ptr<constraint_compiler> constraints;          // of requests; null: there are none
  std::vector<replica_plan> replicas;                        // at least one
  std::shared_ptr<const std::vector<memory_entry>> promised; // what all of this takes, until it is gone

  std::shared_ptr<softmax_tally> softmax = std::make_shared<softmax_tally>();

  /// What its files and devices have counted so far.
  model_counters counted() const;

  /// What each of its requests may ask for.
  generation_limits allows() const;

  /// Requests that run or wait, in all replicas.
  std::size_t room() const;
};

/// One replica: what it shares, and its own. What its actors are made from.
struct model_replica {
  std::shared_ptr<const loaded_model> model;
  replica_plan plan;

  /// For the devices' runners and samplers.
  runner_spec runner(std::size_t stage = 0) const;
  sampler_spec sampler() const;

  /// Runs a stage of the model's steps, and the last one also the models of techniques. Called by the thread that will
  /// use it.
  std::unique_ptr<step_runner> make_runner(std::size_t stage = 0) const;
};

model_replica replica_of(std::shared_ptr<const loaded_model> model, std::size_t number = 0);

} // namespace troupe
