// The chains of blocks that other replicas send to this one: which are under way, and when one is whole. A sender that
// is never heard of again is forgotten after a while. Owned by the kv_block_manager actor; single-threaded.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>

namespace troupe {

class incoming_chains {
public:
  using time_point = std::chrono::steady_clock::time_point;
  static constexpr auto patience = std::chrono::seconds(60); // between two arrivals of one chain
  static constexpr std::size_t most = 4096;                  // under way at a time

  /// A sender offers a chain of so many blocks for a request, anew or in place of the one before. False if too many are
  /// under way.
  bool expect(std::uint64_t request, std::int32_t blocks, time_point now);

  /// Blocks up to place `end` of its chain are there. Whether that was the last one; false for unknown requests.
  bool arrived(std::uint64_t request, std::int32_t end, time_point now);

  std::size_t under_way() const { return chains_.size(); }

private:
  struct chain {
    std::int32_t blocks = 0;
    time_point until;
  };

  std::map<std::uint64_t, chain> chains_; // by request
};

} // namespace troupe
