#include "tests/runtime/checkpoint/memory_checkpoint.hpp"
#include "tests/runtime/checkpoint/quantised_test_data.hpp"
#include "tests/runtime/model/model_test_data.hpp"

#include "kernels/cpu/cpu_backend.hpp"
#include "kernels/formats/f16.hpp"
#include "runtime/checkpoint/quantised/quantised_checkpoint.hpp"
#include "runtime/checkpoint/weight_values.hpp"
#include "runtime/engine/loading/weight_loading.hpp"
#include "runtime/import/model_source.hpp"
#include "runtime/model/decoder/decoder.hpp"
#include "runtime/model/decoder/memory_estimate.hpp"
#include "runtime/model/tensor_names.hpp"
#include "runtime/support/json/json.hpp"

#include <cmath>
#include <cstring>
#include <map>

using namespace troupe;
using namespace troupe::test;
using kernels::dtype;

namespace {

std::filesystem::path folder_of(const std::string& name) { return data() / "quantised" / name; }

float value(const checkpoint& tensors, std::string_view name, std::size_t row, std::size_t col) {
  const auto& info = *tensors.find(name);
  const auto format = *weight_format_of(info.type);
  const auto read = tensors.read(name);
  std::vector<float> values(info.shape[1]);
  to_floats(format, static_cast<const char*>(read.get()) + row * row_bytes(format, values.size()), values.size(),
            values.data());
  return values[col];
}

/// A copy of a checkpoint's folder with `from` in its file replaced by `to`, of the same length.
std::string quantised_refusal(const std::string& name, const std::string& from, const std::string& to) {
  const temp_folder copy;
  write(copy.path() / "config.json", content(folder_of(name) / "config.json"));
  auto file = content(folder_of(name) / "model.safetensors");
  REQUIRE(from.size() == to.size());
  REQUIRE(file.find(from) != std::string::npos);
  write(copy.path() / "model.safetensors", file.replace(file.find(from), from.size(), to));
  const auto said = failure_of([&] {
    const auto source = open_model(copy.path().string());
    check_tensors(*source.tensors, source.config);
  });
  const auto at = said.find("model.safetensors");
  return at == std::string::npos ? said : said.substr(at);
}

} // namespace

TEST_CASE("GPTQ and AWQ checkpoints hold the values that their codes, zeros and scales encode") {
  const std::map<std::string, tensor_type> types{
    {"gptq-g32-sym", tensor_type::q4_0},
    {"gptq-g64", tensor_type::q4_1},
    {"gptq-g128-v2", tensor_type::q4_1},
    {"gptq-g32-act-order", tensor_type::f16},
    {"gptq-whole-mislabelled", tensor_type::q4_0},
    {"awq-g32", tensor_type::q4_1},
    {"awq-g64", tensor_type::q4_1},
    {"awq-g128", tensor_type::q4_1},
    {"gptq-g64-act-order", tensor_type::f16},
    {"gptq-g128-act-order", tensor_type::f16},
    {"gptq-2-bits", tensor_type::q4_1},
    {"gptq-3-bits", tensor_type::q4_0},
    {"gptq-3-bits-act-order", tensor_type::f16},
    {"gptq-8-bits", tensor_type::q8_0},
    {"gptq-8-bits-asymmetric", tensor_type::f16},
  };
  const auto expected = json::document::load(data() / "quantised/quantised.json");
  for (const auto& [name, type] : types) {
    CAPTURE(name);
    const auto source = open_model(folder_of(name).string());
    CHECK(check_tensors(*source.tensors, source.config).empty());
    const auto about = expected.root()[name];
    const bool mixed = name == "gptq-g128-act-order"; // all but one matrix have one group, whose order does not matter
    std::size_t compared = 0;
    for (const auto [tensor, samples] : about["samples"].get_object()) {
      CAPTURE(std::string(tensor));
      const bool one_group = mixed && !tensor.ends_with("down_proj.weight");
      CHECK(source.tensors->find(tensor)->type == (one_group ? tensor_type::q4_0 : type));
      for (json::value sample : samples.get_array()) {
        const auto row = sample.at(0).get_uint64().value(), col = sample.at(1).get_uint64().value();
        const double wanted = sample.at(2).get_double().value();
        const double got = value(*source.tensors, tensor, row, col);
        // Scales are below 0.03: a minimum is below 0.45 and rounded to 11 bits; f16 values have 11 bits, too.
        const double tolerance = type == tensor_type::q4_0 || type == tensor_type::q8_0 ? 0 : 0.45 / 2048;
        CHECK(std::abs(got - wanted) <= tolerance);
        ++compared;
      }
    }
    CHECK(compared == 7 * 24);
    CHECK(natural_compute(*source.tensors) == (type == tensor_type::f16 && !mixed ? dtype::f32 : dtype::bf16));
    std::vector<token_id> ids;
    for (json::value id : about["ids"].get_array())
      ids.push_back(static_cast<token_id>(id.get_int64().value()));
    const auto logits = logits_of_source(source, ids);
    std::size_t i = 0;
    double worst = 0;
    for (json::value l : about["logits"].get_array())
      worst = std::max(worst, std::abs(l.get_double().value() - logits.at(i++)));
    CHECK(i == logits.size());
    CHECK(worst < (type == tensor_type::f16 ? 0.05 : 1e-3)); // f16's rounding is not in the reference
  }
}

