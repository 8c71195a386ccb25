// What the packages hqq and auto-round save. tests/data/make_package_folders.py makes the files.
#include "runtime/checkpoint/quantised/hqq_checkpoint.hpp"
#include "runtime/checkpoint/quantised/quantised_checkpoint.hpp"
#include "runtime/checkpoint/safetensors.hpp"
#include "runtime/import/model_source.hpp"
#include "runtime/model/decoder/decoder.hpp"
#include "runtime/model/tensor_names.hpp"
#include "tests/runtime/checkpoint/memory_checkpoint.hpp"
#include "tests/runtime/checkpoint/quantised_test_data.hpp"
#include "tests/runtime/model/model_test_data.hpp"

#include "kernels/formats/f16.hpp"

#include <cmath>
#include <map>

using namespace troupe;
using namespace troupe::test;

namespace {

std::filesystem::path package_folder(const std::string& name) { return data() / "packages" / name; }

quantised_storage storage_said(const std::string& quantisation) {
  return parse_quantised_storage(
           json::document::parse(R"({"quantization_config": {)" + quantisation + "}}", "config.json"))
    .value();
}

std::string storage_refusal(const std::string& quantisation) {
  return failure_of([&] { storage_said(quantisation); });
}

float in_f16(float value) { return kernels::from_f16(kernels::to_f16(value)); }

/// The names of matrices, as the package's own values are named.
std::vector<std::string> matrices_in(const checkpoint& tensors) {
  std::vector<std::string> names;
  constexpr std::string_view suffix = ".expected";
  for (const auto& name : tensors.tensors())
    if (name.ends_with(suffix))
      names.push_back(name.substr(0, name.size() - suffix.size()));
  return names;
}

std::size_t tensors_of_stem(const checkpoint& tensors, const std::string& stem) {
  const auto names = tensors.tensors();
  return static_cast<std::size_t>(
    std::ranges::count_if(names, [&](auto& name) { return name.starts_with(stem + "."); }));
}

} // namespace

TEST_CASE("HQQ's matrices have the values that the package computes") {
  const std::map<std::string, tensor_type> blocks{{"inputs4", tensor_type::q4_1}, {"inputs3", tensor_type::q4_1},
                                                  {"inputs2", tensor_type::q4_1}, {"inputs1_58", tensor_type::q4_1},
                                                  {"inputs1", tensor_type::q4_1}, {"bf16", tensor_type::q4_1},
                                                  {"asfloat", tensor_type::q4_1}, {"asfloat3", tensor_type::q4_1},
                                                  {"whole", tensor_type::q4_1},   {"padded", tensor_type::q4_1}};
  const auto stored = open_safetensors(package_folder("hqq"));
  const auto opened = open_hqq(open_safetensors(package_folder("hqq")));
  std::size_t exact = 0;
  for (const auto& stem : matrices_in(*stored)) {
    CAPTURE(stem);
    const auto& info = *opened->find(stem + ".weight");
    const auto expected = presented_weights(*stored, stem + ".expected");
    const auto weights = presented_weights(*opened, stem + ".weight");
    CHECK(info.shape == stored->find(stem + ".expected")->shape);
    REQUIRE(weights.size() == expected.size());
    CHECK(tensors_of_stem(*opened, stem) == (stored->find(stem + ".bias") ? 3 : 2)); // and what is expected
    if (!blocks.contains(stem)) {
      CHECK(info.type == stored->find(stem + ".scale")->type);
      CHECK(weights == expected);
      ++exact;
      continue;
    }
    CHECK(info.type == blocks.at(stem));
    // The package rounds a difference to its own type, and the product. Blocks have a minimum rounded to f16.
    const auto scales = presented_weights(*stored, stem + ".scale");
    const float step = *std::ranges::max_element(scales), own = stem == "bf16" ? 0x1p-5f : 0x1p-8f;
    for (std::size_t i = 0; i < weights.size(); ++i)
      CHECK(std::abs(weights[i] - expected[i]) <= step * (1 / 128.0f + own) + std::abs(expected[i]) * own / 8);
  }
  CHECK(exact == 13);
}

