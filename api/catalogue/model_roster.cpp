#include "api/catalogue/model_roster.hpp"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

namespace troupe {

namespace {

using namespace std::chrono_literals;
using duration = model_roster::duration;

// A load that makes others leave must pay: what was loaded serves for four times as long as its load took before it gives
// way, or is idle for as long as that. So models that are named in turn spend at most a fifth of the time on loads, and
// who goes from one to another waits for no more than twice the load.
constexpr int serves_for = 4; // loads
constexpr duration longest_stay = 1min;
constexpr duration longest_wait = 10min;
constexpr duration time_to_end = 5s; // of answers that nobody reads

// Of one that ends by itself: doubled each time, until it has lived for a while.
constexpr duration first_pause = 250ms, longest_pause = 30s, a_while = 1min;

duration longest_wait_of(const model_roster::listed& model) {
  return model.longest_wait > 0ms ? model.longest_wait : longest_wait;
}

std::string seconds(model_roster::time::duration of) {
  return std::to_string(std::chrono::ceil<std::chrono::seconds>(of).count()) + " s";
}

duration whole(model_roster::time::duration of) { return std::chrono::ceil<duration>(of); }

constexpr std::string_view latest = ":latest"; // behind names of Ollama's clients

bool is_called(const model_roster::listed& model, std::string_view name) {
  return model.name == name || std::ranges::find(model.aliases, name) != model.aliases.end();
}

void check_names(const std::vector<const model_roster::listed*>& models) {
  std::map<std::string, std::string> names; // whose they are
  const auto take = [&](const std::string& name, const model_roster::listed& by) {
    const auto [at, is_new] = names.emplace(name, by.name);
    if (!is_new)
      throw failure(errc::bad_request,
                    "two models would be called `" + name +
                      "`: " + (at->second == by.name ? "both" : "`" + at->second + "` and `" + by.name + "`") +
                      "; give each a name of its own, as NAME=PATH");
  };
  for (const auto* each : models) {
    if (each->name.empty() && models.size() > 1)
      throw failure(errc::bad_request, "each of several models needs a name");
    take(each->name, *each);
    for (const auto& alias : each->aliases)
      take(alias, *each);
  }
}

} // namespace

model_roster::model_roster(std::vector<listed> models, std::optional<duration> usually) : usually_(usually) {
  std::vector<std::pair<std::optional<std::size_t>, listed>> all;
  for (auto& each : models)
    all.emplace_back(std::nullopt, std::move(each));
  list(std::move(all));
}

void model_roster::list(std::vector<std::pair<std::optional<std::size_t>, listed>> models) {
  std::vector<const listed*> names;
  for (const auto& [_, each] : models)
    names.push_back(&each);
  check_names(names);
  const auto before = std::exchange(order_, {});
  for (auto& [model, each] : models) {
    order_.push_back(model.value_or(models_.size()));
    if (model)
      models_[*model].is = std::move(each);
    else
      models_.push_back({std::move(each)});
  }
  for (const auto model : before)
    if (!is_listed(model)) {
      models_[model].is.stays = false;
      unload(model, "it is not listed any more");
    }
}

std::optional<std::size_t> model_roster::find(std::string_view name) const {
  if (name.empty() && !order_.empty())
    return order_.front();
  const auto look = [&](std::string_view of) -> std::optional<std::size_t> {
    for (const auto i : order_)
      if (is_called(models_[i].is, of))
        return i;
    return std::nullopt;
  };
  if (const auto found = look(name))
    return found;
  return name.ends_with(latest) ? look(name.substr(0, name.size() - latest.size())) : std::nullopt;
}

std::optional<model_roster::time> model_roster::idle_until(std::size_t model) const {
  const auto& one = models_[model];
  const auto stays = one.stays_for ? one.stays_for : usually_;
  if (one.now != state::ready || one.is.stays || !stays || stays->count() < 0)
    return std::nullopt;
  return one.last_used + *stays;
}

// -- wishes -----------------------------------------------------------------------------------------------------------

/// Ends the wait of all that wait.
void model_roster::settle(model& one) {
  ++one.loads;
  one.claims += std::exchange(one.wishes, 0);
}

void model_roster::queue(std::size_t model) {
  models_[model].now = state::queued;
  models_[model].again.reset();
  models_[model].behind_since.reset();
  models_[model].unread_ended = false;
  queue_.push_back(model);
}

/// The load that lacked room is given up: a busy model that would have left for it stays.
void model_roster::need_no_room() {
  lacks_room_ = false;
  lacks_room_since_.reset();
  const auto busy = std::exchange(makes_room_, std::nullopt);
  if (busy && models_[*busy].now == state::leaving && !models_[*busy].dead) {
    models_[*busy].now = state::ready;
    settle(models_[*busy]);
  }
}

model_roster::wish model_roster::want(std::size_t model) {
  auto& one = models_[model];
  ++(one.now == state::ready ? one.claims : one.wishes);
  if (one.now == state::ready)
    return {model, one.loads};
  if (one.now == state::unloaded || one.now == state::failed)
    queue(model);
  return {model, one.loads + 1}; // one that leaves is queued when it has left
}

void model_roster::leave(const wish& of) {
  auto& one = models_[of.model];
  if (of.load == 0)
    return;
  --(settled(of) ? one.claims : one.wishes);
  if (one.now != state::queued || one.wishes > 0)
    return;
  if (queue_.front() == of.model)
    need_no_room();
  if (one.comes_back)
    return;
  std::erase(queue_, of.model);
  one.now = one.why ? state::failed : state::unloaded;
}

model_roster::wish model_roster::unload(std::size_t model) { return unload(model, "an operator unloaded it"); }

model_roster::wish model_roster::unload(std::size_t model, std::string_view as) {
  auto& one = models_[model];
  one.comes_back = false;
  one.again.reset();
  if (makes_room_ == model)
    makes_room_.reset(); // it goes in any case
  if (one.now == state::ready)
    one.now = state::leaving;
  else if (one.now == state::loading)
    one.leaves = true;
  else if (one.now == state::queued) {
    if (queue_.front() == model)
      need_no_room();
    std::erase(queue_, model);
    one.why = error{errc::unavailable, "the model `" + one.is.name + "` was not loaded, as " + std::string(as), {}};
    one.now = state::unloaded;
    settle(one);
  }
  return {model, 0};
}

bool model_roster::settled(const wish& of) const {
  const auto& one = models_[of.model];
  if (of.load > 0)
    return one.loads >= of.load;
  return !one.leaves && one.now != state::leaving && one.now != state::unloading;
}

// -- uses -------------------------------------------------------------------------------------------------------------

void model_roster::end_use(std::size_t model, time now) {
  --models_[model].uses;
  models_[model].last_used = now;
}

void model_roster::keep(std::size_t model, std::optional<duration> how_long) { models_[model].stays_for = how_long; }

// -- what to do -------------------------------------------------------------------------------------------------------

/// From when it may leave for others.
model_roster::time model_roster::gives_way_at(const model& one) const {
  const auto served = one.loaded_at + std::min(serves_for * one.load_took, longest_stay);
  return is_busy(one) ? served : std::min(served, one.last_used + std::min(one.load_took, longest_stay));
}

/// Of those that may make room for others: first those that nobody uses, of them the first that may leave, of those that
/// may by now the one used longest ago.
std::optional<model_roster::leaver> model_roster::first_to_leave(time now) const {
  const auto rank = [&](const model& one) {
    return std::tuple(is_busy(one), std::max(gives_way_at(one), now), one.last_used);
  };
  std::optional<std::size_t> found;
  for (std::size_t i = 0; i < models_.size(); ++i)
    if (const auto& one = models_[i];
        one.now == state::ready && may_leave(one) && (!found || rank(one) < rank(models_[*found])))
      found = i;
  if (!found)
    return std::nullopt;
  return leaver{*found, gives_way_at(models_[*found])};
}

model_roster::time model_roster::room_needed_by() const {
  return *lacks_room_since_ + longest_wait_of(models_[queue_.front()].is);
}

std::optional<model_roster::room> model_roster::waits_for(std::size_t model) const {
  if (models_[model].now != state::queued || !lacks_room(model))
    return std::nullopt;
  for (std::size_t i = 0; i < models_.size(); ++i)
    if (goes(models_[i]))
      return room{i, {}};
  if (const auto first = first_to_leave({}))
    return room{first->model, first->at};
  return std::nullopt;
}

std::optional<model_roster::action> model_roster::start_unloading(std::size_t model) {
  models_[model].now = state::unloading;
  return action{action::kind::unload, model};
}

/// One model at a time, first those that nobody uses. One in use takes no new uses from now on: else a load would wait
/// for ever behind a model that is always busy.
std::optional<model_roster::action> model_roster::make_room(time now) {
  if (std::ranges::any_of(models_, [&](const model& one) { return goes(one); }))
    return std::nullopt;
  const auto first = first_to_leave(now);
  if (!first)
    lacks_room_ = false; // the last one has left by itself
  if (!first || first->at > now)
    return std::nullopt;
  if (!is_busy(models_[first->model]))
    return start_unloading(first->model);
  makes_room_ = first->model;
  models_[first->model].now = state::leaving;
  return std::nullopt;
}

void model_roster::refuse(std::size_t model, error why, time now) {
  auto& one = models_[model];
  if (queue_.front() == model)
    need_no_room();
  std::erase(queue_, model);
  settle(one);
  one.why = std::move(why);
  one.now = state::failed;
  if (one.comes_back)
    pause(one, now);
}

/// One that is due comes back by itself; nobody waits for another any more.
bool model_roster::refuse_behind_namesake(time now) {
  for (const auto model : queue_) {
    auto& one = models_[model];
    if (!one.unread_ended || !namesake_answers(model) ||
        now < *one.behind_since + longest_wait_of(one.is) + time_to_end)
      continue;
    one.comes_back = one.comes_back || one.is.is_due;
    refuse(model,
           {errc::overloaded,
            "the answers of the model whose place it takes did not end in " + seconds(now - *one.behind_since),
            {}},
           now);
    return true;
  }
  return false;
}

bool model_roster::refuse_late(time now) {
  if (refuse_behind_namesake(now))
    return true;
  if (queue_.empty() || !lacks_room(queue_.front()))
    return false;
  const auto model = queue_.front();
  const auto by = waits_for(model);
  if (!by || models_[by->by].now == state::unloading || (by->at && *by->at <= now) ||
      by->at.value_or(now) <= room_needed_by())
    return false;
  auto why = no_room_;
  why.code = errc::overloaded;
  why.message += "; the model `" + models_[by->by].is.name + "` ";
  if (by->at) {
    const std::chrono::duration<double, std::milli> waits = *by->at - now, late = *by->at - room_needed_by();
    why.wait_ms = waits.count();
    why.retry_ms = late.count();
    why.message += "makes room for it in " + seconds(*by->at - now) + ", and the server lets none wait for more than " +
      seconds(room_needed_by() - *lacks_room_since_) + " (--max-wait)";
  } else {
    why.message += "is to make room for it, but its answers did not end in " + seconds(now - *lacks_room_since_);
  }
  refuse(model, std::move(why), now);
  return true;
}

bool model_roster::waits_for_namesake(std::size_t model) const {
  for (std::size_t i = 0; i < models_.size(); ++i)
    if (const auto& other = models_[i]; !is_listed(i) && other.is.name == models_[model].is.name &&
        (is_there(other) || other.now == state::loading || other.now == state::unloading))
      return true;
  return false;
}

/// Those that load or unload go by themselves.
bool model_roster::namesake_answers(std::size_t model) const {
  for (std::size_t i = 0; i < models_.size(); ++i)
    if (const auto& other = models_[i]; !is_listed(i) && other.is.name == models_[model].is.name && is_there(other))
      return true;
  return false;
}

std::optional<model_roster::action> model_roster::next(time now) {
  for (std::size_t i = 0; i < models_.size(); ++i) {
    const auto& one = models_[i];
    if (one.now == state::failed && one.again && *one.again <= now)
      queue(i);
    if (is_busy(one))
      continue;
    const auto until = idle_until(i);
    if (one.now == state::leaving || (until && *until <= now))
      return start_unloading(i);
  }
  for (const auto model : queue_) {
    auto& one = models_[model];
    if (!namesake_answers(model))
      continue;
    one.behind_since = one.behind_since.value_or(now);
    if (now >= *one.behind_since + longest_wait_of(one.is) && !std::exchange(one.unread_ended, true))
      return action{action::kind::end_unread, model};
  }
  if (queue_.empty() || loading_)
    return std::nullopt;
  if (lacks_room_)
    if (const auto room = make_room(now); room || lacks_room_)
      return room;
  const auto first = std::ranges::find_if(queue_, [&](auto each) { return !waits_for_namesake(each); });
  if (first == queue_.end())
    return std::nullopt;
  const auto model = *first;
  queue_.erase(first);
  models_[model].now = state::loading;
  models_[model].load_began = now;
  loading_ = model;
  const auto could_leave = [&](const auto& one) { return is_there(one) && may_leave(one); };
  return action{action::kind::load, model, std::ranges::any_of(models_, could_leave)};
}

std::optional<model_roster::time> model_roster::wake_at() const {
  std::optional<time> first;
  const auto at = [&](time when) { first = std::min(first.value_or(when), when); };
  for (std::size_t i = 0; i < models_.size(); ++i) {
    const auto& one = models_[i];
    if (const auto until = idle_until(i); until && !is_busy(one))
      at(*until);
    if (one.now == state::failed && one.again)
      at(*one.again);
  }
  for (const auto model : queue_)
    if (const auto& one = models_[model]; one.behind_since && namesake_answers(model))
      at(*one.behind_since + longest_wait_of(one.is) + (one.unread_ended ? time_to_end : duration()));
  if (!queue_.empty())
    if (const auto by = waits_for(queue_.front()); by && models_[by->by].now != state::unloading)
      at(by->at.value_or(room_needed_by() + duration(1)));
  return first;
}

void model_roster::loaded(std::size_t model, time now) {
  auto& one = models_[model];
  loading_.reset();
  lacks_room_since_.reset();
  settle(one);
  one.why.reset();
  one.stays_for.reset();
  one.comes_back = false;
  one.loaded_at = one.last_used = now;
  one.load_took = whole(now - one.load_began);
  one.now = std::exchange(one.leaves, false) ? state::leaving : state::ready;
}

void model_roster::failed(std::size_t model, error why, time now) {
  auto& one = models_[model];
  loading_.reset();
  const auto would_go = [&](const auto& other) {
    return other.now == state::unloading || (is_there(other) && may_leave(other));
  };
  if (why.code == errc::out_of_memory && one.wishes > 0 && !one.leaves && std::ranges::any_of(models_, would_go)) {
    one.now = state::queued;
    queue_.push_front(model);
    lacks_room_ = true;
    lacks_room_since_ = lacks_room_since_.value_or(now);
    no_room_ = std::move(why);
    return;
  }
  lacks_room_since_.reset();
  settle(one);
  one.leaves = false;
  one.why = std::move(why);
  one.now = state::failed;
  if (one.comes_back)
    pause(one, now);
}

void model_roster::unloaded(std::size_t model, time now) {
  auto& one = models_[model];
  lacks_room_ = false; // it is tried again
  makes_room_.reset();
  one.now = std::exchange(one.dead, false) ? state::failed : state::unloaded;
  if (!is_listed(model)) {
    settle(one); // who waits finds that there is no such model
    return;
  }
  if (one.wishes > 0)
    queue(model);
  else if (one.comes_back)
    pause(one, now);
}

/// Before it is loaded again.
void model_roster::pause(model& one, time now) {
  one.pause = std::clamp(2 * one.pause, first_pause, longest_pause);
  one.again = now + one.pause;
}

void model_roster::died(std::size_t model, error why, time now) {
  auto& one = models_[model];
  if (!is_there(one))
    return;
  one.comes_back = is_listed(model) && (one.now == state::ready || makes_room_ == model);
  if (now - one.loaded_at >= a_while)
    one.pause = {};
  one.dead = true;
  one.why = std::move(why);
  one.now = state::leaving;
}

} // namespace troupe
