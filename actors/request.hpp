// The request actor: one per client request. Owns the transcripts of its n sequences, their detokenisers and stop
// matchers, the deadline and the line to the client. Event-based. It ends once the client has received the last event;
// all who hold state for it release that state then. If the scheduler dies earlier, it takes its transcripts to the
// next one.
#pragma once

#include "actors/client_line.hpp"
#include "runtime/scheduling/request_ledger.hpp"

namespace troupe {

/// The one way into an engine, for submit_atom and engine::submit alike. The request is validated when the engine
/// admits it; events go to the client on the actor's thread. May throw bad_alloc: the client has been told, or `client`
/// is untouched. `ledger`: begun now; null: its own.
request_actor spawn_request(caf::actor_system& system, engine_actor engine, generation_ptr what, client_line&& client,
                            std::shared_ptr<request_ledger> ledger = nullptr);

} // namespace troupe
