// The engine for those who speak actors: its handle, to which any actor may send what actors/messages.hpp says, for one
// (submit, my number, what to generate, who hears of it); the tokens come back as messages.
#pragma once

#include "actors/messages.hpp"
#include "api/embed/engine.hpp"

namespace troupe {

engine_actor handle_of(const engine& engine);

/// The same as `engine::submit`, with events as messages to `client`, numbered `id`.
request_handle submit(const engine& engine, generation request, std::uint64_t id, const client_actor& client);

} // namespace troupe
