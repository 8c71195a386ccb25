// A device whose runners compute hashes (hash_model.hpp) in the place of matrices: K and V are a hash for each position of
// each block, states one for each slot. Its samplers are those of the CPU; as on a GPU, they may report later. What other threads
// would do waits in `outside_work` until the simulation runs it.
#pragma once

#include "runtime/execution/device.hpp"

#include <deque>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>

namespace troupe::simulation {

/// What the simulated device was told to do breaks a promise of the protocol: a find, which no fault explains.
struct broken_promise : std::logic_error {
  explicit broken_promise(const std::string& what);
  /// The first one since the simulation began; empty: none.
  static inline std::string first = {};
};

/// Work of threads outside the actors, in order.
struct outside_work {
  std::deque<std::function<void()>> masks; // of guides
  std::deque<std::function<void()>> device;
};

struct hash_device_settings {
  bool asynchronous = false; // samplers report later, and have threads of their own
  bool late_masks = false;   // masks of guides are made by outside_work
  bool last = true;          // of the stages
  bool recurrent = false;
  int* runners_alive = nullptr; // those that are; counts KV caches
};

std::shared_ptr<const device> make_hash_device(hash_device_settings settings, std::shared_ptr<outside_work> work);

/// Bytes of a block's image in each stage.
std::size_t hash_block_bytes();

} // namespace troupe::simulation
