// How soon a failed part of the engine is started again: at once, and where that does not help, after ever longer, but
// always. Owned by the engine actor; single-threaded.
#pragma once

#include <algorithm>
#include <chrono>
#include <string>

namespace troupe {

class restart_policy {
public:
  using milliseconds = std::chrono::milliseconds;

  static constexpr milliseconds first_wait{50}, longest_wait{5000}; // after a start at once; doubled in between
  static constexpr milliseconds least_life{500};                    // of a part that runs, as it seems

  /// After a failure of a part that had run for so long: the wait before it is started again. One that has run for ten
  /// times as long as the last wait is worth a start at once.
  milliseconds after(std::chrono::steady_clock::duration life) {
    if (life >= std::max(least_life, 10 * last_))
      forgive();
    last_ = next_;
    next_ = next_.count() == 0 ? first_wait : std::min(2 * next_, longest_wait);
    return last_;
  }

  /// What made it fail is known to be gone.
  void forgive() { last_ = next_ = {}; }

  /// Whether clients had better hear of it than wait.
  static bool is_long(milliseconds wait) { return wait >= std::chrono::seconds(1); }

  /// "every 5 s"
  static std::string every(milliseconds wait) {
    return "every " + std::to_string(std::chrono::ceil<std::chrono::seconds>(wait).count()) + " s";
  }

private:
  milliseconds last_{}, next_{};
};

} // namespace troupe
