// Which turns of a conversation the model is shown once there are more than it can read. Pure functions.
#pragma once

#include <cstddef>
#include <functional>

namespace troupe::cli {

/// How many of the oldest of `earlier` turns are left out of a prompt so that an answer still fits behind it. None where
/// the prompt is within a model's `context` less what the answer may have: `answer` tokens, or a quarter of the context
/// where that is less. Else so many that a quarter of that room is left: every turn that is left out makes the model read
/// the rest anew. All, where it does not fit even so. `tokens_without(n)`: the prompt's tokens without the n oldest.
std::size_t turns_to_leave_out(std::size_t earlier, int context, int answer,
                               const std::function<std::size_t(std::size_t)>& tokens_without);

} // namespace troupe::cli
