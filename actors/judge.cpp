#include "actors/judge.hpp"

#include "actors/child.hpp"
#include "actors/faults.hpp"
#include "actors/messages/judging.hpp"
#include "actors/messages/loading.hpp"
#include "actors/request.hpp"
#include "actors/spawn.hpp"
#include "runtime/engine/loading/loaded_model.hpp"
#include "runtime/sampling/judging.hpp"

#include <caf/send.hpp>

#include <cstddef>
#include <map>
#include <utility>
#include <vector>

namespace troupe {

namespace {

class judge_state {
public:
  static constexpr const char* name = "judge";

  judge_state(judge_actor::pointer self, caf::weak_actor_ptr owner, const answer_judge* how, engine_options options,
              std::function<void(const load_status&)> progress, model_loader loader)
    : self_(self), self_handle_(self), owner_(std::move(owner)), how_(*how), name_("the " + std::string(how->name)) {
    self_->set_down_handler([this](caf::down_msg& down) { peer_ended(down); });
    self_->set_exit_handler([this](caf::exit_msg& exit) { stop(exit.reason); });
    engine_ = child::add(alive_, self_, [&] {
      return spawn_engine(
        self_->system(), std::move(options),
        [me = caf::actor_cast<caf::weak_actor_ptr>(self_), tell = std::move(progress)](
          const load_status& now, const loaded_model_ptr& model) { hear(me, tell, now, model); },
        std::move(loader));
    });
  }

  ~judge_state() { end_engine(); }

  judge_actor::behavior_type make_behavior() {
    return {
      [this](const answers_to_value& wanted) { take(wanted.order, wanted.sampler); },
      [this](event_atom, std::uint64_t text, const event_ptr& e) { hear(text, *e); },
      [this](const order_unwanted& its) { drop(its.order); },
      [this](const model_loaded& its) { finish_loading(its.model); },
      [this](const load_failed& failed) { give_up(failed.why); },
    };
  }

private:
  template <class... T>
  void tell_owner(T&&... what) {
    if (auto alive = caf::actor_cast<caf::strong_actor_ptr>(owner_))
      self_->send(caf::actor_cast<engine_actor>(alive), std::forward<T>(what)...);
  }

  /// An order, and what it still waits for.
  struct open_order {
    sampler_actor sampler;
    std::vector<double> values = {};
    std::size_t missing = 0;
    std::vector<std::uint64_t> texts = {};
  };

  /// A text under way.
  struct open_text {
    judge_order_ptr order;
    std::size_t place = 0;
    request_actor request = {};
  };

  // Called on threads of the engine.
  static void hear(const caf::weak_actor_ptr& me, const std::function<void(const load_status&)>& tell,
                   const load_status& now, const loaded_model_ptr& model) {
    if (now.now == load_status::stage::loading)
      return tell(now);
    const auto alive = caf::actor_cast<caf::strong_actor_ptr>(me);
    if (!alive)
      return;
    if (now.why)
      caf::anon_send(caf::actor_cast<judge_actor>(alive), load_failed{*now.why});
    else if (model)
      caf::anon_send(caf::actor_cast<judge_actor>(alive), model_loaded{model});
  }

  void finish_loading(const loaded_model_ptr& model) {
    if (model_) // a replica was started again
      return;
    try {
      how_.require(*model);
      model_ = model;
      tell_owner(judge_ready{});
    } catch (const failure& f) {
      give_up(f.what_failed());
    }
  }

  /// Its engine cannot judge, or not any more. What is under way fails with it.
  void give_up(const error& why) {
    tell_owner(judge_failed{why});
    stop(exit_reason_of(std::make_exception_ptr(failure(why.code, why.message))));
  }

  void take(const judge_order_ptr& order, const sampler_actor& sampler) {
    if (!engine_ || stopping_)
      return; // its end is near
    orders_.insert_or_assign(order, open_order{sampler});
    if (!model_)
      return fail(order, how_.away());
    try {
      open(order);
    } catch (const failure& f) {
      fail(order, f.what_failed());
    } catch (...) {
      fail(order, error_of(std::current_exception()));
    }
  }

