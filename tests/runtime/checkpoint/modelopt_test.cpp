// Folders of ModelOpt: NVFP4, fp8 and MXFP8, and what is refused.
#include "runtime/checkpoint/quantised/modelopt_checkpoint.hpp"

#include "kernels/formats/e4m3.hpp"
#include "runtime/checkpoint/quantised/fp8_checkpoint.hpp"
#include "runtime/checkpoint/quantised/quantised_storage.hpp"
#include "runtime/support/json/json.hpp"
#include "tests/runtime/checkpoint/memory_checkpoint.hpp"
#include "tests/runtime/model/model_test_data.hpp"

#include <cmath>

using namespace troupe;
using namespace troupe::test;

namespace {

constexpr std::size_t mo_outputs = 4, mo_inputs = 64;
const std::string mo_weight = "model.layers.0.mlp.up_proj.weight";

std::unique_ptr<const checkpoint> open_mo(const memory_checkpoint& stored) {
  return open_fp8(open_modelopt(std::make_unique<memory_checkpoint>(stored)));
}

/// What is read of an hf_quant_config.json, or of config.json's `quantization_config`.
std::optional<quantised_storage> storage_of(const std::string& quantisation, bool beside) {
  const auto text = beside ? R"({"producer": {"name": "modelopt"}, "quantization": )" + quantisation + "}"
                           : R"({"quantization_config": )" + quantisation + "}";
  const auto document = json::document::parse(text, beside ? "hf_quant_config.json" : "config.json");
  return beside ? parse_modelopt_storage(document) : parse_quantised_storage(document);
}

} // namespace

TEST_CASE("ModelOpt's NVFP4: codes times a scale of each 16 times the matrix's") {
  constexpr float values[] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6, -0.0f, -0.5f, -1, -1.5f, -2, -3, -4, -6};
  std::vector<std::uint8_t> codes(mo_outputs * mo_inputs / 2), scales(mo_outputs * mo_inputs / 16);
  for (std::size_t i = 0; i < codes.size(); ++i)
    codes[i] = static_cast<std::uint8_t>(i * 37 + 5);
  for (std::size_t i = 0; i < scales.size(); ++i)
    scales[i] = kernels::to_e4m3(float(1 + i % 9) * 16);
  memory_checkpoint stored;
  stored.put(mo_weight, tensor_type::u8, {mo_outputs, mo_inputs / 2}, codes);
  stored.put(mo_weight + "_scale", tensor_type::f8_e4m3, {mo_outputs, mo_inputs / 16}, scales);
  stored.put(mo_weight + "_scale_2", tensor_type::f32, {}, std::vector<float>{0x1p-9f});
  stored.put("model.layers.0.mlp.up_proj.input_scale", tensor_type::f32, {}, std::vector<float>{1});
  const auto opened = open_mo(stored);
  CHECK(opened->tensors() == std::vector<std::string>{mo_weight});
  CHECK(opened->find(mo_weight)->shape == std::vector<std::size_t>{mo_outputs, mo_inputs});
  const auto weights = presented_weights(*opened, mo_weight);
  for (std::size_t i = 0; i < weights.size(); ++i)
    CHECK(weights[i] ==
          values[i % 2 == 0 ? codes[i / 2] % 16 : codes[i / 2] / 16] * kernels::from_e4m3(scales[i / 16]) * 0x1p-9f);

  auto without = stored;
  without.drop(mo_weight + "_scale_2");
  CHECK(failure_of([&] { open_mo(without); }) == "m.safetensors: tensor `" + mo_weight + "_scale_2` is missing");
  without.drop(mo_weight + "_scale");
  CHECK(failure_of([&] { open_mo(without); }) == "m.safetensors: tensor `" + mo_weight + "_scale` is missing");
  stored.put("model.layers.0.mlp.up_proj.pre_quant_scale", tensor_type::f32, {mo_inputs},
             std::vector<float>(mo_inputs));
  CHECK(failure_of([&] { open_mo(stored); }) ==
        "m.safetensors: tensor `model.layers.0.mlp.up_proj.pre_quant_scale` scales inputs ahead of a product, which is "
        "not supported");
}

