// The request actor: one per client request. Owns the transcripts of its n sequences, their detokenisers and stop matchers,
// the deadline and the way back to the client. Event-based. It ends, and with it everything that others keep for it, when
// the client has had its last event. Where the scheduler dies before that, it takes its transcripts to the next one.
#pragma once

#include "actors/client_line.hpp"

namespace troupe {

/// Events go to the client on the actor's thread. May throw bad_alloc; the line was told of it then, or is untouched.
request_actor spawn_request(caf::actor_system& system, engine_actor engine, generation_ptr what, client_line&& client);

} // namespace troupe
