#include "actors/constraint_compiler.hpp"

#include "actors/actor_hooks.hpp"
#include "actors/faults.hpp"
#include "actors/messages/constraints.hpp"
#include "actors/spawn.hpp"
#include "runtime/engine/loading/loaded_model.hpp"
#include "runtime/support/machine/threads.hpp"
#include "runtime/techniques/compile_queue.hpp"

#include <map>
#include <optional>
#include <stop_token>
#include <utility>
#include <vector>

namespace troupe {

namespace {

/// The compiler ends with each of its workers, and they with it, also without a reason: who ended may have had no memory
/// for one, and CAF's own handler would stay.
template <class Self>
void end_with_links(Self* self) {
  self->set_exit_handler([self](caf::exit_msg& exit) { self->quit(std::move(exit.reason)); });
}

class constraint_worker_state {
public:
  static constexpr const char* name = "guide_worker";

  constraint_worker_state(constraint_worker_actor::pointer self, loaded_model_ptr model)
    : self_(self), self_handle_(self), model_(std::move(model)) {
    end_with_links(self_);
    if (!actor_hooks::now) // else the thread is everybody's
      give_way();
  }

  constraint_worker_actor::behavior_type make_behavior() {
    return {
      [this](const constraint_ordered& order) {
        auto outcome = compile(order);
        const auto made = outcome.made;
        self_->send(order.compiler, std::move(outcome));
        if (made) // what its masks need, some milliseconds of it, while the prompt is computed
          made->prepare(500'000);
      },
    };
  }

private:
  constraint_settled compile(const constraint_ordered& order) const {
    constraint_settled result{order.ticket};
    try {
      const auto& asked = order.what->sampling;
      result.made = model_->constraints->compile(*asked.techniques.constraint(), !asked.stop_token_ids.empty(),
                                                 order.is_brief, order.stop);
      result.takes_long = !result.made;
    } catch (const failure& f) {
      result.why = f.what_failed();
    } catch (const std::bad_alloc&) {
      result.why = {errc::out_of_memory, "there is not enough memory to compile the guide", {}};
    } catch (...) {
      result.why = error_of(std::current_exception());
    }
    return result;
  }

  constraint_worker_actor::pointer self_;
  // Only an exit message may end the actor, on its own thread.
  constraint_worker_actor self_handle_;
  loaded_model_ptr model_;
};

class constraint_compiler_state {
public:
  static constexpr const char* name = "guide_compiler";

  constraint_compiler_state(constraint_compiler_actor::pointer self, const loaded_model_ptr& model) : self_(self) {
    self_->set_down_handler([this](caf::down_msg& down) { give_up(down.source); });
    end_with_links(self_);
    const auto add = [&] {
      auto worker = spawn_state<constraint_worker_actor, constraint_worker_state, caf::detached>(self_->system(),
                                                                                                 model);
      self_->link_to(worker);
      return worker;
    };
    brief_.push_back(add());
    for (int i = 0; i < 2; ++i)
      patient_.push_back(add());
  }

  // The workers end with what they compile, which is no longer wanted.
  ~constraint_compiler_state() {
    for (auto& [_, one] : orders_)
      one.stop.request_stop();
  }

  constraint_compiler_actor::behavior_type make_behavior() {
    return {
      [this](compile_atom, const generation_ptr& what, std::uint64_t number, const request_actor& client) {
        take(what, number, client);
      },
      [this](const constraint_settled& outcome) { finish(outcome); },
    };
  }

private:
  /// One constraint, for the requests that want it: those of one body share theirs.
  struct open_order {
    generation_ptr what; // of the first
    std::map<caf::actor_addr, std::pair<std::uint64_t, request_actor>> clients = {};
    std::stop_source stop = {};
    std::vector<constraint_worker_actor>* lane = nullptr; // of its worker; null: it waits
    constraint_worker_actor worker = {};
  };
  using source_key = std::pair<const constraint_source*, bool>; // with token ids of its own that end an answer
  static source_key key_of(const generation& what) {
    return {what.sampling.techniques.constraint(), !what.sampling.stop_token_ids.empty()};
  }

