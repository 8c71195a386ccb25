#include "api/server/resume/stream_journal.hpp"

#include <algorithm>
#include <utility>

namespace troupe {

namespace {

/// What is made ahead of a reader that is there, while others hold the memory.
constexpr std::size_t least_ahead = 64 << 10;
constexpr std::size_t event_overhead = 64; // bytes

} // namespace

stream_journal::stream_journal(origin from, bounds most, byte_budget& memory, std::function<void()> wake_maker)
  : from_(std::move(from)), most_(most), wake_maker_(std::move(wake_maker)), memory_(memory, from_.client) {}

// The lock is released first: who is woken may ask at once.
void stream_journal::wake(std::unique_lock<std::mutex>& lock, bool maker) {
  const auto reader = wake_reader_;
  lock.unlock();
  if (reader)
    reader();
  if (maker)
    wake_maker_();
}

void stream_journal::pop() {
  bytes_ -= events_.front().text.size() + event_overhead;
  events_.pop_front();
}

/// What was sent to a reader that is there has probably arrived. Behind the leave of one, all is kept.
void stream_journal::fit() {
  const auto sent = [this] { return !events_.empty() && events_.front().number < next_; };
  while (reader_ != 0 && sent() && bytes_ - unsent_ > most_.kept / 2)
    pop();
  memory_.shrink_to(bytes_);
  over_ = !memory_.grow_to(bytes_);
  while (over_ && reader_ != 0 && sent()) {
    pop();
    over_ = !memory_.grow_to(bytes_);
  }
}

void stream_journal::append(std::string_view text) {
  std::unique_lock lock(mutex_);
  while (!text.empty() && !dropped_) {
    const auto found = text.find("\n\n");
    const auto size = found == text.npos ? text.size() : found + 2;
    push("id: " + std::to_string(last_ + 1) + '\n' + std::string(text.substr(0, size)));
    text.remove_prefix(size);
  }
  fit();
  wake(lock, false);
}

void stream_journal::append_frame(std::string_view object) {
  std::unique_lock lock(mutex_);
  if (!dropped_)
    push("{\"seq\":" + std::to_string(last_ + 1) + ',' + std::string(object.substr(1)));
  fit();
  wake(lock, false);
}

void stream_journal::push(std::string numbered) {
  const auto counted = numbered.size() + event_overhead;
  events_.push_back({last_ + 1, std::move(numbered)});
  ++last_;
  bytes_ += counted;
  unsent_ += counted;
}

void stream_journal::refuse(error why) {
  std::unique_lock lock(mutex_);
  refused_ = std::move(why);
  ended_ = true;
  wake(lock, false);
}

void stream_journal::end() {
  std::unique_lock lock(mutex_);
  ended_ = true;
  wake(lock, false);
}

bool stream_journal::has_room() {
  const std::lock_guard lock(mutex_);
  if (over_)
    fit();
  if (reader_ != 0)
    return unsent_ < (over_ ? std::min(least_ahead, most_.ahead) : most_.ahead);
  return bytes_ < most_.kept && !over_;
}

bool stream_journal::lacks_memory() const {
  const std::lock_guard lock(mutex_);
  return over_;
}

std::optional<stream_journal::clock::time_point> stream_journal::unread_since() const {
  const std::lock_guard lock(mutex_);
  return unread_since_;
}

std::optional<error> stream_journal::cut_short() const {
  const std::lock_guard lock(mutex_);
  return cut_;
}

bool stream_journal::is_dropped() const {
  const std::lock_guard lock(mutex_);
  return dropped_;
}

bool stream_journal::has_ended() const {
  const std::lock_guard lock(mutex_);
  return ended_;
}

void stream_journal::drop() {
  std::unique_lock lock(mutex_);
  dropped_ = true;
  events_.clear();
  bytes_ = unsent_ = 0;
  memory_.shrink_to(0);
  wake(lock, true);
}

void stream_journal::check(std::uint64_t after) const {
  const std::lock_guard lock(mutex_);
  check_kept(after);
}

// Called with the mutex held.
void stream_journal::check_kept(std::uint64_t after) const {
  const auto first = events_.empty() ? last_ + 1 : events_.front().number;
  if (after > last_)
    throw failure(errc::bad_request,
                  "the stream has no event " + std::to_string(after) + " yet: its last is " + std::to_string(last_));
  if (dropped_ || after + 1 < first)
    throw failure(errc::not_found, "what follows event " + std::to_string(after) + " is not kept any more");
}

std::uint64_t stream_journal::attach(std::uint64_t after, std::function<void()> wake_it) {
  std::unique_lock lock(mutex_);
  check_kept(after);
  const auto replaced = std::exchange(wake_reader_, std::move(wake_it));
  reader_ = ++readers_;
  next_ = after + 1;
  unsent_ = 0;
  for (auto at = events_.rbegin(); at != events_.rend() && at->number >= next_; ++at)
    unsent_ += at->text.size() + event_overhead;
  unread_since_.reset();
  const auto mine = reader_;
  lock.unlock();
  if (replaced)
    replaced();
  wake_maker_();
  return mine;
}

void stream_journal::leave(std::uint64_t reader) {
  {
    const std::lock_guard lock(mutex_);
    if (reader != reader_)
      return;
    reader_ = 0;
    wake_reader_ = nullptr;
    unread_since_ = clock::now();
  }
  wake_maker_();
}

stream_journal::part stream_journal::read(std::uint64_t reader, std::size_t most) {
  part result;
  {
    const std::lock_guard lock(mutex_);
    if (reader != reader_ || dropped_) {
      result.replaced = true;
      return result;
    }
    const auto first = events_.empty() ? next_ : events_.front().number;
    for (auto at = static_cast<std::size_t>(next_ - first); at < events_.size() && result.text.size() < most; ++at) {
      result.text += events_[at].text;
      unsent_ -= events_[at].text.size() + event_overhead;
      ++next_;
    }
    result.ended = ended_ && next_ > last_;
    result.refused = refused_;
    if (result.text.empty())
      return result;
  }
  wake_maker_();
  return result;
}

void stream_journal::cut(error why) {
  {
    const std::lock_guard lock(mutex_);
    cut_ = std::move(why);
  }
  wake_maker_();
}

} // namespace troupe
