// The engines that a server serves, by the names of their models: `service` over one engine of the program's, or over
// several that it starts and ends itself, at the start or when a request names them (model_roster decides). Any thread.
#pragma once

#include "api/embed/engine.hpp"
#include "api/service/service.hpp"

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

struct engine_house; // engine_house.hpp

/// A model that a catalogue loads. Its name for clients is options.model_name; one model alone may have none, and is
/// called as its engine has it.
struct catalogue_model {
  engine_options options;
  std::vector<std::string> aliases = {};
  bool stays = false;     // loaded at the start, and unloaded by an operator only
  model_files files = {}; // that clients are told of while it is not loaded
  std::string asked = {}; // what its options were made from: where `list` finds another, it is another model
};

/// What another list of models has changed, by their names. One whose options are others is both removed and added.
struct catalogue_changes {
  std::vector<std::string> added = {}, removed = {};
  std::vector<std::string> renamed = {}; // other aliases, or whether it stays
  bool takes_a_restart = false;          // a server of one model alone stays that: nothing was changed
};

struct catalogue_rules {
  bool on_demand = false; // a request loads the model that it names; else all are loaded at the start
  std::optional<std::chrono::milliseconds> idle_unload = {}; // nobody having used one for so long; none: never
};

/// Functions of the program. They must not call the catalogue.
struct catalogue_hooks {
  /// The progress of a model's load, on its loader's thread, and what its engine says later.
  std::function<void(const std::string& name, const load_status&)> progress = {};
  /// A model that is loaded and not served yet; throws failure if it may not be. On a thread of the catalogue.
  std::function<void(const served_model&)> accept = {};
};

class catalogue final : public service {
public:
  /// Serves an engine that the program has started.
  explicit catalogue(engine only);
  /// Loads the models, one after another, in the background. Throws failure(bad_request) where two have one name.
  catalogue(std::vector<catalogue_model> models, catalogue_rules rules, catalogue_hooks hooks = {});
  /// Ends the engines that it has started.
  ~catalogue() override;

  /// From now on serves these, in this order. Those that are new are loaded in the background, unless only requests have
  /// them loaded; those that are no more end the requests that they have begun. Throws failure(bad_request) where two have
  /// one name, and failure(unavailable) after stop, with nothing changed.
  catalogue_changes list(std::vector<catalogue_model> models);
  /// Waits until the models of the start are loaded. Throws the failure of one that could not be, and
  /// failure(unavailable) after stop.
  void wait_until_started();
  /// Ends the engines that it has started, with an error for their requests. Nothing is loaded any more.
  void stop();

  service_status status() const override;
  std::vector<std::shared_ptr<const served_model>> models() const override;
  request_handle submit(generation request, event_sink sink) override;
  engine_stats stats() const override { return stats_of({}); }
  std::shared_ptr<const void> watch(step_sink sink) const override { return watch_model({}, std::move(sink)); }
  engine_snapshot look() const override { return look_at({}); }

  bool is_plural() const override;
  std::vector<known_model> known() const override;
  std::shared_ptr<const served_model> use(std::string_view name) override;
  std::shared_ptr<model_wait> load(std::string_view name, bool for_operator) override;
  std::shared_ptr<model_wait> unload(std::string_view name) override;
  void keep(std::string_view name, std::optional<std::chrono::milliseconds> how_long) override;
  engine_stats stats_of(std::string_view name) const override;
  engine_snapshot look_at(std::string_view name) const override;
  std::shared_ptr<const void> watch_model(std::string_view name, step_sink sink) const override;

private:
  const std::shared_ptr<engine_house> house_; // shared with what outlives a call: uses and wishes
};

} // namespace troupe
