#include "actors/kv_mover.hpp"

#include "actors/messages/arrivals.hpp"
#include "actors/messages/disk.hpp"
#include "actors/messages/reminders.hpp"
#include "actors/spawn.hpp"
#include "runtime/engine/loading/loaded_model.hpp"
#include "runtime/kv/chain_fetch.hpp"
#include "runtime/kv/kv_disk.hpp"
#include "runtime/scheduling/step.hpp"

#include <chrono>
#include <deque>
#include <memory>
#include <optional>
#include <utility>

namespace troupe {

namespace {

class kv_mover_state {
public:
  static constexpr const char* name = "kv_mover";

  kv_mover_state(kv_mover_actor::pointer self, const loaded_model_ptr& model, kv_block_manager_actor blocks,
                 caf::weak_actor_ptr engine)
    : self_(self),
      self_handle_(self),
      store_(model->kv_disk->store),
      images_(store_->block_bytes(), kv_disk::images_of(store_->block_bytes())),
      states_(model->kv_disk->make_state_images()),
      portion_(kv_disk::portion_of(store_->block_bytes())),
      blocks_(std::move(blocks)),
      engine_(std::move(engine)) {}

  kv_mover_actor::behavior_type make_behavior() {
    return {
      [this](const blocks_missing& its) { begin(its.what, its.scheduler); },
      [this](const images_filled& filled) { keep(filled.images, filled.scheduler); },
      [this](read_on) { read_some(); },
    };
  }

private:
  /// A chain being read. Chains take turns.
  struct reading {
    kv_fetch_ptr what;
    scheduler_actor scheduler;
    chain_fetch chain;
    std::int32_t next = 0; // place of the next block
  };

  void begin(const kv_fetch_ptr& what, const scheduler_actor& scheduler) {
    chain_fetch chain(
      *store_, times_, *what->tokens, what->first, what->before, what->recompute_ms,
      [this] { return self_->clock().now(); }, states_ ? std::optional(what->reached) : std::nullopt);
    readings_.push_back({what, scheduler, chain, what->first});
    if (readings_.size() == 1)
      read_some();
  }

  void read_some() {
    if (readings_.empty())
      return;
    auto one = std::move(readings_.front());
    readings_.pop_front();
    auto images = one.chain.next(images_, portion_);
    const auto state = states_ ? one.chain.state(*states_) : nullptr;
    const bool lacks_images = images.empty() && !state && one.chain.goes_on();
    if (!images.empty() || state) {
      block_arrival arrival{one.what->tokens, one.what->salt, one.next, std::move(images)};
      if (state)
        arrival.states.push_back(state);
      one.next += static_cast<std::int32_t>(arrival.images.size());
      self_->send(blocks_, blocks_read{std::make_shared<const block_arrival>(std::move(arrival)), one.scheduler});
    }
    if (one.chain.goes_on() && self_->clock().now() < one.what->until)
      readings_.push_back(std::move(one));
    else // behind what it has sent to the block manager
      self_->send(one.scheduler, fetch_done{one.what->request});
    if (readings_.empty())
      return;
    if (lacks_images)
      self_->delayed_send(self_, std::chrono::milliseconds(1), read_on{});
    else
      self_->send(self_, read_on{});
  }

  // The images are given back before more are asked for.
  void keep(const block_images_ptr& images, const scheduler_actor& scheduler) {
    for (auto& image : *images) {
      store_->write(*image);
      image.reset();
    }
    self_->send(blocks_, images_written{images->size(), scheduler});
    if (auto line = store_->take_trouble())
      if (auto alive = caf::actor_cast<caf::strong_actor_ptr>(engine_))
        self_->send(caf::actor_cast<engine_actor>(alive), news_atom::value, std::move(*line));
  }

  kv_mover_actor::pointer self_;
  // Only an exit message may end the actor, on its own thread.
  kv_mover_actor self_handle_;
  std::shared_ptr<kv_store> store_;
  image_pool images_;
  std::shared_ptr<const image_pool> states_; // null: the model has none
  std::size_t portion_;                      // blocks
  kv_block_manager_actor blocks_;
  caf::weak_actor_ptr engine_;
  read_time times_;
  std::deque<reading> readings_;
};

} // namespace

kv_mover_actor spawn_kv_mover(caf::actor_system& system, loaded_model_ptr model, kv_block_manager_actor blocks,
                              caf::weak_actor_ptr engine) {
  return spawn_state<kv_mover_actor, kv_mover_state, caf::detached>(system, std::move(model), std::move(blocks),
                                                                    std::move(engine));
}

} // namespace troupe
