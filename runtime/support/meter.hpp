// Counts what building something from a client's text costs, while it is built: bytes of memory that are held, and
// steps of work. Whatever the thread allocates within `run` is charged, by any code and container, because operator new
// itself counts (meter.cpp). Loops that may run long without allocating call `charge`. Beyond the limits, or once a
// stop was requested, both throw.
//
// Meters nest: what is charged to the inner one is charged to those around it. A meter belongs to one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <new>
#include <stop_token>
#include <utility>

namespace troupe {

/// Memory or work has come to its limit. Derived from bad_alloc, as operator new may throw nothing else.
class meter_spent : public std::bad_alloc {
public:
  const char* what() const noexcept override { return "a limit on memory or work was reached"; }
};

class meter {
public:
  struct limits {
    std::size_t bytes = SIZE_MAX;
    std::uint64_t steps = UINT64_MAX / 2; // some nanoseconds each
  };
  enum class reason : std::uint8_t { none, bytes, steps, stopped };

  explicit meter(const limits& most, std::stop_token stop = {})
    : most_(most), stop_(std::move(stop)), next_look_(next_look()) {}
  meter(const meter&) = delete;
  meter& operator=(const meter&) = delete;

  /// Runs `f`, charging its thread's allocations and work here. Throws what f does, and meter_spent.
  template <class F>
  decltype(auto) run(F&& f) {
    const scope on(*this);
    return std::forward<F>(f)();
  }

  /// Charges work to the meters within which this thread runs, if any.
  static void charge(std::uint64_t steps) {
    if (current_)
      current_->work(steps);
  }
  /// The innermost meter of this thread, or null.
  static meter* current() { return current_; }

  /// Why a charge to it has thrown.
  reason spent() const { return spent_; }
  /// Whether it or one around it is spent.
  bool is_spent() const { return spent_ != reason::none || (around_ && around_->is_spent()); }
  std::uint64_t steps() const { return steps_; }
  /// Allocated within `run` and not freed there.
  std::size_t bytes() const { return bytes_ > 0 ? static_cast<std::size_t>(bytes_) : 0; }
  std::size_t peak_bytes() const { return static_cast<std::size_t>(peak_); }
  const limits& most() const { return most_; }
  /// Forgets what was charged: what was built is gone.
  void reset();

  /// Whether allocations are counted in this program: not if it brings an operator new of its own. Work is then bounded
  /// all the same, and with it memory, less tightly.
  static bool counts_allocations();

  // -- for operator new and delete ------------------------------------------------------

  /// Whether as many bytes may be allocated; work for it is charged.
  static bool admits(std::size_t bytes) noexcept { return !current_ || current_->admit(bytes); }
  static bool is_counting() noexcept { return current_ != nullptr; }
  static void count(std::ptrdiff_t bytes) noexcept;

private:
  static constexpr std::uint64_t interval = 4096; // steps between looks at the stop token

  class scope {
  public:
    explicit scope(meter& m) : m_(m) {
      m.around_ = current_;
      current_ = &m;
    }
    ~scope() {
      current_ = m_.around_;
      m_.around_ = nullptr;
    }
    scope(const scope&) = delete;
    scope& operator=(const scope&) = delete;

  private:
    meter& m_;
  };

  void work(std::uint64_t steps) {
    for (auto* m = this; m; m = m->around_)
      if ((m->steps_ += steps) >= m->next_look_)
        m->look();
  }
  void look();
  bool admit(std::size_t bytes) noexcept;
  /// The work at which to look at the limits again.
  std::uint64_t next_look() const { return most_.steps - steps_ < interval ? most_.steps + 1 : steps_ + interval; }

  static thread_local constinit meter* current_;

  const limits most_;
  const std::stop_token stop_;
  meter* around_ = nullptr;
  std::uint64_t steps_ = 0, next_look_;
  std::ptrdiff_t bytes_ = 0, peak_ = 0;
  reason spent_ = reason::none;
};

} // namespace troupe
