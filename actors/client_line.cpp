#include "actors/client_line.hpp"

#include "actors/faults.hpp"
#include "actors/unwoken.hpp"

#include <caf/actor_cast.hpp>
#include <caf/send.hpp>

#include <new>
#include <utility>

namespace troupe {

namespace {

error lost() { return {errc::internal, "request lost", {}}; } // too short to need memory

} // namespace

/// Whoever hears the events. It outlives its line until it has been told of the end.
class client_line::far_end final : public unwoken::entry {
public:
  far_end(event_sink&& sink, const void* of) : entry(of), sink_(std::move(sink)) {}

  void hear(event e) const { sink_(std::move(e)); }

  static void close(std::unique_ptr<far_end> end, error why) noexcept {
    end->why_ = std::move(why);
    auto* one = end.release();
    try {
      one->try_again();
    } catch (const std::bad_alloc&) {
      unwoken::add(*one);
    }
  }

private:
  void try_again() override {
    try {
      hear(why_);
    } catch (const std::bad_alloc&) {
      if (--tries_ > 0)
        throw;
    } catch (...) { // a function has nobody left to tell
    }
    delete this;
  }

  void drop() noexcept override { delete this; }

  event_sink sink_;
  error why_;
  int tries_ = 100'000; // a function may never have enough
};

client_line::client_line(event_sink&& sink, const void* of) : end_(std::make_unique<far_end>(std::move(sink), of)) {}

client_line::client_line(const client_actor& client, std::uint64_t id)
  : end_(std::make_unique<far_end>(
      [client, id](event e) {
        caf::anon_send(client, event_atom::value, id, std::make_shared<const event>(std::move(e)));
      },
      nullptr)),
    client_(client),
    farewell_(caf::make_mailbox_element(nullptr, caf::make_message_id(), {}, event_atom::value, id,
                                        std::make_shared<const event>(lost()))) {}

client_line::client_line(client_line&& other) noexcept = default;

client_line::~client_line() { close(); }

void client_line::send(event e) {
  if (!end_)
    return;
  const bool last = !std::holds_alternative<token_event>(e);
  end_->hear(std::move(e));
  if (last)
    end_.reset();
}

void client_line::close(error why) noexcept {
  if (!end_)
    return;
  auto end = std::move(end_);
  if (!client_)
    return far_end::close(std::move(end), std::move(why));
  try {
    end->hear(std::move(why));
  } catch (...) {
    try {
      caf::actor_cast<caf::abstract_actor*>(client_)->enqueue(std::move(farewell_), nullptr);
    } catch (...) { // it cannot be woken
    }
  }
}

void client_line::close(const std::exception_ptr& thrown) noexcept { close(error_of(thrown)); }

void client_line::close() noexcept { close(lost()); }

} // namespace troupe
