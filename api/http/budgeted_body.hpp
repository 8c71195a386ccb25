// A request body for Beast that allocates as bytes arrive, not as Content-Length announces, and counts them against the
// budget of all bodies. Used on the connection's strand.
#pragma once

#include "api/http/byte_budget.hpp"

#include <boost/beast/core/buffers_range.hpp>
#include <boost/beast/http/error.hpp>
#include <boost/beast/http/message.hpp>
#include <boost/optional.hpp>

#include <cstdint>

namespace troupe {

struct budgeted_body {
  using value_type = held_text;

  static std::uint64_t size(const value_type& body) { return body.text.size(); }

  class reader {
  public:
    template <bool is_request, class Fields>
    reader(boost::beast::http::header<is_request, Fields>&, value_type& body) : body_(body) {}

    void init(const boost::optional<std::uint64_t>&, boost::system::error_code& ec) { ec = {}; }

    /// Fails with errc::not_enough_memory if the budget is exhausted.
    template <class Buffers>
    std::size_t put(const Buffers& buffers, boost::system::error_code& ec) {
      std::size_t count = 0;
      for (const auto piece : boost::beast::buffers_range_ref(buffers)) {
        body_.text.append(static_cast<const char*>(piece.data()), piece.size());
        count += piece.size();
      }
      ec = {};
      if (!body_.count())
        ec = boost::system::errc::make_error_code(boost::system::errc::not_enough_memory);
      return count;
    }

    void finish(boost::system::error_code& ec) { ec = {}; }

  private:
    value_type& body_;
  };
};

} // namespace troupe
