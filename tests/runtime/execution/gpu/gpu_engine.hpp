// An engine on the emulated GPU, in an actor system of its own.
#pragma once

#include "actors/engine.hpp"
#include "actors/request.hpp"
#include "runtime/engine/loading/loaded_model.hpp"
#include "runtime/execution/gpu/gpu_device.hpp"
#include "tests/emulation/cuda/queues.hpp"
#include "tests/listener.hpp"

#include <caf/actor_system.hpp>
#include <caf/actor_system_config.hpp>
#include <caf/scoped_actor.hpp>
#include <caf/send.hpp>
#include <doctest/doctest.h>

#include <future>

namespace troupe::testing {

inline engine_options on_gpu(const std::string& model = "llama-gqa") {
  engine_options o;
  o.model = golden(model);
  o.compute.device = "cuda:0";
  o.open_gpu = open_gpu;
  o.compute.deterministic = true;
  o.kv_cache_bytes = 4 << 20;
  o.max_context = 256;
  o.max_sequences = 8;
  return o;
}

inline generation ask(std::vector<token_id> prompt, int max_tokens) {
  generation g;
  g.prompt = std::move(prompt);
  g.sampling.temperature = 0;
  g.sampling.max_tokens = max_tokens;
  return g;
}

class gpu_engine {
public:
  explicit gpu_engine(engine_options options, engine_internals internals = {}) : system_(config_) {
    std::promise<load_status> loaded;
    auto told = std::make_shared<std::atomic<bool>>(false);
    engine_ = spawn_engine(
      system_, std::move(options),
      [&loaded, told](const load_status& s, const loaded_model_ptr&) {
        if (s.now != load_status::stage::loading && !told->exchange(true))
          loaded.set_value(s);
      },
      loader_with(std::move(internals)));
    status_ = loaded.get_future().get();
  }

  ~gpu_engine() {
    caf::scoped_actor self{system_};
    self->monitor(engine_);
    self->send_exit(engine_, caf::exit_reason::user_shutdown);
    self->receive([](const caf::down_msg&) {});
  }

  const load_status& status() const { return status_; }

  void submit(generation g, listener& l) {
    spawn_request(system_, engine_, std::make_shared<const generation>(std::move(g)), client_line(l.sink()));
  }

  heard run(generation g) {
    listener l;
    submit(std::move(g), l);
    REQUIRE(l.wait());
    return l.result();
  }

  engine_stats stats() {
    caf::scoped_actor self{system_};
    engine_stats result;
    self->request(engine_, caf::infinite, stats_atom::value)
      .receive([&](const engine_stats& s) { result = s; }, [](caf::error&) { FAIL("no answer"); });
    return result;
  }

private:
  struct configuration : caf::actor_system_config {
    configuration() {
      set("scheduler.policy", caf::atom("sharing"));
      set("scheduler.max-threads", 2u);
    }
  };

  configuration config_;
  caf::actor_system system_;
  engine_actor engine_;
  load_status status_;
};

} // namespace troupe::testing
