// What watchers of the engine get: frames of /v1/ws, and traces for Perfetto. Pure functions.
#pragma once

#include "api/server/step_ring.hpp"
#include "runtime/engine/engine_snapshot.hpp"

#include <span>
#include <string>
#include <string_view>

namespace troupe {

/// Records that a frame may have; of more, the oldest are lost.
inline constexpr std::size_t most_watched_steps = 1000;

/// {"type":"watch",…}: the steps since the last frame, and what the engine is like now.
std::string watch_frame(std::string_view id, const step_ring::taken& steps, const engine_snapshot& now);

/// In the format of Chrome's trace events, which Perfetto opens: a process for each replica, with a track of its steps
/// and one for each sequence.
std::string trace_of(std::span<const step_ring::record_ptr> steps);

} // namespace troupe
