// What this process has promised of a memory: the host's, or a device's of its own. Memory that is promised is mostly
// not taken yet (a KV cache fills slowly), so what the system calls available is promised already. Engines plan within
// what the ledger leaves, and keep their entries for as long as they keep the memory. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace troupe {

class device; // runtime/execution/device.hpp

struct memory_promise {
  std::string what; // "weights of llama-1b"
  std::size_t bytes = 0;
};

class memory_ledger;

/// A promise of memory, given back with its entry.
class memory_entry {
public:
  memory_entry(memory_entry&& other) noexcept;
  memory_entry& operator=(memory_entry&& other) noexcept;
  ~memory_entry();

private:
  friend class memory_ledger;
  memory_entry(memory_ledger* ledger, std::uint64_t number) : ledger_(ledger), number_(number) {}

  memory_ledger* ledger_;
  std::uint64_t number_;
};

class memory_ledger {
public:
  struct state {
    std::size_t available = 0; // bytes that can still be taken, as far as the system knows
    std::int64_t used = 0;     // bytes that this process has taken, from any origin
  };

  memory_ledger() = default; // outlives its entries
  memory_ledger(const memory_ledger&) = delete;
  memory_ledger& operator=(const memory_ledger&) = delete;

  /// What is left, while nobody else plans.
  class planning {
  public:
    /// Bytes of the available memory that nobody has been promised.
    std::size_t left() const;

    /// Bytes of all promises.
    std::size_t promised() const { return ledger_.promised_; }

    /// Records a promise, also of more than is left: the caller decides.
    memory_entry reserve(std::string what, std::size_t bytes);

  private:
    friend class memory_ledger;
    planning(memory_ledger& ledger, const std::function<state()>& look);

    memory_ledger& ledger_;
    std::unique_lock<std::mutex> lock_;
    state now_;
  };

  /// Waits until nobody else plans. `look` then tells the state of the memory.
  planning plan(const std::function<state()>& look) { return planning(*this, look); }

  /// In the order in which they were made.
  std::vector<memory_promise> promises() const;

private:
  friend class memory_entry;

  struct row {
    std::uint64_t number = 0;
    memory_promise promise;
  };

  void give_back(std::uint64_t number) noexcept;

  mutable std::mutex mutex_;
  std::vector<row> rows_;
  std::size_t promised_ = 0;
  std::int64_t used_before_ = 0; // by the process, when the first promise was made
  std::uint64_t last_number_ = 0;
};

/// Begins to plan in this process's part of the host's memory.
memory_ledger::planning plan_host_memory();

/// Begins to plan in the memory that holds a device's weights and K/V: the host's or its own.
memory_ledger::planning plan_memory_of(const device& device);

/// Whether weights and K/V of both are in one memory.
bool share_memory(const device& one, const device& other);

} // namespace troupe
