#include "api/server/request_set.hpp"

#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>

#include <mutex>
#include <new>

namespace troupe {

namespace asio = boost::asio;

namespace {

/// The approximate size of an event on the wire, in bytes.
std::size_t cost(const event& e) {
  std::size_t result = 250;
  if (const auto* token = std::get_if<token_event>(&e)) {
    result += token->text.size() + 8 * token->token_ids.size();
    for (const auto* list : {&token->logprobs, &token->prompt})
      for (const auto& one : *list)
        result += 100 * (1 + one.top.size());
  } else if (const auto* done = std::get_if<done_event>(&e)) {
    result += 16 * done->embedding.size();
  }
  return result;
}

} // namespace

/// Shared with the sinks, which can outlive the connection.
struct request_set::queue {
  std::mutex mutex;
  std::vector<item> items;
  std::size_t bytes = 0;
  std::size_t high_mark = 0;
  std::function<void()> wake;                      // empty once the connection is closed
  std::shared_ptr<answer_budget::account> account; // until then
  bool overflowed = false;

  void push(std::uint64_t key, event what) {
    const auto size = cost(what);
    const std::lock_guard lock(mutex);
    if (!wake || overflowed)
      return;
    if (!account->add(size)) {
      wake();
      overflowed = true;
      return;
    }
    const bool was_empty = items.empty();
    const bool was_low = bytes < high_mark;
    try {
      items.push_back({key, std::move(what)});
    } catch (...) {
      account->release(size);
      throw;
    }
    bytes += size;
    // The lock keeps close() from destroying the executor while wake() posts.
    if (!was_empty && !(was_low && bytes >= high_mark))
      return;
    try {
      wake();
    } catch (...) { // out of memory: restore the queue, so that the error event that follows wakes again
      items.pop_back();
      bytes -= size;
      account->release(size);
      throw;
    }
  }
};

request_set::request_set(asio::any_io_executor strand, service& engine, metrics& counted, std::size_t high_mark,
                         std::shared_ptr<answer_budget::account> account)
  : strand_(std::move(strand)),
    engine_(engine),
    counted_(counted),
    high_mark_(high_mark),
    wake_(strand_),
    queue_(std::make_shared<queue>()) {
  queue_->high_mark = high_mark;
  queue_->account = std::move(account);
}

request_handle request_set::submit(std::uint64_t key, generation request, std::shared_ptr<const void> held,
                                   const recorder::request_ptr& recorded, std::size_t prompt) {
  if (closed_)
    return {};
  if (!queue_->wake) {
    const std::lock_guard lock(queue_->mutex);
    queue_->wake = [strand = strand_, self = weak_from_this()] {
      asio::post(strand, [self] {
        if (const auto alive = self.lock())
          alive->arrived();
      });
    };
  }
  request.client = client_;
  rates_->spend(client_, request.prompt.size());
  auto sink = [queue = queue_, key, rates = rates_, client = client_, held = std::move(held)](event e) mutable {
    if (!std::holds_alternative<token_event>(e))
      held.reset(); // before the client sees the event
    if (const auto* done = std::get_if<done_event>(&e))
      rates->spend(client, done->completion_tokens);
    queue->push(key, std::move(e));
  };
  try {
    auto& mine = running_[key];
    auto measured = recorder::listen(recorded, prompt, request, counted_.measured(std::move(sink), request.model));
    mine = engine_.submit(std::move(request), std::move(measured));
    if (paused_)
      mine.pause();
    return mine;
  } catch (const std::bad_alloc&) { // not submitted
    running_.erase(key);
    queue_->push(key, error{errc::out_of_memory, "there is not enough memory for this request", {}});
    return {};
  }
}

void request_set::cancel(std::uint64_t key) {
  const auto found = running_.find(key);
  if (found != running_.end())
    found->second.cancel();
}

void request_set::cancel_all() {
  for (const auto& [key, request] : running_)
    request.cancel();
}

void request_set::hand_over_all() {
  for (const auto& [key, request] : running_)
    request.hand_over();
}

asio::awaitable<std::vector<request_set::item>> request_set::end_all(std::chrono::milliseconds limit) {
  cancel_all();
  std::vector<item> ends;
  const auto until = asio::steady_timer::clock_type::now() + limit;
  for (;;) {
    for (auto& one : receive())
      if (!std::holds_alternative<token_event>(one.what))
        ends.push_back(std::move(one));
    if (running_.empty() || asio::steady_timer::clock_type::now() >= until)
      co_return ends;
    boost::system::error_code ec;
    wake_.expires_at(until);
    co_await wake_.async_wait(asio::redirect_error(asio::use_awaitable, ec));
  }
}

void request_set::close() {
  closed_ = true;
  {
    const std::lock_guard lock(queue_->mutex);
    queue_->wake = nullptr;
    queue_->items.clear();
    if (queue_->account)
      queue_->account->release(queue_->bytes + in_hand_);
    queue_->account = nullptr;
  }
  for (const auto& [key, request] : running_)
    request.cancel();
  running_.clear();
  poke();
}

void request_set::arrived() {
  std::size_t bytes = 0;
  {
    const std::lock_guard lock(queue_->mutex);
    bytes = queue_->bytes;
  }
  if (!paused_ && bytes >= high_mark_) {
    paused_ = true;
    for (const auto& [key, request] : running_)
      request.pause();
  }
  wake_.cancel();
}

asio::awaitable<void> request_set::wait() {
  {
    const std::lock_guard lock(queue_->mutex);
    if (std::exchange(poked_, false) || !queue_->items.empty() || queue_->overflowed)
      co_return;
  }
  wake_.expires_at(asio::steady_timer::time_point::max());
  boost::system::error_code ec;
  co_await wake_.async_wait(asio::redirect_error(asio::use_awaitable, ec));
  poked_ = false;
}

void request_set::poke() {
  poked_ = true;
  wake_.cancel();
}

std::vector<request_set::item> request_set::receive() {
  std::vector<item> result;
  {
    const std::lock_guard lock(queue_->mutex);
    result.swap(queue_->items);
    in_hand_ += std::exchange(queue_->bytes, 0);
  }
  for (const auto& one : result)
    if (!std::holds_alternative<token_event>(one.what))
      running_.erase(one.key);
  return result;
}

bool request_set::overflowed() const {
  const std::lock_guard lock(queue_->mutex);
  return queue_->overflowed;
}

void request_set::written() {
  const std::lock_guard lock(queue_->mutex);
  if (queue_->account)
    queue_->account->release(std::exchange(in_hand_, 0));
}

void request_set::resume_if_drained() {
  if (!paused_)
    return;
  {
    const std::lock_guard lock(queue_->mutex);
    if (queue_->bytes > high_mark_ / 4)
      return;
  }
  paused_ = false;
  for (const auto& [key, request] : running_)
    request.resume();
}

} // namespace troupe
