#include "api/catalogue/used_request.hpp"

#include <chrono>
#include <mutex>
#include <utility>

namespace troupe {

use_of_model::use_of_model(std::shared_ptr<engine_house> of, std::size_t number,
                           std::shared_ptr<const served_model> its)
  : house(std::move(of)), model(number), served(std::move(its)) {}

use_of_model::~use_of_model() {
  const std::lock_guard lock(house->mutex);
  house->roster.end_use(model, std::chrono::steady_clock::now());
  house->changed.notify_all();
}

void used_request::submitted(request_handle of) {
  const std::lock_guard lock(house_->mutex);
  ledger_ = of.ledger();
  if (!ended_)
    std::swap(of_, of);
}

std::optional<error> used_request::end() {
  request_handle of;
  std::optional<error> why;
  {
    const std::lock_guard lock(house_->mutex);
    if (std::exchange(ended_, true))
      return std::nullopt;
    std::swap(of_, of);
    why = std::exchange(cut_, std::nullopt);
    house_->residents[model_].unread.erase(this);
  }
  of = {}; // a handle must not outlive its engine, and may own what locks the mutex
  const std::lock_guard lock(house_->mutex);
  house_->roster.end_use(model_, std::chrono::steady_clock::now());
  house_->changed.notify_all();
  return why;
}

void used_request::cut(error why) {
  cut_ = std::move(why);
  of_.cancel();
}

// The mutex is held in these, so that the engine does not end meanwhile: they only send a message.

void used_request::cancel() {
  const std::lock_guard lock(house_->mutex);
  of_.cancel();
}

void used_request::pause(bool paused) {
  const std::lock_guard lock(house_->mutex);
  if (ended_)
    return;
  auto& unread = house_->residents[model_].unread;
  if (paused)
    unread.try_emplace(this, engine_house::unread_request{weak_from_this(), std::chrono::steady_clock::now()});
  else
    unread.erase(this);
  paused ? of_.pause() : of_.resume();
}

void used_request::finish() {
  const std::lock_guard lock(house_->mutex);
  of_.finish();
}

void used_request::end_reasoning() {
  const std::lock_guard lock(house_->mutex);
  of_.end_reasoning();
}

void used_request::hand_over() {
  const std::lock_guard lock(house_->mutex);
  of_.hand_over();
}

std::shared_ptr<const request_ledger> used_request::ledger() const {
  const std::lock_guard lock(house_->mutex);
  return ledger_;
}

} // namespace troupe
