// The engines of a catalogue, behind one mutex: a thread of its own, the keeper, starts and ends them as model_roster
// says. Loads run on the engines' threads, and each unload on one of its own, so that the keeper waits for neither.
#pragma once

#include "api/catalogue/catalogue.hpp"
#include "api/catalogue/model_roster.hpp"

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace troupe {

class used_request;

struct engine_house : std::enable_shared_from_this<engine_house> {
  /// A request whose reader is slow.
  struct unread_request {
    std::weak_ptr<used_request> which = {};
    std::chrono::steady_clock::time_point since = {};
  };

  struct resident {
    engine_options options = {};
    std::string asked = {};
    model_files files = {};
    std::optional<engine> running = {};
    std::shared_ptr<const served_model> model = {}; // once it is accepted
    load_status status = {};                        // as its engine told last
    bool told = false;                              // something that the keeper must see
    std::uint64_t run = 0;                          // number of the engine
    bool at_start = false;                          // it is loaded when the server starts
    std::optional<model_roster::wish> start = {};   // until it has been
    int calls = 0;                                  // that have a copy of `running`
    std::map<const used_request*, unread_request> unread = {};
    std::jthread ends = {};
  };

  /// Someone who watches a model's steps, through one engine after another.
  struct watcher {
    std::size_t model = 0;
    std::shared_ptr<const step_sink> sink = {};
    std::shared_ptr<const void> by_engine = {}; // null while it is not loaded
  };

  explicit engine_house(engine only);
  engine_house(std::vector<catalogue_model> models, catalogue_rules given, catalogue_hooks functions);

  void open();
  void close();
  catalogue_changes list(std::vector<catalogue_model> models);

  // All of these are called with `mutex` held:
  bool is_there(std::size_t model) const;
  bool has_started() const;
  std::string name_of(std::size_t model) const;
  /// Null: it is not served now.
  std::shared_ptr<const served_model> model_of(std::size_t model);
  std::optional<std::size_t> find(std::string_view name);
  /// The same for one that is there, also if it is not listed any more and ends its last requests.
  std::optional<std::size_t> find_there(std::string_view name);
  /// Throws failure(not_found) with all names.
  std::size_t find_or_refuse(std::string_view name);
  /// Throws failure(unavailable) if a request may not have it loaded.
  void check_may_be_loaded(std::size_t model) const;
  /// How far it is, or why it failed, for a person.
  std::string line_of(std::size_t model) const;
  /// When it is loaded again by itself, for a person.
  std::string again_of(std::size_t model) const;
  /// Why it could not be loaded.
  error refusal_of(std::size_t model) const;
  service_status whole_status() const;

  // And these without:
  /// Calls `ask` with the engine of a model, by its number or name; empty: the first that runs. Throws
  /// failure(unavailable).
  template <class Ask>
  auto with_engine(const auto& which, const Ask& ask) {
    struct one_call {
      engine_house& house;
      std::pair<std::size_t, std::optional<engine>> of;
      ~one_call() {
        of.second.reset(); // or it could be the engine's last copy
        house.end_call(of.first);
      }
    } const call{*this, begin_call(which)};
    return ask(*call.of.second);
  }
  void end_call(std::size_t model);
  std::shared_ptr<const void> watch(std::string_view name, step_sink sink);

  std::mutex mutex;
  std::condition_variable changed; // anything below
  model_roster roster;
  std::deque<resident> residents; // by the roster's numbers; references last
  std::map<std::uint64_t, watcher> watchers;
  const catalogue_rules rules = {};
  const catalogue_hooks hooks = {};
  const bool is_given = false; // one engine, of the program
  const bool is_plural = false;
  bool stopping = false;

private:
  using lock = std::unique_lock<std::mutex>;

  std::pair<std::size_t, std::optional<engine>> begin_call(std::string_view name);
  std::pair<std::size_t, std::optional<engine>> begin_call(std::size_t model);
  std::optional<std::size_t> find_of(const std::vector<std::size_t>& models, std::string_view name);
  void describe(std::size_t model, served_model& it) const;
  void describe_again(std::size_t model);
  void keep_house();
  void see_told(lock& held);
  void accept(lock& held, std::size_t model);
  void give_up(lock& held, std::size_t model, error why);
  void load(lock& held, const model_roster::action& what);
  void unload(lock& held, std::size_t model);
  void end_unread(lock& held, std::size_t for_model);
  void end_engine(std::size_t model);
  void connect_watchers(std::size_t model, const engine* to);
  void heard(std::size_t model, std::uint64_t run, const load_status& status);

  std::uint64_t last_watcher_ = 0;
  std::jthread keeper_;
};

} // namespace troupe
