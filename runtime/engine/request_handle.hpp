// A hold on a submitted request, for every layer above the engine: the library, the server and the fakes of tests.
#pragma once

#include "runtime/scheduling/request_ledger.hpp"

#include <memory>
#include <utility>

namespace troupe {

/// What carries out the wishes of a request_handle: an actor, or a fake. Its members only send a message; any thread.
class request_control {
public:
  virtual ~request_control() = default;
  virtual void cancel() = 0;
  virtual void pause(bool paused) = 0;
  virtual void finish() {}
  virtual void end_reasoning() {}
  virtual void hand_over() {}
  /// Null: there is none.
  virtual std::shared_ptr<const request_ledger> ledger() const { return nullptr; }
};

/// One submitted request. Cheap to copy; dropping it does not cancel. Any thread.
class request_handle {
public:
  /// A handle to nothing: its members do nothing.
  request_handle() = default;
  explicit request_handle(std::shared_ptr<request_control> control) : control_(std::move(control)) {}

  /// Ends the request: one done_event with finish_reason::cancelled follows, and its blocks are free within a step.
  void cancel() const {
    if (control_)
      control_->cancel();
  }

  /// Ends its answers where they are, as if the model had: finish_reason::stop. Nothing happens to beams and searches,
  /// whose answers are found whole, and where nothing is generated.
  void finish() const {
    if (control_)
      control_->finish();
  }

  /// Ends the reasoning of its answers that are within it: what closes it is the next that they say.
  void end_reasoning() const {
    if (control_)
      control_->end_reasoning();
  }

  /// Ends it here, for another process to go on: one done_event with `begun` follows, unless it ends before.
  void hand_over() const {
    if (control_)
      control_->hand_over();
  }

  /// What it does, and where its time went; also once it has ended. Null for a handle to nothing.
  std::shared_ptr<const request_ledger> ledger() const { return control_ ? control_->ledger() : nullptr; }

  /// Flow control for slow readers: a paused request gets no more steps until resumed and never holds others up. If
  /// more are paused than may run and wait (max_sequences + max_queue), those paused longest end as overloaded.
  void pause() const { set_paused(true); }
  void resume() const { set_paused(false); }

private:
  void set_paused(bool paused) const {
    if (control_)
      control_->pause(paused);
  }

  std::shared_ptr<request_control> control_; // null: a handle to nothing
};

} // namespace troupe
