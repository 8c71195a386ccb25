// What happens to the folder of kept prefixes in a simulation: files are damaged, cut and removed, the whole folder goes, and reads
// and writes are refused. For as long as it lives, a rule of the process's fault plan counts the blocks that pass.
#pragma once

#include "tests/simulation/dice.hpp"

#include <filesystem>
#include <string>

namespace troupe::simulation {

class disk_faults {
public:
  /// One read or write in about so many is refused; 0: none.
  disk_faults(std::filesystem::path folder, int refused_every, std::uint64_t seed);
  ~disk_faults();
  disk_faults(const disk_faults&) = delete;
  disk_faults& operator=(const disk_faults&) = delete;

  /// Damages something. Returns what, or nothing.
  std::string strike();

private:
  std::filesystem::path folder_;
  bool refuses_;
  dice dice_;
};

} // namespace troupe::simulation
