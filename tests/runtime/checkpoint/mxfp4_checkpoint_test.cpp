#include "runtime/checkpoint/quantised/mxfp4_checkpoint.hpp"

#include "runtime/checkpoint/safetensors.hpp"
#include "tests/runtime/model/model_test_data.hpp"

#include <cstring>

using namespace troupe;
using namespace troupe::test;

namespace {

/// Two experts of two rows of 32 inputs. Byte k of row r holds the codes 2k and 2k + 1 (modulo 16); the scales are
/// 2^(3 expert + r - 3).
std::unique_ptr<const checkpoint> opened(const temp_folder& folder, const std::string& scales_shape = "[2, 2, 1]",
                                         const std::string& type = "U8", int last_exponent = 128) {
  auto file = safetensors(R"({"e.w_blocks": {"dtype": "U8", "shape": [2, 2, 1, 16], "data_offsets": [0, 64]}, )"
                          R"("e.w_scales": {"dtype": ")" +
                            type + R"(", "shape": )" + scales_shape + R"(, "data_offsets": [64, 68]}})",
                          0);
  for (int row = 0; row < 4; ++row)
    for (int k = 0; k < 16; ++k)
      file += static_cast<char>(2 * k % 16 | (2 * k + 1) % 16 << 4);
  for (int row = 0; row < 3; ++row)
    file += static_cast<char>(127 + row / 2 * 3 + row % 2 - 3);
  file += static_cast<char>(last_exponent);
  write(folder.path() / "model.safetensors", file);
  return open_mxfp4(open_safetensors(folder.path()));
}

} // namespace

TEST_CASE("Each expert in MXFP4 is presented as a matrix of its own, with exact values") {
  const temp_folder folder;
  const auto tensors = opened(folder);
  CHECK(tensors->tensors() == std::vector<std::string>{"e.w.0", "e.w.1"});
  constexpr float codes[] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6, -0.0f, -0.5f, -1, -1.5f, -2, -3, -4, -6};
  for (int expert = 0; expert < 2; ++expert) {
    const auto name = "e.w." + std::to_string(expert);
    REQUIRE(tensors->find(name)->shape == std::vector<std::size_t>{2, 32});
    const auto data = tensors->read(name);
    for (int i = 0; i < 64; ++i) {
      const std::uint32_t bits = std::uint32_t{static_cast<const std::uint16_t*>(data.get())[i]} << 16;
      float value = 0;
      std::memcpy(&value, &bits, sizeof value);
      CHECK(value == codes[i % 16] * std::ldexp(1.0f, expert * 3 + i / 32 - 3));
    }
  }
}

TEST_CASE("MXFP4 experts with missing or misshaped scales are refused by name") {
  const temp_folder folder;
  CHECK(failure_of([&] {
          opened(folder, "[2, 1, 2]");
        }).ends_with("tensor `e.w_scales` has the shape [2, 1, 2], expected [2, 2, 1]"));
  CHECK(failure_of([&] {
          opened(folder, "[2, 2, 1]", "I8");
        }).ends_with("tensor `e.w_scales` is I8 [2, 2, 1], expected U8"));
  write(folder.path() / "model.safetensors",
        safetensors(R"({"e.w_blocks": {"dtype": "U8", "shape": [2, 2, 1, 16], "data_offsets": [0, 64]}})", 64));
  CHECK(failure_of([&] { open_mxfp4(open_safetensors(folder.path())); }).ends_with("tensor `e.w_scales` is missing"));
}

TEST_CASE("An expert with an exponent of 255 is refused by its tensor, and no other is") {
  const temp_folder folder;
  const auto tensors = opened(folder, "[2, 2, 1]", "U8", 255);
  CHECK(failure_of([&] { tensors->read("e.w.0"); }).empty());
  CHECK(failure_of([&] {
          tensors->read("e.w.1");
        }).ends_with("model.safetensors: tensor `e.w_scales` has an exponent of 255, which is no number"));
}
