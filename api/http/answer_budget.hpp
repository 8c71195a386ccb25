// One memory limit for all answers that are being made or written. When it is reached, the slowest readers lose their
// answers first. If no reader is slow, the client that holds most loses its largest answer; if that client is the one
// whose answer wants to grow, it loses this answer. Thread-safe.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <mutex>
#include <optional>
#include <set>
#include <string>

namespace troupe {

class answer_budget {
public:
  using clock = std::chrono::steady_clock;

  /// Not counted of each answer, so that short ones get through when long ones have used up the budget.
  static constexpr std::size_t free_bytes = 64 << 10;
  /// A reader is slow if it takes less than this per second, and has been waited for as long.
  static constexpr std::size_t slow_rate = 64 << 10;
  static constexpr auto patience = std::chrono::seconds(1);

  explicit answer_budget(std::size_t most) : most_(most) {}

  std::size_t most() const { return most_; }
  std::size_t taken() const;

  /// What one connection's answers take. The budget must outlive it.
  class account {
  public:
    /// `lose` is called, at most once, when a slow reader loses its place: it is to close the connection, but later, as
    /// it is called on any thread and under a lock.
    account(answer_budget& budget, std::function<void()> lose);
    ~account();
    account(const account&) = delete;
    account& operator=(const account&) = delete;

    /// Who pays, from now on.
    void speak_for(std::string client);

    /// Takes as many bytes more. False if there is no room for them, or the place was lost: nothing was taken. The
    /// place is lost, too, if this waits for its client and would grow beyond the budget.
    bool add(std::size_t bytes, clock::time_point now = clock::now());
    void release(std::size_t bytes);
    /// At the end of an answer.
    void release_all();

    /// The connection waits for its client to take bytes, or no longer does.
    void waits(clock::time_point now = clock::now());
    void wrote(std::size_t bytes, clock::time_point now = clock::now());

  private:
    friend class answer_budget;
    std::size_t counted() const { return bytes_ > free_bytes ? bytes_ - free_bytes : 0; }

    answer_budget& budget_;
    const std::function<void()> lose_;
    // Under the budget's lock:
    std::string client_;
    std::size_t bytes_ = 0;
    std::size_t written_ = 0;
    clock::duration waited_{};
    std::optional<clock::time_point> since_; // while it waits
    bool lost_ = false;
  };

private:
  void evict(account& slow);
  account* slowest(const account& but, clock::time_point now) const;
  account* largest_of_others(const account& but, std::size_t with) const;

  const std::size_t most_;
  mutable std::mutex mutex_;
  std::size_t taken_ = 0;
  std::set<account*> accounts_;
};

} // namespace troupe
