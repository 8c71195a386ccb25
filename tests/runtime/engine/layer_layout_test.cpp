// What users write of stages and layers, and what becomes of it.
#include "runtime/engine/loading/layer_layout.hpp"
#include "runtime/support/error.hpp"

#include <doctest/doctest.h>

using namespace troupe;

namespace {

std::vector<placed_layers> placed(const std::string& layers, int count = 32, int stages = 1) {
  engine_options o;
  o.compute.device = "cpu";
  o.layers = layers;
  o.stages = stages;
  check_layers(o);
  return place_layers(o, count);
}

std::string refused_layout(const std::string& layers, int count = 32, int stages = 1) {
  try {
    placed(layers, count, stages);
  } catch (const failure& f) {
    CHECK(f.what_failed().code == errc::bad_request);
    CHECK(f.what_failed().message.starts_with("`" + f.what_failed().param + "` "));
    return f.what_failed().message;
  }
  return {};
}

} // namespace

TEST_CASE("without a word there is one stage of all layers, where the model computes") {
  CHECK(placed("") == std::vector<placed_layers>{{"cpu", {0, 32, true, true}}});
}

TEST_CASE("stages have equal numbers of layers, and the last one, which has the head, no more than others") {
  CHECK(placed("", 32, 2) == std::vector<placed_layers>{{"cpu", {0, 16, true, false}}, {"cpu", {16, 32, false, true}}});
  CHECK(placed("", 5, 3) ==
        std::vector<placed_layers>{
          {"cpu", {0, 2, true, false}}, {"cpu", {2, 4, false, false}}, {"cpu", {4, 5, false, true}}});
  CHECK(placed("", 3, 3).size() == 3);
}

TEST_CASE("layers are placed as they are written, in any order") {
  const std::vector<placed_layers> hybrid{{"cuda:0", {0, 24, true, false}}, {"cpu", {24, 32, false, true}}};
  CHECK(placed("cuda:0=0-23,cpu=24-31") == hybrid);
  CHECK(placed("cpu=24-31,cuda:0=0-23") == hybrid);
  CHECK(placed("cpu:avx2=0,cpu=1-2", 3) ==
        std::vector<placed_layers>{{"cpu:avx2", {0, 1, true, false}}, {"cpu", {1, 3, false, true}}});
  CHECK(placed("cpu=0-31") == std::vector<placed_layers>{{"cpu", {0, 32, true, true}}});
  engine_options o;
  o.layers = "cuda:0=0-23,cpu=24-31";
  CHECK(devices_of(o) == std::vector<std::string>{"cuda:0", "cpu"});
}

TEST_CASE("a wrong layout is told in one sentence") {
  for (const char* wrong : {"cpu", "=0-3", "cpu=", "cpu=-", "cpu=3-1", "cpu=a-b", "cpu=0-15,", ",cpu=0-15", "cpu=0--1",
                            "cpu=0-99999999999999", "cpu=-1-3", "cpu= 0-3", "auto,cpu=0-3"}) {
    CAPTURE(wrong);
    CHECK(refused_layout(wrong).starts_with("`layers` must be DEVICE=FIRST-LAST for each stage, as in "));
  }
  CHECK(refused_layout("cpu=0-15,cpu=18-31") == "`layers` leaves out layers 16 to 17");
  CHECK(refused_layout("cpu=1-31") == "`layers` leaves out layer 0");
  CHECK(refused_layout("cpu=0-15") == "`layers` leaves out layers 16 to 31");
  CHECK(refused_layout("cpu=0-16,cpu=16-31") == "`layers` has layer 16 twice");
  CHECK(refused_layout("cpu=0-31,cpu=4-7") == "`layers` has layers 4 to 7 twice");
  CHECK(refused_layout("cpu=0-15,cpu=16-32") ==
        "`layers` names layers 16 to 32, but the model has only layers 0 to 31");
  CHECK(refused_layout("cpu=0-15,cuda:0=16-31") == "`layers` must have those on a GPU first, not behind cpu");
  CHECK(refused_layout("", 3, 4) == "`stages` must be at most 3, the model's layers, not 4");
  CHECK(refused_layout("", 3, 0) == "`stages` must be at least 1, not 0");
  CHECK(refused_layout("cpu=0-15,cpu=16-31", 32, 3) ==
        "`stages` must be left out, as `layers` says how many there are, not 3");
}

TEST_CASE("as many of the first layers as fit are on the GPU, the others on the CPU") {
  const auto automatic = [](int fitting) {
    return place_what_fits("cuda:1", 32, [=](const layer_span& s) {
      CHECK(s.first == 0);
      CHECK(s.heads == (s.end == 32));
      return s.end <= fitting;
    });
  };
  CHECK(automatic(20) == std::vector<placed_layers>{{"cuda:1", {0, 20, true, false}}, {"cpu", {20, 32, false, true}}});
  CHECK(automatic(32) == std::vector<placed_layers>{{"cuda:1", {0, 32, true, true}}});
  CHECK(automatic(0) == std::vector<placed_layers>{{"cpu", {0, 32, true, true}}});
}
