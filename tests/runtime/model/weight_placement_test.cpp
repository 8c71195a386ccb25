#include "runtime/model/decoder/weight_placement.hpp"

#include "runtime/checkpoint/packed/expert_cache.hpp"

#include <doctest/doctest.h>

#include <algorithm>

using namespace troupe;

namespace {

std::vector<unit_bytes> layers(std::size_t count, std::size_t dense, std::size_t head) {
  std::vector<unit_bytes> units(count, {.dense = dense});
  units.push_back({.dense = head});
  return units;
}

std::size_t streamed(const weight_placement& p) { return static_cast<std::size_t>(std::ranges::count(p.kept, false)); }

} // namespace

TEST_CASE("Weights that fit stay in memory, whole") {
  const auto p = place_weights(layers(4, 100, 50), 0, 450);
  CHECK(p.fits());
  CHECK(streamed(p) == 0);
  CHECK(p.all == 450);
  CHECK(p.memory() == 450);
  CHECK(p.read_bytes == 0);
  CHECK(described(p).empty());
  CHECK(place_weights(layers(4, 100, 50), 0, all_weights).fits());
}

TEST_CASE("As few layers as must be are read for each token, and memory for two of them is set aside") {
  for (std::size_t budget = 0; budget <= 1700; budget += 50) {
    CAPTURE(budget);
    const auto p = place_weights(layers(16, 100, 50), 0, budget);
    CHECK(p.kept_bytes + p.read_bytes == p.all);
    CHECK(p.all == 1650);
    if (p.fits() || budget < 200)
      continue;
    CHECK(p.memory() <= budget);
    CHECK(p.memory() + 200 > std::min<std::size_t>(budget, 1650) - 100); // one more would not have fitted
    CHECK(p.passing_bytes == (streamed(p) == 1 ? 100 : 200));
  }
  const auto none = place_weights(layers(16, 100, 50), 0, 0);
  CHECK(streamed(none) == 17);
  CHECK(none.read_bytes == 1650);
  CHECK(described(place_weights(layers(16, std::size_t(1) << 20, 0), 0, 10 << 20)) ==
        "of which 8.0 MiB stay in memory and each token reads 8.0 MiB from disk");
}

TEST_CASE("Layers that are read are at equal distances, so that there is time to read ahead") {
  const auto p = place_weights(layers(15, 100, 100), 0, 1400);
  CHECK(streamed(p) == 4); // 1200 stay, 200 pass
  std::vector<std::size_t> at;
  for (std::size_t i = 0; i < p.kept.size(); ++i)
    if (!p.kept[i])
      at.push_back(i);
  CHECK(at == std::vector<std::size_t>{2, 6, 10, 14});
}

TEST_CASE(
  "Of a mixture, what all tokens need stays before experts do, and tokens read the experts that are not there") {
  std::vector<unit_bytes> units(4, {.dense = 100, .experts = std::vector<std::size_t>(8, 50)});
  units.push_back({.dense = 200});
  const auto p = place_weights(units, 2, 1500); // of 600 dense and 1600 of experts
  CHECK(streamed(p) == 0);
  CHECK(p.kept_bytes == 600);
  CHECK(p.passing_bytes == 100); // the chosen ones of a layer
  CHECK(p.expert_bytes == 800);
  CHECK(p.read_bytes == 200); // half of 4 layers * 2 * 50
  CHECK(!p.fits());
  const auto tight = place_weights(units, 2, 450);
  CHECK(tight.expert_bytes == 0);
  CHECK(streamed(tight) > 0);
  CHECK(tight.read_bytes >= 400);
  CHECK(place_weights(units, 2, 2200).fits());
}

TEST_CASE("Experts that are chosen most stay in memory, and those of the moment are never sent away") {
  expert_cache cache({{10, 10, 10, 10}, {10, 10, 10, 10}}, 40);
  using expert = expert_cache::expert;
  const auto choose = [&](std::size_t unit, std::vector<int> numbers) { return cache.choose(unit, numbers); };
  CHECK(choose(0, {0, 1}).empty());
  CHECK(choose(1, {0, 1}).empty());
  CHECK(choose(0, {0, 1}).empty());
  CHECK(cache.bytes() == 40);
  CHECK(choose(1, {0, 2}) == std::vector<expert>{{1, 1}}); // chosen once
  CHECK(choose(0, {0, 3}) == std::vector<expert>{{1, 2}}); // once, and longer ago than 0:3
  CHECK(cache.holds(0, 0));
  CHECK(!cache.holds(1, 2));
  CHECK(choose(1, {0, 1, 2, 3}).size() == 3); // all that a prompt needs of one layer, and only that
  CHECK(cache.bytes() == 40);
  expert_cache small({{10, 10, 10}}, 15);
  CHECK(small.choose(0, std::vector<int>{0, 1, 2}).empty());
  CHECK(small.bytes() == 30);
  CHECK(small.choose(0, std::vector<int>{2}).size() == 2);
}

TEST_CASE("Experts that were popular long ago make way") {
  expert_cache cache({{1, 1, 1}}, 2);
  for (int i = 0; i < 40; ++i)
    cache.choose(0, std::vector<int>{0});
  std::size_t choices = 0;
  for (; cache.holds(0, 0) && choices < 1000; ++choices)
    cache.choose(0, std::vector<int>{1 + static_cast<int>(choices % 2)});
  CHECK(choices < 400);
}
