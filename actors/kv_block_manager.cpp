#include "actors/kv_block_manager.hpp"

#include "actors/messages/arrivals.hpp"
#include "actors/messages/disk.hpp"
#include "actors/messages/introductions.hpp"
#include "actors/messages/reminders.hpp"
#include "actors/messages/roles.hpp"
#include "actors/open_questions.hpp"
#include "actors/spawn.hpp"
#include "runtime/scheduling/blocks/incoming_chains.hpp"

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
  using accompanies = companion;

  kv_block_manager_state(kv_block_manager_actor::pointer self, std::int32_t blocks, bool prefix_cache,
                         std::int32_t host_blocks, former_block_counters former, std::optional<kept_outside> kept,
                         std::optional<sent_elsewhere> sent, std::optional<state_snapshots> snapshots)
    : self_(self), manager_(blocks, prefix_cache, host_blocks), former_(std::move(former)), sent_(std::move(sent)) {
    if (kept)
      manager_.keep_outside(std::move(*kept));
    if (sent_)
      manager_.send_with(sent_->images, sent_->states);
    if (snapshots)
      manager_.keep_snapshots(std::move(*snapshots));
  }

  ~kv_block_manager_state() {
    if (former_)
      former_->end(manager_.totals());
  }

  kv_block_manager_actor::behavior_type make_behavior() {
    return {
      [this](blocks_atom, const block_request_ptr& request, const scheduler_actor& scheduler) {
        const auto grant = std::make_shared<const block_grant>(serve(*request));
        self_->send(scheduler, grant_atom::value, grant);
        offer(*grant, scheduler);
      },
      [this](const prefix_wanted& its) { look_up(*its.what, its.reader, its.scheduler); },
      [this](const blocks_read& read) { adopt(*read.arrival, read.scheduler); },
      [this](const blocks_received& received) {
        const auto& arrival = *received.arrival;
        adopt(arrival, received.scheduler);
        note_arrival(arrival, received.sender);
      },
      [this](const replica_known& other) {
        receivers_[other.number] = caf::actor_cast<caf::weak_actor_ptr>(other.blocks);
      },
      [this](const blocks_offered& offered) { consider(offered); },
      [this](const offer_accepted& its) {
        manager_.accept(its.request, its.first);
        send_more();
      },
      [this](send_on) {
        sending_later_ = false;
        send_more();
      },
      [this](const images_written& written) { save_more(written.count, written.scheduler); },
      [this](const save_on& due) { save_more(0, due.scheduler); },
      [this](look_atom) { return manager_.map(); },
      [this](flush_atom) { return flush(); },
      [this](stats_atom) { return manager_.counters(); },
    };
  }

  const block_manager& inner() const { return manager_; }

