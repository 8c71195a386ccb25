// The kv_store of a model, opened once and shared by its replicas. Bounds how many blocks are on their way to and from
// its files at a time.
#pragma once

#include "runtime/kv/kv_store.hpp"
#include "runtime/scheduling/blocks/block_manager.hpp"

#include <algorithm>
#include <cstddef>
#include <memory>

namespace troupe {

struct kv_disk {
  std::shared_ptr<kv_store> store;
  std::size_t state_bytes = 0; // of the states of recurrent layers behind a block; 0: there are none

  /// Images of a replica that are on their way, in each direction.
  static std::size_t images_of(std::size_t block_bytes) {
    return std::max<std::size_t>((std::size_t(64) << 20) / block_bytes, 4);
  }

  /// Images of states behind blocks, in each direction: one is filled while the other is written.
  static constexpr std::size_t state_images = 2;

  /// In one direction; null: there are none.
  std::shared_ptr<const image_pool> make_state_images() const {
    return state_bytes > 0 ? std::make_shared<const image_pool>(state_bytes, state_images) : nullptr;
  }

  /// Blocks that are moved together: between steps, or before the thread of the disk looks after others.
  static std::size_t portion_of(std::size_t block_bytes) {
    return std::clamp<std::size_t>((std::size_t(8) << 20) / block_bytes, 1, 256);
  }

  /// What a replica's block manager needs of it.
  kept_outside keeping() const {
    const auto bytes = store->block_bytes();
    return {store->keys(), std::make_shared<const image_pool>(bytes, images_of(bytes)),
            static_cast<std::int32_t>(portion_of(bytes)), make_state_images()};
  }
};

} // namespace troupe
