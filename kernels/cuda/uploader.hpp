// Uploads data that several host threads produce, piece by piece through pinned memory: while the device copies one
// piece, the next is filled. For weights, which come from a mapped file. Owned by a backend.
#pragma once

#include "kernels/cuda/device.hpp"

#include <array>
#include <functional>
#include <span>

namespace troupe::kernels::cuda {

class uploader {
public:
  explicit uploader(const stream& on) : on_(on) {}

  /// Device memory made of units of equal size.
  struct target {
    void* to = nullptr;
    std::size_t unit_bytes = 0;
  };

  /// Writes units `first` to `first + count` of target i to to[i], which holds zeros. Called by several threads at
  /// once; must not throw.
  using filler = std::function<void(std::size_t first, std::size_t count, std::span<std::uint8_t* const> to)>;

  /// Fills all targets with `units` units each; returns when they have arrived.
  void upload(std::span<const target> targets, std::size_t units, const filler& fill);

private:
  static constexpr std::size_t piece_bytes = std::size_t(16) << 20;

  struct piece {
    buffer memory; // pinned
    std::size_t bytes = 0;
    event copied;
  };

  const stream& on_;
  std::array<piece, 2> pieces_;
};

} // namespace troupe::kernels::cuda
