// An in-process client that replaces a connection's socket, for tests and fuzzing. Used only on the connection's
// strand, or elsewhere while nothing runs there.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/error.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core/bind_handler.hpp>

#include <algorithm>
#include <limits>
#include <string>
#include <string_view>
#include <utility>

namespace troupe {

class memory_client {
public:
  struct habits {
    std::size_t piece = std::numeric_limits<std::size_t>::max();    // most bytes per read or write
    std::size_t patience = std::numeric_limits<std::size_t>::max(); // bytes after which writes fail
  };

  memory_client(boost::asio::any_io_executor strand, habits how)
    : how_(how), arrived_(std::move(strand), boost::asio::steady_timer::time_point::max()) {}

  // The client's side.
  void send(std::string_view bytes);
  void hang_up();
  const std::string& received() const { return received_; }

  // The server's side, used by byte_stream.
  boost::asio::any_io_executor get_executor() { return arrived_.get_executor(); }
  void cancel() { arrived_.cancel(); }
  void close();

  /// Calls the handler once read() can return, or with operation_aborted after cancel().
  template <class Handler>
  void wait(Handler&& handler) {
    if (readable())
      boost::asio::post(get_executor(), std::forward<Handler>(handler));
    else
      arrived_.async_wait(std::forward<Handler>(handler));
  }

  template <class Buffers>
  std::size_t read(const Buffers& into, boost::system::error_code& ec) {
    ec = {};
    const auto count = boost::asio::buffer_copy(into, boost::asio::buffer(sent_.substr(0, how_.piece)));
    sent_.erase(0, count);
    if (count == 0 && boost::asio::buffer_size(into) > 0)
      ec = hung_up_ ? boost::asio::error::make_error_code(boost::asio::error::eof)
                    : boost::asio::error::make_error_code(boost::asio::error::operation_aborted);
    return count;
  }

  template <class Buffers, class Token>
  auto async_write_some(const Buffers& from, Token&& token) {
    return boost::asio::async_initiate<Token, void(boost::system::error_code, std::size_t)>(
      [this](auto handler, const Buffers& from) {
        boost::system::error_code ec;
        const auto room = closed_ ? 0 : std::min(how_.piece, how_.patience - received_.size());
        const auto before = received_.size();
        received_.resize(before + std::min(room, boost::asio::buffer_size(from)));
        const auto count = boost::asio::buffer_copy(boost::asio::buffer(received_) + before, from);
        if (room == 0)
          ec = boost::asio::error::broken_pipe;
        boost::asio::post(get_executor(), boost::beast::bind_front_handler(std::move(handler), ec, count));
      },
      token, from);
  }

private:
  bool readable() const { return !sent_.empty() || hung_up_ || closed_; }

  habits how_;
  boost::asio::steady_timer arrived_; // cancelled when there is something to read
  std::string sent_, received_;
  bool hung_up_ = false;
  bool closed_ = false;
};

} // namespace troupe