TEST_CASE("GPTQ and AWQ checkpoints with missing, misshapen or mistyped parts are refused by tensor") {
  const std::string stem = "model.layers.0.self_attn.q_proj.";
  CHECK(quantised_refusal("gptq-g64", "q_proj.scales", "q_proj.scalez") ==
        "model.safetensors: tensor `" + stem + "scales` is missing");
  CHECK(quantised_refusal("gptq-g64", "q_proj.qzeros", "q_proj.qzerox") ==
        "model.safetensors: tensor `" + stem + "qzeros` is missing");
  CHECK(quantised_refusal("awq-g32", "\"I32\", \"shape\": [128, 16]", "\"F32\", \"shape\": [128, 16]") ==
        "model.safetensors: tensor `" + stem + "qweight` is F32 [128, 16], expected I32 of 2 dimensions");
  CHECK(quantised_refusal("gptq-g64", "\"shape\": [2, 16]", "\"shape\": [16, 2]") ==
        "model.safetensors: tensor `" + stem + "qzeros` has the shape [16, 2], expected [2, 16]");
  CHECK(quantised_refusal("gptq-g64", "\"shape\": [2, 128]", "\"shape\": [128, 2]") ==
        "model.safetensors: tensor `" + stem + "scales` has the shape [128, 2], expected [2, 128]");
  CHECK(quantised_refusal("gptq-g64", "\"shape\": [16, 128]", "\"shape\": [128, 16]") ==
        "model.safetensors: tensor `" + stem + "qzeros` has the shape [2, 16], expected [16, 2]");
  CHECK(quantised_refusal("gptq-g64", "model.layers.0.self_attn.q_proj.g_idx",
                          "model.layers.9.self_attn.q_proj.g_idx") == "");
  CHECK(quantised_refusal("gptq-3-bits", "\"shape\": [12, 128]", "\"shape\": [16,  96]") ==
        "model.safetensors: tensor `" + stem +
          "qweight` has the shape [16, 96], expected a multiple of 3 rows, as codes have 3 bits");
  CHECK(quantised_refusal("gptq-8-bits", "\"shape\": [1, 32]", "\"shape\": [32, 1]") ==
        "model.safetensors: tensor `" + stem + "qzeros` has the shape [32, 1], expected [1, 32]");
  // A group that does not exist: the last g_idx is in the data.
  std::string plain;
  for (int i = 0; i < 128; ++i)
    plain += std::string{static_cast<char>(i / 64), 0, 0, 0};
  auto wrong = plain;
  wrong[400] = 2;
  CHECK(quantised_refusal("gptq-g64", plain, wrong) ==
        "model.safetensors: tensor `" + stem + "g_idx` names the group 2, expected one of 2");
}