private:
  void look_up(const kv_fetch& what, const kv_mover_actor& reader, const scheduler_actor& scheduler) {
    block_request request;
    request.lookups.push_back({{what.request, 0}, what.tokens, what.salt});
    const auto found = serve_aside(request, scheduler).found.at(0);
    // The last token is always computed.
    if (found.reached >= static_cast<std::int32_t>(what.tokens->size() - 1) / kernels::block_tokens) {
      self_->send(scheduler, fetch_done{what.request});
      return;
    }
    auto rest = what;
    rest.first = found.blocks;
    rest.reached = found.reached;
    rest.before = found.key;
    self_->send(reader, blocks_missing{std::make_shared<const kv_fetch>(std::move(rest)), scheduler});
  }

  block_grant serve(const block_request& request) {
    auto grant = manager_.serve(request);
    saving_ += static_cast<std::uint64_t>(std::ranges::count_if(
      grant.moves, [](auto& move) { return move.what == block_move::kind::save && !move.destination; }));
    unsaved_ = grant.unsaved;
    if (grant.unsent)
      send_later();
    return grant;
  }

  // Moves of a request that no step waits for. The scheduler receives them behind those of earlier grants.
  block_grant serve_aside(const block_request& request, const scheduler_actor& scheduler) {
    auto grant = serve(request);
    if (!grant.moves.empty())
      self_->send(scheduler, moves_atom::value, std::make_shared<const std::vector<block_move>>(grant.moves));
    return grant;
  }

  // -- beside other replicas ------------------------------------------------------------------------------------------

  // Offers to other replicas the chains of the sequences that the grant has opened.
  void offer(const block_grant& grant, const scheduler_actor& scheduler) {
    scheduler_ = caf::actor_cast<caf::weak_actor_ptr>(scheduler);
    for (const auto& what : grant.offers)
      if (const auto alive = caf::actor_cast<caf::strong_actor_ptr>(receivers_[what->replica]))
        self_->send(caf::actor_cast<kv_receiver_actor>(alive),
                    blocks_offered{what, sent_->numerics, kv_block_manager_actor(self_), scheduler});
  }

  void consider(const blocks_offered& offered) {
    const auto& what = *offered.what;
    if (!sent_ || offered.numerics != sent_->numerics ||
        !incoming_.expect(what.request, parts(*what.tokens), self_->clock().now()))
      return;
    const auto known = manager_.look_up({{}, what.tokens, what.salt});
    if (known.blocks < what.blocks() || known.reached < reach(*what.tokens))
      self_->send(offered.sender, offer_accepted{what.request, known.blocks});
    else if (incoming_.arrived(what.request, parts(*what.tokens), self_->clock().now()))
      self_->send(offered.scheduler, chain_arrived{what.request});
  }

  // Blocks with a snapshot of states behind which the prompt may begin: its last token is always computed.
  std::int32_t reach(const std::vector<token_id>& prompt) const {
    return sent_->states && !prompt.empty() ? static_cast<std::int32_t>(prompt.size() - 1) / kernels::block_tokens : 0;
  }

  // A snapshot of states counts as a block behind the others, and comes last. A prompt of one block has none.
  std::int32_t parts(const std::vector<token_id>& prompt) const {
    return static_cast<std::int32_t>(prompt.size()) / kernels::block_tokens + (reach(prompt) > 0 ? 1 : 0);
  }

  void adopt(const block_arrival& arrival, const scheduler_actor& scheduler) {
    block_request request;
    request.arrivals.push_back(arrival);
    serve_aside(request, scheduler);
  }

  // What had no room is missing, and so is all behind it.
  void note_arrival(const block_arrival& its, const scheduler_actor& sender) {
    const auto blocks = static_cast<std::int32_t>(its.tokens->size()) / kernels::block_tokens;
    const auto end = its.first + static_cast<std::int32_t>(its.images.size());
    if (!incoming_.arrived(its.request, its.states.empty() ? end : parts(*its.tokens), self_->clock().now()))
      return;
    const auto found = manager_.look_up({{}, its.tokens, its.salt});
    if (found.blocks == blocks && (its.states.empty() || found.reached > its.states.back()->place))
      self_->send(sender, chain_arrived{its.request});
    else
      manager_.count_incomplete();
  }

  void send_later() {
    if (!std::exchange(sending_later_, true))
      self_->delayed_send(self_, std::chrono::milliseconds(2), send_on{});
  }

  // Sends moves by way of the scheduler, so that they stay in order.
  void send_more() {
    if (const auto alive = caf::actor_cast<caf::strong_actor_ptr>(scheduler_))
      serve_aside({}, caf::actor_cast<scheduler_actor>(alive));
  }

  // Images come back when all who have seen them let go, perhaps a little later.
  void save_more(std::uint64_t written, const scheduler_actor& scheduler) {
    saving_ -= written;
    const auto grant = serve_aside({}, scheduler);
    if (grant.unsaved && grant.moves.empty())
      self_->delayed_send(self_, std::chrono::milliseconds(10), save_on{scheduler});
    if (is_saved())
      flushes_.answer_all(true);
  }

  bool is_saved() const { return saving_ == 0 && !unsaved_; }

  caf::result<bool> flush() {
    if (is_saved())
      return true;
    return flushes_.take<bool>(self_).promise;
  }

  kv_block_manager_actor::pointer self_;
  block_manager manager_;
  former_block_counters former_;
  std::optional<sent_elsewhere> sent_;           // null: no other replica is known
  caf::weak_actor_ptr scheduler_;                // which holds this one
  std::map<int, caf::weak_actor_ptr> receivers_; // block managers of other replicas
  incoming_chains incoming_;
  bool sending_later_ = false; // once there are images
  std::uint64_t saving_ = 0;   // blocks listed to be saved and not yet written
  bool unsaved_ = false;       // there are more
  open_questions flushes_;
};

} // namespace

kv_block_manager_actor spawn_kv_block_manager(caf::actor_system& system, std::int32_t blocks, bool prefix_cache,
                                              std::int32_t host_blocks, former_block_counters former,
                                              std::optional<kept_outside> kept, std::optional<sent_elsewhere> sent,
                                              std::optional<state_snapshots> snapshots) {
  return spawn_state<kv_block_manager_actor, kv_block_manager_state>(system, blocks, prefix_cache, host_blocks,
                                                                     std::move(former), std::move(kept),
                                                                     std::move(sent), std::move(snapshots));
}

} // namespace troupe
