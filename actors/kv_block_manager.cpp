#include "actors/kv_block_manager.hpp"

#include "actors/spawn.hpp"

namespace troupe {

namespace {

class kv_block_manager_state {
public:
  static constexpr const char* name = "kv_block_manager";

  kv_block_manager_state(kv_block_manager_actor::pointer self, std::int32_t blocks, bool prefix_cache,
                         std::int32_t host_blocks, former_block_counters former)
    : self_(self), manager_(blocks, prefix_cache, host_blocks), former_(std::move(former)) {}

  ~kv_block_manager_state() {
    if (former_)
      former_->end(manager_.counters());
  }

  kv_block_manager_actor::behavior_type make_behavior() {
    return {
      [this](blocks_atom, const block_request_ptr& request, const scheduler_actor& scheduler) {
        self_->send(scheduler, grant_atom::value, std::make_shared<const block_grant>(manager_.serve(*request)));
      },
      [this](stats_atom) { return manager_.counters(); },
    };
  }

private:
  kv_block_manager_actor::pointer self_;
  block_manager manager_;
  former_block_counters former_;
};

} // namespace

kv_block_manager_actor spawn_kv_block_manager(caf::actor_system& system, std::int32_t blocks, bool prefix_cache,
                                              std::int32_t host_blocks, former_block_counters former) {
  return spawn_state<kv_block_manager_actor, kv_block_manager_state>(system, blocks, prefix_cache, host_blocks,
                                                                     std::move(former));
}

} // namespace troupe
