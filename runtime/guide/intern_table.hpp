// Finds values that are stored elsewhere by their content, so that equal values share one id. Open addressing over ids;
// the owner of the values compares them. A plain value: copies are independent.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace troupe::guides {

inline std::uint64_t hash_mix(std::uint64_t seed, std::uint64_t value) {
  seed = (seed ^ value) * 0x9E3779B97F4A7C15u;
  return seed ^ (seed >> 29);
}

class intern_table {
public:
  /// The id for which `equal(id)` holds among those added with this hash, or the one that `add()` makes.
  template <class Equal, class Add>
  std::uint32_t find_or_add(std::uint64_t hash, Equal equal, Add add) {
    if ((count_ + 1) * 2 > slots_.size())
      grow();
    const auto mask = slots_.size() - 1;
    const auto tag = static_cast<std::uint32_t>(hash >> 32);
    auto at = static_cast<std::size_t>(hash_mix(hash, 1)) & mask;
    for (; slots_[at].id != none; at = (at + 1) & mask)
      if (slots_[at].tag == tag && equal(slots_[at].id))
        return slots_[at].id;
    const auto id = add(); // may throw, before anything has changed
    slots_[at] = {id, tag, hash};
    ++count_;
    return id;
  }

  void clear() {
    slots_.clear();
    count_ = 0;
  }

private:
  static constexpr std::uint32_t none = 0xFFFFFFFF;
  struct slot {
    std::uint32_t id = none;
    std::uint32_t tag = 0;
    std::uint64_t hash = 0;
  };

  void grow() {
    std::vector<slot> old(slots_.empty() ? 64 : slots_.size() * 2);
    old.swap(slots_);
    const auto mask = slots_.size() - 1;
    for (const auto& s : old)
      if (s.id != none) {
        auto at = static_cast<std::size_t>(hash_mix(s.hash, 1)) & mask;
        while (slots_[at].id != none)
          at = (at + 1) & mask;
        slots_[at] = s;
      }
  }

  std::vector<slot> slots_;
  std::size_t count_ = 0;
};

} // namespace troupe::guides
