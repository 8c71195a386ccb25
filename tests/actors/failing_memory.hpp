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

} // namespace troupe::test
