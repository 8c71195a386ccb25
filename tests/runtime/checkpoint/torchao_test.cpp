// torchao's checkpoints: int8, int4 and float8.
#include "runtime/checkpoint/quantised/torchao_checkpoint.hpp"

#include "kernels/formats/e4m3.hpp"
#include "tests/runtime/checkpoint/memory_checkpoint.hpp"
#include "tests/runtime/model/model_test_data.hpp"

#include <cmath>

using namespace troupe;
using namespace troupe::test;

namespace {

constexpr std::size_t ao_outputs = 6, ao_inputs = 64;
const std::string ao_stem = "model.layers.0.mlp.up_proj.";

std::vector<float> ao_numbers(std::size_t count, float low) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i)
    values[i] = low + 0.001f * float(i * 7 % 11);
  return values;
}

int ao_code(std::size_t i, int levels) { return int(i * 29 % static_cast<std::size_t>(levels)) - levels / 2; }

std::vector<std::int8_t> byte_codes(int levels) {
  std::vector<std::int8_t> codes(ao_outputs * ao_inputs);
  for (std::size_t i = 0; i < codes.size(); ++i)
    codes[i] = static_cast<std::int8_t>(ao_code(i, levels));
  return codes;
}

std::vector<std::uint8_t> nibble_codes() {
  std::vector<std::uint8_t> packed(ao_outputs * ao_inputs / 2);
  for (std::size_t i = 0; i < packed.size(); ++i)
    packed[i] = static_cast<std::uint8_t>((ao_code(2 * i, 16) & 15) | (ao_code(2 * i + 1, 16) & 15) << 4);
  return packed;
}

std::unique_ptr<const checkpoint> open_ao(const memory_checkpoint& stored) {
  return open_torchao(std::make_unique<memory_checkpoint>(stored));
}

} // namespace

TEST_CASE("torchao's int8 has a scale for each output, and may have zero points") {
  memory_checkpoint stored;
  const auto scales = ao_numbers(ao_outputs, 0.002f);
  stored.put(ao_stem + "_weight_qdata", tensor_type::i8, {ao_outputs, ao_inputs}, byte_codes(256));
  stored.put(ao_stem + "_weight_scale", tensor_type::f32, {ao_outputs, 1}, scales);
  stored.put(ao_stem + "_weight_zero_point", tensor_type::i8, {ao_outputs, 1}, std::vector<std::int8_t>(ao_outputs));
  stored.put("model.norm.weight", tensor_type::f32, {1}, std::vector<float>{1});
  auto opened = open_ao(stored);
  CHECK(opened->tensors() == std::vector<std::string>{ao_stem + "weight", "model.norm.weight"});
  CHECK(opened->find(ao_stem + "weight")->type == tensor_type::q8_0);
  auto weights = presented_weights(*opened, ao_stem + "weight");
  for (std::size_t i = 0; i < weights.size(); ++i)
    CHECK(weights[i] == doctest::Approx(scales[i / ao_inputs] * float(ao_code(i, 256))).epsilon(0x1p-11));

  stored.put(ao_stem + "_weight_zero_point", tensor_type::i8, {ao_outputs, 1},
             std::vector<std::int8_t>{1, -2, 3, 0, 5, 6});
  opened = open_ao(stored);
  CHECK(opened->find(ao_stem + "weight")->type == tensor_type::f16);
  weights = presented_weights(*opened, ao_stem + "weight");
  constexpr int zeros[] = {1, -2, 3, 0, 5, 6};
  for (std::size_t i = 0; i < weights.size(); ++i)
    CHECK(std::abs(weights[i] - scales[i / ao_inputs] * float(ao_code(i, 256) - zeros[i / ao_inputs])) < 8e-4);
}

TEST_CASE("torchao's int4 has scales and offsets by group, the other way round") {
  constexpr std::size_t groups = 2;
  memory_checkpoint stored;
  const auto scales = ao_numbers(groups * ao_outputs, 0.01f), offsets = ao_numbers(groups * ao_outputs, -0.004f);
  stored.put(ao_stem + "_weight_qdata", tensor_type::i8, {ao_outputs, ao_inputs / 2}, nibble_codes());
  stored.put(ao_stem + "_weight_scale", tensor_type::f32, {groups, ao_outputs}, scales);
  stored.put(ao_stem + "_weight_zero_point", tensor_type::f32, {groups, ao_outputs}, offsets);
  auto opened = open_ao(stored);
  CHECK(opened->find(ao_stem + "weight")->type == tensor_type::q4_1);
  CHECK(opened->find(ao_stem + "weight")->shape == std::vector<std::size_t>{ao_outputs, ao_inputs});
  auto weights = presented_weights(*opened, ao_stem + "weight");
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const auto at = i % ao_inputs / (ao_inputs / groups) * ao_outputs + i / ao_inputs;
    CHECK(std::abs(weights[i] - (scales[at] * float(ao_code(i, 16)) + offsets[at])) < 2e-4);
  }
  stored.put(ao_stem + "_weight_zero_point", tensor_type::f32, {groups, ao_outputs},
             std::vector<float>(groups * ao_outputs));
  opened = open_ao(stored);
  CHECK(opened->find(ao_stem + "weight")->type == tensor_type::q4_0);
  weights = presented_weights(*opened, ao_stem + "weight");
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const auto at = i % ao_inputs / (ao_inputs / groups) * ao_outputs + i / ao_inputs;
    CHECK(weights[i] == doctest::Approx(scales[at] * float(ao_code(i, 16))).epsilon(0x1p-11));
  }
}

