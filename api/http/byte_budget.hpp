// Memory that many may take together: each takes its share as it grows. Any thread; a share belongs to one at a time.
#pragma once

#include <atomic>
#include <cstddef>
#include <string>
#include <utility>

namespace troupe {

class byte_budget {
public:
  explicit byte_budget(std::size_t most) : most_(most) {}

  std::size_t most() const { return most_; }
  std::size_t taken() const { return taken_; }

  class share {
  public:
    share() = default;
    explicit share(byte_budget& of) : of_(&of) {}
    share(share&& other) noexcept : of_(std::exchange(other.of_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
    share& operator=(share&& other) noexcept {
      std::swap(of_, other.of_);
      std::swap(bytes_, other.bytes_);
      return *this;
    }
    ~share() {
      if (of_)
        of_->taken_ -= bytes_;
    }

    /// Makes it at least so large. False, and it stays as it is, where that would be more than there is.
    bool grow_to(std::size_t bytes) {
      if (!of_ || bytes <= bytes_)
        return true;
      const auto more = bytes - bytes_;
      if (of_->taken_.fetch_add(more) + more > of_->most_) {
        of_->taken_ -= more;
        return false;
      }
      bytes_ = bytes;
      return true;
    }

  private:
    byte_budget* of_ = nullptr;
    std::size_t bytes_ = 0;
  };

private:
  const std::size_t most_;
  std::atomic<std::size_t> taken_ = 0;
};

/// What has arrived of a request, and its share of what all of them may take. The first `free_bytes` are not counted, so
/// that short requests get through where long ones have taken all.
struct held_text {
  static constexpr std::size_t free_bytes = 64 << 10;

  std::string text;
  byte_budget::share share;

  /// Counts what there is of the text now. False where that is too much.
  bool count() { return text.size() <= free_bytes || share.grow_to(text.size()); }
};

} // namespace troupe
