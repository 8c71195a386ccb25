// Makes one allocation by operator new fail on the calling thread, or all from one on.
#pragma once

namespace troupe::test {

class failing_allocation {
public:
  /// The `nth` allocation made while armed fails, and if `lasting`, all behind it.
  explicit failing_allocation(int nth, bool lasting = false) : left_(nth), lasting_(lasting) {}

  void arm();
  void disarm();
  bool happened() const { return left_ == 0; }

  /// Whether the allocation that is asked for now fails. Calls on_refusal for the first that does.
  bool refuses() noexcept;

  /// Called by the refused allocation; it may allocate.
  static inline void (*on_refusal)() = nullptr;

private:
  int left_;
  bool lasting_;
};

/// While it lives, none fails on this thread.
class no_failing_allocation {
public:
  no_failing_allocation();
  ~no_failing_allocation();
  no_failing_allocation(const no_failing_allocation&) = delete;
  no_failing_allocation& operator=(const no_failing_allocation&) = delete;

private:
  failing_allocation* armed_;
};

} // namespace troupe::test
