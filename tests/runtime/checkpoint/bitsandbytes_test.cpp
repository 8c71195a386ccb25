// bitsandbytes' checkpoints: LLM.int8, NF4 and FP4.
#include "runtime/checkpoint/quantised/bitsandbytes_checkpoint.hpp"

#include "kernels/formats/bf16.hpp"
#include "kernels/formats/f16.hpp"
#include "tests/runtime/checkpoint/memory_checkpoint.hpp"
#include "tests/runtime/model/model_test_data.hpp"

#include <cmath>
#include <functional>
#include <random>

using namespace troupe;
using namespace troupe::test;

namespace {

const std::string bnb_stem = "model.layers.0.mlp.up_proj.weight";

/// A matrix of 6 outputs and 40 inputs, so that blocks cross rows and the last is short, and its exact weights.
struct four_bit_matrix {
  memory_checkpoint stored;
  std::vector<double> weights;

  explicit four_bit_matrix(const std::string& kind, bool nested, const std::string& type = "float32") {
    constexpr std::size_t outputs = 6, inputs = 40, count = outputs * inputs, block = 64, blocks = 4, nested_block = 2;
    std::mt19937 random(kind.size() + nested);
    std::vector<float> map(16), nested_map(256), absmax(blocks), nested_absmax(blocks / nested_block);
    for (std::size_t i = 0; i < 16; ++i)
      map[i] = float(i) / 8 - 1;
    for (std::size_t i = 0; i < 256; ++i)
      nested_map[i] = float(i) / 128 - 1;
    std::vector<std::uint8_t> codes(count / 2), scale_codes(blocks);
    for (auto& c : codes)
      c = static_cast<std::uint8_t>(random());
    for (auto& c : scale_codes)
      c = static_cast<std::uint8_t>(random());
    for (auto& a : nested_absmax)
      a = 0.01f + float(random() % 100) / 1000;
    const float offset = 0.05f;
    for (std::size_t b = 0; b < blocks; ++b)
      absmax[b] = nested ? nested_map[scale_codes[b]] * nested_absmax[b / nested_block] + offset
                         : 0.01f + float(random() % 100) / 1000;
    for (std::size_t i = 0; i < count; ++i)
      weights.push_back(double(map[i % 2 == 0 ? codes[i / 2] / 16 : codes[i / 2] % 16]) * absmax[i / block]);
    stored.put(bnb_stem, tensor_type::u8, {count / 2, 1}, codes);
    stored.put(bnb_stem + ".quant_map", tensor_type::f32, {16}, map);
    std::string state = R"({"quant_type": ")" + kind + R"(", "blocksize": 64, "dtype": ")" + type +
      R"(", "shape": [6, 40])";
    if (nested) {
      stored.put(bnb_stem + ".absmax", tensor_type::u8, {blocks}, scale_codes);
      stored.put(bnb_stem + ".nested_absmax", tensor_type::f32, {blocks / nested_block}, nested_absmax);
      stored.put(bnb_stem + ".nested_quant_map", tensor_type::f32, {256}, nested_map);
      state += R"(, "nested_blocksize": 2, "nested_dtype": "float32", "nested_offset": 0.05)";
    } else {
      stored.put(bnb_stem + ".absmax", tensor_type::f32, {blocks}, absmax);
    }
    state += "}";
    set_state(kind, state);
    stored.put("model.norm.weight", tensor_type::f32, {1}, std::vector<float>{1});
  }

  void set_state(const std::string& kind, const std::string& state) {
    const std::vector<char> bytes(state.begin(), state.end());
    stored.put(bnb_stem + ".quant_state.bitsandbytes__" + kind, tensor_type::u8, {bytes.size()}, bytes);
  }

  std::unique_ptr<const checkpoint> open() const {
    return open_bitsandbytes(std::make_unique<memory_checkpoint>(stored));
  }
};

} // namespace

