#include "api/catalogue/model_roster.hpp"

#include <algorithm>
#include <map>
#include <utility>

namespace troupe {

namespace {

constexpr std::string_view latest = ":latest"; // behind names of Ollama's clients

bool is_called(const model_roster::listed& model, std::string_view name) {
  return model.name == name || std::ranges::find(model.aliases, name) != model.aliases.end();
}

} // namespace

model_roster::model_roster(std::vector<listed> models, std::optional<duration> usually) : usually_(usually) {
  std::map<std::string, std::string> names; // whose they are
  const auto take = [&](const std::string& name, const listed& by) {
    const auto [at, is_new] = names.emplace(name, by.name);
    if (!is_new)
      throw failure(errc::bad_request,
                    "two models would be called `" + name +
                      "`: " + (at->second == by.name ? "both" : "`" + at->second + "` and `" + by.name + "`") +
                      "; give each a name of its own, as NAME=PATH");
  };
  for (const auto& each : models) {
    if (each.name.empty() && models.size() > 1)
      throw failure(errc::bad_request, "each of several models needs a name");
    take(each.name, each);
    for (const auto& alias : each.aliases)
      take(alias, each);
  }
  for (auto& each : models)
    models_.push_back({std::move(each)});
}

std::optional<std::size_t> model_roster::find(std::string_view name) const {
  if (name.empty() && !models_.empty())
    return 0;
  const auto look = [&](std::string_view of) -> std::optional<std::size_t> {
    for (std::size_t i = 0; i < models_.size(); ++i)
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
  queue_.push_back(model);
}

/// The load that lacked room is given up: a busy model that would have left for it stays.
void model_roster::need_no_room() {
  lacks_room_ = false;
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
  std::erase(queue_, of.model);
  one.now = one.why ? state::failed : state::unloaded;
}

model_roster::wish model_roster::unload(std::size_t model) {
  auto& one = models_[model];
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
    one.why = error{
      errc::unavailable, "the model `" + one.is.name + "` was not loaded, as an operator unloaded it", {}};
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

/// The one used longest ago of those that may make room for others.
std::optional<std::size_t> model_roster::least_recent(bool idle) const {
  std::optional<std::size_t> found;
  for (std::size_t i = 0; i < models_.size(); ++i) {
    const auto& one = models_[i];
    if (one.now == state::ready && may_leave(one) && !(idle && is_busy(one)) &&
        (!found || one.last_used < models_[*found].last_used))
      found = i;
  }
  return found;
}

std::optional<model_roster::action> model_roster::start_unloading(std::size_t model) {
  models_[model].now = state::unloading;
  return action{action::kind::unload, model};
}

/// One model at a time, first those that nobody uses. One in use takes no new uses from now on: else a load would wait
/// for ever behind a model that is always busy.
std::optional<model_roster::action> model_roster::make_room() {
  const auto goes = [](const model& one) { return one.now == state::leaving || one.now == state::unloading; };
  if (std::ranges::any_of(models_, goes))
    return std::nullopt;
  if (const auto idle = least_recent(true))
    return start_unloading(*idle);
  makes_room_ = least_recent(false);
  if (makes_room_)
    models_[*makes_room_].now = state::leaving;
  else
    lacks_room_ = false; // the last one has left by itself
  return std::nullopt;
}

std::optional<model_roster::action> model_roster::next(time now) {
  for (std::size_t i = 0; i < models_.size(); ++i) {
    const auto& one = models_[i];
    if (is_busy(one))
      continue;
    const auto until = idle_until(i);
    if (one.now == state::leaving || (until && *until <= now))
      return start_unloading(i);
  }
  if (queue_.empty() || loading_)
    return std::nullopt;
  if (lacks_room_)
    if (const auto room = make_room(); room || lacks_room_)
      return room;
  const auto model = queue_.front();
  queue_.pop_front();
  models_[model].now = state::loading;
  loading_ = model;
  const auto could_leave = [&](const auto& one) { return is_there(one) && may_leave(one); };
  return action{action::kind::load, model, std::ranges::any_of(models_, could_leave)};
}

std::optional<model_roster::time> model_roster::wake_at() const {
  std::optional<time> first;
  for (std::size_t i = 0; i < models_.size(); ++i)
    if (const auto until = idle_until(i); until && !is_busy(models_[i]) && (!first || *until < *first))
      first = until;
  return first;
}

void model_roster::loaded(std::size_t model, time now) {
  auto& one = models_[model];
  loading_.reset();
  settle(one);
  one.why.reset();
  one.stays_for.reset();
  one.last_used = now;
  one.now = std::exchange(one.leaves, false) ? state::leaving : state::ready;
}

void model_roster::failed(std::size_t model, error why) {
  auto& one = models_[model];
  loading_.reset();
  const auto goes = [&](const auto& other) {
    return other.now == state::unloading || (is_there(other) && may_leave(other));
  };
  if (why.code == errc::out_of_memory && one.wishes > 0 && !one.leaves && std::ranges::any_of(models_, goes)) {
    one.now = state::queued;
    queue_.push_front(model);
    lacks_room_ = true;
    return;
  }
  settle(one);
  one.leaves = false;
  one.why = std::move(why);
  one.now = state::failed;
}

void model_roster::unloaded(std::size_t model) {
  auto& one = models_[model];
  lacks_room_ = false; // it is tried again
  makes_room_.reset();
  one.now = std::exchange(one.dead, false) ? state::failed : state::unloaded;
  if (one.wishes > 0)
    queue(model);
}

void model_roster::died(std::size_t model, error why) {
  auto& one = models_[model];
  if (!is_there(one))
    return;
  one.dead = true;
  one.why = std::move(why);
  one.now = state::leaving;
}

} // namespace troupe
