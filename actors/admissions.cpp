#include "actors/admissions.hpp"

#include "actors/faults.hpp"
#include "actors/messages/endings.hpp"
#include "actors/messages/reminders.hpp"
#include "runtime/engine/loading/loaded_model.hpp"
#include "runtime/scheduling/routing/route_query.hpp"

#include <caf/typed_event_based_actor.hpp>

#include <algorithm>
#include <chrono>
#include <memory>
#include <utility>

namespace troupe {

void admissions::refuse_all(const error& why, bool all) {
  ended_ = why;
  if (!all)
    return;
  for (auto& [_, pending] : requests_)
    if (std::exchange(pending.waiting, false))
      refuse(pending.request, why);
}

void admissions::admit(const admission_wanted& wanted) {
  try {
    take(wanted);
    try_next();
  } catch (const std::bad_alloc&) {
    refuse(wanted.request, error_of(std::current_exception()));
  }
}

void admissions::take(const admission_wanted& wanted) {
  const auto& request = wanted.request;
  auto known = requests_.find(request.address());
  if (auto why = refusal(known == requests_.end()))
    return refuse(request, std::move(*why));
  if (known == requests_.end()) {
    engine_->monitor(request);
    known = requests_.emplace(request.address(), pending_request{request, ++arrivals_}).first;
  }
  auto& pending = known->second;
  if (!wanted.query)
    take_back(pending, wanted);
  if (pending.refused)
    return;
  if (replicas_.has_router() && !wanted.query)
    return ask(pending);
  pending.query = wanted.query;
  send_to_replica(pending);
}

std::optional<error> admissions::refusal(bool is_new) const {
  if (ended_)
    return ended_;
  if (!model_)
    return error{errc::unavailable, "the model is still loading", {}};
  if (const auto unable = is_new ? replicas_.why_unable() : std::string(); !unable.empty())
    return error{errc::unavailable, unable, {}};
  if (!replicas_.is_open() && is_new && requests_.size() >= model_->room())
    return error{
      errc::overloaded, "the queue is full: " + std::to_string(requests_.size()) + " requests wait already", {}};
  return std::nullopt;
}

// It is new, or its replica has ended.
void admissions::take_back(pending_request& pending, const admission_wanted& wanted) {
  pending.replica = -1;
  if (wanted.tokens > std::exchange(pending.tokens, wanted.tokens))
    replicas_.forgive_all();
  suspects_.back(pending.arrival, wanted.tokens, wanted.ran);
  convict();
}

// With the model, the request can say what there is to know of it.
void admissions::ask(const pending_request& pending) {
  engine_->send(
    pending.request, admit_atom::value,
    std::make_shared<const admit_reply>(admit_reply{.model = model_, .asks = true, .arrival = pending.arrival}));
}

void admissions::refuse(const request_actor& request, error why) {
  engine_->send(request, admit_atom::value, std::make_shared<const admit_reply>(admit_reply{.why = std::move(why)}));
}

// While it has no replica, the request gets the model, so that it is validated and its deadline runs. It is refused
// where there is no memory to tell it so: whoever waits with it must not be forgotten.
void admissions::send_to_replica(pending_request& pending) {
  admit_reply reply{.model = model_, .arrival = pending.arrival};
  replicas_.end(pending.number);
  reply.tried = suspects_.trial() == pending.arrival;
  try {
    pending.held = !reply.tried && suspects_.holds(pending.arrival);
    const bool chosen = !pending.held && replicas_.choose(pending.query.get(), reply);
    engine_->send(pending.request, admit_atom::value, std::make_shared<const admit_reply>(reply));
    if (chosen) {
      pending.went(reply);
      pending.moves_to = reply.moves_to;
      pending.query = {};
    }
    pending.waiting = !chosen;
  } catch (const std::bad_alloc&) {
    replicas_.end(reply.number);
    pending.waiting = false;
    pending.refused = true;
    refuse(pending.request, error_of(std::current_exception()));
  }
}

void admissions::go_on() {
  admit_waiting();
  try_next();
}

void admissions::admit_waiting() {
  for (auto& [_, pending] : requests_)
    if (pending.waiting)
      send_to_replica(pending);
}

void admissions::move(const request_actor& request, std::uint64_t number, const route_query& query) {
  const auto known = requests_.find(request.address());
  if (ended_ || known == requests_.end() || known->second.number != number)
    return;
  auto& pending = known->second;
  if (pending.moves_to < 0 || pending.replica < 0) // it is asked again where to run: it lost a replica as it moved
    return;
  const auto from = pending.replica, to = std::exchange(pending.moves_to, -1);
  admit_reply reply{.model = model_, .arrival = pending.arrival};
  if (!replicas_.move(from, to, number, query, reply))
    return;
  pending.went(reply);
  engine_->send(request, admit_atom::value, std::make_shared<const admit_reply>(std::move(reply)));
}

void admissions::gone(const caf::actor_addr& its) {
  deadlines_.erase(its);
  const auto request = requests_.find(its);
  if (request == requests_.end())
    return;
  replicas_.end(request->second.number);
  const auto arrival = request->second.arrival;
  requests_.erase(request);
  suspects_.gone(arrival);
  convict();
  try_next();
}

void admissions::cancel_all() {
  for (auto& [_, pending] : requests_)
    engine_->send(pending.request, cancel_atom::value);
}

// -- deadlines --------------------------------------------------------------------------------------------------------

// One timer for all: a message delayed for a request would keep it until then, as this one keeps the engine, for a while.
constexpr auto longest_delay = std::chrono::seconds(1);

void admissions::set_deadline(std::int64_t ms, const request_actor& request) {
  if (!requests_.contains(request.address()))
    return;
  try {
    deadlines_.set(request.address(), engine_->clock().now() + std::chrono::milliseconds(ms));
    wait_for_deadline();
  } catch (const std::bad_alloc&) {
    refuse(request, error_of(std::current_exception()));
  }
}

void admissions::wait_for_deadline() {
  const auto due = deadlines_.due();
  if (!due)
    return;
  const auto now = engine_->clock().now(), when = std::min(*due, now + longest_delay);
  engine_->delayed_send(engine_, when - now, deadlines_due{});
  deadlines_.armed(when);
}

void admissions::tell_late() {
  const auto now = engine_->clock().now();
  deadlines_.fired(now);
  while (const auto late = deadlines_.expired(now)) {
    if (const auto request = requests_.find(*late); request != requests_.end())
      engine_->send(request->second.request, deadline_passed{});
    deadlines_.erase(*late);
  }
  wait_for_deadline();
}

// -- requests at which replicas seem to fail --------------------------------------------------------------------------

void admissions::suspect_all_in(const replica& failed, const error& why) {
  last_fault_ = why.message;
  std::vector<std::uint64_t> in_it;
  for (const auto& [_, pending] : requests_)
    if (pending.replica == failed.number())
      in_it.push_back(pending.arrival);
  suspects_.failed(in_it);
}

// Nobody is tried before all have come back from the replica that failed: the first one alone in what runs instead.
void admissions::try_next() {
  if (ended_)
    return;
  if (!suspects_.pending() && replicas_.alone())
    return end_alone();
  std::vector<std::uint64_t> waiting;
  if (std::exchange(were_suspects_, suspects_.pending()) || suspects_.pending())
    for (auto& [_, pending] : requests_) {
      if (pending.waiting && pending.held && !suspects_.holds(pending.arrival)) // not any more
        send_to_replica(pending);
      if (pending.waiting)
        waiting.push_back(pending.arrival);
    }
  const auto next = suspects_.next(waiting);
  if (!next || std::ranges::find(waiting, *next) == waiting.end() || !(replicas_.alone() || replicas_.running()))
    return;
  auto& pending = of_arrival(*next)->second;
  suspects_.begin_trial(*next, pending.tokens);
  send_to_replica(pending);
}

void admissions::end_trial(const request_actor& request, std::uint64_t tokens) {
  const auto known = requests_.find(request.address());
  if (known == requests_.end() || suspects_.trial() != known->second.arrival)
    return;
  if (tokens > known->second.tokens)
    replicas_.forgive_all();
  suspects_.end_trial(known->second.arrival, tokens);
  known->second.replica == replicas_.alone() ? end_alone() : try_next();
}

void admissions::end_alone() {
  replicas_.end_alone();
  go_on();
}

void admissions::convict() {
  const auto culprit = suspects_.take_culprit();
  const auto known = culprit ? of_arrival(*culprit) : requests_.end();
  if (known == requests_.end())
    return;
  known->second.waiting = false;
  known->second.refused = true;
  refuse(known->second.request,
         {errc::poisoned, "a part of the engine failed each time that it ran this request: " + last_fault_, {}});
  replicas_.forgive_all();
}

admissions::table::iterator admissions::of_arrival(std::uint64_t arrival) {
  return std::ranges::find_if(requests_, [=](const auto& entry) { return entry.second.arrival == arrival; });
}

} // namespace troupe
