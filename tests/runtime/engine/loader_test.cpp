#include "runtime/engine/loading/loader.hpp"

#include "kernels/cpu/core_account.hpp"
#include "kernels/cpu/thread_pool.hpp"
#include "runtime/engine/loading/load_plan.hpp"
#include "runtime/support/machine/available_memory.hpp"

#include "tests/runtime/model/model_test_data.hpp"
#include "tests/test_data.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <functional>

using namespace troupe;

namespace {

error refusal_of_options(const std::function<void(engine_options&)>& change) {
  engine_options o;
  o.model = golden("llama-gqa");
  o.compute.device = "cpu";
  change(o);
  try {
    load_model(o, {});
  } catch (const failure& f) {
    return f.what_failed();
  }
  return {};
}

} // namespace

TEST_CASE("options that make no sense are refused by name, before anything is read") {
  const auto blamed = [](const std::function<void(engine_options&)>& change) {
    const auto why = refusal_of_options(change);
    CHECK(why.code == errc::bad_request);
    CHECK(why.message.starts_with("`" + why.param + "` must "));
    return why.param;
  };
  using std::chrono::microseconds;
  CHECK(blamed([](auto& o) { o.itl_target = microseconds(-1); }) == "itl_target");
  CHECK(blamed([](auto& o) { o.itl_target = microseconds::min(); }) == "itl_target");
  CHECK(blamed([](auto& o) { o.cached_sequences = -1; }) == "cached_sequences");
  CHECK(blamed([](auto& o) { o.techniques["draft_tokens"] = {"-1"}; }) == "draft_tokens");
  CHECK(blamed([](auto& o) { o.techniques["draft_threads"] = {"-1"}; }) == "draft_threads");
  for (const char* shape : {"5", "5,3", "0,3,5", "5,1,5", "5,9,1", "5,3,5,", "5,3,5x", " 5,3,5", "20,4,20", "5,3,-1"})
    CHECK(blamed([&](auto& o) { o.techniques["lookahead"] = {shape}; }) == "lookahead");
  CHECK(blamed([](auto& o) { o.request_timeout = std::chrono::milliseconds(-1); }) == "request_timeout");
  CHECK(blamed([](auto& o) { o.step_tokens = -1; }) == "step_tokens");
  CHECK(blamed([](auto& o) { o.max_context = -1; }) == "max_context");
  CHECK(blamed([](auto& o) { o.max_sequences = 0; }) == "max_sequences");
  CHECK(blamed([](auto& o) { o.max_sequences = 65537; }) == "max_sequences");
  CHECK(blamed([](auto& o) { o.max_queue = 0; }) == "max_queue");
  CHECK(blamed([](auto& o) { o.compute.threads = -1; }) == "threads");
  CHECK(blamed([](auto& o) { o.stages = 0; }) == "stages");
  CHECK(blamed([](auto& o) { o.microbatches = -1; }) == "microbatches");
  CHECK(blamed([](auto& o) { o.layers = "cpu=3-0"; }) == "layers");
  CHECK(blamed([](auto& o) {
          o.layers = "cpu=0-1,cpu=2-3";
          o.stages = 3;
        }) == "stages");
  CHECK(blamed([](auto& o) { o.compute.tensor_parallel = 0; }) == "tensor_parallel");
  CHECK(blamed([](auto& o) {
          o.compute.threads = 2;
          o.compute.tensor_parallel = 3;
        }) == "threads");
  for (const char* wrong :
       {"", "-0.1", "1", "0.995", "nan", "x", "0.5x", "0.5:", ":0.5", "0.5:2", "0.5:0.5:0.5", "0.5,0.5"}) {
    CAPTURE(wrong);
    CHECK(blamed([&](auto& o) { o.compute.sparsity = wrong; }) == "sparsity");
  }
}

TEST_CASE("threads of a draft model's own need a draft model, and a number of threads for the model itself") {
  const auto refused = [](const std::string& draft, int threads) {
    const auto why = refusal_of_options([&](engine_options& o) {
      o.techniques["draft_threads"] = {"1"};
      o.techniques["draft"] = {draft};
      o.compute.threads = threads;
      o.max_context = 64;
    });
    CHECK((why.message.empty() || why.param == "draft_threads"));
    return why.message;
  };
  CHECK(refused("", 1) == "`draft_threads` is for a draft model, and there is none");
  CHECK(refused(golden("llama-gqa"), 0) == "`draft_threads` needs `threads`, which says how many the model itself has");
  CHECK(refused(golden("llama-gqa"), 1).empty());
}

TEST_CASE("a device of a draft model's own is there, and there is a draft model") {
  const auto refused = [](const std::string& draft, const std::string& device, int threads) {
    const auto why = refusal_of_options([&](engine_options& o) {
      o.techniques = {{"draft", {draft}}, {"draft_device", {device}}, {"draft_threads", {std::to_string(threads)}}};
      o.max_context = 64;
    });
    CHECK((why.message.empty() ||
           why.param == (why.message.starts_with("`draft_threads`") ? "draft_threads" : "draft_device")));
    return why.message;
  };
  CHECK(refused("", "cpu", 0) == "`draft_device` is for a draft model, and there is none");
  CHECK(refused(golden("llama-gqa"), "tpu", 0).starts_with("there is no device `tpu` here; there are auto, cpu, "));
  CHECK(refused(golden("llama-gqa"), "cuda:0", 0) ==
        "there is no device `cuda:0`: this program was built without CUDA");
  CHECK(refused(golden("llama-gqa"), "cpu", 1).starts_with("`draft_threads` needs `threads`"));
  CHECK(refused(golden("llama-gqa"), "cpu", 0).empty());
  CHECK(refused(golden("llama-gqa"), "cpu:portable", 0).empty());
}

