// Writes what watchers of the engine receive: frames of /v1/ws, and traces for Perfetto. Single-threaded.
#pragma once

#include "api/server/wire/step_ring.hpp"
#include "runtime/engine/engine_snapshot.hpp"

#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace troupe {

/// Records that a frame may have; of more, the oldest are lost.
inline constexpr std::size_t most_watched_steps = 1000;

/// {"type":"watch",…}: the steps since the last frame, and what the engine is like now.
std::string watch_frame(std::string_view id, const step_ring::taken& steps, const engine_snapshot& now);

/// Writes steps in the format of Chrome's trace events, which Perfetto opens: a process for each replica, with a track
/// of its steps and one for each sequence.
class trace_writer {
public:
  /// What follows what was written so far.
  std::string add(std::span<const step_ring::record_ptr> steps);
  std::string end();

private:
  void add(const step_record& r, std::vector<std::string>& events);
  std::string beginning();

  bool begun_ = false, has_events_ = false;
  std::map<std::pair<int, sequence_id>, std::uint64_t> tracks_; // from 1; 0 has the steps
  std::set<int> replicas_;
};

} // namespace troupe
