// How much one rendering may still do and make, until when, and whether anybody still waits for it. Whatever takes time
// by the size of a value takes a meter, charges it as it goes, and so ends in time. Belongs to one rendering's thread.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <limits>
#include <stdexcept>
#include <stop_token>

namespace troupe::jinja {

/// A fault while rendering that doesn't know its place yet: the interpreter adds line and column.
class fault : public std::runtime_error {
public:
  using std::runtime_error::runtime_error;
};

/// Nobody waits for the rendering any more.
class stopped : public fault {
public:
  stopped() : fault("the request was cancelled") {}
};

/// What one rendering may use.
struct render_limits {
  std::size_t steps = std::size_t{256} << 20; // of about a nanosecond: bytes passed over, values visited
  std::size_t bytes = std::size_t{64} << 20;  // of memory taken, whether or not it is given back
  std::chrono::milliseconds time{2000};       // on the wall
  std::stop_token stop = {};
};

class meter {
public:
  explicit meter(const render_limits& limits)
    : steps_(limits.steps),
      bytes_(limits.bytes),
      stop_(limits.stop),
      end_(clock::now() + limits.time),
      look_at_(steps_) {}

  /// For what is done outside of a rendering, on texts of known size.
  static meter unlimited() {
    constexpr auto all = std::numeric_limits<std::size_t>::max();
    return meter({.steps = all, .bytes = all, .time = std::chrono::hours(1000)});
  }

  /// Charges steps. Throws fault when they are used up or the time is, stopped when the rendering is to stop.
  void spend(std::size_t steps) {
    if (steps > steps_)
      throw fault("the template does more work than any chat template should");
    steps_ -= steps;
    if (steps_ <= look_at_)
      look();
  }

  /// Charges memory, and the steps to fill it. Comes before the memory is taken, where that can be much.
  void make(std::size_t bytes) {
    if (bytes > bytes_)
      throw fault("the template makes more text and values than any chat template should");
    bytes_ -= bytes;
    spend(bytes);
  }

  /// Long work is done in parts of this many bytes, between which spend() can end it.
  static constexpr std::size_t part = 16 << 10;

private:
  using clock = std::chrono::steady_clock;
  static constexpr std::size_t between_looks = 64 << 10; // steps

  void look() {
    look_at_ = steps_ - std::min(steps_, between_looks);
    if (stop_.stop_requested())
      throw stopped();
    if (clock::now() > end_)
      throw fault("the template takes longer than any chat template should");
  }

  std::size_t steps_, bytes_;
  std::stop_token stop_;
  clock::time_point end_;
  std::size_t look_at_; // the clock and the token are looked at when so few steps are left
};

} // namespace troupe::jinja
