// Bounds the memory of all guides of a model together. What a guide has learnt while it was followed can be built anew.
// When all guides together hold too much, each one that holds more than its share drops what it has learnt after each
// use. Any thread.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>

namespace troupe::guides {

class guide_pool {
public:
  explicit guide_pool(std::size_t most) : most_(most) {}

  void enter() { ++guides_; }
  void leave(std::size_t bytes) {
    --guides_;
    bytes_ -= bytes;
  }
  /// A guide's memory is no longer `before`, but `now`.
  void change(std::size_t before, std::size_t now) { bytes_ += now - before; }

  bool is_full() const { return bytes_ > most_; }
  std::size_t bytes() const { return bytes_; }
  /// What each guide may keep while it is full.
  std::size_t share() const { return most_ / std::max<std::size_t>(guides_, 16); }

private:
  const std::size_t most_;
  std::atomic<std::size_t> guides_ = 0, bytes_ = 0;
};

} // namespace troupe::guides
