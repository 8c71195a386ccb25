#include "actors/kv_block_manager.hpp"

#include "actors/spawn.hpp"

#include <caf/typed_response_promise.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <utility>
#include <vector>

namespace troupe {

namespace {

class kv_block_manager_state {
public:
  static constexpr const char* name = "kv_block_manager";

  kv_block_manager_state(kv_block_manager_actor::pointer self, std::int32_t blocks, bool prefix_cache,
                         std::int32_t host_blocks, former_block_counters former, std::optional<kept_outside> kept)
    : self_(self), manager_(blocks, prefix_cache, host_blocks), former_(std::move(former)) {
    if (kept)
      manager_.keep_outside(std::move(*kept));
  }

  ~kv_block_manager_state() {
    if (former_)
      former_->end(manager_.counters());
  }

  kv_block_manager_actor::behavior_type make_behavior() {
    return {
      [this](blocks_atom, const block_request_ptr& request, const scheduler_actor& scheduler) {
        self_->send(scheduler, grant_atom::value, std::make_shared<const block_grant>(serve(*request)));
      },
      [this](fetch_atom, const kv_fetch_ptr& what, const kv_mover_actor& reader, const scheduler_actor& scheduler) {
        look_up(*what, reader, scheduler);
      },
      [this](adopt_atom, const block_arrival_ptr& arrival, const scheduler_actor& scheduler) {
        block_request request;
        request.arrivals.push_back(*arrival);
        serve_aside(request, scheduler);
      },
      [this](room_atom, std::uint64_t written, const scheduler_actor& scheduler) { save_more(written, scheduler); },
      [this](look_atom) { return manager_.map(); },
      [this](flush_atom) { return flush(); },
      [this](stats_atom) { return manager_.counters(); },
    };
  }

private:
  void look_up(const kv_fetch& what, const kv_mover_actor& reader, const scheduler_actor& scheduler) {
    block_request request;
    request.lookups.push_back({{what.request, 0}, what.tokens, what.salt});
    const auto found = serve_aside(request, scheduler).found.at(0);
    // The last token is always computed.
    if (found.blocks >= static_cast<std::int32_t>(what.tokens->size() - 1) / kernels::block_tokens) {
      self_->send(scheduler, fetched_atom::value, what.request);
      return;
    }
    auto rest = what;
    rest.first = found.blocks;
    rest.before = found.key;
    self_->send(reader, fetch_atom::value, std::make_shared<const kv_fetch>(std::move(rest)), scheduler);
  }

  block_grant serve(const block_request& request) {
    auto grant = manager_.serve(request);
    saving_ += static_cast<std::uint64_t>(
      std::ranges::count_if(grant.moves, [](auto& move) { return move.what == block_move::kind::save; }));
    unsaved_ = grant.unsaved;
    return grant;
  }

  // Moves of a request that no step waits for. The scheduler receives them behind those of earlier grants.
  block_grant serve_aside(const block_request& request, const scheduler_actor& scheduler) {
    auto grant = serve(request);
    if (!grant.moves.empty())
      self_->send(scheduler, moves_atom::value, std::make_shared<const std::vector<block_move>>(grant.moves));
    return grant;
  }

  // Images come back when all who have seen them let go, perhaps a little later.
  void save_more(std::uint64_t written, const scheduler_actor& scheduler) {
    saving_ -= written;
    const auto grant = serve_aside({}, scheduler);
    if (grant.unsaved && grant.moves.empty())
      self_->delayed_send(self_, std::chrono::milliseconds(10), room_atom::value, std::uint64_t{0}, scheduler);
    if (is_saved())
      for (auto& waiting : std::exchange(flushes_, {}))
        waiting.deliver(true);
  }

  bool is_saved() const { return saving_ == 0 && !unsaved_; }

  caf::result<bool> flush() {
    auto promise = self_->make_response_promise<bool>();
    if (is_saved())
      promise.deliver(true);
    else
      flushes_.push_back(promise);
    return promise;
  }

  kv_block_manager_actor::pointer self_;
  block_manager manager_;
  former_block_counters former_;
  std::uint64_t saving_ = 0; // blocks listed to be saved and not yet written
  bool unsaved_ = false;     // there are more
  std::vector<caf::typed_response_promise<bool>> flushes_;
};

} // namespace

kv_block_manager_actor spawn_kv_block_manager(caf::actor_system& system, std::int32_t blocks, bool prefix_cache,
                                              std::int32_t host_blocks, former_block_counters former,
                                              std::optional<kept_outside> kept) {
  return spawn_state<kv_block_manager_actor, kv_block_manager_state>(system, blocks, prefix_cache, host_blocks,
                                                                     std::move(former), std::move(kept));
}

} // namespace troupe
