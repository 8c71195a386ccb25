#include "actors/executor.hpp"

#include "actors/companions.hpp"
#include "actors/messages/admission.hpp"
#include "actors/messages/arrivals.hpp"
#include "actors/messages/disk.hpp"
#include "actors/messages/introductions.hpp"
#include "actors/spawn.hpp"
#include "runtime/execution/step_runner.hpp"
#include "runtime/scheduling/step.hpp"
#include "runtime/support/meter.hpp"

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

namespace troupe {

namespace {

class executor_state {
public:
  static constexpr const char* name = "executor";

  executor_state(executor_actor::pointer self, const model_replica& what, std::size_t stage, stage_peers to)
    : self_(self), self_handle_(self), to_(std::move(to)), runner_(what.make_runner(stage)) {
    if (what.plan.stages.size() == 1 && !what.plan.last().capabilities().own_thread)
      companions_.emplace(self_->system());
  }

  executor_actor::behavior_type make_behavior() {
    return {
      [this](work_atom, const stage_work_ptr& work) { go_on(*work); },
      [this](plan_atom, const step_plan_ptr& plan) { plans_.push_back(plan), run(); },
      [this](tokens_atom, const step_tokens_ptr& tokens) { fill_placeholders(*tokens), run(); },
      [this](const scheduler_known& own) { scheduler_ = caf::actor_cast<caf::weak_actor_ptr>(own.scheduler); },
      [this](const replica_known& other) {
        receivers_[other.number] = {caf::actor_cast<caf::weak_actor_ptr>(other.blocks),
                                    caf::actor_cast<caf::weak_actor_ptr>(other.scheduler)};
      },
    };
  }

private:
  void fill_placeholders(const step_tokens& tokens) {
    runner_->receive(tokens);
    tokens_known_up_to_ = tokens.step;
  }

  void run() {
    while (!plans_.empty() && plans_.front()->after_tokens_of <= tokens_known_up_to_) {
      stage_work work{.plan = std::move(plans_.front()), .first = executor_actor(self_)};
      plans_.pop_front();
      go_on(work);
    }
  }

  void go_on(const stage_work& before) {
    const auto& plan = *before.plan;
    step_output output;
    if (plan.tokens.empty())
      runner_->move(plan.moves);
    else
      output = runner_->run(plan, before.rows.get());
    if (to_.next)
      return pass_on(before, output);
    if (!plan.tokens.empty())
      send_logits(before, std::move(output));
    pass_on_images(plan); // whose last part is there now
  }

  void pass_on(const stage_work& before, const step_output& output) {
    auto work = std::make_shared<stage_work>(before);
    work->rows = output.passed;
    work->stage_ms.push_back(output.ms);
    self_->send(to_.next, work_atom::value, stage_work_ptr(std::move(work)));
  }

  void send_logits(const stage_work& before, step_output output) {
    const bool timed = output.ms > 0 && std::ranges::all_of(before.stage_ms, [](double ms) { return ms > 0; });
    if (!timed) // a device computes while its stage goes on
      output.ms = 0;
    else if (!before.stage_ms.empty()) {
      output.stage_ms = before.stage_ms;
      output.stage_ms.push_back(output.ms);
      output.ms = std::reduce(output.stage_ms.begin(), output.stage_ms.end());
    }
    auto message = std::make_shared<step_logits>();
    message->plan = before.plan;
    message->output = std::move(output);
    // Not on what this handler has left of its share of memory (fault_door.hpp), at whose end they could not even end.
    const bool here = companions_ && !meter::current();
    if (here && before.plan->samples.size() <= few && !goes_on_without_tokens())
      companions_->send(self_, to_.sampler, logits_atom::value, step_logits_ptr(std::move(message)), before.first);
    else
      self_->send(to_.sampler, logits_atom::value, step_logits_ptr(std::move(message)), before.first);
  }

  /// Whether the next step, if there is one, needs none of the tokens that are being chosen.
  bool goes_on_without_tokens() const {
    return !plans_.empty() && plans_.front()->after_tokens_of <= tokens_known_up_to_;
  }

  void pass_on_images(const step_plan& plan) {
    auto images = std::make_shared<std::vector<block_image_ptr>>();
    std::vector<std::pair<block_destination_ptr, std::vector<block_image_ptr>>> sent; // in the order of the moves
    const auto of = [&](const block_destination_ptr& to) -> std::vector<block_image_ptr>& {
      const auto known = std::ranges::find_if(sent, [&](const auto& each) { return each.first == to; });
      return known != sent.end() ? known->second : sent.emplace_back(to, std::vector<block_image_ptr>()).second;
    };
    for (const auto& move : plan.moves)
      if (move.what == block_move::kind::save)
        (move.destination ? of(move.destination) : *images).push_back(move.image);
    if (images->empty() && sent.empty())
      return;
    const auto alive = caf::actor_cast<caf::strong_actor_ptr>(scheduler_);
    if (!alive)
      return;
    const auto scheduler = caf::actor_cast<scheduler_actor>(alive);
    if (!images->empty())
      self_->send(to_.writer, images_filled{std::move(images), scheduler});
    for (auto& [destination, its] : sent)
      send(*destination, std::move(its), scheduler);
  }

  // Neighbours of one chain. If the other replica has died, they are lost.
  void send(const block_destination& to, std::vector<block_image_ptr> images, const scheduler_actor& scheduler) {
    const auto& [blocks, its_scheduler] = receivers_[to.replica];
    const auto receiver = caf::actor_cast<caf::strong_actor_ptr>(blocks);
    const auto other = caf::actor_cast<caf::strong_actor_ptr>(its_scheduler);
    if (!receiver || !other)
      return;
    const auto states = std::ranges::stable_partition(images, [](const auto& image) { return !image->state; });
    block_arrival arrival{to.tokens, to.salt, 0, {}, to.request, {states.begin(), states.end()}};
    images.erase(states.begin(), states.end());
    arrival.first = images.empty() ? arrival.states.front()->place + 1 : images.front()->place;
    arrival.images = std::move(images);
    self_->send(caf::actor_cast<kv_receiver_actor>(receiver),
                blocks_received{.arrival = std::make_shared<const block_arrival>(std::move(arrival)),
                                .scheduler = caf::actor_cast<scheduler_actor>(other),
                                .sender = scheduler});
  }

  // Tokens go to clients one by one, from the thread that chose them: those of many had better not go from this one.
  static constexpr std::size_t few = 4;

  executor_actor::pointer self_;
  // Only an exit message may end the actor: the state must be destroyed on its own thread.
  executor_actor self_handle_;
  stage_peers to_;
  std::optional<companions> companions_; // if the others may work on this thread
  caf::weak_actor_ptr scheduler_;        // which holds the executor
  std::map<int, std::pair<caf::weak_actor_ptr, caf::weak_actor_ptr>>
    receivers_; // block manager and scheduler, by replica
  std::unique_ptr<step_runner> runner_;
  std::deque<step_plan_ptr> plans_;
  std::uint64_t tokens_known_up_to_ = 0;
};

} // namespace

executor_actor spawn_executor(caf::actor_system& system, model_replica what, std::size_t stage, stage_peers to) {
  return spawn_state<executor_actor, executor_state, caf::detached>(system, std::move(what), stage, std::move(to));
}

} // namespace troupe