TEST_CASE("AutoRound's matrices have the values that the package computes, in each of its layouts") {
  for (const auto& [folder, packing] :
       std::map<std::string, std::string>{{"auto-round-less-one", "auto_round:auto_gptq"},
                                          {"auto-round-as-they-are", "auto_round"},
                                          {"auto-round-gptqmodel", "auto_round:gptqmodel"},
                                          {"auto-round-awq", "auto_round:auto_awq"}}) {
    CAPTURE(folder);
    const bool awq = folder == "auto-round-awq";
    const auto how = storage_said(
      R"("quant_method": "auto-round", "bits": 4, "group_size": 32, "packing_format": ")" + packing + "\"" +
      R"(, "extra_config": {"b": {"bits": 5}, "c": {"bits": 6}, "d": {"bits": 7}, "whole\\d": {"group_size": -1})" +
      (awq ? "}" : R"(, ".*etric2": {"bits": 2}, "a": {"bits": 3}, "e": {"bits": 8}, ".*small": {"group_size": 16}})"));
    const auto stored = open_safetensors(package_folder(folder));
    const auto opened = open_quantised(open_safetensors(package_folder(folder)), how);
    for (const auto& stem : matrices_in(*stored)) {
      CAPTURE(stem);
      const int bits = stem.back() - '0';
      const bool symmetric = !stem.starts_with("asym") && !(stem == "whole4");
      const auto type = opened->find(stem + ".weight")->type;
      CHECK(type ==
            (stem == "small4" || (bits > 4 && !symmetric) ? tensor_type::f16
               : bits > 4                                 ? tensor_type::q8_0
               : symmetric                                ? tensor_type::q4_0
                                                          : tensor_type::q4_1));
      const auto expected = presented_weights(*stored, stem + ".expected");
      const auto weights = presented_weights(*opened, stem + ".weight");
      REQUIRE(weights.size() == expected.size());
      const auto scales = presented_weights(*stored, stem + ".scales");
      const float step = *std::ranges::max_element(scales);
      for (std::size_t i = 0; i < weights.size(); ++i) {
        if (type == tensor_type::q4_1) // whose minimum is rounded; the package rounds the product
          CHECK(std::abs(weights[i] - expected[i]) <= step / 136 + std::abs(expected[i]) / 2048);
        else
          CHECK(in_f16(weights[i]) == expected[i]);
      }
    }
    CHECK(opened->tensors().size() == 2 * matrices_in(*stored).size());
  }
}

TEST_CASE("Folders of HQQ and AutoRound whose modules have bits and groups of their own") {
  const auto expected = json::document::load(data() / "packages/models.json");
  for (const std::string name : {"hqq-mixed", "auto-round-mixed", "auto-round-floats"}) {
    CAPTURE(name);
    const auto source = open_model((data() / "quantised" / name).string());
    CHECK(check_tensors(*source.tensors, source.config).empty());
    const auto about = expected.root()[name];
    std::size_t matrices = 0;
    for (const auto [tensor, samples] : about["samples"].get_object()) {
      CAPTURE(std::string(tensor));
      const auto weights = presented_weights(*source.tensors, std::string(tensor));
      for (json::value sample : samples.get_array()) {
        const auto row = sample.at(0).get_uint64().value(), col = sample.at(1).get_uint64().value();
        const double wanted = sample.at(2).get_double().value();
        CHECK(std::abs(weights[row * source.tensors->find(tensor)->shape[1] + col] - wanted) <= 1e-3);
      }
      ++matrices;
    }
    CHECK(matrices == 6);
    std::vector<token_id> ids;
    for (json::value id : about["ids"].get_array())
      ids.push_back(static_cast<token_id>(id.get_int64().value()));
    const auto logits = logits_of_source(source, ids);
    double product = 0, ours = 0, theirs = 0;
    std::size_t i = 0;
    for (json::value l : about["logits"].get_array()) {
      const double wanted = l.get_double().value(), got = logits.at(i++);
      product += wanted * got;
      ours += got * got;
      theirs += wanted * wanted;
    }
    CHECK(i == logits.size());
    CHECK(product / std::sqrt(ours * theirs) > 0.9995); // inputs of matrices are rounded to int8
  }
}

