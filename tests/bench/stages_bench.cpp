// Pipelines: the share of the time in which stages are idle, for prompts of few chunks and in steady decoding, beside
// the formulas; and stages of one thread against one stage of as many threads, in turns.
//
//   troupe_stages_bench MODEL [STAGES] [TURNS] [none|int8|int4]
#include "actors/engine.hpp"
#include "actors/request.hpp"
#include "runtime/scheduling/step_record.hpp"
#include "tests/listener.hpp"

#include <caf/actor_system.hpp>
#include <caf/actor_system_config.hpp>
#include <caf/scoped_actor.hpp>
#include <caf/send.hpp>
#include <caf/typed_event_based_actor.hpp>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <future>
#include <mutex>
#include <numeric>

using namespace troupe;
using namespace troupe::testing;
using bench_clock = std::chrono::steady_clock;

namespace {

constexpr int chunk = 256;

double middle_of(std::vector<double> values) {
  std::ranges::sort(values);
  return values.empty() ? 0 : values[values.size() / 2];
}

/// An engine, and the records of its steps.
class pipeline {
public:
  pipeline(const std::string& model, const std::string& quantize, int stages, int threads, int microbatches) {
    engine_options o;
    o.model = model;
    o.compute.device = "cpu";
    o.compute.quantize = quantize;
    o.compute.threads = threads;
    o.stages = stages;
    o.microbatches = microbatches;
    o.step_tokens = chunk;
    o.max_context = 16 * chunk + 64;
    o.max_sequences = 16;
    o.kv_cache_bytes = std::size_t(2) << 30;
    o.prefix_cache = false;
    o.techniques["speculate"] = {"off"};
    std::promise<std::optional<error>> loaded;
    bool told = false;
    engine_ = spawn_engine(system_, std::move(o), [&, told](const load_status& s, const loaded_model_ptr&) mutable {
      if (s.now != load_status::stage::loading && !std::exchange(told, true))
        loaded.set_value(s.now == load_status::stage::ready ? std::nullopt : s.why);
    });
    if (const auto why = loaded.get_future().get())
      throw std::runtime_error(why->message);
    watcher_ = system_.spawn([this](step_watcher_actor::pointer) -> step_watcher_actor::behavior_type {
      return {[this](record_atom, const step_record_ptr& r) {
        const std::lock_guard lock(mutex_);
        records_.push_back(r);
      }};
    });
    caf::anon_send(engine_, watch_atom::value, watcher_);
  }

  ~pipeline() {
    caf::anon_send(engine_, unwatch_atom::value, watcher_);
    caf::anon_send_exit(engine_, caf::exit_reason::user_shutdown);
    caf::anon_send_exit(watcher_, caf::exit_reason::user_shutdown);
    engine_ = engine_actor();
    watcher_ = step_watcher_actor();
    system_.await_all_actors_done();
  }

  /// Milliseconds until the first token of a prompt of so many chunks.
  double prefill(int chunks) {
    clear();
    std::vector<listener> one(1);
    const auto begin = bench_clock::now();
    submit(chunks * chunk, 1, one[0]);
    one[0].wait();
    return std::chrono::duration<double, std::milli>(bench_clock::now() - begin).count();
  }

  /// Decodes; milliseconds between two steps in the middle, and how many steps are between them.
  std::pair<double, std::vector<step_record_ptr>> decode(int sequences, int tokens) {
    clear();
    std::vector<listener> all(static_cast<std::size_t>(sequences));
    for (auto& each : all)
      submit(32, tokens, each);
    for (auto& each : all)
      each.wait();
    auto steps = records();
    std::erase_if(steps, [](const auto& r) { return r->rows.prefill > 0; });
    const auto from = steps.size() / 4, to = steps.size() * 3 / 4;
    const std::chrono::duration<double, std::milli> took = steps[to]->end - steps[from]->end;
    return {took.count(), {steps.begin() + std::ptrdiff_t(from) + 1, steps.begin() + std::ptrdiff_t(to) + 1}};
  }

