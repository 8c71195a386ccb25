// Questions that an actor has taken and not answered yet. CAF 0.17 tells nobody of a promise that is dropped, so who
// asked would wait until a limit of its own, or for ever: whatever is open when the actor's state ends is answered with an
// error. A part of that state, on the actor's own thread.
#pragma once

#include <caf/actor_control_block.hpp>
#include <caf/error.hpp>
#include <caf/mailbox_element.hpp>
#include <caf/response_promise.hpp>
#include <caf/sec.hpp>
#include <caf/typed_response_promise.hpp>

#include <cstdint>
#include <map>
#include <utility>

namespace troupe {

class open_questions {
public:
  template <class Answer>
  struct question {
    std::uint64_t number = 0;
    caf::typed_response_promise<Answer> promise; // what the handler returns
  };

  open_questions() = default;
  open_questions(const open_questions&) = delete;
  open_questions& operator=(const open_questions&) = delete;

  ~open_questions() {
    for (auto& [_, each] : open_)
      if (each.asker && each.refusal)
        each.asker->enqueue(std::move(each.refusal), nullptr);
  }

  /// The message that `self` handles is a question, to be answered later.
  template <class Answer, class Self>
  question<Answer> take(Self* self) {
    auto& kept = open_[++last_]; // first: a promise is taken out of the message, which nobody would answer any more
    const auto& asked = *self->current_mailbox_element();
    kept.refusal = caf::make_mailbox_element(self->ctrl(), asked.mid.response_id(), {},
                                             caf::make_error(caf::sec::runtime_error));
    kept.asker = asked.sender;
    question<Answer> taken{last_, self->template make_response_promise<Answer>()};
    kept.promise = taken.promise;
    return taken;
  }

  template <class Answer>
  void answer(std::uint64_t number, Answer what) {
    const auto asked = open_.find(number);
    if (asked == open_.end())
      return;
    asked->second.promise.deliver(std::move(what)); // without memory for that, it is open still
    open_.erase(asked);
  }

  /// All of them alike.
  template <class Answer>
  void answer_all(const Answer& what) {
    while (!open_.empty())
      answer(open_.begin()->first, Answer(what));
  }

private:
  struct open_question {
    caf::response_promise promise;
    caf::strong_actor_ptr asker;
    caf::mailbox_element_ptr refusal; // made ahead: at the end there may be no memory for it
  };

  std::map<std::uint64_t, open_question> open_;
  std::uint64_t last_ = 0;
};

} // namespace troupe
