// The seeded generator that decides everything in a simulation (splitmix64; Steele, Lea, Flood 2014), and the hash that stands in for
// matrices. The same on every machine.
#pragma once

#include <cstdint>

namespace troupe::simulation {

constexpr std::uint64_t mixed(std::uint64_t h) {
  h = (h ^ (h >> 30)) * 0xbf58476d1ce4e5b9;
  h = (h ^ (h >> 27)) * 0x94d049bb133111eb;
  return h ^ (h >> 31);
}

constexpr std::uint64_t mixed(std::uint64_t h, std::uint64_t with) {
  return mixed(h * 0x9e3779b97f4a7c15 + with + 0x632be59bd9b4e019);
}

class dice {
public:
  explicit dice(std::uint64_t seed) : state_(mixed(seed ^ 0x5851f42d4c957f2d)) {}

  std::uint64_t next() { return mixed(state_ += 0x9e3779b97f4a7c15); }

  /// From `least` to `most`.
  int pick(int least, int most) {
    return least + static_cast<int>(next() % static_cast<std::uint64_t>(most - least + 1));
  }
  bool one_in(int n) { return next() % static_cast<std::uint64_t>(n) == 0; }

private:
  std::uint64_t state_;
};

} // namespace troupe::simulation
