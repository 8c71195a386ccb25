#include "runtime/techniques/steering/contrast.hpp"

#include "runtime/support/error.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <random>

using namespace troupe;

TEST_CASE("The mean difference is as long as the lists lie apart") {
  CHECK(contrast(contrast_method::mean, {{1, 0}, {3, 2}}, {{0, 4}}) == std::vector<float>{2, -3});
  CHECK(contrast(contrast_method::mean, {{1, 2}}, {{1, 2}}).empty());
}

TEST_CASE("The first principal component points along the widest differences, to the positive side") {
  std::mt19937 random(7);
  std::normal_distribution<float> noise(0, 0.01f);
  layer_states positive, negative;
  for (int i = 0; i < 40; ++i) { // along (3, 4) / 5, to both sides but mostly to the negative
    const float along = static_cast<float>(i % 4 == 0 ? 1 : -1);
    positive.push_back({3 * along + noise(random), 4 * along + noise(random)});
    negative.push_back({0, 0});
  }
  const auto found = contrast(contrast_method::pca, positive, negative);
  REQUIRE(found.size() == 2);
  CHECK(found[0] == doctest::Approx(-0.6).epsilon(0.01));
  CHECK(found[1] == doctest::Approx(-0.8).epsilon(0.01));
  CHECK(contrast(contrast_method::pca, negative, negative).empty());
}

TEST_CASE("Differences that cancel have a principal component all the same") {
  const auto found = contrast(contrast_method::pca, {{0, 1, 0}, {0, -1, 0}}, {{0, 0, 0}, {0, 0, 0}});
  REQUIRE(found.size() == 3);
  CHECK(std::abs(found[1]) == 1);
}

TEST_CASE("Lists that a method cannot compare are refused") {
  CHECK_THROWS_WITH_AS(check_contrast(contrast_method::mean, 0, 2), "there are no positive prompts", failure);
  CHECK_THROWS_WITH_AS(check_contrast(contrast_method::mean, 2, 0), "there are no negative prompts", failure);
  CHECK_THROWS_WITH_AS(check_contrast(contrast_method::pca, 3, 2),
                       "pca compares pairs of prompts, but there are 3 positive and 2 negative ones", failure);
  CHECK_NOTHROW(check_contrast(contrast_method::mean, 3, 2));
}
