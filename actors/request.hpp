// The request actor: one per client request. Owns the transcripts of its n sequences, their detokenisers and stop matchers,
// the deadline and the way back to the client. Event-based. It ends, and with it everything that others keep for it, when
// the client has had its last event.
#pragma once

#include "actors/messages.hpp"

namespace troupe {

/// `id` must be unique in the engine. Events go to the sink on the actor's thread.
request_actor spawn_request(caf::actor_system& system, engine_actor engine, std::uint64_t id, generation_ptr what,
                            event_sink_ptr sink);

} // namespace troupe
