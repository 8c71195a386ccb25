// The socket that a server listens on, and the connections that it accepts or turns away.
#pragma once

#include <boost/asio/awaitable.hpp>

#include <optional>
#include <string>
#include <string_view>

namespace troupe {

struct server_context;

/// The path of "unix:PATH"; nothing for addresses.
std::optional<std::string> socket_path(std::string_view host);

/// Throws failure(unavailable) if the address cannot be had.
void listen(server_context& context);

/// Until the acceptor is closed, on its strand. Goes on after exceptions, such as for want of memory: otherwise the
/// server would run and accept nothing.
boost::asio::awaitable<void> accept_all(server_context& context);

} // namespace troupe
