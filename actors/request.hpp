// The request actor: one per client request. Owns the transcripts of its n sequences, their detokenisers and stop matchers,
// the deadline and the way back to the client. Event-based. It ends, and with it everything that others keep for it, when
// the client has had its last event. Where the scheduler dies before that, it takes its transcripts to the next one.
#pragma once

#include "actors/messages.hpp"

namespace troupe {

/// Events go to the sink on the actor's thread.
request_actor spawn_request(caf::actor_system& system, engine_actor engine, generation_ptr what, event_sink_ptr sink);

} // namespace troupe
