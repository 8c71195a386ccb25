#include "api/catalogue/engine_house.hpp"

#include "runtime/techniques/model_variants.hpp"

#include <algorithm>

namespace troupe {

namespace {

using state = model_roster::state;

model_roster::listed listed_as(const catalogue_model& model, const catalogue_rules& by) {
  return {model.options.model_name, model.aliases, model.stays, model.options.max_wait, !by.on_demand || model.stays};
}

std::vector<model_roster::listed> listed_of(const std::vector<catalogue_model>& models, const catalogue_rules& by) {
  std::vector<model_roster::listed> all;
  for (const auto& each : models)
    all.push_back(listed_as(each, by));
  return all;
}

std::string seconds_until(model_roster::time when) {
  const auto left = std::chrono::ceil<std::chrono::seconds>(when - std::chrono::steady_clock::now());
  return std::to_string(std::max<std::int64_t>(1, left.count())) + " s";
}

} // namespace

engine_house::engine_house(engine only) : roster({{}}, {}), is_given(true) {
  residents.resize(1);
  residents.front().running = std::move(only);
}

engine_house::engine_house(std::vector<catalogue_model> models, catalogue_rules given, catalogue_hooks functions)
  : roster(listed_of(models, given), given.idle_unload),
    rules(given),
    hooks(std::move(functions)),
    is_plural(models.size() > 1 || given.on_demand) {
  residents.resize(models.size());
  for (std::size_t i = 0; i < models.size(); ++i) {
    residents[i].options = std::move(models[i].options);
    residents[i].asked = std::move(models[i].asked);
    residents[i].files = std::move(models[i].files);
    if (roster.entry(i).is_due)
      residents[i].start = roster.want(i);
    residents[i].at_start = residents[i].start.has_value();
  }
}

catalogue_changes engine_house::list(std::vector<catalogue_model> models) {
  const lock held(mutex);
  if (stopping)
    throw failure(errc::unavailable, "the server is stopping");
  std::vector<std::pair<std::optional<std::size_t>, model_roster::listed>> all;
  for (const auto& each : models) {
    const auto is_it = [&](std::size_t i) {
      return roster.entry(i).name == each.options.model_name && residents[i].asked == each.asked;
    };
    const auto found = std::ranges::find_if(roster.all(), is_it);
    all.emplace_back(found == roster.all().end() ? std::nullopt : std::optional(*found), listed_as(each, rules));
  }
  catalogue_changes changes;
  if (!is_plural && (all.size() != 1 || !all.front().first)) {
    changes.takes_a_restart = true;
    return changes;
  }
  const auto before = roster.all();
  std::map<std::size_t, model_roster::listed> were;
  for (const auto i : before)
    were[i] = roster.entry(i);
  roster.list(std::move(all));
  for (std::size_t at = 0; at < models.size(); ++at) {
    const auto i = roster.all()[at];
    const auto was = were.find(i);
    const bool is_new = was == were.end();
    const auto& is = roster.entry(i);
    if (is_new) {
      auto& made = residents.emplace_back();
      made.options = std::move(models[at].options);
      made.asked = std::move(models[at].asked);
      made.files = std::move(models[at].files);
      changes.added.push_back(is.name);
    } else if (was->second.aliases != is.aliases || was->second.stays != is.stays) {
      describe_again(i);
      changes.renamed.push_back(is.name);
    }
    const bool is_missing = is_new || roster.now(i) == state::failed || (is.stays && !was->second.stays);
    if (is.is_due && is_missing && !residents[i].start) {
      residents[i].start = roster.want(i);
      residents[i].at_start = false;
    }
  }
  for (const auto i : before)
    if (!roster.is_listed(i))
      changes.removed.push_back(roster.entry(i).name);
  for (auto& [_, each] : watchers) // of one that was replaced
    if (const auto next = roster.find(roster.entry(each.model).name); next && !roster.is_listed(each.model)) {
      each.model = *next;
      each.by_engine = nullptr;
      if (const auto& of = residents[*next]; of.model)
        connect_watchers(*next, &*of.running);
    }
  changed.notify_all();
  return changes;
}

// -- with the mutex held ----------------------------------------------------------------------------------------------

bool engine_house::is_there(std::size_t model) const {
  return is_given || roster.now(model) == state::ready || roster.now(model) == state::leaving;
}

bool engine_house::has_started() const {
  return std::ranges::none_of(residents, [](const resident& r) { return r.at_start && r.start.has_value(); });
}

std::string engine_house::name_of(std::size_t model) const {
  const auto& named = roster.entry(model).name;
  return named.empty() && residents[model].model ? residents[model].model->id : named;
}

std::shared_ptr<const served_model> engine_house::model_of(std::size_t model) {
  auto& one = residents[model];
  if (is_given && !one.model) // made on first use
    if (const auto loaded = one.running->model())
      one.model = std::make_shared<const served_model>(*loaded);
  return one.model;
}

/// Writes what the roster says of a model into what is known of it.
void engine_house::describe(std::size_t model, served_model& it) const {
  it.aliases = roster.entry(model).aliases;
  it.leaves = rules.on_demand && !roster.entry(model).stays;
}

/// The same for one that is loaded.
void engine_house::describe_again(std::size_t model) {
  auto& one = residents[model];
  if (!one.model)
    return;
  auto made = std::make_shared<served_model>(*one.model);
  describe(model, *made);
  one.model = std::move(made);
}

std::optional<std::size_t> engine_house::find_of(const std::vector<std::size_t>& models, std::string_view name) {
  for (const auto i : models)
    if (const auto one = model_of(i);
        one && (is_name_of(*one, name) || variants_with(one->techniques, std::string(name))))
      return i;
  return std::nullopt;
}

std::optional<std::size_t> engine_house::find(std::string_view name) {
  if (const auto found = roster.find(name))
    return found;
  return find_of(roster.all(), name);
}

std::optional<std::size_t> engine_house::find_there(std::string_view name) {
  for (std::size_t i = 0; i < residents.size(); ++i) // ahead of another that is called so since
    if (is_there(i) && roster.entry(i).name == name)
      return i;
  const auto found = find(name);
  if (found && is_there(*found))
    return found;
  std::vector<std::size_t> gone;
  for (std::size_t i = 0; i < residents.size(); ++i)
    if (!roster.is_listed(i) && is_there(i))
      gone.push_back(i);
  return find_of(gone, name);
}

std::size_t engine_house::find_or_refuse(std::string_view name) {
  if (const auto found = find(name))
    return *found;
  std::vector<known_model> all;
  for (const auto i : roster.all())
    all.emplace_back().name = name_of(i);
  throw failure(errc::not_found,
                "the model `" + std::string(name) + "` does not exist; this server has " + listed_names(all), "model");
}

void engine_house::check_may_be_loaded(std::size_t model) const {
  if (rules.on_demand || roster.now(model) == state::ready || roster.now(model) == state::queued ||
      roster.now(model) == state::loading)
    return;
  const auto& why = roster.why(model);
  throw failure(errc::unavailable,
                "the model `" + name_of(model) + "` is not loaded" + (why ? ": " + why->message : std::string()) +
                  "; " +
                  (roster.comes_back(model) ? again_of(model) : "this server loads none on demand (--load-on-demand)"),
                "model");
}

std::string engine_house::again_of(std::size_t model) const {
  const auto at = roster.again_at(model);
  return "it is loaded again by itself" + (at ? " in " + seconds_until(*at) : std::string());
}

std::string engine_house::line_of(std::size_t model) const {
  const auto name = '`' + name_of(model) + '`';
  switch (roster.now(model)) {
    case state::queued:
      if (const auto room = roster.waits_for(model))
        return name + " waits for memory: `" + name_of(room->by) + "` makes room for it " +
          (room->at ? "in " + seconds_until(*room->at) : "when its last answer has ended");
      if (roster.waits_for_namesake(model))
        return name + " waits for the answers of the model whose place it takes";
      return name + " waits to be loaded";
    case state::loading: {
      const auto& status = residents[model].status;
      return "loading " + name +
        (status.total_bytes > 0 ? ", " + std::to_string(100 * status.done_bytes / status.total_bytes) + " %" : "");
    }
    case state::leaving:
    case state::unloading: return name + " is being unloaded";
    case state::failed:
      return roster.why(model)->message + (roster.comes_back(model) ? "; " + again_of(model) : std::string());
    default: return {};
  }
}

error engine_house::refusal_of(std::size_t model) const {
  auto why = *roster.why(model);
  why.code = why.code == errc::overloaded ? errc::overloaded : errc::unavailable;
  why.message = "the model `" + name_of(model) + "` could not be loaded: " + why.message;
  why.param = "model";
  return why;
}

service_status engine_house::whole_status() const {
  service_status all{true, "ready", 0, 0, {}};
  if (stopping)
    return {false, "stopped", 0, 0, {}};
  std::size_t failed = 0;
  for (const auto i : roster.all()) {
    const auto& one = residents[i];
    if (one.start && one.at_start) {
      all.ready = false;
      all.state = "loading";
      all.done_bytes += one.status.done_bytes;
      all.total_bytes += one.status.total_bytes;
      if (roster.now(i) == state::loading)
        all.line = one.status.line;
      continue;
    }
    const bool is_lost = roster.now(i) == state::failed || (roster.comes_back(i) && !is_there(i));
    const auto why = is_lost && roster.why(i)       ? "`" + name_of(i) + "`: " + roster.why(i)->message
      : is_there(i) && !one.status.degraded.empty() ? "`" + name_of(i) + "`: " + one.status.degraded
                                                    : std::string();
    failed += roster.now(i) == state::failed;
    if (!why.empty())
      all.degraded += (all.degraded.empty() ? "" : "; ") + why;
  }
  if (all.ready && failed == roster.all().size())
    return {false, "failed", 0, 0, all.degraded};
  return all;
}

// -- calls ------------------------------------------------------------------------------------------------------------

std::pair<std::size_t, std::optional<engine>> engine_house::begin_call(std::string_view name) {
  const lock held(mutex);
  const auto runs = [&](std::size_t i) { return residents[i].running.has_value(); };
  const auto first = std::ranges::find_if(roster.all(), runs);
  const auto found = !name.empty() ? find(name) : first != roster.all().end() ? std::optional(*first) : std::nullopt;
  if (!found || !runs(*found))
    throw failure(errc::unavailable, name.empty() ? "no model is loaded" : "the model is not loaded", "model");
  ++residents[*found].calls;
  return {*found, residents[*found].running};
}

std::pair<std::size_t, std::optional<engine>> engine_house::begin_call(std::size_t model) {
  const lock held(mutex);
  if (!residents[model].running)
    throw failure(errc::unavailable, "the model is not loaded", "model");
  ++residents[model].calls;
  return {model, residents[model].running};
}

void engine_house::end_call(std::size_t model) {
  const lock held(mutex);
  --residents[model].calls;
  changed.notify_all();
}

std::shared_ptr<const void> engine_house::watch(std::string_view name, step_sink sink) {
  const lock held(mutex);
  if (!is_plural && !name.empty())
    find_or_refuse(name);
  if (!is_plural)
    return residents.front().running ? residents.front().running->watch(std::move(sink)) : nullptr;
  watcher made;
  const auto there = std::ranges::find_if(roster.all(), [&](std::size_t i) { return residents[i].model != nullptr; });
  made.model = !name.empty() ? find_or_refuse(name) : there == roster.all().end() ? roster.all().front() : *there;
  made.sink = std::make_shared<const step_sink>(std::move(sink));
  const auto number = ++last_watcher_;
  const auto model = watchers.emplace(number, std::move(made)).first->second.model;
  if (const auto& of = residents[model]; of.model)
    connect_watchers(model, &*of.running);
  return std::shared_ptr<const void>(this, [house = shared_from_this(), number](const void*) {
    const lock at_end(house->mutex);
    house->watchers.erase(number);
  });
}

void engine_house::connect_watchers(std::size_t model, const engine* to) {
  for (auto& [number, each] : watchers)
    if (each.model == model && bool(each.by_engine) != bool(to))
      each.by_engine = to ? to->watch([sink = each.sink](const auto& record) { (*sink)(record); }) : nullptr;
}

} // namespace troupe
