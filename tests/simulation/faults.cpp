#include "tests/simulation/faults.hpp"

#include "actors/messages/admission.hpp"
#include "kernels/ops.hpp"
#include "runtime/scheduling/planning/scheduler.hpp"
#include "tests/actors/failing_memory.hpp"
#include "tests/simulation/audit.hpp"

#include <caf/exit_reason.hpp>
#include <caf/local_actor.hpp>
#include <caf/mailbox_element.hpp>
#include <caf/send.hpp>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <cxxabi.h>
#include <dlfcn.h>
#include <execinfo.h>
#include <new>
#include <stdexcept>
#include <string_view>
#include <vector>

namespace troupe::simulation {

namespace {

constexpr std::size_t most_queued = 2000; // in a mailbox; what a client can fill has limits far below

test::failing_allocation refusal(0);

/// The functions that wanted the memory, from the inside out. Those of anonymous namespaces have no names here.
void show_who_wanted_memory() {
  std::array<void*, 40> frames{};
  const auto many = backtrace(frames.data(), static_cast<int>(frames.size()));
  for (int i = 3; i < many; ++i) { // those before allocate
    Dl_info what{};
    if (dladdr(frames.at(static_cast<std::size_t>(i)), &what) == 0 || !what.dli_sname)
      continue;
    int status = 0;
    char* const name = abi::__cxa_demangle(what.dli_sname, nullptr, nullptr, &status);
    std::printf("      in %.110s\n", name ? name : what.dli_sname);
    std::free(name);
  }
}

bool is_system(const std::string& name) { return name == "exit" || name == "down"; }

} // namespace

troublemaker::troublemaker(const scenario& s, bool traced)
  : s_(s),
    traced_(traced),
    dice_(s.seed + 77),
    left_(s.most_deaths),
    fragile_left_(s.fragile),
    refusal_every_(s.refusal_every),
    before_(std::exchange(actor_hooks::now, this)) {
  if (!traced)
    return;
  test::failing_allocation::on_refusal = [] {
    std::printf("!! an allocation is refused\n");
    show_who_wanted_memory();
  };
}

troublemaker::~troublemaker() { actor_hooks::now = before_; }

void troublemaker::say(const std::string& line) const { std::printf("%s\n", line.c_str()); }

troublemaker::known& troublemaker::of(const char* kind, caf::local_actor& who) {
  const auto [found, is_new] = actors_.try_emplace(who.id());
  if (is_new) {
    found->second = {.kind = kind, .self = caf::actor_cast<caf::weak_actor_ptr>(&who)};
    ++alive_[kind];
  }
  return found->second;
}

void troublemaker::queued(const char* kind, caf::local_actor& to) {
  if (armed_ || gone_.contains(to.id()))
    return; // it may have no memory; nobody takes it
  auto& its = of(kind, to);
  seen.longest_mailbox = std::max(seen.longest_mailbox, ++its.queued);
  if (its.queued > most_queued && trouble.empty())
    trouble = std::string("the mailbox of a ") + kind + " has " + std::to_string(its.queued) + " messages";
}

std::string troublemaker::state_of(const handler& who) {
  const std::string_view kind = who.kind;
  if (kind == "request")
    return of(who.kind, who.self).phase;
  if (kind == "scheduler") {
    if (!who.inner)
      return "idle";
    const auto c = static_cast<const scheduler*>(who.inner)->counters();
    return c.paused > 0 ? "paused"
      : c.running > 0   ? (c.waiting > 0 ? "busy" : "running")
      : c.waiting > 0   ? "waiting"
                        : "idle";
  }
  if (kind == "kv_block_manager") {
    if (!who.inner)
      return "empty";
    const auto c = static_cast<const block_manager*>(who.inner)->counters();
    return c.in_use == 0 ? (c.cached > 0 ? "cached" : "empty") : c.total - c.in_use < 3 ? "short" : "in use";
  }
  if (kind == "engine") {
    const auto run = alive_["scheduler"];
    return stopping       ? "stopping"
      : !loaded           ? "loading"
      : run == 0          ? "none runs"
      : run < s_.replicas ? "some run"
                          : "all run";
  }
  const auto requests = alive_["request"];
  return requests == 0 ? "nobody" : requests == 1 ? "one request" : "several";
}

bool troublemaker::may_die(const std::string& kind) const { return kind != "engine" || s_.engine_may_die; }

void troublemaker::count_death(const known& who, const char* how) {
  bool any = false;
  for (const auto& [_, each] : actors_)
    if (std::string_view(each.kind) == "request" && (any = true))
      covered.died(who.kind, each.phase);
  if (!any)
    covered.died(who.kind, "none");
  if (traced_)
    say(std::string("!! a ") + who.kind + " dies: " + how);
}

void troublemaker::fail(const known& who, caf::actor_id id, bool loses_device) {
  --left_;
  ++seen.exceptions;
  if (std::string_view(who.kind) == "request")
    seen.dead_requests.insert(id);
  seen.engine_died = seen.engine_died || std::string_view(who.kind) == "engine";
  const auto how = dice_.pick(0, 5);
  if (how == 0 && !loses_device) {
    count_death(who, "it has no memory");
    throw std::bad_alloc();
  }
  if (std::string_view(who.kind) == "executor" || std::string_view(who.kind) == "sampler") {
    const bool lost = loses_device || (s_.device_may_be_lost && how == 1);
    seen.lost_devices += lost;
    count_death(who, lost ? "its device is lost" : "its device fails");
    throw kernels::device_error("a simulated device fails", lost);
  }
  count_death(who, "an exception");
  throw std::runtime_error("a simulated fault");
}

bool troublemaker::before(const handler& who, const caf::mailbox_element& what) {
  auto& its = of(who.kind, who.self);
  if (its.queued > 0)
    --its.queued;
  ++seen.messages;
  const auto name = message_name(what);
  if (lose(who, what, name))
    return false;
  const auto state = state_of(who);
  covered.handled(who.kind, name, state);
  if (name == "compile" && what.sender)
    if (const auto asks = actors_.find(what.sender->id()); asks != actors_.end())
      asks->second.phase = "compiling";
  if (traced_)
    say("   " + std::string(who.kind) + "#" + std::to_string(who.self.id()) + " <- " + name + " (" + state + ")");
  if (fragile_left_ > 0 && name == "plan" && std::string_view(who.kind) == "executor" && dice_.one_in(2)) {
    --fragile_left_;
    fail(its, who.self.id(), s_.lost_at_last && fragile_left_ == 0);
  }
  if (left_ > 0 && s_.death_every > 0 && may_die(who.kind) &&
      !(is_system(name) && std::string_view(who.kind) != "engine") && dice_.one_in(s_.death_every)) {
    if (what.mid.is_request() || dice_.one_in(2)) // whoever has answered cannot fail to
      fail(its, who.self.id());
    dies_behind_ = who.self.id();
  }
  const bool may_refuse = s_.refused.empty() ? may_die(who.kind) : s_.refused == who.kind;
  if (refusal_every_ > 0 && may_refuse && dice_.one_in(refusal_every_)) {
    refusal = test::failing_allocation(dice_.pick(1, 30), dice_.one_in(3));
    refusal.arm();
    armed_ = true;
  }
  return true;
}

bool troublemaker::lose(const handler& who, const caf::mailbox_element& what, const std::string& name) {
  const std::string_view kind = who.kind;
  const bool between = kind == "kv_block_manager"
    ? name == "blocks_offered" || name == "offer_accepted" || name == "blocks_received"
    : kind == "scheduler" && name == "chain_arrived";
  if (!between || !may_lose_ || s_.lost_every <= 0 || !dice_.one_in(s_.lost_every))
    return false;
  const bool is_late = dice_.one_in(2);
  if (is_late)
    late_.push_back({caf::actor_cast<caf::weak_actor_ptr>(&who.self), caf::actor_cast<caf::weak_actor_ptr>(what.sender),
                     what.copy_content_to_message()});
  if (traced_)
    say(std::string("!! ") + name + " to a " + who.kind + (is_late ? " is late" : " is lost"));
  return true;
}

bool troublemaker::deliver_late() {
  if (late_.empty())
    return false;
  const auto which = late_.begin() + dice_.pick(0, static_cast<int>(late_.size()) - 1);
  const auto [to, sender, what] = std::move(*which);
  late_.erase(which);
  if (const auto alive = to.lock())
    alive->enqueue(sender.lock(), caf::make_message_id(), what, nullptr);
  return true;
}

void troublemaker::perhaps_refuse(int most) {
  if (armed_ || refusal_every_ <= 0 || !dice_.one_in(3))
    return;
  refusal = test::failing_allocation(dice_.pick(1, most));
  refusal.arm();
  armed_ = true;
}

void troublemaker::begin_load(bool of_judge) {
  const auto failing = of_judge ? s_.failing_judge : s_.failing_load;
  if (++(of_judge ? judge_loads_ : loads_) != failing) {
    perhaps_refuse(3000);
    return;
  }
  ++seen.exceptions;
  if (traced_)
    say("!! a load fails");
  if (dice_.one_in(2))
    throw failure(errc::bad_file, "a simulated file is damaged");
  throw std::runtime_error("a simulated fault of a loader");
}

bool troublemaker::calm_down() {
  if (!armed_)
    return false;
  refusal.disarm();
  armed_ = false;
  if (!refusal.happened())
    return false;
  ++seen.refusals;
  return true;
}

void troublemaker::after(const handler& who, const caf::mailbox_element& what, caf::invoke_message_result) {
  calm_down();
  auto& its = of(who.kind, who.self);
  if (std::string_view(who.kind) == "request")
    follow(its, what, message_name(what));
  check(who);
  if (dies_behind_ == who.self.id()) { // an executor may have run others meanwhile
    dies_behind_ = 0;
    fail(its, who.self.id());
  }
}

void troublemaker::check(const handler& who) {
  if (!trouble.empty() || std::string_view(who.kind) != "kv_block_manager" || !who.inner)
    return;
  if (auto wrong = block_audit::of(*static_cast<const block_manager*>(who.inner)); !wrong.empty())
    trouble = "blocks: " + wrong;
}

void troublemaker::follow(known& request, const caf::mailbox_element& what, const std::string& name) {
  auto& phase = request.phase;
  const auto& content = const_cast<caf::mailbox_element&>(what).content();
  if (name == "admit" && content.match_element<admit_reply_ptr>(1)) {
    const auto& reply = content.get_as<admit_reply_ptr>(1);
    phase = reply->scheduler ? "submitted" : "known";
  } else if (name == "constraint_compiled") {
    phase = "submitted";
  } else if (name == "started") {
    phase = "started";
  } else if (name == "token_sampled") {
    phase = "decoding";
  } else if (name == "down") {
    phase = "known";
  } else if (name == "pause") {
    phase = content.get_as<bool>(1) ? "paused" : "submitted";
  } else if (name == "cancel" || name == "failed" || name == "ended") {
    phase = "ending";
  }
}

void troublemaker::ended(const char* kind, caf::local_actor& who) noexcept {
  const bool had_no_memory = calm_down();
  const auto found = actors_.find(who.id());
  if (found == actors_.end())
    return;
  seen.engine_died = seen.engine_died || (had_no_memory && std::string_view(kind) == "engine");
  --alive_[kind];
  gone_.insert(found->first);
  actors_.erase(found);
  if (dies_behind_ == who.id())
    dies_behind_ = 0;
}

std::string troublemaker::who_is_left() const {
  std::string all;
  for (const auto& [id, its] : actors_)
    all += " " + std::string(its.kind) + "#" + std::to_string(id);
  return all;
}

void troublemaker::perhaps_kill() {
  if (left_ <= 0 || s_.death_every <= 0 || !dice_.one_in(2 * s_.death_every))
    return;
  std::vector<std::pair<caf::actor_id, known*>> all;
  for (auto& [id, each] : actors_)
    if (may_die(each.kind))
      all.emplace_back(id, &each);
  if (all.empty())
    return;
  const auto& [id, victim] = all[static_cast<std::size_t>(dice_.pick(0, static_cast<int>(all.size()) - 1))];
  const auto alive = caf::actor_cast<caf::strong_actor_ptr>(victim->self);
  if (!alive)
    return;
  --left_;
  ++seen.kills;
  if (std::string_view(victim->kind) == "request")
    seen.dead_requests.insert(id);
  seen.engine_died = seen.engine_died || std::string_view(victim->kind) == "engine";
  count_death(*victim, "it is killed");
  caf::anon_send_exit(caf::actor_cast<caf::actor>(alive), caf::exit_reason::kill);
}

} // namespace troupe::simulation
