// The interface between servers and whatever serves models: catalogue/catalogue implements it with engines, tests with a
// script. Free of CAF. All members may be called from any thread.
#pragma once

#include "api/service/served_model.hpp"
#include "runtime/engine/engine_snapshot.hpp"
#include "runtime/engine/engine_stats.hpp"
#include "runtime/engine/generation.hpp"
#include "runtime/engine/request_handle.hpp"
#include "runtime/import/local_models.hpp"
#include "runtime/scheduling/step_record.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

struct service_status {
  bool ready = false;
  std::string state; // loading, ready, failed or stopped
  std::size_t done_bytes = 0, total_bytes = 0;
  std::string line;          // for a person
  std::string degraded = {}; // if ready: why not all of it serves; mostly empty
};

/// A model that a service knows, loaded or not.
struct known_model {
  enum class state : std::uint8_t { unloaded, waiting, loading, ready, unloading, failed };

  std::string name = {};
  std::vector<std::string> aliases = {}; // other names that clients may give
  state now = state::ready;
  std::string line = {};                                           // how far it is, or why it failed
  std::size_t done_bytes = 0, total_bytes = 0;                     // of weights, while it is loaded
  bool stays = true;                                               // nothing but an operator unloads it
  std::optional<std::chrono::system_clock::time_point> until = {}; // it is unloaded if nobody uses it; none: it is not
  std::shared_ptr<const served_model> model = {};                  // if it is ready
  model_files files = {};                                          // where it is loaded only when it is wanted

  /// Whether nobody has it loaded, and nobody waits for that.
  bool is_away() const { return now == state::unloaded || now == state::failed; }
};

/// The wish that a model be loaded, or unloaded. It counts while this lives: whoever leaves takes it back.
class model_wait {
public:
  struct progress {
    bool over = false;
    std::optional<error> why_not = {}; // if it is over, and not as wished
    std::string line = {};             // how far it is, for a person
  };

  virtual ~model_wait() = default;
  /// Must return at once. Any thread.
  virtual progress look() = 0;
};

class service {
public:
  using event_sink = troupe::event_sink;

  virtual ~service() = default;
  /// Must return at once.
  virtual service_status status() const = 0;
  /// The loaded models, first the one of requests that name none. Must return at once.
  virtual std::vector<std::shared_ptr<const served_model>> models() const = 0;
  /// To the engine of generation::model; empty: the first. Must return at once. Events arrive in order, on any thread,
  /// possibly before this returns; the last one is a done_event or an error. Throws bad_alloc if the request could not
  /// be submitted.
  virtual request_handle submit(generation request, event_sink sink) = 0;
  /// May block briefly. Throws failure(unavailable) while there is no model.
  virtual engine_stats stats() const = 0;

  /// Calls `sink` with a record of each step, on any thread, until the result is dropped; it must return at once. Null:
  /// there are no records.
  virtual std::shared_ptr<const void> watch(step_sink) const { return nullptr; }
  /// What the engine is doing now, for those who watch it. May block briefly. Throws failure(unavailable).
  virtual engine_snapshot look() const { return {}; }

  /// The model by this name, which may be a variant's or end in `:latest`, as Ollama's clients have it; empty: the
  /// first. Null: none that is loaded.
  std::shared_ptr<const served_model> find(std::string_view name) const;

  // Services with several models, or whose models come and go:

  /// Whether this is one: then lists tell states, and metrics have the label `model`.
  virtual bool is_plural() const { return false; }
  /// All that it knows, first the one of requests that name none. Must return at once.
  virtual std::vector<known_model> known() const;
  /// Like find, but the model stays loaded while somebody holds the result.
  virtual std::shared_ptr<const served_model> use(std::string_view name) { return find(name); }
  /// Has a model loaded: for a request that names it, or because an operator says so. Must return at once. Throws
  /// failure(not_found) naming those there are, failure(unavailable) if requests may not have models loaded.
  virtual std::shared_ptr<model_wait> load(std::string_view name, bool for_operator);
  /// Has a model unloaded, once nobody uses it. Must return at once. Throws failure(not_found).
  virtual std::shared_ptr<model_wait> unload(std::string_view name);
  /// How long the model stays loaded once nobody uses it; below 0: for good; none: as usual. Until the next request.
  virtual void keep(std::string_view, std::optional<std::chrono::milliseconds>) {}
  /// stats, look and watch for one model, by its name. Throw failure(unavailable) if it is not loaded.
  virtual engine_stats stats_of(std::string_view) const { return stats(); }
  virtual engine_snapshot look_at(std::string_view) const { return look(); }
  virtual std::shared_ptr<const void> watch_model(std::string_view, step_sink sink) const {
    return watch(std::move(sink));
  }
};

/// Whether the name is the model's: its own, another of its names, or with `:latest` behind, as Ollama's clients have it.
bool is_name_of(const served_model& model, std::string_view name);
/// The same for one that may not be loaded.
bool is_name_of(const known_model& model, std::string_view name);

/// "`a`, `b` and `c`", at most a few.
std::string listed_names(const std::vector<known_model>& models);

} // namespace troupe