TEST_CASE("AutoRound's configuration: layouts of older and newer versions, and rules of modules") {
  using enum quantised_storage::method_name;
  const std::string start = R"("quant_method": "auto-round", "bits": 4, "group_size": 64)";
  struct layout {
    std::string said;
    quantised_storage::method_name method;
    bool less_one;
  };
  for (const auto& [said, method, less_one] :
       {layout{"", gptq, true}, layout{R"(, "packing_format": "auto_round:gptq")", gptq, true},
        layout{R"(, "packing_format": "auto_round:auto_gptq", "backend": "auto_round:exllamav2")", gptq, true},
        layout{R"(, "packing_format": "auto_round:exllamav2")", gptq, false},
        layout{R"(, "backend": "auto_round:exllamav2")", gptq, false},
        layout{R"(, "backend": "auto_round:gptq:exllamav2")", gptq, true}, layout{R"(, "backend": "auto")", gptq, true},
        layout{R"(, "backend": "gptqmodel:marlin")", gptq, true},
        layout{R"(, "packing_format": "auto_round:awq")", awq, false}}) {
    CAPTURE(said);
    const auto how = storage_said(start + said);
    CHECK(how.method == method);
    CHECK(how.zeros_less_one == less_one);
    CHECK(how.bits == 4);
    CHECK(how.group == 64);
  }
  CHECK(storage_said(R"("quant_method": "intel/auto-round", "backend": "autoround:exllamav2")").method == gptq);
  CHECK(storage_said(start + R"(, "packing_format": "auto_round:llm_compressor", "data_type": "nv_fp", "act_bits": 4,
    "act_data_type": "nv_fp4_with_static_gs", "extra_config": {"a": {"data_type": "mx_fp_rceil"}})")
          .method == compressed);
  const auto blocks = storage_said(
    R"("quant_method": "auto-round", "packing_format": "auto_round:fp8", "bits": 8, "data_type": "fp", "act_bits": 8,
       "group_size": [128, 128], "weight_block_size": [128, 128])");
  CHECK(blocks.method == fp8);
  CHECK(blocks.scale_block == std::array<std::size_t, 2>{128, 128});
  // Rules as the package writes them: the head with all its keys, some of them null, and modules that stay floats.
  const auto mixed = storage_said(start + R"(, "sym": true, "data_type": "int", "act_bits": 16, "extra_config": {
    "lm_head": {"act_bits": 16, "act_data_type": "float", "bits": 8, "data_type": "int", "group_size": -1,
                "rotation_config": null, "super_bits": null, "sym": true},
    ".*mlp\\.gate$": {"bits": 16, "data_type": "float"}, "empty": {}, "none": null,
    "model\\.layers\\.[34]\\.": {"bits": 2, "group_size": 32, "sym": false}})");
  CHECK(mixed.code_bits == std::vector<int>{4, 8, 2});
  CHECK(mixed.groups == std::vector<std::size_t>{64, 0, 32});
}

