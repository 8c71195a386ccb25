#include "api/server/model_waiting.hpp"

#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>

#include <algorithm>
#include <chrono>
#include <utility>

namespace troupe {

namespace asio = boost::asio;

namespace {

using namespace std::chrono_literals;

constexpr auto between_lines = 1s;
constexpr std::chrono::steady_clock::duration first_pause = 2ms, longest_pause = 100ms;

} // namespace

// It looks again and again, a twentieth of the time waited, rather than being told: so nobody who leaves has to be taken
// off a list, and no message can be missed.
asio::awaitable<std::optional<error>> wait_for_model(model_wait& what, const wait_cut& cut, const wait_teller& tell) {
  asio::steady_timer timer(co_await asio::this_coro::executor);
  const auto begun = std::chrono::steady_clock::now();
  auto told = begun;
  for (;;) {
    if (auto why = cut())
      co_return why;
    auto now = what.look();
    if (now.over)
      co_return std::move(now.why_not);
    const auto at = std::chrono::steady_clock::now();
    if (tell && at - told >= between_lines) {
      told = at;
      co_await tell(std::move(now.line));
    }
    timer.expires_after(std::clamp((at - begun) / 20, first_pause, longest_pause));
    boost::system::error_code ec;
    co_await timer.async_wait(asio::redirect_error(asio::use_awaitable, ec));
  }
}

} // namespace troupe