TEST_CASE("torchao's few bits in bytes, and float8") {
  constexpr std::size_t groups = 2;
  memory_checkpoint stored;
  const auto scales = ao_numbers(groups * ao_outputs, 0.01f);
  stored.put(ao_stem + "_weight_qdata", tensor_type::i8, {ao_outputs, ao_inputs}, byte_codes(16));
  stored.put(ao_stem + "_weight_scale", tensor_type::f32, {ao_outputs, groups}, scales);
  stored.put(ao_stem + "_weight_zero_point", tensor_type::i8, {ao_outputs, groups},
             std::vector<std::int8_t>(groups * ao_outputs));
  auto opened = open_ao(stored);
  CHECK(opened->find(ao_stem + "weight")->type == tensor_type::q4_0);
  auto weights = presented_weights(*opened, ao_stem + "weight");
  for (std::size_t i = 0; i < weights.size(); ++i)
    CHECK(weights[i] == doctest::Approx(scales[i / 32] * float(ao_code(i, 16))).epsilon(0x1p-11));

  memory_checkpoint narrow;
  std::vector<std::uint8_t> codes(ao_outputs * ao_inputs);
  for (std::size_t i = 0; i < codes.size(); ++i)
    codes[i] = static_cast<std::uint8_t>(i * 5 % 0x7f | (i % 2 << 7));
  narrow.put(ao_stem + "_weight_qdata", tensor_type::f8_e4m3, {ao_outputs, ao_inputs}, codes);
  narrow.put(ao_stem + "_weight_scale", tensor_type::f32, {ao_outputs, 1}, ao_numbers(ao_outputs, 0.01f));
  opened = open_ao(narrow);
  CHECK(opened->find(ao_stem + "weight")->type == tensor_type::fp8);
  weights = presented_weights(*opened, ao_stem + "weight");
  for (std::size_t i = 0; i < weights.size(); ++i)
    CHECK(weights[i] == ao_numbers(ao_outputs, 0.01f)[i / ao_inputs] * kernels::from_e4m3(codes[i]));
}

TEST_CASE("Hostile torchao checkpoints are refused by tensor") {
  memory_checkpoint stored;
  const auto qdata = ao_stem + "_weight_qdata", scale = ao_stem + "_weight_scale",
             zero = ao_stem + "_weight_zero_point";
  const auto refused = [&] { return failure_of([&] { presented_weights(*open_ao(stored), ao_stem + "weight"); }); };
  const std::string at = "m.safetensors: tensor `";
  stored.put(qdata, tensor_type::i8, {ao_outputs, ao_inputs}, byte_codes(256));
  CHECK(refused() == at + scale + "` is missing");
  stored.put(scale, tensor_type::i32, {ao_outputs, 1}, std::vector<std::int32_t>(ao_outputs));
  CHECK(refused() == at + scale + "` is I32 [6, 1], expected F32 or BF16 or F16");
  for (const std::vector<std::size_t>& shape :
       {std::vector<std::size_t>{5, 1}, {6, 7}, {7, 6}, {6, 0}, {0, 6}, {6, 2, 2}, {12}}) {
    std::size_t count = 1;
    for (const auto s : shape)
      count *= s;
    stored.put(scale, tensor_type::f32, shape, std::vector<float>(count));
    CHECK(refused().find(at + scale + "` has the shape ") == 0);
  }
  stored.put(scale, tensor_type::f32, {ao_outputs, 1}, ao_numbers(ao_outputs, 1));
  CHECK(refused().empty());
  stored.put(zero, tensor_type::i8, {ao_outputs, 2}, std::vector<char>(2 * ao_outputs));
  CHECK(refused() == at + zero + "` has the shape [6, 2], expected [6, 1]");
  stored.put(zero, tensor_type::u8, {ao_outputs, 1}, std::vector<char>(ao_outputs));
  CHECK(refused().find(at + zero + "` is U8 [6, 1], expected I8 or I32") == 0);
  stored.drop(zero);
  stored.put(ao_stem + "_weight_act_pre_scale", tensor_type::f32, {1}, std::vector<float>{2});
  CHECK(refused() == at + ao_stem + "_weight_act_pre_scale` is there: scales of activations are not supported");
  stored.drop(ao_stem + "_weight_act_pre_scale");
  stored.put(qdata, tensor_type::i32, {1, 2, 32, 4}, std::vector<std::int32_t>(256));
  CHECK(refused() ==
        at + qdata +
          "` is I32 [1, 2, 32, 4], a layout of torchao's for one device; supported are plain int8, int4 and float8");
  stored.put(qdata, tensor_type::i8, {0, 64}, std::vector<char>());
  CHECK(refused() == at + qdata + "` has the shape [0, 64], expected a matrix");
  stored.put(qdata, tensor_type::i8, {ao_outputs, ao_inputs}, byte_codes(256));
  stored.put(ao_stem + "weight", tensor_type::f32, {1}, std::vector<float>{1});
  CHECK(refused() == at + ao_stem + "weight` is there beside `" + qdata + "`");
}
