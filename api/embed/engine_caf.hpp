// The engine for actors: its handle, which accepts the messages of actors/messages.hpp from any actor, and requests
// whose tokens arrive as messages.
#pragma once

#include "actors/messages.hpp"
#include "api/embed/engine.hpp"

namespace troupe {

engine_actor handle_of(const engine& engine);

/// Submits a request as `engine::submit` does. Its events are sent to `client` as messages, numbered `id`.
request_handle submit(const engine& engine, generation request, std::uint64_t id, const client_actor& client);

} // namespace troupe
