#include "kernels/formats/weight_format.hpp"

#include <doctest/doctest.h>

#include <set>
#include <string>

using namespace troupe::kernels;

TEST_CASE("the table of weight formats is consistent") {
  std::set<std::string> names;
  std::set<int> numbers;
  for (const auto& traits : weight_formats) {
    CAPTURE(traits.name);
    CHECK(names.insert(traits.name).second);
    CHECK(traits_of(traits.format).name == traits.name);
    CHECK(traits.block_bytes > 0);
    CHECK(row_bytes(traits.format, 2 * traits.block_inputs) == traits.row_header + 2 * traits.block_bytes);
    if (traits.ggml_type >= 0) {
      CHECK(numbers.insert(traits.ggml_type).second);
      CHECK(format_of_ggml_type(static_cast<std::uint32_t>(traits.ggml_type)) == traits.format);
    }
    CHECK(has_groups(traits.format) == is_grouped(traits.on_cpu));
    CHECK((has_groups(traits.format) || !is_grouped(traits.on_gpu))); // GPUs may expand groups
    if (is_float(traits.format))
      CHECK(traits.block_bytes == size_of(dtype_of(traits.format)));
  }
  CHECK(!format_of_ggml_type(4)); // Q4_2, removed from ggml
  CHECK(!format_of_ggml_type(1000));
}