  std::vector<step_record_ptr> records() {
    std::this_thread::sleep_for(std::chrono::milliseconds(50)); // the last ones come after the token
    const std::lock_guard lock(mutex_);
    return records_;
  }

private:
  void clear() {
    records();
    const std::lock_guard lock(mutex_);
    records_.clear();
  }

  void submit(int prompt, int tokens, listener& to) {
    generation g;
    for (int i = 0; i < prompt; ++i)
      g.prompt.push_back(5 + (i * 37 + next_) % 500);
    ++next_;
    g.sampling.temperature = 0;
    g.sampling.max_tokens = tokens;
    g.sampling.ignore_eos = true;
    spawn_request(system_, engine_, std::make_shared<const generation>(std::move(g)), client_line(to.sink()));
  }

  struct configuration : caf::actor_system_config {
    configuration() {
      set("scheduler.policy", caf::atom("sharing"));
      set("scheduler.max-threads", std::size_t(2));
    }
  };

  configuration config_;
  caf::actor_system system_{config_};
  engine_actor engine_;
  step_watcher_actor watcher_;
  std::mutex mutex_;
  std::vector<step_record_ptr> records_;
  int next_ = 0;
};

/// Mean over the stages of the share of the time that each is idle.
double idle_share(const std::vector<step_record_ptr>& steps, double ms, int stages) {
  double busy = 0;
  for (const auto& r : steps)
    busy += std::reduce(r->stage_ms.begin(), r->stage_ms.end());
  return 1 - busy / (ms * stages);
}

} // namespace

int main(int argc, char** argv) try {
  const std::string model = argc > 1 ? argv[1] : "synthetic:llama-135m";
  const int stages = argc > 2 ? std::atoi(argv[2]) : 2, turns = argc > 3 ? std::atoi(argv[3]) : 7;
  const std::string quantize = argc > 4 ? argv[4] : "int8";
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  std::printf("%s, %s, %d stages of one thread\n", model.c_str(), quantize.c_str(), stages);
  {
    pipeline staged(model, quantize, stages, stages, 0), whole(model, quantize, 1, stages, 0);
    staged.prefill(2), whole.prefill(2);
    for (const int chunks : {2, 4, 8, 16}) {
      std::vector<double> idle, ratio;
      for (int i = 0; i < turns; ++i) {
        const auto first = i % 2 ? whole.prefill(chunks) : 0;
        const auto ms = staged.prefill(chunks);
        idle.push_back(idle_share(staged.records(), ms, stages));
        ratio.push_back((i % 2 ? first : whole.prefill(chunks)) / ms);
      }
      std::printf("prompt of %2d chunks: idle %.3f, by the formula %.3f; speed against one stage %.3f\n", chunks,
                  middle_of(idle), double(stages - 1) / (chunks + stages - 1), middle_of(ratio));
    }
  }
  for (const int sequences : {2, 8, 16})
    for (const int microbatches : {1, stages, stages + 1, 0}) {
      pipeline staged(model, quantize, stages, stages, microbatches);
      std::vector<double> idle, rate;
      for (int i = 0; i < turns; ++i) {
        const auto [ms, steps] = staged.decode(sequences, 96);
        idle.push_back(idle_share(steps, ms, stages));
        double rows = 0;
        for (const auto& r : steps)
          rows += static_cast<double>(r->rows.decode);
        rate.push_back(1000 * rows / ms);
      }
      std::printf("%2d sequences in %s: idle %.3f, by the formula %.3f; %.0f tokens/s\n", sequences,
                  microbatches == 0 ? "microbatches by cost" : (std::to_string(microbatches) + " microbatches").c_str(),
                  middle_of(idle), microbatches == 0 ? 0.0 : std::max(0.0, 1 - double(microbatches) / stages),
                  middle_of(rate));
    }
  return 0;
} catch (const std::exception& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return 1;
}