TEST_CASE("What AutoRound folders cannot have is refused by key and value") {
  const std::string start = R"("quant_method": "auto-round", "bits": 4, "group_size": 64)";
  const std::string at = "config.json: `quantization_config`: ";
  const std::string layouts =
    ", supported is auto_round, auto_round:auto_gptq, auto_round:gptqmodel, auto_round:auto_awq, auto_round:fp8, "
    "auto_round:fp8_static or auto_round:llm_compressor";
  CHECK(storage_refusal(start + R"(, "packing_format": "auto_round:mxfp4")") ==
        at + "`packing_format` is `auto_round:mxfp4`" + layouts);
  CHECK(storage_refusal(start + R"(, "backend": "auto_round:marlin")") ==
        at + "`backend` is `auto_round:marlin`" + layouts);
  CHECK(storage_refusal(start + R"(, "data_type": "mx_fp")") == at + "`data_type` is `mx_fp`, supported is int");
  CHECK(storage_refusal(start + R"(, "packing_format": "auto_round:llm_compressor", "data_type": "mx_int")") ==
        at + "`data_type` is `mx_int`, supported is mx_fp or nv_fp in this layout");
  CHECK(storage_refusal(start + R"(, "packing_format": "auto_round:llm_compressor_nvfp4_e5m3")") ==
        at + "`packing_format` is `auto_round:llm_compressor_nvfp4_e5m3`" + layouts);
  CHECK(storage_refusal(start + R"(, "act_bits": 8)") == at + "`act_bits` is 8, supported is 16");
  CHECK(storage_refusal(start + R"(, "rotation_config": {"hadamard_type": "hadamard"})") ==
        at + "`rotation_config`: weights that AutoRound rotated are not supported");
  CHECK(storage_refusal(start + R"(, "rotation_config": {})").empty());
  CHECK(storage_refusal(start + R"(, "spinquant_config": {"r1": true})") ==
        at + "`spinquant_config`: weights that AutoRound rotated are not supported");
  CHECK(storage_refusal(R"("quant_method": "auto-round", "bits": 16)") == at + "`bits` is 16, supported is 2 to 8");
  CHECK(storage_refusal(R"("quant_method": "auto-round", "bits": 1)") == at + "`bits` is 1, supported is 2 to 8");
  CHECK(storage_refusal(R"("quant_method": "auto-round", "bits": 4, "group_size": 0)") ==
        at + "`group_size` is 0, supported is a positive number or -1");
  CHECK(storage_refusal(R"("quant_method": "auto-round", "bits": 8, "packing_format": "auto_round:auto_awq")") ==
        at + "`bits` is 8, supported is 4 to 7 in AWQ's layout");
  CHECK(storage_refusal(start + R"(, "extra_config": {"a.*": {"bits": 8, "data_type": "nv_fp"}})") ==
        at + "`extra_config`: `a.*`: `data_type` is `nv_fp`, supported is int");
  CHECK(storage_refusal(start + R"(, "extra_config": {"a": {"rotation_config": {"x": 1}}})") ==
        at + "`extra_config`: `a`: `rotation_config`: weights that AutoRound rotated are not supported");
  CHECK(storage_refusal(start + R"(, "extra_config": {"a": 4})") ==
        at + "`extra_config`: `a` must be an object, found an integer");
  std::string rules;
  for (int group = 1; group <= 80; ++group)
    rules += (rules.empty() ? "\"m" : ", \"m") + std::to_string(group) + R"(": {"group_size": )" +
      std::to_string(group) + "}";
  CHECK(storage_refusal(start + R"(, "extra_config": {)" + rules + "}") ==
        at +
          "`extra_config`: `m65`: `group_size` is another than 64 that other modules have, supported is at most 64 of "
          "them");
}

TEST_CASE("Groups that shapes do not tell apart are refused, not guessed") {
  // 160 inputs: groups of 96 and of 128 both need two scales, two equal groups would have 80.
  constexpr std::size_t outputs = 32, inputs = 160;
  memory_checkpoint stored;
  std::vector<std::uint32_t> codes(inputs / 8 * outputs);
  for (std::size_t i = 0; i < codes.size(); ++i)
    codes[i] = static_cast<std::uint32_t>(i * 2654435761u);
  stored.put("a.qweight", tensor_type::i32, {inputs / 8, outputs}, codes);
  stored.put("a.qzeros", tensor_type::i32, {2, outputs / 8}, std::vector<std::uint32_t>(2 * outputs / 8, 0x77777777));
  std::vector<std::uint16_t> scales(outputs, kernels::to_f16(0.5f));
  scales.resize(2 * outputs, kernels::to_f16(0.25f));
  stored.put("a.scales", tensor_type::f16, {2, outputs}, scales);
  const auto open = [&](const std::string& more) {
    return open_quantised(std::make_unique<memory_checkpoint>(stored),
                          storage_said(R"("quant_method": "auto-round", )" + more));
  };
  for (const auto& [said, group] : std::map<std::string, std::size_t>{
         {R"("group_size": 96)", 96},
         {R"("group_size": 128)", 128},
         {R"("group_size": 32, "extra_config": {".*": {"group_size": 96}, "b": {"group_size": -1}})", 96}}) {
    CAPTURE(said);
    const auto weights = presented_weights(*open(said), "a.weight");
    for (std::size_t i = 0; i < inputs; ++i) {
      const auto code = static_cast<float>(codes[i / 8 * outputs] >> i % 8 * 4 & 15) - 8;
      CHECK(weights[i] == code * (i < group ? 0.5f : 0.25f));
    }
  }
  CHECK(failure_of([&] { open(R"("group_size": 96, "extra_config": {".*": {"group_size": 128}})"); }) ==
        "m.safetensors: tensor `a.qzeros` has the shape [2, 4], which groups of 96 and of 128 inputs both have");
  CHECK(failure_of([&] { open(R"("group_size": 32, "bits": 8, "extra_config": {"a": {"bits": 3}})"); }) ==
        "m.safetensors: tensor `a.qzeros` has the shape [2, 4], expected 32 zero points of 3 or 8 bits in a row");
}

