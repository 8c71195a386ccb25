// Monitors another actor for as long as this object lives. For actors that end before the one they watch: CAF keeps the
// whole storage of an observer until the observed actor ends, unless the observer says that it no longer observes.
#pragma once

#include <caf/actor_addr.hpp>
#include <caf/local_actor.hpp>

#include <utility>

namespace troupe {

template <class Handle>
class watch {
public:
  watch() = default;
  watch(caf::local_actor* self, Handle watched) : self_(self), watched_(std::move(watched)) {
    self_->monitor(watched_);
  }
  watch(watch&& other) noexcept
    : self_(std::exchange(other.self_, nullptr)), watched_(std::exchange(other.watched_, Handle())) {}
  watch& operator=(watch&& other) noexcept {
    const bool again = self_ && other.self_ && watched_ == other.watched_;
    std::swap(self_, other.self_);
    std::swap(watched_, other.watched_);
    if (again) { // CAF ends both observations at once
      other.self_ = nullptr;
      self_->demonitor(watched_.address());
      self_->monitor(watched_);
    }
    return *this;
  }
  ~watch() {
    if (self_)
      self_->demonitor(watched_.address());
  }

  const Handle& operator*() const { return watched_; }
  explicit operator bool() const { return self_ != nullptr; }
  bool is(const caf::actor_addr& who) const { return self_ && watched_.address() == who; }

private:
  caf::local_actor* self_ = nullptr;
  Handle watched_;
};

} // namespace troupe
