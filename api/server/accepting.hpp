// The socket that a server listens on, and the connections that it accepts or turns away.
#pragma once

#include "runtime/support/files/descriptor.hpp"

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

/// A connection that another process has accepted and given away, with its message (hand_over.hpp). One that cannot go on
/// is closed, and logged. On the acceptor's strand.
void take_connection(server_context& context, const std::string& message, const descriptor& given);

/// Until the acceptor is closed, on its strand. Goes on after exceptions, such as for want of memory: otherwise the
/// server would run and accept nothing.
boost::asio::awaitable<void> accept_all(server_context& context);

} // namespace troupe