TEST_CASE("NF4 and FP4 are expanded by their tables and the scales of blocks, which may be nested") {
  for (const std::string kind : {"nf4", "fp4"})
    for (const bool nested : {false, true})
      for (const std::string type : {"float32", "bfloat16", "float16"}) {
        CAPTURE(kind);
        CAPTURE(nested);
        CAPTURE(type);
        const four_bit_matrix matrix(kind, nested, type);
        const auto opened = matrix.open();
        CHECK(opened->tensors() == std::vector<std::string>{bnb_stem, "model.norm.weight"});
        const auto& info = *opened->find(bnb_stem);
        CHECK(info.shape == std::vector<std::size_t>{6, 40});
        CHECK(info.type ==
              (type == "float32"     ? tensor_type::f32
                 : type == "float16" ? tensor_type::f16
                                     : tensor_type::bf16));
        const auto weights = presented_weights(*opened, bnb_stem);
        for (std::size_t i = 0; i < weights.size(); ++i)
          CHECK(std::abs(weights[i] - matrix.weights[i]) <= std::abs(matrix.weights[i]) *
                    (type == "float32"     ? 1e-6
                       : type == "float16" ? 0x1p-11
                                           : 0x1p-8) +
                  1e-8);
      }
}

TEST_CASE("LLM.int8 becomes Q8_0; rows that fill no blocks, or have tiny scales, become floats") {
  const auto opened_with = [](std::size_t inputs, float scb) {
    memory_checkpoint stored;
    std::vector<std::int8_t> codes(3 * inputs);
    for (std::size_t i = 0; i < codes.size(); ++i)
      codes[i] = static_cast<std::int8_t>(int(i * 37 % 255) - 127);
    stored.put("l.weight", tensor_type::i8, {3, inputs}, codes);
    stored.put("l.SCB", tensor_type::f32, {3}, std::vector<float>{scb, 2 * scb, 0});
    stored.put("l.weight_format", tensor_type::u8, {}, std::vector<std::uint8_t>{0});
    return open_bitsandbytes(std::make_unique<memory_checkpoint>(stored));
  };
  for (const auto& [inputs, scb, type, error] :
       {std::tuple{std::size_t(64), 0.8f, tensor_type(tensor_type::q8_0), 0x1p-11},
        {std::size_t(20), 0.8f, tensor_type(tensor_type::f16), 0x1p-11},
        {std::size_t(64), 1e-4f, tensor_type(tensor_type::f32), 1e-6}}) {
    CAPTURE(inputs);
    CAPTURE(scb);
    const auto opened = opened_with(inputs, scb);
    CHECK(opened->tensors() == std::vector<std::string>{"l.weight"});
    CHECK(opened->find("l.weight")->type == type);
    const auto weights = presented_weights(*opened, "l.weight");
    for (std::size_t i = 0; i < weights.size(); ++i) {
      const double scale = i / inputs == 2 ? 0 : double(scb) * double(1 + i / inputs) / 127;
      const double want = scale * (int(i * 37 % 255) - 127);
      CHECK(std::abs(weights[i] - want) <= std::abs(want) * error);
    }
  }
}