namespace {

constexpr std::size_t gptq_outputs = 32, gptq_inputs = 64;

/// Codes and zero points of a matrix, of any size.
int gptq_code(std::size_t output, std::size_t input, int bits) {
  return static_cast<int>((output * 7 + input * 3) % (std::size_t(1) << bits));
}
int gptq_zero(std::size_t group, std::size_t output, int bits) {
  return output % 5 == 2 ? 0 : static_cast<int>((group + output) % (std::size_t(1) << bits));
}

/// Values of `bits` one after another in words.
template <class Value>
std::vector<std::uint32_t> bit_words(std::size_t count, int bits, const Value& value) {
  std::vector<std::uint32_t> words(count * static_cast<std::size_t>(bits) / 32);
  for (std::size_t at = 0; at < words.size() * 32; ++at) {
    const auto bit = static_cast<std::size_t>(bits);
    words[at / 32] |= (static_cast<std::uint32_t>(value(at / bit)) >> at % bit & 1) << at % 32;
  }
  return words;
}

/// A matrix `stem` in GPTQ's first format, some of whose zero points are 0.
void put_gptq(memory_checkpoint& to, const std::string& stem, int bits, std::size_t group) {
  const auto groups = gptq_inputs / group;
  std::vector<std::uint32_t> codes(gptq_inputs * static_cast<std::size_t>(bits) / 32 * gptq_outputs), zeros;
  for (std::size_t o = 0; o < gptq_outputs; ++o) {
    const auto column = bit_words(gptq_inputs, bits, [&](std::size_t i) { return gptq_code(o, i, bits); });
    for (std::size_t r = 0; r < column.size(); ++r)
      codes[r * gptq_outputs + o] = column[r];
  }
  for (std::size_t g = 0; g < groups; ++g)
    for (auto word : bit_words(gptq_outputs, bits, [&](std::size_t o) {
           return bits == 3 ? (gptq_zero(g, o, bits) + 7) % 8 : gptq_zero(g, o, bits); // of 3 bits, each for itself
         })) {
      if (bits != 3)
        word -= bits == 2 ? 0x55555555u : bits == 4 ? 0x11111111u : 0x01010101u; // as one number, with borrows
      zeros.push_back(word);
    }
  to.put(stem + ".qweight", tensor_type::i32, {codes.size() / gptq_outputs, gptq_outputs}, codes);
  to.put(stem + ".qzeros", tensor_type::i32, {groups, zeros.size() / groups}, zeros);
  to.put(stem + ".scales", tensor_type::f16, {groups, gptq_outputs},
         std::vector<std::uint16_t>(groups * gptq_outputs, kernels::to_f16(0.125f)));
}

void check_gptq(const checkpoint& tensors, const std::string& stem, int bits, std::size_t group) {
  CAPTURE(stem);
  const auto weights = presented_weights(tensors, stem + ".weight");
  REQUIRE(weights.size() == gptq_outputs * gptq_inputs);
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const auto o = i / gptq_inputs, k = i % gptq_inputs;
    CHECK(weights[i] == 0.125f * float(gptq_code(o, k, bits) - gptq_zero(k / group, o, bits)));
  }
}

quantised_storage gptq_storage(const std::string& more) {
  return parse_quantised_storage(
           json::document::parse(R"({"quantization_config": {"quant_method": "gptq", "bits": 4, "group_size": 32, )"
                                 R"("sym": false)" +
                                   more + "}}",
                                 "config.json"))
    .value();
}

} // namespace

TEST_CASE("Zero points of 0 in GPTQ's first format, which borrow from their neighbours in the word, stay 0") {
  for (const int bits : gptq_bits)
    for (const std::size_t group : {std::size_t(32), std::size_t(16), gptq_inputs}) {
      CAPTURE(bits);
      memory_checkpoint stored;
      put_gptq(stored, "a", bits, group);
      auto how = gptq_storage("");
      how.bits = bits;
      how.group = group == gptq_inputs ? 0 : group;
      check_gptq(*open_quantised(std::make_unique<memory_checkpoint>(stored), how), "a", bits, group);
    }
}

TEST_CASE("GPTQ's modules may have bits and groups of their own (`dynamic`)") {
  memory_checkpoint stored;
  put_gptq(stored, "plain", 4, 32);
  put_gptq(stored, "wide", 8, 32);
  put_gptq(stored, "small", 4, 16);
  put_gptq(stored, "whole", 3, 64);
  stored.put("out.weight", tensor_type::f32, {1}, std::vector<float>{1});
  const auto open = [&](const std::string& more) {
    return open_quantised(std::make_unique<memory_checkpoint>(stored), gptq_storage(more));
  };
  const auto opened = open(R"(, "dynamic": {"+:.*\\.wide": {"bits": 8}, "small": {"group_size": 16}, "-:out": {}})");
  check_gptq(*opened, "plain", 4, 32);
  check_gptq(*opened, "wide", 8, 32);
  check_gptq(*opened, "small", 4, 16);
  check_gptq(*opened, "whole", 3, 64);
  CHECK(failure_of([&] { open(""); }) == "m.safetensors: tensor `small.qzeros` has the shape [4, 4], expected [2, 4]");
  CHECK(failure_of([&] { open(R"(, "dynamic": {"+:.*\\.wide": {"bits": 5}})"); }) ==
        "config.json: `quantization_config`: `dynamic`: `+:.*\\.wide`: `bits` is 5, supported is 2, 3, 4 or 8");
  stored.about("wide.qzeros").shape = {2, 5};
  CHECK(failure_of([&] { open(R"(, "dynamic": {})"); }) ==
        "m.safetensors: tensor `wide.qzeros` has the shape [2, 5], expected 32 zero points of 2, 3, 4 or 8 bits in a "
        "row");
}