  void open(const judge_order_ptr& order) {
    auto& opened = orders_.at(order);
    std::vector<generation_ptr> texts;
    for (const auto& answer : order->answers)
      texts.push_back(std::make_shared<const generation>(how_.question(model_->info, *order->prompt, answer)));
    opened.values.resize(texts.size());
    opened.missing = texts.size();
    for (std::size_t i = 0; i < texts.size(); ++i) {
      const auto id = ++last_;
      opened.texts.push_back(id);
      auto& text = texts_.emplace(id, open_text{order, i}).first->second;
      text.request = spawn_request(self_->system(), engine_, texts[i], client_line(client_actor(self_handle_), id));
    }
  }

  void hear(std::uint64_t id, const event& e) {
    const auto text = texts_.find(id);
    if (text == texts_.end() || std::holds_alternative<token_event>(e))
      return;
    const auto order = text->second.order;
    if (const auto* why = std::get_if<error>(&e))
      return fail(order, {why->code, name_ + " could not judge an answer: " + why->message, "search"});
    const auto& pooled = std::get<done_event>(e).embedding;
    auto& opened = orders_.at(order);
    try {
      if (pooled.empty())
        throw failure(errc::cancelled, name_ + " was stopped while it judged an answer", "search");
      opened.values[text->second.place] = how_.value(model_->info, pooled);
    } catch (const failure& f) {
      return fail(order, f.what_failed());
    }
    texts_.erase(text);
    tell_owner(answer_valued{});
    if (--opened.missing > 0)
      return;
    self_->send(opened.sampler, order_settled{{.order = order, .values = std::move(opened.values)}});
    orders_.erase(order);
  }

  void fail(const judge_order_ptr& order, error why) {
    self_->send(orders_.at(order).sampler, order_settled{{.order = order, .why = std::move(why)}});
    drop(order);
  }

  /// With what is under way of it.
  void drop(const judge_order_ptr& order) {
    const auto found = orders_.find(order);
    if (found == orders_.end())
      return;
    for (const auto id : found->second.texts)
      if (const auto text = texts_.find(id); text != texts_.end()) {
        if (text->second.request)
          self_->send(text->second.request, cancel_atom::value);
        texts_.erase(text);
      }
    orders_.erase(found);
  }

  void peer_ended(const caf::down_msg& down) {
    if (!child::remove(alive_, down.source))
      return;
    engine_ = engine_actor();
    texts_.clear();
    orders_.clear();
    model_ = nullptr; // its memory is what the next one takes
    self_->quit(stopping_.value_or(down.reason));
  }

  void stop(const caf::error& reason) {
    if (stopping_)
      return;
    stopping_ = reason;
    if (engine_)
      end_engine();
    else
      self_->quit(reason);
  }

  void end_engine() noexcept {
    for (auto& each : alive_)
      each.end();
  }

  judge_actor::pointer self_;
  // Only an exit message may end the actor.
  judge_actor self_handle_;
  caf::weak_actor_ptr owner_;
  const answer_judge& how_;
  const std::string name_;   // in sentences
  engine_actor engine_;      // null once it has ended
  std::vector<child> alive_; // it, or nobody
  loaded_model_ptr model_;
  std::map<judge_order_ptr, open_order> orders_;
  std::map<std::uint64_t, open_text> texts_;
  std::uint64_t last_ = 0; // number of a text
  std::optional<caf::error> stopping_;
};

} // namespace

judge_actor spawn_judge(const engine_actor& owner, const engine_options& options,
                        std::function<void(const load_status&)> progress, model_loader loader) {
  const auto* how = judge_of(options.techniques);
  return spawn_state<judge_actor, judge_state, caf::detached>(
    owner->home_system(), caf::actor_cast<caf::weak_actor_ptr>(owner), how, how->options(options), std::move(progress),
    std::move(loader));
}

} // namespace troupe