TEST_CASE("HQQ's zero points in the middle make blocks without minima, and far ones make none") {
  constexpr std::size_t outputs = 4, inputs = 64;
  const auto matrix = [&](const std::string& packing, float scale, float zero, std::size_t group) {
    const bool wide = packing == "8bit_u8";
    memory_checkpoint stored;
    const auto rows = outputs * inputs / group, packed = wide ? rows : rows / 2;
    std::vector<std::uint8_t> codes(packed * group);
    for (std::size_t i = 0; i < codes.size(); ++i)
      codes[i] = static_cast<std::uint8_t>(i * 37);
    stored.put("a.W_q", tensor_type::u8, {packed, group}, codes);
    stored.put("a.scale", tensor_type::f32, {rows, 1}, std::vector<float>(rows, scale));
    stored.put("a.zero", tensor_type::f32, {rows, 1}, std::vector<float>(rows, zero));
    stored.put("a.shape", tensor_type::i64, {2}, std::vector<std::int64_t>{outputs, inputs});
    stored.put("a.group_size", tensor_type::i32, {}, std::vector<std::int32_t>{static_cast<std::int32_t>(group)});
    stored.put("a.axis", tensor_type::i32, {}, std::vector<std::int32_t>{1});
    stored.put("a.packing", tensor_type::u8, {packing.size()}, std::vector<char>(packing.begin(), packing.end()));
    const auto opened = open_hqq(std::make_unique<memory_checkpoint>(stored));
    const auto weights = presented_weights(*opened, "a.weight");
    for (std::size_t i = 0; i < weights.size(); ++i) {
      const auto row = i / group;
      const auto byte = codes[(wide ? row : row % packed) * group + i % group];
      const auto code = static_cast<float>(wide ? byte : row < packed ? byte >> 4 : byte & 15);
      const bool minimum = opened->find("a.weight")->type == tensor_type::q4_1;
      CHECK(weights[i] == (minimum ? scale * code + in_f16(-scale * zero) : scale * (code - zero)));
    }
    return opened->find("a.weight")->type;
  };
  CHECK(matrix("4bit_u8", 0.25f, 8, 32) == tensor_type::q4_0);
  CHECK(matrix("4bit_u8", 0.25f, 7.3f, 64) == tensor_type::q4_1);
  CHECK(matrix("8bit_u8", 0.25f, 128, 32) == tensor_type::q8_0);
  CHECK(matrix("8bit_u8", 0.25f, 127, 32) == tensor_type::f32);
  CHECK(matrix("4bit_u8", 0.25f, 8, 16) == tensor_type::f32);       // groups of half a block
  CHECK(matrix("4bit_u8", 0.1f, 8, 32) == tensor_type::f32);        // a scale that f16 does not have
  CHECK(matrix("4bit_u8", 0.25f, 1000.3f, 32) == tensor_type::f32); // the minimum would move by 0.3 of a step
}

