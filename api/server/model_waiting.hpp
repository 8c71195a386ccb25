// Waiting for a model to be loaded, in a request's coroutine and without a thread.
#pragma once

#include "api/service/service.hpp"

#include <boost/asio/awaitable.hpp>

#include <functional>
#include <optional>
#include <string>

namespace troupe {

using wait_cut = std::function<std::optional<error>()>;
using wait_teller = std::function<boost::asio::awaitable<void>(std::string line)>;

/// Until it is over, or `cut` gives a reason to end. Calls `tell`, if there is one, with the progress after each second.
/// Returns why it did not come as wished. All must outlive the wait.
boost::asio::awaitable<std::optional<error>> wait_for_model(model_wait& what, const wait_cut& cut,
                                                            const wait_teller& tell);

} // namespace troupe
