// Chooses the turns of a conversation that fit the model's context. Pure functions.
#pragma once

#include <cstddef>
#include <functional>

namespace troupe::cli {

/// The number of oldest turns, of `earlier`, to leave out so that prompt and answer fit the context. The room for the
/// prompt is `context` less `answer` tokens or a quarter of the context, whichever is less. Returns 0 if the prompt
/// fits; otherwise leaves a quarter of the room free, because leaving out a turn invalidates the prefix cache. Returns
/// `earlier` if nothing less fits. `tokens_without(n)` is the prompt's length without the n oldest turns.
std::size_t turns_to_leave_out(std::size_t earlier, int context, int answer,
                               const std::function<std::size_t(std::size_t)>& tokens_without);

} // namespace troupe::cli
