#include "runtime/checkpoint/arranged_checkpoint.hpp"

#include "kernels/formats/e4m3.hpp"
#include "tests/runtime/checkpoint/memory_checkpoint.hpp"
#include "tests/runtime/model/model_test_data.hpp"

#include <cstring>
#include <map>
#include <numeric>

using namespace troupe;
using namespace troupe::test;

namespace {

/// f32 tensors with the values 0, 1, 2, ...; i64 where their names say so.
class counted_checkpoint final : public checkpoint {
public:
  explicit counted_checkpoint(const std::map<std::string, std::vector<std::size_t>>& shapes) {
    for (const auto& [name, shape] : shapes) {
      std::size_t count = 1;
      for (const auto dimension : shape)
        count *= dimension;
      tensors_[name] = name == "i64" ? tensor_info{tensor_type::i64, shape, count * sizeof(std::int64_t)}
                                     : tensor_info{tensor_type::f32, shape, count * sizeof(float)};
    }
  }

  std::string name() const override { return "m"; }
  std::vector<std::string> tensors() const override {
    std::vector<std::string> names;
    for (const auto& [name, _] : tensors_)
      names.push_back(name);
    return names;
  }
  const tensor_info* find(std::string_view tensor) const override {
    const auto found = tensors_.find(tensor);
    return found == tensors_.end() ? nullptr : &found->second;
  }
  tensor_data read(std::string_view tensor) const override {
    if (tensor == "i64") {
      const auto all = find(tensor)->bytes / sizeof(std::int64_t);
      std::shared_ptr<std::int64_t[]> numbers(new std::int64_t[all]);
      std::iota(numbers.get(), numbers.get() + all, 0);
      return numbers;
    }
    const auto count = find(tensor)->bytes / sizeof(float);
    std::shared_ptr<float[]> values(new float[count]);
    for (std::size_t i = 0; i < count; ++i)
      values[i] = static_cast<float>(i);
    return values;
  }
  std::string where(std::string_view) const override { return "m.safetensors"; }

private:
  std::map<std::string, tensor_info, std::less<>> tensors_;
};

std::unique_ptr<const checkpoint> arranged(const std::map<std::string, std::vector<std::size_t>>& shapes,
                                           const arrangement& how) {
  return arrange(std::make_unique<counted_checkpoint>(shapes), how);
}

std::vector<float> floats_of(const checkpoint& tensors, const std::string& name) {
  const auto data = tensors.read(name);
  const auto* values = static_cast<const float*>(data.get());
  return {values, values + tensors.find(name)->bytes / sizeof(float)};
}

row_order list_of(std::vector<std::uint32_t> rows) {
  return std::make_shared<const std::vector<std::uint32_t>>(std::move(rows));
}

} // namespace

TEST_CASE("Stored tensors are presented whole, in part, transposed, shifted, or as one slice of several") {
  arrangement how;
  how.tensors["whole"] = {.name = "a"};
  how.tensors["part"] = {.name = "a", .rows = list_of({1, 2})};
  how.tensors["order"] = {.name = "a", .rows = list_of({2, 0})};
  how.tensors["turned"] = {.name = "a", .transposed = true};
  how.tensors["turned_part"] = {.name = "a", .transposed = true, .rows = list_of({1})};
  how.tensors["shifted"] = {.name = "v", .offset = 1};
  how.tensors["elements"] = {.name = "v", .rows = list_of({3, 1})};
  how.tensors["slice"] = {.name = "three", .slices = 2, .slice = 1};
  how.tensors["slice_turned"] = {.name = "three", .slices = 2, .slice = 1, .transposed = true, .rows = list_of({0, 2})};
  how.tensors["row"] = {.name = "v", .as_row = true};
  how.tensors["numbers"] = {.name = "i64", .integers = true};
  const auto tensors = arranged({{"a", {3, 2}}, {"v", {4}}, {"three", {2, 2, 3}}, {"i64", {2, 2}}}, how);
  using list_type = std::vector<float>;
  using shape = std::vector<std::size_t>;
  const auto check = [&](const char* name, const shape& expected_shape, const list_type& expected) {
    CAPTURE(name);
    CHECK(tensors->find(name)->shape == expected_shape);
    CHECK(floats_of(*tensors, name) == expected);
  };
  check("whole", {3, 2}, {0, 1, 2, 3, 4, 5});
  check("part", {2, 2}, {2, 3, 4, 5});
  check("order", {2, 2}, {4, 5, 0, 1});
  check("turned", {2, 3}, {0, 2, 4, 1, 3, 5});
  check("turned_part", {1, 3}, {1, 3, 5});
  check("shifted", {4}, {1, 2, 3, 4});
  check("elements", {2}, {3, 1});
  check("slice", {2, 3}, {6, 7, 8, 9, 10, 11});
  check("slice_turned", {2, 2}, {6, 9, 8, 11});
  check("row", {1, 4}, {0, 1, 2, 3});
  check("numbers", {2, 2}, {0, 1, 2, 3});
}

