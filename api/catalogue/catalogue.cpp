#include "api/catalogue/catalogue.hpp"

#include "api/catalogue/engine_house.hpp"
#include "api/catalogue/used_request.hpp"

#include <algorithm>
#include <utility>

namespace troupe {

namespace {

class waiting_wish final : public model_wait {
public:
  waiting_wish(std::shared_ptr<engine_house> of, model_roster::wish wish) : house_(std::move(of)), wish_(wish) {}
  waiting_wish(const waiting_wish&) = delete;
  waiting_wish& operator=(const waiting_wish&) = delete;
  ~waiting_wish() override {
    const std::lock_guard lock(house_->mutex);
    house_->roster.leave(wish_);
    house_->changed.notify_all();
  }

  progress look() override {
    const std::lock_guard lock(house_->mutex);
    const auto& roster = house_->roster;
    if (house_->stopping)
      return {true, error{errc::unavailable, "the server is stopping", {}}, {}};
    if (!roster.settled(wish_))
      return {false, {}, house_->line_of(wish_.model)};
    if (wish_.load > 0 && !house_->is_there(wish_.model) && roster.why(wish_.model))
      return {true, house_->refusal_of(wish_.model), {}};
    return {true, {}, {}};
  }

private:
  const std::shared_ptr<engine_house> house_;
  const model_roster::wish wish_;
};

bool was_cancelled(const event& e) {
  const auto* done = std::get_if<done_event>(&e);
  return done &&
    std::ranges::any_of(done->choices, [](const auto& one) { return one.reason == finish_reason::cancelled; });
}

service_status status_of(const load_status& now) {
  using stage = load_status::stage;
  service_status status{now.now == stage::ready, "", now.done_bytes, now.total_bytes,
                        now.why ? now.why->message : now.line};
  switch (now.now) {
    case stage::loading: status.state = "loading"; break;
    case stage::ready: status.state = "ready"; break;
    case stage::failed: status.state = "failed"; break;
    case stage::stopped: status.state = "stopped"; break;
  }
  status.degraded = now.degraded;
  return status;
}

known_model::state public_state(model_roster::state now) {
  using state = model_roster::state;
  switch (now) {
    case state::unloaded: return known_model::state::unloaded;
    case state::queued: return known_model::state::waiting;
    case state::loading: return known_model::state::loading;
    case state::ready: return known_model::state::ready;
    case state::leaving:
    case state::unloading: return known_model::state::unloading;
    case state::failed: return known_model::state::failed;
  }
  return known_model::state::failed;
}

} // namespace

catalogue::catalogue(engine only) : house_(std::make_shared<engine_house>(std::move(only))) {}

catalogue::catalogue(std::vector<catalogue_model> models, catalogue_rules rules, catalogue_hooks hooks)
  : house_(std::make_shared<engine_house>(std::move(models), rules, std::move(hooks))) {
  house_->open();
}

catalogue::~catalogue() { house_->close(); }

void catalogue::stop() { house_->close(); }

catalogue_changes catalogue::list(std::vector<catalogue_model> models) { return house_->list(std::move(models)); }

void catalogue::wait_until_started() {
  std::unique_lock lock(house_->mutex);
  house_->changed.wait(lock, [&] { return house_->stopping || house_->has_started(); });
  if (house_->stopping)
    throw failure(errc::unavailable, "the engine was stopped");
  const auto& roster = house_->roster;
  for (const auto i : roster.all()) // one that died meanwhile is loaded again by itself
    if (house_->residents[i].at_start && roster.now(i) == model_roster::state::failed && !roster.comes_back(i))
      throw failure(roster.why(i)->code, roster.why(i)->message, roster.why(i)->param);
}

service_status catalogue::status() const {
  const std::lock_guard lock(house_->mutex);
  if (!is_plural()) {
    const auto& only = house_->residents.front();
    if (house_->stopping && !house_->is_given)
      return {false, "stopped", 0, 0, {}};
    if (!only.running) {
      const auto& why = house_->roster.why(0);
      return {false, why ? "failed" : "loading", 0, 0, why ? why->message : std::string()};
    }
    auto status = status_of(only.running->status());
    if (status.ready && !house_->model_of(0)) { // it is about to be served
      status.ready = false;
      status.state = "loading";
    }
    return status;
  }
  return house_->whole_status();
}

std::vector<std::shared_ptr<const served_model>> catalogue::models() const {
  const std::lock_guard lock(house_->mutex);
  std::vector<std::shared_ptr<const served_model>> all;
  for (const auto i : house_->roster.all())
    if (auto one = house_->model_of(i))
      all.push_back(std::move(one));
  return all;
}

request_handle catalogue::submit(generation request, event_sink sink) {
  const auto refuse = [&](errc code, const std::string& why) {
    sink(error{code, why, "model"});
    return request_handle();
  };
  std::unique_lock lock(house_->mutex);
  if (!is_plural()) {
    const auto is_known = house_->find(request.model).has_value();
    const auto only = house_->residents.front().running;
    const bool is_served = house_->model_of(0) != nullptr;
    lock.unlock();
    if (!is_known && is_served)
      return refuse(errc::not_found, "the model `" + request.model + "` is not served any more");
    if (!only)
      return refuse(errc::unavailable, "the model `" + request.model + "` is not loaded");
    return only->submit(std::move(request), std::move(sink));
  }
  const auto found = house_->find_there(request.model);
  const bool is_known = found || house_->find(request.model);
  std::shared_ptr<used_request> its;
  if (found) {
    its = std::make_shared<used_request>(house_, *found); // before the use that it ends
    house_->roster.begin_use(*found);
  }
  lock.unlock();
  if (!found)
    return is_known ? refuse(errc::unavailable, "the model `" + request.model + "` is not loaded")
                    : refuse(errc::not_found, "the model `" + request.model + "` is not served any more");
  try {
    return house_->with_engine(*found, [&](const engine& running) {
      auto heard = [its, next = std::move(sink)](event e) {
        if (!std::holds_alternative<token_event>(e)) { // before the client sees the event
          const auto cut = its->end();
          if (cut && was_cancelled(e))
            e = *cut;
        }
        next(std::move(e));
      };
      its->submitted(running.submit(std::move(request), std::move(heard)));
      return request_handle(its);
    });
  } catch (const failure& f) { // its engine has just ended
    return refuse(f.what_failed().code, f.what_failed().message);
  }
}

bool catalogue::is_plural() const { return house_->is_plural; }

std::vector<known_model> catalogue::known() const {
  const std::lock_guard lock(house_->mutex);
  std::vector<known_model> all;
  const auto now = std::chrono::steady_clock::now();
  for (const auto i : house_->roster.all()) {
    const auto& each = house_->residents[i];
    known_model one;
    one.model = house_->model_of(i);
    one.name = house_->name_of(i);
    one.aliases = house_->roster.entry(i).aliases;
    one.stays = !house_->is_plural || house_->roster.entry(i).stays;
    one.now = !house_->is_given ? public_state(house_->roster.now(i))
      : one.model               ? known_model::state::ready
                                : known_model::state::loading;
    one.line = house_->line_of(i);
    one.files = each.files;
    if (one.now == known_model::state::loading) {
      one.done_bytes = each.status.done_bytes;
      one.total_bytes = each.status.total_bytes;
    }
    if (const auto until = house_->roster.idle_until(i))
      one.until = std::chrono::system_clock::now() +
        std::chrono::duration_cast<std::chrono::system_clock::duration>(std::max(*until, now) - now);
    all.push_back(std::move(one));
  }
  return all;
}

std::shared_ptr<const served_model> catalogue::use(std::string_view name) {
  if (!is_plural())
    return find(name);
  std::unique_lock lock(house_->mutex);
  const auto found = house_->find(name);
  if (!found || house_->roster.now(*found) != model_roster::state::ready)
    return nullptr;
  auto model = house_->model_of(*found);
  house_->roster.begin_use(*found);
  lock.unlock();
  const auto use = std::make_shared<const use_of_model>(house_, *found, std::move(model));
  return {use, use->served.get()};
}

std::shared_ptr<model_wait> catalogue::load(std::string_view name, bool for_operator) {
  std::unique_lock lock(house_->mutex);
  const auto model = house_->find_or_refuse(name);
  if (!for_operator)
    house_->check_may_be_loaded(model);
  const auto wish = house_->roster.want(model);
  house_->changed.notify_all();
  lock.unlock();
  return std::make_shared<waiting_wish>(house_, wish);
}

std::shared_ptr<model_wait> catalogue::unload(std::string_view name) {
  std::unique_lock lock(house_->mutex);
  const auto wish = house_->roster.unload(house_->find_or_refuse(name));
  house_->changed.notify_all();
  lock.unlock();
  return std::make_shared<waiting_wish>(house_, wish);
}

void catalogue::keep(std::string_view name, std::optional<std::chrono::milliseconds> how_long) {
  if (!house_->rules.on_demand)
    return; // nobody could load it again
  const std::lock_guard lock(house_->mutex);
  if (const auto model = house_->find(name)) {
    house_->roster.keep(*model, how_long);
    house_->changed.notify_all();
  }
}

engine_stats catalogue::stats_of(std::string_view name) const {
  return house_->with_engine(name, [](const engine& one) { return one.stats(); });
}

engine_snapshot catalogue::look_at(std::string_view name) const {
  return house_->with_engine(name, [](const engine& one) { return one.look(); });
}

std::shared_ptr<const void> catalogue::watch_model(std::string_view name, step_sink sink) const {
  return house_->watch(name, std::move(sink));
}

} // namespace troupe
