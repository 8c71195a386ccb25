// A model in memory: what all replicas share, and what each has of its own. Immutable but for the guides' cache and the
// adapters; shared by actors on any thread. A restarted replica finds its weights here.
#pragma once

#include "runtime/engine/engine_options.hpp"
#include "runtime/engine/memory_ledger.hpp"
#include "runtime/execution/device.hpp"
#include "runtime/execution/draft_model.hpp"
#include "runtime/execution/step_runner.hpp"
#include "runtime/kv/kv_disk.hpp"
#include "runtime/model/weights.hpp"
#include "runtime/scheduling/scheduler_limits.hpp"
#include "runtime/scheduling/swap_policy.hpp"
#include "runtime/speculation/speculator.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace troupe {

namespace guides {
class guide_cache; // runtime/guide/guide_cache.hpp
}

/// A model beside the engine's: a draft, which guesses for it, or an amateur, which it is contrasted with.
struct loaded_second {
  std::shared_ptr<const model_weights> weights;
  troupe::precision precision = kernels::dtype::f32;
  step_sizes sizes;
  int vocab = 0;
};

/// What one replica has of its own.
struct replica_plan {
  std::shared_ptr<const troupe::device> device; // with the cores that are the replica's
  std::int32_t blocks = 0;                      // of the KV cache
  std::int32_t host_blocks = 0;                 // of the host block pool
  swap_rates swap = {};                         // if host_blocks > 0
  scheduler_limits limits = {};
};

/// What all replicas of a model share.
struct loaded_model {
  model_info info;
  std::shared_ptr<const model_weights> weights;
  troupe::precision precision = kernels::dtype::f32;
  device_capabilities capabilities; // of every replica's device
  bool prefix_cache = true;
  std::chrono::milliseconds request_timeout{0};
  std::shared_ptr<const loaded_second> draft, amateur; // null: none
  speculation_settings speculation;
  std::shared_ptr<const troupe::kv_disk> kv_disk;            // where cached prefixes are kept; null: nowhere
  std::shared_ptr<guides::guide_cache> guides;               // compiles those of requests
  std::vector<replica_plan> replicas;                        // at least one
  std::shared_ptr<const std::vector<memory_entry>> promised; // what all of this takes, until it is gone

  /// Requests that run or wait, in all replicas.
  std::size_t room() const;
};

/// One replica: what it shares, and its own. What its actors are made from.
struct model_replica {
  std::shared_ptr<const loaded_model> model;
  replica_plan plan;

  /// For the device's runners and samplers.
  runner_spec runner() const;
  sampler_spec sampler() const;

  /// Runs the steps of the model and, if there is one, of the amateur. Called by the thread that will use it.
  std::unique_ptr<step_runner> make_runner() const;

  /// For a draft_model. Its KV cache has as many blocks as the model's.
  draft_spec drafting() const;
};

model_replica replica_of(std::shared_ptr<const loaded_model> model, std::size_t number = 0);

} // namespace troupe