TEST_CASE("Matrices in fp8 are scaled, too, row by row") {
  constexpr std::size_t rows = 2, cols = 130;
  using kernels::weight_format;
  std::vector<std::uint8_t> bytes(rows * row_bytes(weight_format::fp8_128, cols));
  std::vector<float> want;
  for (std::size_t r = 0; r < rows; ++r)
    for (std::size_t c = 0; c < cols; ++c) {
      auto* row = &bytes[r * row_bytes(weight_format::fp8_128, cols)];
      const float scale = static_cast<float>(1 + r + c / 128), code = static_cast<float>(c % 9);
      std::memcpy(row + fp8_scale_offset(weight_format::fp8_128, c), &scale, sizeof scale);
      row[fp8_offset(weight_format::fp8_128, c)] = kernels::to_e4m3(code);
      want.push_back(code * scale * 0.5f);
    }
  auto stored = std::make_unique<memory_checkpoint>();
  stored->put("a", tensor_type::fp8_128, {rows, cols}, bytes);
  arrangement how;
  how.tensors["scaled"] = {.name = "a", .factor = 0.5f};
  const auto tensors = arrange(std::move(stored), how);
  CHECK(tensors->find("scaled")->type == tensor_type::f32);
  CHECK(floats_of(*tensors, "scaled") == want);
}

TEST_CASE("Tensors that are used are hidden, others keep their names or change a prefix") {
  arrangement how;
  how.tensors["q"] = {.name = "h.0.qkv", .rows = list_of({0})};
  how.prefixes.emplace_back("h.", "layers.");
  const auto tensors = arranged({{"h.0.qkv", {3, 2}}, {"h.0.extra", {1}}, {"other", {1}}}, how);
  auto names = tensors->tensors();
  std::ranges::sort(names);
  CHECK(names == std::vector<std::string>{"layers.0.extra", "other", "q"});
  CHECK(!tensors->find("h.0.qkv"));
  CHECK(tensors->where("q") == "m.safetensors (`h.0.qkv`)");
  CHECK(floats_of(*tensors, "layers.0.extra") == std::vector<float>{0});
}

TEST_CASE("A stored tensor that cannot be arranged is refused by its own name, and a missing one stays missing") {
  const auto said = [](const stored_part& part, const std::vector<std::size_t>& shape) {
    arrangement how;
    how.tensors["q"] = part;
    return failure_of([&] { arranged({{"a", shape}}, how); });
  };
  CHECK(said({.name = "a", .rows = list_of({0}), .of_rows = 4}, {3, 2}) ==
        "m.safetensors: tensor `a` has the shape [3, 2], expected 4 rows");
  CHECK(said({.name = "a", .transposed = true, .of_rows = 4}, {3, 2}) ==
        "m.safetensors: tensor `a` has the shape [3, 2], expected 4 columns");
  CHECK(said({.name = "a", .rows = list_of({3})}, {3, 2}) ==
        "m.safetensors: tensor `a` has the shape [3, 2], which is too small");
  CHECK(said({.name = "a", .slices = 4}, {3, 2, 2}) ==
        "m.safetensors: tensor `a` has the shape [3, 2, 2], expected an outermost dimension of 4");
  CHECK(said({.name = "a"}, {3, 2, 2}) ==
        "m.safetensors: tensor `a` has the shape [3, 2, 2], which is neither a matrix nor a vector");
  CHECK(said({.name = "a", .integers = true}, {3, 2}) ==
        "m.safetensors: tensor `a` is stored as F32, supported are I32 and I64");
  CHECK(said({.name = "b"}, {3, 2}).empty());
}
