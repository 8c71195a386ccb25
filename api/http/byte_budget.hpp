// A memory budget that many holders share; each holder's share grows as needed. The budget is thread-safe, a share is
// not.
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
    explicit share(byte_budget& budget) : budget_(&budget) {}
    share(share&& other) noexcept
      : budget_(std::exchange(other.budget_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
    share& operator=(share&& other) noexcept {
      std::swap(budget_, other.budget_);
      std::swap(bytes_, other.bytes_);
      return *this;
    }
    ~share() {
      if (budget_)
        budget_->taken_ -= bytes_;
    }

    /// Grows to at least `bytes`. Returns false and stays unchanged if the budget does not allow it.
    bool grow_to(std::size_t bytes) {
      if (!budget_ || bytes <= bytes_)
        return true;
      const auto more = bytes - bytes_;
      if (budget_->taken_.fetch_add(more) + more > budget_->most_) {
        budget_->taken_ -= more;
        return false;
      }
      bytes_ = bytes;
      return true;
    }

  private:
    byte_budget* budget_ = nullptr;
    std::size_t bytes_ = 0;
  };

private:
  const std::size_t most_;
  std::atomic<std::size_t> taken_ = 0;
};

/// The bytes of a request that have arrived, and their share of the budget. The first `free_bytes` are not counted, so
/// short requests get through when long ones have used up the budget.
struct held_text {
  static constexpr std::size_t free_bytes = 64 << 10;

  std::string text;
  byte_budget::share share;

  /// Counts the text's current size against the budget. Returns false if that exceeds it.
  bool count() { return text.size() <= free_bytes || share.grow_to(text.size()); }
};

} // namespace troupe