TEST_CASE("Hostile bitsandbytes checkpoints are refused by tensor") {
  const auto refusal = [](bool nested, const std::function<void(four_bit_matrix&)>& damage) {
    four_bit_matrix matrix("nf4", nested);
    damage(matrix);
    return failure_of([&] { presented_weights(*matrix.open(), bnb_stem); });
  };
  const std::string at = "m.safetensors: tensor `" + bnb_stem;
  const std::string state = "nf4";
  CHECK(refusal(false, [](four_bit_matrix&) {}).empty());
  CHECK(refusal(false, [](four_bit_matrix& m) { m.stored.drop(bnb_stem + ".absmax"); }) == at + ".absmax` is missing");
  CHECK(refusal(false, [](four_bit_matrix& m) { m.stored.drop(bnb_stem + ".quant_map"); }) ==
        at + ".quant_map` is missing");
  CHECK(refusal(false, [](four_bit_matrix& m) { m.stored.drop(bnb_stem); }) == at + "` is missing");
  CHECK(refusal(true, [](four_bit_matrix& m) { m.stored.drop(bnb_stem + ".nested_absmax"); }) ==
        at + ".nested_absmax` is missing");
  CHECK(refusal(true, [](four_bit_matrix& m) { m.stored.drop(bnb_stem + ".nested_quant_map"); }) ==
        at + ".nested_quant_map` is missing");
  CHECK(refusal(false, [](four_bit_matrix& m) {
          m.stored.put(bnb_stem + ".quant_map", tensor_type::f32, {8}, std::vector<float>(8));
        }) == at + ".quant_map` has the shape [8], expected [16]");
  CHECK(refusal(false, [](four_bit_matrix& m) {
          m.stored.put(bnb_stem + ".absmax", tensor_type::f32, {3}, std::vector<float>(3));
        }) == at + ".absmax` has the shape [3], expected [4]");
  CHECK(refusal(false, [](four_bit_matrix& m) {
          m.stored.put(bnb_stem + ".absmax", tensor_type::u8, {4}, std::vector<char>(4));
        }) == at + ".absmax` is U8 [4], expected F32");
  CHECK(refusal(true, [](four_bit_matrix& m) {
          m.stored.put(bnb_stem + ".nested_absmax", tensor_type::f32, {1}, std::vector<float>(1));
        }) == at + ".nested_absmax` has the shape [1], expected [2]");
  CHECK(refusal(false, [](four_bit_matrix& m) {
          m.stored.put(bnb_stem, tensor_type::u8, {119, 1}, std::vector<char>(119));
        }) == at + "` has 119 bytes of codes, expected 120 for the shape [6, 40]");
  const std::string said = at + ".quant_state.bitsandbytes__nf4`";
  CHECK(refusal(false, [](four_bit_matrix& m) { m.set_state("nf4", R"({"blocksize": 64})"); }) ==
        said + " does not say the `shape` of a matrix");
  CHECK(refusal(false, [](four_bit_matrix& m) { m.set_state("nf4", R"({"shape": [6, 40, 1]})"); }) ==
        said + " does not say the `shape` of a matrix");
  CHECK(refusal(false, [](four_bit_matrix& m) { m.set_state("nf4", R"({"shape": [6, -40]})"); }).find("`shape`") !=
        std::string::npos);
  CHECK(refusal(false, [](four_bit_matrix& m) {
          m.set_state("nf4", R"({"shape": [1073741824, 1073741824]})");
        }).find(" bytes of codes, expected ") != std::string::npos);
  CHECK(refusal(false, [](four_bit_matrix& m) {
          m.set_state("nf4", R"({"shape": [6, 40], "blocksize": 0})");
        }).find("`blocksize` must be from 1") != std::string::npos);
  CHECK(refusal(false, [](four_bit_matrix& m) { m.set_state("nf4", R"({"shape": [6, 40], "dtype": "int8"})"); }) ==
        said + " has the `dtype` `int8`, expected bfloat16, float16 or float32");
  CHECK(!refusal(false, [](four_bit_matrix& m) { m.set_state("nf4", "{"); }).empty());
  CHECK(!refusal(false, [](four_bit_matrix& m) { m.set_state("nf4", "[]"); }).empty());
  CHECK(refusal(false, [](four_bit_matrix& m) {
          m.set_state("af4", R"({"shape": [6, 40]})");
        }).find("says codes of the kind `af4`, expected nf4 or fp4") != std::string::npos);

  memory_checkpoint int8;
  int8.put("l.SCB", tensor_type::f32, {3}, std::vector<float>(3));
  const auto refused = [&] {
    return failure_of([&] { open_bitsandbytes(std::make_unique<memory_checkpoint>(int8)); });
  };
  CHECK(refused() == "m.safetensors: tensor `l.weight` is missing");
  int8.put("l.weight", tensor_type::i8, {4, 32}, std::vector<char>(128));
  CHECK(refused() == "m.safetensors: tensor `l.SCB` has the shape [3], expected [4]");
  int8.put("l.weight", tensor_type::i8, {128}, std::vector<char>(128));
  CHECK(refused() == "m.safetensors: tensor `l.weight` has the shape [128], expected a matrix");
  int8.put("l.weight", tensor_type::f16, {3, 32}, std::vector<std::uint16_t>(96));
  CHECK(refused() == "m.safetensors: tensor `l.weight` is F16 [3, 32], expected I8");
}
