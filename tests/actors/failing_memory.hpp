// Lets one allocation of the calling thread fail, of all that operator new serves in this program.
#pragma once

namespace troupe::test {

class failing_allocation {
public:
  /// The `nth` allocation while it is armed fails, once.
  explicit failing_allocation(int nth) : left_(nth) {}

  void arm();
  void disarm();
  bool happened() const { return left_ == 0; }

private:
  int left_;
};

} // namespace troupe::test