TEST_CASE("MXFP8: codes in E4M3 with a power of two for each 32 inputs stay as they are") {
  std::vector<std::uint8_t> codes(mo_outputs * mo_inputs), exponents(mo_outputs * mo_inputs / 32);
  for (std::size_t i = 0; i < codes.size(); ++i)
    codes[i] = static_cast<std::uint8_t>(i * 53 % 0x7f + (i % 2 == 0 ? 0 : 0x80));
  for (std::size_t i = 0; i < exponents.size(); ++i)
    exponents[i] = static_cast<std::uint8_t>(120 + i);
  for (const auto type : {tensor_type::u8, tensor_type::f8_e8m0}) {
    memory_checkpoint stored;
    stored.put(mo_weight, tensor_type::f8_e4m3, {mo_outputs, mo_inputs}, codes);
    stored.put(mo_weight + "_scale", type, {mo_outputs, mo_inputs / 32}, exponents);
    const auto opened = open_mo(stored);
    CHECK(opened->find(mo_weight)->type == tensor_type::fp8_32);
    const auto weights = presented_weights(*opened, mo_weight);
    for (std::size_t i = 0; i < weights.size(); ++i)
      CHECK(weights[i] == kernels::from_e4m3(codes[i]) * std::ldexp(1.0f, int(exponents[i / 32]) - 127));
    stored.put(mo_weight + "_scale", type, {mo_outputs, mo_inputs / 32},
               std::vector<std::uint8_t>(exponents.size(), 255));
    CHECK(failure_of([&] { open_mo(stored)->read(mo_weight); }) ==
          "m.safetensors: tensor `" + mo_weight + "_scale` has an exponent of 255, which is no number");
  }
}

TEST_CASE("ModelOpt's fp8 keeps codes and scales") {
  memory_checkpoint stored;
  stored.put(mo_weight, tensor_type::f8_e4m3, {mo_outputs, mo_inputs},
             std::vector<std::uint8_t>(mo_outputs * mo_inputs, kernels::to_e4m3(3)));
  stored.put(mo_weight + "_scale", tensor_type::f32, {}, std::vector<float>{0.5f});
  stored.put("model.layers.0.mlp.up_proj.input_scale", tensor_type::f32, {}, std::vector<float>{7});
  const auto opened = open_mo(stored);
  CHECK(opened->tensors() == std::vector<std::string>{mo_weight});
  CHECK(opened->find(mo_weight)->type == tensor_type::fp8);
  CHECK(presented_weights(*opened, mo_weight) == std::vector<float>(mo_outputs * mo_inputs, 1.5f));
}

TEST_CASE("ModelOpt's configurations, in config.json or beside it, are read, or refused by key and value") {
  for (const bool beside : {false, true})
    for (const char* algorithm : {"FP8", "NVFP4", "MXFP8", "MIXED_PRECISION"}) {
      CAPTURE(algorithm);
      const auto how = storage_of(R"({"quant_method": "modelopt", "quant_algo": ")" + std::string(algorithm) + "\"}",
                                  beside);
      REQUIRE(how);
      CHECK(how->method == quantised_storage::method_name::modelopt);
      CHECK(how->scale_block[0] == 0);
    }
  CHECK(storage_of(R"({"quant_algo": "FP8_PB_WO"})", true)->scale_block == std::array<std::size_t, 2>{128, 128});
  CHECK_FALSE(storage_of(R"({"quant_algo": null, "kv_cache_quant_algo": "FP8"})", true));
  const std::string supported = ", supported is FP8, FP8_PER_CHANNEL_PER_TOKEN, FP8_PB_WO, NVFP4, MXFP8 or "
                                "MIXED_PRECISION";
  CHECK(failure_of([&] { storage_of(R"({"quant_algo": "W4A16_AWQ"})", true); }) ==
        "hf_quant_config.json: `quantization`: `quant_algo` is `W4A16_AWQ`" + supported);
  CHECK(failure_of([&] { storage_of(R"({"quant_method": "modelopt", "quant_algo": "INT8_SQ"})", false); }) ==
        "config.json: `quantization_config`: `quant_algo` is `INT8_SQ`" + supported);
}