TEST_CASE("a second model in the process plans within what the first was promised but has not taken") {
  engine_options o;
  o.model = golden("llama-gqa");
  o.compute = {.device = "cpu", .threads = 1};
  o.max_context = 64;
  o.kv_cache_bytes = available_memory() / 5 * 3; // taken only as blocks are filled
  auto first = load_model(o, {});
  try {
    load_model(o, {});
    FAIL("two caches of three fifths of the memory fit");
  } catch (const failure& f) {
    CHECK(f.what_failed().code == errc::out_of_memory);
    CHECK(f.what_failed().param == "kv_cache");
  }
  o.kv_cache_bytes /= 4;
  std::string lines;
  load_model(o, [&](const load_status& s) { lines += s.line + "\n"; });
  CHECK(lines.find("that other models of this process were promised") != std::string::npos);
  first.reset();
  o.kv_cache_bytes *= 4;
  CHECK_NOTHROW(load_model(o, {}));
}

TEST_CASE("without room for a snapshot of recurrent layers' states, that is said, and files of prefixes are not used") {
  const test::temp_folder folder;
  engine_options o;
  o.model = test_data() + "/families/qwen3-5";
  o.compute = {.device = "cpu", .threads = 1};
  o.max_context = 64;
  o.max_sequences = 2;
  std::string lines;
  const auto load = [&](std::size_t kv_cache, bool keeps) {
    lines.clear();
    o.kv_cache_bytes = kv_cache;
    o.kv_disk = keeps ? (folder.path() / "kv").string() : "";
    return load_model(o, [&](const load_status& s) { lines += s.line + "\n"; });
  };
  auto model = load(32 << 10, true);
  CHECK(model->replicas.front().snapshots == 0);
  CHECK(model->kv_disk == nullptr);
  CHECK(lines.find("every prompt is computed whole, `kv_disk` is not used\n") != std::string::npos);
  load(32 << 10, false);
  CHECK(lines.find("every prompt is computed whole\n") != std::string::npos);
  model = load(8 << 20, true);
  CHECK(model->replicas.front().snapshots > 0);
  CHECK(model->kv_disk != nullptr);
  CHECK(lines.find("every prompt is computed whole") == std::string::npos);
  const auto promised = model->promised->size();
  CHECK(promised == load(8 << 20, false)->promised->size() + 1); // states on their way
}

TEST_CASE("while weights are loaded, engines that compute have a part of the cores, and with ranks what these leave") {
  const int cores = kernels::thread_pool::usable_cores();
  kernels::thread_pool busy(cores);
  const kernels::core_claim step(&busy);
  for (const int ranks : {1, std::min(2, cores)}) {
    engine_options o;
    o.model = golden("llama-gqa");
    o.compute.device = "cpu";
    o.compute.threads = cores;
    o.compute.tensor_parallel = ranks;
    o.compute.packed_cache.clear();
    o.max_context = 64;
    int fewest = cores;
    load_model(o, [&](const load_status& told) {
      if (told.done_bytes > 0)
        fewest = std::min(fewest, busy.may_use());
    });
    CHECK(fewest == std::max(1, ranks > 1 ? cores - ranks : cores / 2));
    CHECK(busy.may_use() == cores);
  }
}

TEST_CASE("options are refused before the model is looked for") {
  engine_options o;
  o.model = "/no/such/model";
  o.max_queue = 0;
  try {
    load_model(o, {});
    FAIL("accepted");
  } catch (const failure& f) {
    CHECK(f.what_failed().param == "max_queue");
  }
}

TEST_CASE("borders of rotation are those of all models, ascending, once a sequence can reach them") {
  model_config plain, shorter, longer;
  for (auto [config, original] : {std::pair(&shorter, 100), {&longer, 200}}) {
    config->rope.type = rope_type::longrope;
    config->rope.original_context = original;
  }
  const auto borders = [](std::vector<const model_config*> models, int max_context) {
    return rope_borders(models, max_context);
  };
  CHECK(borders({&plain}, 1000).empty());
  CHECK(borders({&longer, &plain}, 1000).size() == 1);
  const auto both = borders({&longer, &shorter}, 1000);
  REQUIRE(both.size() == 2);
  CHECK(both[0] < both[1]);
  CHECK(borders({&longer, &shorter}, 150).size() == 1);
}

TEST_CASE("an engine without replicas of its model has no room, and each replica adds its queue and its sequences") {
  loaded_model model;
  CHECK(model.room() == 0);
  model.replicas.push_back({.limits = {16, 4, 10}});
  model.replicas.push_back({.limits = {16, 2, 3}});
  CHECK(model.room() == 19);
}
