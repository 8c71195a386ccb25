// Threads with a bounded queue for work too slow for the connections' threads, fair by client: those who wait are
// served in turn. Kinds of work that must not delay each other get separate lanes. Thread-safe.
#pragma once

#include <boost/asio/associated_executor.hpp>
#include <boost/asio/async_result.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/use_awaitable.hpp>

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

namespace troupe {

class worker_lane {
public:
  /// `most` is the number of tasks that may wait or run at once, of one client half of it; further ones are refused.
  /// `is_slow`: tasks may take long. So threads give way to those that compute, and no client has all of several.
  /// Throws std::system_error if there can be no thread.
  worker_lane(int threads, std::size_t most, bool is_slow = false);
  ~worker_lane() { join(); }
  worker_lane(const worker_lane&) = delete;
  worker_lane& operator=(const worker_lane&) = delete;

  /// Runs `f` on a thread of this lane; the awaiting coroutine resumes on its own executor with f's result or
  /// exception. Cancellation does not interrupt it, so f may refer to the coroutine's locals. `client`: who asks.
  /// Throws failure(overloaded) if the lane is full.
  template <class F>
  boost::asio::awaitable<std::invoke_result_t<F>> run(std::string client, F f) {
    namespace asio = boost::asio;
    using result = std::invoke_result_t<F>;
    constexpr bool has_result = !std::is_void_v<result>;
    const place mine(*this, client);
    std::conditional_t<has_result, std::optional<result>, bool> got{};
    std::exception_ptr thrown;
    const auto work = [&] {
      try {
        if constexpr (has_result)
          got.emplace(f());
        else
          f();
      } catch (...) {
        thrown = std::current_exception();
      }
    };
    const auto begin = [&](auto handler) {
      const auto executor = asio::get_associated_executor(handler);
      const auto resume = std::make_shared<decltype(handler)>(std::move(handler));
      add(client, [&work, resume, alive = asio::make_work_guard(executor)] {
        work();
        asio::post(alive.get_executor(), [resume] {
          auto go_on = std::move(*resume);
          go_on();
        });
      });
    };
    auto token = asio::bind_cancellation_slot(asio::cancellation_slot(), asio::use_awaitable);
    co_await asio::async_initiate<decltype(token), void()>(begin, token);
    if (thrown)
      std::rethrow_exception(thrown);
    if constexpr (has_result)
      co_return std::move(*got);
  }

  /// Whether every task has finished and its coroutine has resumed.
  bool idle() const { return taken_ == 0; }

  /// Waits for the tasks that there are. Nothing may be run afterwards.
  void join();

private:
  using task = std::function<void()>;
  struct client_tasks {
    std::deque<task> waiting;
    std::size_t places = 0, running = 0;
    std::uint64_t last_turn = 0; // or arrival
  };

  struct place {
    place(worker_lane& in, const std::string& of) : lane(in), client(of) { lane.take_place(client); }
    ~place() { lane.leave_place(client); }
    place(const place&) = delete;
    place& operator=(const place&) = delete;
    worker_lane& lane;
    const std::string& client;
  };

  void take_place(const std::string& client);
  void leave_place(const std::string& client);
  void add(const std::string& client, task what);
  using client_place = std::map<std::string, client_tasks>::iterator;
  client_place next();
  void work();

  const std::size_t most_, most_running_of_one_;
  const bool is_slow_;
  std::atomic<std::size_t> taken_ = 0;

  std::mutex mutex_; // of the following
  std::condition_variable changed_;
  std::map<std::string, client_tasks> clients_; // who have places
  std::size_t waiting_ = 0;
  std::uint64_t turn_ = 0;
  bool stopping_ = false;

  std::vector<std::jthread> threads_;
};

} // namespace troupe
