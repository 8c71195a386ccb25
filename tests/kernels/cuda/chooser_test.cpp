#include "kernels/cuda/linear_chooser.hpp"

#include <doctest/doctest.h>

#include <vector>

using namespace troupe::kernels::cuda;
using troupe::kernels::weight_kind;

TEST_CASE("CUDA: the chooser measures each shape and bucket of rows at most once, and only in between its limits") {
  linear_chooser chooser;
  std::vector<linear_method> asked;
  float flat = 1, library = 2;
  const auto measure = [&](linear_method method) {
    asked.push_back(method);
    return method == linear_method::flat ? flat : library;
  };
  const linear_shape shape{weight_kind::q4, false, 4096, 1024};
  CHECK(chooser.choose(shape, 1, measure) == linear_method::flat);
  CHECK(chooser.choose(shape, 8, measure) == linear_method::flat);
  CHECK(chooser.choose(shape, 512, measure) == linear_method::library);
  CHECK(asked.empty());
  CHECK(chooser.choose(shape, 9, measure) == linear_method::flat);
  CHECK(asked.size() == 2);
  library = 0.5f; // must not change earlier choices
  CHECK(chooser.choose(shape, 16, measure) == linear_method::flat);
  CHECK(asked.size() == 2);
  CHECK(chooser.choose(shape, 17, measure) == linear_method::library);
  CHECK(chooser.choose({weight_kind::q4, true, 4096, 1024}, 12, measure) == linear_method::library);
  CHECK(chooser.choose({weight_kind::bf16, false, 4096, 1024}, 12, measure) == linear_method::library);
  CHECK(asked.size() == 8);
}
