// What a seed decides before anything runs: the engine, its clients, and how much goes wrong.
#pragma once

#include "runtime/engine/generation.hpp"
#include "runtime/engine/loading/loaded_model.hpp"
#include "runtime/techniques/speculation/technique.hpp"
#include "tests/simulation/hash_device.hpp"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace troupe::simulation {

/// What a client does at a time: so many jobs of actors since the start.
struct client_deed {
  enum class kind : std::uint8_t { pause, go_on, cancel, finish, leave } what = kind::pause;
  int at = 0;
};

struct client_plan {
  int request = 0;       // request_of
  int at = 0;            // it sends it
  bool is_actor = false; // else a function
  int throws_at = 0;     // event at which that function throws; 0: never
  int priority = 0;
  int timeout_ms = 0;
  std::string name = {};
  speculation speculate = speculation::automatic;
  std::vector<client_deed> deeds = {};
};

/// How the next job is chosen.
enum class picking : std::uint8_t { any, newest, oldest, starve };

struct scenario {
  std::uint64_t seed = 0;
  int replicas = 1, stages = 1;
  bool roles = false;
  int role_idle_ms = 0; // before a replica takes the other role; 0: roles stay
  bool asynchronous = false, late_masks = false, recurrent = false, prefix_cache = true;
  bool disk = false;                             // prefixes are kept
  std::size_t disk_bytes = std::size_t(1) << 30; // that these may take
  int disk_trouble_every = 0;                    // turns, about, until something of it is damaged; 0: nothing is
  int disk_refused_every = 0;                    // blocks of it that are refused, about; 0: none
  bool drafts = false;                           // there is a model that guesses
  bool ahead = false;                            // also while steps are computed
  bool judge = false;                            // and one that values answers
  std::int32_t blocks = 0, host_blocks = 0, snapshots = 0;
  scheduler_limits limits = {};
  int forced_guesses = 0;
  std::vector<client_plan> clients;
  picking how = picking::any;
  std::string starved = {}; // kind of actor
  int death_every = 0;      // messages, about; 0: nobody dies
  int most_deaths = 0;
  bool engine_may_die = false, device_may_be_lost = false;
  int refusal_every = 0;     // messages in which an allocation is refused, about; 0: none
  std::string refused = {};  // the kind of actor that is refused memory, often; empty: all
  int fragile = 0;           // times that an executor fails at every other plan, from the first one on
  bool lost_at_last = false; // and the last time its device is lost
  int lost_every = 0;        // messages between replicas of which one is lost or late, about; 0: none is
  bool strangers = false, few_images = false; // replicas take no blocks of each other; few of these travel at a time
  int first_version = 0, swap_every = 0;      // of adapters; turns until one goes or comes, about; 0: they stay
  int failing_load = 0, failing_judge = 0;    // which load of the model, and of the judge, fails; 0: none
  bool calm = false;                          // alone: what comes of it is what others are compared with
  bool observed = false;                      // statistics and records are asked for

  /// In one line.
  std::string describe() const;
};

scenario scenario_of(std::uint64_t seed);

/// One request by itself, in an engine that nothing happens to.
/// `version`: of adapters.
scenario calm_scenario(int request, bool recurrent, int stages, int version);

/// The model that engines of it load. `alive`: counts runners. `folder`: for what is kept.
std::shared_ptr<loaded_model> model_of(const scenario& s, const std::shared_ptr<outside_work>& work, int* alive,
                                       const std::string& folder);

/// The model that values answers.
std::shared_ptr<loaded_model> judge_of(const std::shared_ptr<outside_work>& work, int* alive);

/// The request that a client sends.
generation generation_of(const client_plan& c);

} // namespace troupe::simulation
