#include "runtime/techniques/amateur/technique.hpp"
#include "runtime/techniques/beams/technique.hpp"
#include "runtime/techniques/dola/dola_layers.hpp"
#include "runtime/techniques/dola/technique.hpp"
#include "runtime/techniques/guidance/technique.hpp"

#include "runtime/sampling/sampling_params.hpp"
#include "runtime/support/error.hpp"

#include <doctest/doctest.h>

#include <functional>
#include <numeric>
#include <string>

using namespace troupe;

namespace {

std::vector<int> layers_of(const dola_layers& asked, int layers, bool tied) {
  const auto found = asked.of_model(layers, tied);
  CHECK(found);
  return {found.begin(), found.end()};
}

std::vector<int> low(int layers, bool tied) { return layers_of(dola_layers("low"), layers, tied); }
std::vector<int> high(int layers, bool tied = false) { return layers_of(dola_layers("high"), layers, tied); }

error refusal_of_layers(const std::function<void()>& ask) {
  try {
    ask();
  } catch (const failure& f) {
    CHECK(f.what_failed().code == errc::bad_request);
    CHECK(f.what_failed().param == "dola_layers");
    return f.what_failed();
  }
  return {};
}

} // namespace

TEST_CASE("low and high name the layers that transformers' DoLa looks at") {
  CHECK(low(1, false) == std::vector{0});
  CHECK(low(1, true) == std::vector{0});
  CHECK(low(2, false) == std::vector{0});
  CHECK(low(2, true) == std::vector{1});
  CHECK(low(4, true) == std::vector{2});
  CHECK(low(5, true) == std::vector{2});
  CHECK(low(6, true) == std::vector{2});
  CHECK(low(6, false) == std::vector{0, 2});
  CHECK(low(32, false) == std::vector{0, 2, 4, 6, 8, 10, 12, 14});
  CHECK(low(32, true) == std::vector{2, 4, 6, 8, 10, 12, 14});
  CHECK(low(40, false).back() == 18);
  CHECK(low(80, false) == std::vector{0, 2, 4, 6, 8, 10, 12, 14, 16, 18});
  CHECK(low(41, true) == std::vector{2, 4, 6, 8, 10, 12, 14, 16, 18});
  CHECK(high(1) == std::vector{0});
  CHECK(high(2, true) == std::vector{1});
  CHECK(high(3) == std::vector{1});
  CHECK(high(7) == std::vector{3, 5});
  CHECK(high(32) == std::vector{16, 18, 20, 22, 24, 26, 28, 30});
  CHECK(high(40) == std::vector{20, 22, 24, 26, 28, 30, 32, 34, 36, 38});
  CHECK(high(80, true) == std::vector{60, 62, 64, 66, 68, 70, 72, 74, 76, 78});
  CHECK(high(41) == std::vector{21, 23, 25, 27, 29, 31, 33, 35, 37, 39});
}

TEST_CASE("layers may be listed in any order; nothing asked for is nothing") {
  CHECK(layers_of(dola_layers({5, 0, 3}), 6, true) == std::vector{0, 3, 5});
  CHECK_FALSE(dola_layers());
  CHECK_FALSE(dola_layers().of_model(4, true));
  CHECK(dola_layers("low"));
  std::vector<int> most(most_dola_layers);
  std::iota(most.begin(), most.end(), 100);
  CHECK(layers_of(dola_layers(most), 200, false) == most);
}

TEST_CASE("layers that cannot be are refused in one sentence") {
  const auto told = [](const std::function<void()>& ask) { return refusal_of_layers(ask).message; };
  CHECK(told([] { dola_layers("middle"); }) ==
        "`dola_layers` must be \"low\", \"high\" or a list of layers, not \"middle\"");
  CHECK(told([] { dola_layers(std::string(1000, 'x')); }).size() < 200);
  CHECK(told([] { dola_layers(""); }).ends_with("not \"\""));
  CHECK(told([] { dola_layers(std::vector<int>()); }) == "`dola_layers` must name 1 to 16 layers, not 0");
  CHECK(told([] { dola_layers(std::vector<int>(17, 1)); }) == "`dola_layers` must name 1 to 16 layers, not 17");
  CHECK(told([] { dola_layers({2, -1}); }) == "`dola_layers` must consist of layers from 0 on, not -1");
  CHECK(told([] { dola_layers({3, 1, 3}); }) == "`dola_layers` names layer 3 twice");
  CHECK(told([] {
          dola_layers({0, 4}).of_model(4, false);
        }) == "`dola_layers` must consist of layers from 0 to 3, not 4");
  CHECK(
    told([] { dola_layers("low").of_model(3, true); }) ==
    "`dola_layers` \"low\" selects no layer of this model, which has 3 and whose head is its embedding matrix: list "
    "layers instead");
}

TEST_CASE("what layers cannot be contrasted beside is refused") {
  sampling_params p;
  p.techniques.set(contrasted_with(dola_layers("high")));
  CHECK_NOTHROW(p.validate(100));
  const auto told = [&] { return refusal_of_layers([&] { p.validate(100); }).message; };
  p.techniques.set(guided_by(2));
  CHECK(told() == "`dola_layers` cannot be used with `guidance_scale`");
  p.techniques = technique_uses(contrasted_with(dola_layers("high")));
  p.techniques.set(contrasted_by({.beta = 1}));
  CHECK(told() == "`dola_layers` cannot be used with `contrastive_beta`");
  p.techniques = technique_uses(contrasted_with(dola_layers("high")));
  p.techniques.set(troupe::beams({.width = 2}));
  CHECK(told() == "`dola_layers` cannot be used with beams, which are chosen by the model's own probabilities");
}
