// Loads that fail: of the model, and of a reward model, which is loaded again.
#include "runtime/techniques/tree_search/technique.hpp"
#include "tests/actors/failing_memory.hpp"
#include "tests/actors/troubled_engine.hpp"

#include <atomic>
#include <filesystem>
#include <new>
#include <system_error>
#include <unistd.h>

using namespace troupe;
using namespace troupe::testing;

TEST_CASE("a reward model that fails is loaded again each time, but for files that are not what they were") {
  sharing_config config;
  caf::actor_system system(config);
  std::atomic<bool> breaks = false;
  const auto script = failing([&breaks](int) {
    if (breaks)
      throw kernels::device_error("the device is gone", true);
  });
  auto load_judge = [script](const engine_options& o, const progress_sink&) -> loaded_model_ptr {
    auto model = std::make_shared<loaded_model>(*load_model(o, {}));
    for (auto& each : model->replicas)
      for (auto& stage : each.stages)
        stage = std::make_shared<faulty_device>(stage, script);
    return model;
  };
  std::mutex mutex;
  std::condition_variable changed;
  load_status status;
  int reloads = 0;
  auto listen = [&](const load_status& s, const loaded_model_ptr&) {
    const std::lock_guard lock(mutex);
    status = s;
    reloads += s.line == "the reward model failed and is loaded again: the device is lost: the device is gone";
    changed.notify_all();
  };
  const auto wait_until = [&](const std::function<bool()>& seen) {
    std::unique_lock lock(mutex);
    REQUIRE(changed.wait_for(lock, std::chrono::minutes(5), seen));
    return status;
  };
  auto options = small();
  const auto folder = std::filesystem::temp_directory_path() / ("troupe-judge-" + std::to_string(getpid()));
  std::filesystem::copy(test_data() + "/tiny_reward", folder, std::filesystem::copy_options::recursive);
  options.techniques["reward_model"] = {folder.string()};
  auto engine = spawn_engine(system, options, listen, loader_with(), load_judge);
  wait_until([&] { return status.now == load_status::stage::ready; });
  const auto run = [&](search_value value) {
    generation g;
    g.prompt = {0, 54, 51};
    g.sampling.temperature = 0;
    g.sampling.max_tokens = 4;
    g.sampling.ignore_eos = true;
    g.sampling.techniques.set(searched_by({.simulations = 12, .branching = 3, .parallel = 2, .value = value}));
    listener l;
    spawn_request(system, engine, std::make_shared<const generation>(g), client_line(l.sink()));
    REQUIRE(l.wait());
    return l.result();
  };
  const auto first = run(search_value::model);
  REQUIRE(first.done);
  for (int times = 1; times <= 5; ++times) {
    breaks = true;
    const auto failed = run(search_value::model).failed;
    REQUIRE(failed);
    CHECK(failed->message.find("reward model") != std::string::npos);
    CHECK(wait_until([&] { return reloads == times; }).degraded.empty());
    breaks = false;
    auto again = run(search_value::model);
    for (; !again.done; again = run(search_value::model)) {
      CHECK(again.failed->code == errc::unavailable);
      CHECK(again.failed->message == "the reward model is being loaded again after a failure");
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    CHECK(again.ids == first.ids);
  }
  const auto config_file = folder / "config.json";
  const auto written = std::filesystem::last_write_time(config_file);
  for (const bool changes : {true, false}) {
    CAPTURE(changes);
    if (changes)
      std::filesystem::last_write_time(config_file, written + std::chrono::seconds(1));
    else
      std::filesystem::rename(config_file, folder / "elsewhere");
    breaks = true;
    CHECK(run(search_value::model).failed);
    breaks = false;
    const auto told = wait_until(
      [&] { return status.degraded.find(changes ? " has changed" : " has vanished") != std::string::npos; });
    CHECK(told.now == load_status::stage::ready);
    CHECK(told.degraded.starts_with("searches with a reward model fail, as it fails again and again, and is loaded "
                                    "again every "));
    CHECK(told.degraded.find(" s: " + std::filesystem::canonical(folder).string()) != std::string::npos);
    CHECK(!run(search_value::model).done);
    CHECK(run(search_value::likelihood).done); // all else goes on
    if (changes)
      std::filesystem::last_write_time(config_file, written);
    else
      std::filesystem::rename(folder / "elsewhere", config_file);
    wait_until([&] { return status.degraded.empty(); });
    CHECK(run(search_value::model).ids == first.ids);
  }
  caf::anon_send_exit(engine, caf::exit_reason::user_shutdown);
  engine = engine_actor();
  system.await_all_actors_done();
  CHECK(script->alive == 0);
  std::filesystem::remove_all(folder);
}

TEST_CASE("a load that gets no memory or no thread ends with a sentence, for the engine and for its requests") {
  caf::actor_system_config config;
  caf::actor_system system(config);
  const std::vector<std::function<void()>> troubles{
    [] { throw std::bad_alloc(); },
    [] { throw std::system_error(std::make_error_code(std::errc::resource_unavailable_try_again)); },
  };
  for (const auto& trouble : troubles) {
    std::promise<error> failed;
    auto listen = [&](const load_status& s, const loaded_model_ptr&) {
      if (s.now == load_status::stage::failed)
        failed.set_value(*s.why);
    };
    auto load = [&](const engine_options&, const progress_sink&) -> loaded_model_ptr {
      trouble();
      return nullptr;
    };
    auto engine = spawn_engine(system, small(), listen, load);
    const auto why = failed.get_future().get();
    CHECK(why.code == errc::out_of_memory);
    CHECK(!why.message.empty());
    listener l;
    spawn_request(system, engine, std::make_shared<const generation>(ask(1, 1)), client_line(l.sink()));
    REQUIRE(l.wait());
    CHECK(l.result().failed->code == errc::out_of_memory);
    caf::anon_send_exit(engine, caf::exit_reason::user_shutdown);
  }
  system.await_all_actors_done();
}

TEST_CASE("whichever allocation fails as a load ends, the engine hears of it and can be stopped") {
  int refused = 0;
  for (int nth = 1;; ++nth, ++refused) {
    CAPTURE(nth);
    test::failing_allocation failing(nth); // outlives the loader's thread
    {
      sharing_config config;
      caf::actor_system system(config);
      std::promise<void> failed;
      auto listen = [&](const load_status& s, const loaded_model_ptr&) {
        if (s.now == load_status::stage::failed)
          failed.set_value();
      };
      auto load = [&](const engine_options&, const progress_sink&) -> loaded_model_ptr {
        failing.arm();
        throw failure(errc::bad_file, "this file of the model is damaged");
      };
      caf::scoped_actor self(system);
      auto engine = spawn_engine(system, small(), listen, load);
      REQUIRE(failed.get_future().wait_for(std::chrono::minutes(1)) == std::future_status::ready);
      self->monitor(engine);
      caf::anon_send_exit(engine, caf::exit_reason::user_shutdown);
      engine = engine_actor();
      bool ended = false;
      self->receive([&](const caf::down_msg&) { ended = true; }, caf::after(std::chrono::minutes(1)) >> [] {});
      REQUIRE(ended);
    }
    if (!failing.happened())
      break;
  }
  CHECK(refused > 0);
}
