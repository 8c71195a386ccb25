#include "runtime/engine/loader.hpp"

#include "tests/test_data.hpp"

#include <doctest/doctest.h>

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
  CHECK(blamed([](auto& o) { o.step_tokens = -1; }) == "step_tokens");
  CHECK(blamed([](auto& o) { o.max_context = -1; }) == "max_context");
  CHECK(blamed([](auto& o) { o.max_sequences = 0; }) == "max_sequences");
  CHECK(blamed([](auto& o) { o.max_sequences = 65537; }) == "max_sequences");
  CHECK(blamed([](auto& o) { o.max_queue = 0; }) == "max_queue");
  CHECK(blamed([](auto& o) { o.compute.threads = -1; }) == "threads");
  for (const char* wrong :
       {"", "-0.1", "1", "0.995", "nan", "x", "0.5x", "0.5:", ":0.5", "0.5:2", "0.5:0.5:0.5", "0.5,0.5"}) {
    CAPTURE(wrong);
    CHECK(blamed([&](auto& o) { o.compute.sparsity = wrong; }) == "sparsity");
  }
}
