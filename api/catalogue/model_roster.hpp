// Who of several models is loaded, who has to wait, and who makes room: names, states, uses, deadlines and the queue of
// loads. Knows no engines and no clock; whoever owns it carries out what `next` says and reports how that went. One
// thread at a time.
#pragma once

#include "runtime/support/error.hpp"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace troupe {

class model_roster {
public:
  using time = std::chrono::steady_clock::time_point;
  using duration = std::chrono::milliseconds;

  struct listed {
    std::string name; // empty: not known before it is loaded
    std::vector<std::string> aliases = {};
    bool stays = false;      // neither idleness nor others' lack of memory unloads it
    duration longest_wait{}; // for another to make room, or the place; 0: ten minutes
    bool is_due = true;      // it is to be there also if no request names it
  };
  /// `leaving` takes no new uses, and is unloaded when the last one ends.
  enum class state : std::uint8_t { unloaded, queued, loading, ready, leaving, unloading, failed };

  /// `usually`: how long a model stays loaded that nobody uses; none: for good. Throws failure(bad_request) where two
  /// models have a name in common, or one has none.
  model_roster(std::vector<listed> models, std::optional<duration> usually);

  /// Those that are listed, in that order.
  const std::vector<std::size_t>& all() const { return order_; }
  bool is_listed(std::size_t model) const { return std::ranges::find(order_, model) != order_.end(); }
  /// Finds a listed model by its name or an alias, also with `:latest` behind; empty: the first.
  std::optional<std::size_t> find(std::string_view name) const;
  const listed& entry(std::size_t model) const { return models_[model].is; }
  state now(std::size_t model) const { return models_[model].now; }
  /// Why a model failed.
  const std::optional<error>& why(std::size_t model) const { return models_[model].why; }
  std::size_t uses(std::size_t model) const { return models_[model].uses; }
  /// When it is unloaded, if nobody uses it.
  std::optional<time> idle_until(std::size_t model) const;
  /// It has ended by itself, and is loaded again by itself, however often that fails.
  bool comes_back(std::size_t model) const { return models_[model].comes_back; }
  /// When that is tried, if it is not being tried.
  std::optional<time> again_at(std::size_t model) const { return models_[model].again; }
  struct room {
    std::size_t by = 0;
    std::optional<time> at = {}; // none: when its last use has ended
  };
  /// Who makes room for a model that is queued and lacks it; none: nobody has to.
  std::optional<room> waits_for(std::size_t model) const;
  /// One of the same name that is not listed any more still answers: a request must not begin with one and end with the
  /// other.
  bool waits_for_namesake(std::size_t model) const;

  /// From now on these are listed, numbers of models that there are or are new. One that is not listed any more is
  /// unloaded once its uses have ended, and never loaded again. Throws as the constructor, with nothing changed.
  void list(std::vector<std::pair<std::optional<std::size_t>, listed>> models);

  // Wishes. Each counts until `leave` is called with it.

  struct wish {
    std::size_t model = 0;
    std::uint64_t load = 0; // that settles it, in the order of the model's loads; 0: it is to be unloaded
  };
  wish want(std::size_t model);
  /// Nobody may want it any more: a load that has not begun is taken back.
  void leave(const wish& of);
  /// A model that is in use is unloaded when the last use ends; one that is being loaded, once it is.
  wish unload(std::size_t model);
  bool settled(const wish& of) const;

  // Uses.

  void begin_use(std::size_t model) { ++models_[model].uses; }
  void end_use(std::size_t model, time now);
  /// How long it stays once nobody uses it; below 0: for good; none: as usual.
  void keep(std::size_t model, std::optional<duration> how_long);

  // What to do.

  struct action {
    /// `end_unread`: the model waits for those of its name that are listed no more; answers of theirs that nobody reads
    /// are to end.
    enum class kind : std::uint8_t { load, unload, end_unread } what = kind::load;
    std::size_t model = 0;
    bool others_may_leave = false; // a load that lacks memory may be reported, and is then tried again
  };
  /// What is to be done now; call again until there is nothing. At most one model is loaded at a time.
  std::optional<action> next(time now);
  /// Refuses a load that would wait for longer than it may, for room or for one of its name; whether it did. Before each
  /// `next`.
  bool refuse_late(time now);
  /// When to ask again, if nothing is reported before.
  std::optional<time> wake_at() const;

  void loaded(std::size_t model, time now);
  /// A load failed. If it was for lack of memory and others may leave, it is tried again when one has left.
  void failed(std::size_t model, error why, time now);
  void unloaded(std::size_t model, time now);
  /// A loaded one has ended by itself: it is to be unloaded once its requests have been told, counts as failed, and is
  /// loaded again by itself, after pauses that double up to half a minute.
  void died(std::size_t model, error why, time now);

private:
  struct model {
    listed is;
    state now = state::unloaded;
    std::optional<error> why = {};
    std::size_t uses = 0;
    std::size_t wishes = 0;  // that wait
    std::size_t claims = 0;  // wishes that are settled and still there: most are about to use it
    std::uint64_t loads = 0; // that have ended, one way or the other
    time load_began = {}, loaded_at = {};
    duration load_took{};
    time last_used = {};
    std::optional<duration> stays_for = {}; // instead of the usual
    bool leaves = false;                    // is to be unloaded as soon as it is loaded
    bool dead = false;
    bool comes_back = false;
    std::optional<time> again = {};
    duration pause{};                      // before the last time that it was loaded again
    std::optional<time> behind_since = {}; // one of its name, in the queue
    bool unread_ended = false;             // of that one
  };
  struct leaver {
    std::size_t model = 0;
    time at = {}; // from when it may
  };

  bool may_leave(const model& one) const { return !one.is.stays && !one.dead; }
  bool is_there(const model& one) const { return one.now == state::ready || one.now == state::leaving; }
  bool is_busy(const model& one) const { return one.uses + one.claims > 0; }
  void settle(model& one);
  wish unload(std::size_t model, std::string_view as);
  void queue(std::size_t model);
  void need_no_room();
  bool goes(const model& one) const { return one.now == state::leaving || one.now == state::unloading; }
  bool lacks_room(std::size_t model) const { return lacks_room_ && !loading_ && queue_.front() == model; }
  time gives_way_at(const model& one) const;
  std::optional<leaver> first_to_leave(time now) const;
  time room_needed_by() const;
  bool namesake_answers(std::size_t model) const;
  void refuse(std::size_t model, error why, time now);
  bool refuse_behind_namesake(time now);
  void pause(model& one, time now);
  std::optional<action> make_room(time now);
  std::optional<action> start_unloading(std::size_t model);

  std::deque<model> models_; // in which references last
  std::vector<std::size_t> order_;
  std::optional<duration> usually_;
  std::deque<std::size_t> queue_; // of loads, the first one next
  std::optional<std::size_t> loading_;
  bool lacks_room_ = false;               // the first of the queue
  std::optional<time> lacks_room_since_;  // through all its tries
  error no_room_;                         // of the last try
  std::optional<std::size_t> makes_room_; // busy, and leaves for it
};

} // namespace troupe
