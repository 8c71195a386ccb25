#include "runtime/scheduling/routing/replica_loads.hpp"

#include "runtime/scheduling/cost/step_cost.hpp"

#include <algorithm>
#include <utility>

namespace troupe {

void replica_loads::start(int replica, std::uint64_t life, const replica_capacity& of) {
  stop(replica);
  load_report idle;
  idle.replica = replica;
  idle.life = life;
  idle.free_slots = of.slots;
  idle.queue_room = of.queue + of.slots;
  idle.free_blocks = of.blocks;
  idle.step_rows = of.step_rows;
  for (std::size_t i = 0; i < step_cost::knots.size(); ++i) // before any step was measured anywhere, rows count
    idle.cost.knot_ms[i] = step_cost::knots[i];
  replicas_.emplace(
    replica,
    routed_replica{
      .load = std::move(idle), .of = of, .prefixes = {static_cast<std::size_t>(of.blocks), of.bytes}, .home = of.role});
}

void replica_loads::stop(int replica) {
  replicas_.erase(replica);
  std::erase_if(sent_, [=](const auto& entry) { return entry.second.replica == replica; });
  std::erase_if(coming_, [=](const auto& entry) { return entry.second.replica == replica; });
}

bool replica_loads::take(const load_report& report) {
  const auto found = replicas_.find(report.replica);
  if (found == replicas_.end() || found->second.load.life != report.life)
    return false;
  for (const auto request : report.received)
    forget_sent(request);
  auto& load = found->second.load;
  const auto unmeasured = std::exchange(load, report);
  load.received.clear();
  load.ended.clear();
  if (load.cost.steps == 0) {
    load.cost = unmeasured.cost;
    load.step_rows = unmeasured.step_rows;
  }
  return true;
}

void replica_loads::end(std::uint64_t request) {
  forget_sent(request);
  coming_.erase(request);
}

void replica_loads::forget_sent(std::uint64_t request) {
  const auto found = sent_.find(request);
  if (found == sent_.end())
    return;
  const auto& [replica, prompt, sequences] = found->second;
  auto& sent = replicas_.at(replica).sent;
  sent.prompts -= prompt;
  sent.sequences -= sequences;
  --sent.requests;
  sent_.erase(found);
}

void replica_loads::send(std::uint64_t request, int replica, const step_shape& prompt, double prompt_ms,
                         const route_query& what) {
  auto& chosen = replicas_.at(replica);
  chosen.prefixes.use(what.chain);
  end(request);
  chosen.prompt_ms += prompt_ms;
  chosen.sent.prompts += prompt;
  chosen.sent.sequences += what.sequences;
  ++chosen.sent.requests;
  sent_.insert_or_assign(request, sent_request{replica, prompt, what.sequences});
}

void replica_loads::arrive(std::uint64_t request, int replica) {
  const auto coming = coming_.find(request);
  const auto there = replicas_.find(replica);
  if (coming != coming_.end() && there != replicas_.end())
    there->second.prefixes.use(coming->second.chain); // and no sooner: others may have the same prompt
}

bool replica_loads::have(replica_role role) const {
  return std::ranges::any_of(replicas_, [role](auto& entry) { return entry.second.of.role == role; });
}

bool replica_loads::have_room() const {
  return std::ranges::any_of(replicas_, [](auto& entry) { return entry.second.has_room(); });
}

const routed_replica* replica_loads::find(int replica) const {
  const auto found = replicas_.find(replica);
  return found == replicas_.end() ? nullptr : &found->second;
}

double replica_loads::coming_to(const routed_replica& r) const {
  return static_cast<double>(
    std::ranges::count(coming_, r.load.replica, [](auto& each) { return each.second.replica; }));
}

// Replicas are alike, so one that has measured nothing yet costs what another does.
const load_report& replica_loads::measured(const routed_replica& r) const {
  if (r.load.cost.steps > 0)
    return r.load;
  const auto other = std::ranges::find_if(replicas_, [](auto& entry) { return entry.second.load.cost.steps > 0; });
  return other == replicas_.end() ? r.load : other->second.load;
}

} // namespace troupe