TEST_CASE("Hostile HQQ checkpoints are refused by tensor") {
  const std::string stem = "model.layers.0.mlp.up_proj.";
  memory_checkpoint good;
  good.put(stem + "W_q", tensor_type::u8, {4, 64}, std::vector<std::uint8_t>(256));
  good.put(stem + "scale", tensor_type::f16, {8, 1}, std::vector<std::uint16_t>(8));
  good.put(stem + "zero", tensor_type::f16, {8, 1}, std::vector<std::uint16_t>(8));
  good.put(stem + "shape", tensor_type::i64, {2}, std::vector<std::int64_t>{4, 128});
  good.put(stem + "group_size", tensor_type::i32, {}, std::vector<std::int32_t>{64});
  good.put(stem + "axis", tensor_type::i32, {}, std::vector<std::int32_t>{1});
  good.put(stem + "packing", tensor_type::u8, {7}, std::vector<char>{'4', 'b', 'i', 't', '_', 'u', '8'});
  auto stored = good;
  const auto refused = [&] {
    auto said = failure_of(
      [&] { presented_weights(*open_hqq(std::make_unique<memory_checkpoint>(stored)), stem + "weight"); });
    stored = good;
    const std::string at = "m.safetensors: tensor `" + stem;
    return said.starts_with(at) ? said.substr(at.size()) : said;
  };
  const auto number = [&](const std::string& part, std::int32_t value) {
    stored.put(stem + part, tensor_type::i32, {}, std::vector<std::int32_t>{value});
    return refused();
  };
  const auto shape = [&](std::int64_t outputs, std::int64_t inputs) {
    stored.put(stem + "shape", tensor_type::i64, {2}, std::vector<std::int64_t>{outputs, inputs});
    return refused();
  };
  const auto packing = [&](const std::string& name) {
    stored.put(stem + "packing", tensor_type::u8, {name.size()}, std::vector<char>(name.begin(), name.end()));
    return refused();
  };
  CHECK(refused().empty());
  for (const char* part : {"scale", "zero", "shape", "group_size", "axis", "packing"}) {
    stored.drop(stem + part);
    CHECK(refused() == part + std::string("` is missing"));
  }
  CHECK(number("quant_zero", 1) ==
        "quant_zero` is 1: scales and zero points that are quantised themselves are not supported");
  CHECK(number("quant_scale", 1) ==
        "quant_scale` is 1: scales and zero points that are quantised themselves are not supported");
  CHECK(number("channel_wise", 0) == "channel_wise` is 0: a scale for the whole matrix is not supported");
  CHECK(number("axis", 2) == "axis` is 2, expected 0 or 1");
  CHECK(number("axis", 0) == "W_q` has the shape [4, 64], expected [32, 8]");
  CHECK(number("group_size", 0) == "group_size` is 0, which does not divide a matrix of [4, 128]");
  CHECK(number("group_size", 48) == "group_size` is 48, which does not divide a matrix of [4, 128]");
  CHECK(number("group_size", -64) == "group_size` is -64, which does not divide a matrix of [4, 128]");
  CHECK(number("group_size", 512) == "W_q` cannot hold 1 groups, as a byte has codes of 2 of them");
  CHECK(number("view_as_float", 1) == "W_q` is U8 [4, 64], expected F16 or BF16 or F32");
  CHECK(shape(0, 128) == "shape` says [0, 128], expected a matrix");
  CHECK(shape(-4, -128) == "shape` says [-4, -128], expected a matrix");
  CHECK(shape(std::int64_t(1) << 40, std::int64_t(1) << 40) ==
        "shape` says [1099511627776, 1099511627776], expected a matrix");
  CHECK(shape(8, 128) == "W_q` has the shape [4, 64], expected [8, 64]");
  CHECK(packing("5bit_u8") == "packing` says `5bit_u8`, expected 8bit_u8, 4bit_u8, 3bit_32, 2bit_u8 or 1bit_u8");
  CHECK(packing("3bit_32") == "W_q` is U8 [4, 64], expected I32");
  CHECK(packing(std::string(65, '4')) == "packing` has 65 bytes, expected a short name");
  stored.put(stem + "zero", tensor_type::f32, {8, 1}, std::vector<float>(8));
  CHECK(refused() == "zero` is F32 [8, 1], expected F16");
  stored.put(stem + "scale", tensor_type::f16, {1, 8}, std::vector<std::uint16_t>(8));
  CHECK(refused() == "scale` has the shape [1, 8], expected [8, 1]");
  stored.put(stem + "axis", tensor_type::i32, {2}, std::vector<std::int32_t>{1, 1});
  CHECK(refused() == "axis` has the shape [2], expected one number");
  stored.put(stem + "weight", tensor_type::f32, {1}, std::vector<float>{1});
  CHECK(refused() == "weight` is there beside `" + stem + "W_q`");
  stored.put(stem + "W_q", tensor_type::f16, {3, 32}, std::vector<std::uint16_t>(96));
  stored.put(stem + "view_as_float", tensor_type::u8, {}, std::vector<char>{1});
  CHECK(refused() == "W_q` has 192 bytes of codes, expected 256");
}