  void take(const generation_ptr& what, std::uint64_t number, const request_actor& client) {
    try {
      auto known = by_source_.find(key_of(*what));
      if (known == by_source_.end()) {
        const auto ticket = ++last_ticket_;
        queue_.add(ticket, what->client, what->sampling.techniques.constraint()->text_bytes());
        orders_.emplace(ticket, open_order{what});
        known = by_source_.emplace(key_of(*what), ticket).first;
      }
      orders_.at(known->second).clients[client.address()] = {number, client};
      tickets_[client.address()] = known->second;
      self_->monitor(client);
      hand_out();
    } catch (const failure& f) {
      self_->send(client, failed_atom::value, number, f.what_failed());
    } // without memory, half of it may be done: the replica starts again
  }

  /// Gives what comes next to workers that have nothing to do.
  void hand_out() {
    while (!brief_.empty() && hand_out(brief_, queue_.next_brief()))
      ;
    while (!patient_.empty() && hand_out(patient_, queue_.next_patient()))
      ;
  }

  bool hand_out(std::vector<constraint_worker_actor>& lane, std::optional<std::uint64_t> ticket) {
    if (!ticket)
      return false;
    auto& one = orders_.at(*ticket);
    one.lane = &lane;
    one.worker = lane.back();
    lane.pop_back();
    self_->send(one.worker, constraint_ordered{*ticket, one.what, &lane == &brief_, one.stop.get_token(), self_});
    return true;
  }

  void finish(const constraint_settled& outcome) {
    auto& one = orders_.at(outcome.ticket);
    std::exchange(one.lane, nullptr)->push_back(std::exchange(one.worker, {}));
    if (outcome.takes_long && !one.clients.empty()) {
      queue_.put_back(outcome.ticket);
    } else {
      for (const auto& [address, client] : one.clients) {
        if (outcome.made)
          self_->send(client.second, constraint_compiled{client.first, outcome.made});
        else
          self_->send(client.second, failed_atom::value, client.first, outcome.why);
        self_->demonitor(address);
        tickets_.erase(address);
      }
      forget(outcome.ticket);
    }
    hand_out();
  }

  /// The request has ended. What nobody else wants is given up; while it is being compiled, it stays until that stops.
  void give_up(const caf::actor_addr& client) {
    const auto its = tickets_.find(client);
    if (its == tickets_.end())
      return;
    const auto ticket = its->second;
    tickets_.erase(its);
    auto& one = orders_.at(ticket);
    one.clients.erase(client);
    if (!one.clients.empty())
      return;
    one.stop.request_stop();
    by_source_.erase(key_of(*one.what)); // nobody may join it
    if (!one.lane)
      forget(ticket);
  }

  void forget(std::uint64_t ticket) {
    queue_.remove(ticket);
    const auto known = orders_.find(ticket);
    if (const auto its = by_source_.find(key_of(*known->second.what)); its != by_source_.end() && its->second == ticket)
      by_source_.erase(its);
    orders_.erase(known);
  }

  constraint_compiler_actor::pointer self_;
  std::vector<constraint_worker_actor> brief_, patient_; // that have nothing to do
  compile_queue queue_;
  std::map<std::uint64_t, open_order> orders_; // by ticket
  std::map<source_key, std::uint64_t> by_source_;
  std::map<caf::actor_addr, std::uint64_t> tickets_; // by request
  std::uint64_t last_ticket_ = 0;
};

} // namespace

constraint_compiler_actor spawn_constraint_compiler(caf::actor_system& system, loaded_model_ptr model) {
  return spawn_state<constraint_compiler_actor, constraint_compiler_state>(system, std::move(model));
}

} // namespace troupe
