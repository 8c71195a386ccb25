// Makes one allocation by operator new fail on the calling thread.
#pragma once

namespace troupe::test {

class failing_allocation {
public:
  /// The `nth` allocation made while armed fails, once.
  explicit failing_allocation(int nth) : left_(nth) {}

  void arm();
  void disarm();
  bool happened() const { return left_ == 0; }

  /// Called by the refused allocation; it may allocate.
  static inline void (*on_refusal)() = nullptr;

private:
  int left_;
};

/// While it lives, none fails on this thread.
class no_failing_allocation {
public:
  no_failing_allocation();
  ~no_failing_allocation();
  no_failing_allocation(const no_failing_allocation&) = delete;
  no_failing_allocation& operator=(const no_failing_allocation&) = delete;

private:
  int* armed_;
};

} // namespace troupe::test
