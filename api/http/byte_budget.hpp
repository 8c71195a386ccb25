// A memory budget that many holders share; each holder's share grows as needed, and no client has all of it. The budget
// is thread-safe, a share is not.
#pragma once

#include <atomic>
#include <cstddef>
#include <map>
#include <mutex>
#include <string>
#include <utility>

namespace troupe {

class byte_budget {
public:
  /// `most_of_one`: what one client may have.
  byte_budget(std::size_t most, std::size_t most_of_one) : most_(most), most_of_one_(most_of_one) {}
  explicit byte_budget(std::size_t most) : byte_budget(most, most) {}

  std::size_t most() const { return most_; }
  std::size_t taken() const { return taken_; }

  class share {
  public:
    share() = default;
    explicit share(byte_budget& budget, std::string client = {}) : budget_(&budget), client_(std::move(client)) {}
    share(share&& other) noexcept
      : budget_(std::exchange(other.budget_, nullptr)),
        client_(std::move(other.client_)),
        bytes_(std::exchange(other.bytes_, 0)) {}
    share& operator=(share&& other) noexcept {
      std::swap(budget_, other.budget_);
      std::swap(client_, other.client_);
      std::swap(bytes_, other.bytes_);
      return *this;
    }
    ~share() {
      if (budget_ && bytes_ > 0)
        budget_->give_back(client_, bytes_);
    }

    /// Grows to at least `bytes`. Returns false and stays unchanged if the budget does not allow it.
    bool grow_to(std::size_t bytes) {
      if (!budget_ || bytes <= bytes_)
        return true;
      if (!budget_->take(client_, bytes - bytes_))
        return false;
      bytes_ = bytes;
      return true;
    }

    void shrink_to(std::size_t bytes) {
      if (!budget_ || bytes >= bytes_)
        return;
      budget_->give_back(client_, bytes_ - bytes);
      bytes_ = bytes;
    }

  private:
    byte_budget* budget_ = nullptr;
    std::string client_;
    std::size_t bytes_ = 0;
  };

private:
  bool take(const std::string& client, std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    const auto its = clients_.find(client);
    const auto before = its == clients_.end() ? 0 : its->second;
    if (taken_ + bytes > most_ || before + bytes > most_of_one_)
      return false;
    clients_[client] = before + bytes;
    taken_ += bytes;
    return true;
  }

  void give_back(const std::string& client, std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    taken_ -= bytes;
    const auto its = clients_.find(client);
    if ((its->second -= bytes) == 0)
      clients_.erase(its);
  }

  const std::size_t most_, most_of_one_;
  std::atomic<std::size_t> taken_ = 0;
  std::mutex mutex_;                           // of what follows, and of changes
  std::map<std::string, std::size_t> clients_; // who have any
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
