#include "kernels/cpu/cpu_backend.hpp"
#include "kernels/formats/e4m3.hpp"
#include "runtime/checkpoint/quantised/fp4_tensors.hpp"
#include "runtime/checkpoint/quantised/fp8_checkpoint.hpp"
#include "runtime/checkpoint/quantised/quantised_checkpoint.hpp"
#include "runtime/checkpoint/safetensors.hpp"
#include "runtime/import/model_source.hpp"
#include "runtime/model/decoder/decoder.hpp"
#include "runtime/model/decoder/memory_estimate.hpp"
#include "runtime/model/tensor_names.hpp"
#include "tests/runtime/checkpoint/fp8_test_data.hpp"
#include "tests/runtime/checkpoint/memory_checkpoint.hpp"
#include "tests/runtime/model/model_test_data.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

using namespace troupe;
using namespace troupe::test;
using kernels::dtype;

namespace {

/// Tensors to be written to a safetensors file.
class file_writer {
public:
  void add(const std::string& name, std::string_view type, const std::vector<std::size_t>& shape,
           std::string_view bytes) {
    header_ += (header_.empty() ? "{\"" : ", \"") + name + "\": {\"dtype\": \"" + std::string(type) +
      "\", \"shape\": " + to_string(shape) + ", \"data_offsets\": [" + std::to_string(data_.size()) + ", " +
      std::to_string(data_.size() + bytes.size()) + "]}";
    data_ += bytes;
  }
  std::string file() const { return safetensors(header_ + "}", 0) + data_; }

private:
  std::string header_, data_;
};

std::string_view view_of(const void* data, std::size_t size) { return {static_cast<const char*>(data), size}; }

/// llama-gqa with FP8 matrices, as compressed-tensors writes them.
std::string fp8_file() {
  const auto source = open_model((data() / "golden/llama-gqa").string());
  const fp8_view view(*source.tensors);
  file_writer to;
  for (const auto& name : view.tensors()) {
    const auto& info = *view.find(name);
    const auto tensor = view.read(name);
    if (!view.is_layer_matrix(name)) {
      to.add(name, to_string(info.type), info.shape, view_of(tensor.get(), info.bytes));
      continue;
    }
    std::string codes, scales;
    const auto rows = info.shape[0], stride = info.shape[1] + sizeof(float);
    for (std::size_t r = 0; r < rows; ++r) {
      const auto* row = static_cast<const char*>(tensor.get()) + r * stride;
      scales.append(row, sizeof(float));
      codes.append(row + sizeof(float), info.shape[1]);
    }
    to.add(name, "F8_E4M3", info.shape, codes);
    to.add(name.substr(0, name.size() - 6) + "input_scale", "F32", {1}, std::string(4, '\0'));
    if (fp8_view::has_one_scale(name))
      to.add(name + "_scale", "F32", {}, scales.substr(0, 4));
    else
      to.add(name + "_scale", "F32", {rows, 1}, scales);
  }
  return to.file();
}

/// Codes are multiplied as they are, and sums by scales; expanded weights, whose logits are `want`, are rounded to the type
/// of activations.
void check_near(const std::vector<float>& got, const std::vector<float>& want, const troupe::precision& precision) {
  if (precision.weights == kernels::quantization::int8) {
    CHECK(got == want);
    return;
  }
  double largest = 0, worst = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    largest = std::max(largest, std::abs(double(want[i])));
    worst = std::max(worst, std::abs(double(got[i]) - want[i]));
  }
  CHECK(worst < largest * (precision.compute == dtype::f32 ? 1e-5 : 0.03));
}

std::string config_with(const std::string& quantization) {
  auto config = content(data() / "golden/llama-gqa/config.json");
  return config.insert(config.find('{') + 1, "\"quantization_config\": " + quantization + ", ");
}

constexpr const char* compressed = R"({"quant_method": "compressed-tensors", "format": "float-quantized"})";

std::vector<float> logits_behind(const checkpoint& tensors, const model_config& config, precision precision,
                                 const std::vector<token_id>& ids) {
  const auto backend = kernels::make_cpu_backend({.threads = 1});
  const auto weights = load_weights(tensors, config, *backend, precision);
  CHECK(weights->bytes == estimate_memory(tensors, config, precision, *backend, {}).weights);
  const auto rows = static_cast<std::int32_t>(ids.size()), last = rows - 1;
  decoder graph(weights, *backend, rows, 64);
  const auto cache = backend->make_kv_cache(kv_shape_of(config, precision, 4));
  const std::vector<std::int32_t> blocks{0, 1, 2, 3};
  const auto vocab = static_cast<std::size_t>(config.vocab);
  std::vector<float> logits(vocab);
  const auto memory = backend->allocate(vocab * sizeof(float));
  const kernels::tensor out{memory.get(), dtype::f32, 1, vocab, vocab};
  const kernels::sequence_rows all{0, rows, 0, 0};
  graph.forward(ids, {{&all, 1}, blocks}, {&last, 1}, *cache, out);
  backend->download(logits.data(), out);
  return logits;
}

std::vector<float> last_logits(const checkpoint& tensors, const model_config& config, precision precision) {
  return logits_behind(tensors, config, precision, {1, 5, 9, 200, 3});
}

/// The error message after `from` in the checkpoint's file is replaced by `to`, of the same length.
std::string fp8_refusal(const std::string& from, const std::string& to) {
  const temp_folder folder;
  write(folder.path() / "config.json", config_with(compressed));
  auto file = fp8_file();
  REQUIRE(from.size() == to.size());
  REQUIRE(file.find(from) != std::string::npos);
  write(folder.path() / "model.safetensors", file.replace(file.find(from), from.size(), to));
  const auto said = failure_of([&] {
    const auto source = open_model(folder.path().string());
    check_tensors(*source.tensors, source.config);
  });
  const auto at = said.find("model.safetensors");
  return at == std::string::npos ? said : said.substr(at);
}

} // namespace

TEST_CASE("FP8 checkpoints give on a CPU the logits of their expanded weights") {
  const auto golden = open_model((data() / "golden/llama-gqa").string());
  const fp8_view codes(*golden.tensors);
  const expanded_view expanded(codes);
  const temp_folder folder;
  write(folder.path() / "model.safetensors", fp8_file());
  for (const char* quantization :
       {compressed, R"({"quant_method": "fbgemm_fp8"})", R"({"quant_method": "fp8", "activation_scheme": "static"})"}) {
    CAPTURE(quantization);
    write(folder.path() / "config.json", config_with(quantization));
    const auto source = open_model(folder.path().string());
    CHECK(check_tensors(*source.tensors, source.config).empty());
    CHECK(natural_compute(*source.tensors) == dtype::bf16);
    CHECK(source.tensors->find("model.layers.1.self_attn.o_proj.weight")->type == tensor_type::fp8);
    if (quantization != compressed)
      continue;
    for (const troupe::precision precision :
         {precision(dtype::f32), precision(dtype::bf16), precision(dtype::bf16, kernels::quantization::int8)}) {
      const auto got = last_logits(*source.tensors, source.config, precision);
      const auto want = last_logits(expanded, golden.config, precision);
      CHECK(got != last_logits(*golden.tensors, golden.config, precision));
      check_near(got, want, precision);
    }
  }
}

TEST_CASE("FP8 checkpoints with scales that are missing, misshapen or mistyped are refused by tensor") {
  const std::string q = "model.layers.0.self_attn.q_proj.";
  CHECK(fp8_refusal(q + "weight_scale", q + "weight_scalf") ==
        "model.safetensors: tensor `" + q + "weight_scale` is missing");
  CHECK(fp8_refusal(q + R"(weight_scale": {"dtype": "F32", "shape": [128, 1])",
                    q + R"(weight_scale": {"dtype": "F32", "shape": [1, 128])") ==
        "model.safetensors: tensor `" + q +
          "weight_scale` has the shape [1, 128], expected one scale, [128, 1] or one for each block");
  CHECK(fp8_refusal(q + R"(weight_scale": {"dtype": "F32")", q + R"(weight_scale": {"dtype": "I32")") ==
        "model.safetensors: tensor `" + q + "weight_scale` is I32, expected F32, BF16, F16, F8_E8M0 or U8");
}

TEST_CASE("FP8 with a scale for each block keeps its bytes, and gives the logits of its expanded weights") {
  const auto golden = open_model((data() / "golden/llama-gqa").string());
  const fp8_view view(*golden.tensors);
  for (const auto& block : {std::array<std::size_t, 2>{128, 128}, {16, 32}, {64, 64}}) {
    CAPTURE(block[0]);
    memory_checkpoint stored, expanded;
    std::size_t bytes = 0, weights = 0;
    for (const auto& name : golden.tensors->tensors()) {
      const auto& info = *golden.tensors->find(name);
      if (!view.is_layer_matrix(name)) {
        const auto data = golden.tensors->read(name);
        const auto* from = static_cast<const char*>(data.get());
        for (auto* to : {&stored, &expanded})
          to->put(name, info.type, info.shape, std::vector<char>(from, from + info.bytes));
        continue;
      }
      auto values = presented_weights(*golden.tensors, name);
      const auto rows = info.shape[0], cols = info.shape[1], across = (cols + block[1] - 1) / block[1];
      std::vector<float> scales((rows + block[0] - 1) / block[0] * across);
      const auto scale_at = [&](std::size_t i) -> float& {
        return scales[i / cols / block[0] * across + i % cols / block[1]];
      };
      for (std::size_t i = 0; i < values.size(); ++i)
        scale_at(i) = std::max(scale_at(i), std::abs(values[i]) / kernels::largest_e4m3);
      std::vector<std::uint8_t> codes(values.size());
      for (std::size_t i = 0; i < values.size(); ++i) {
        codes[i] = kernels::to_fp8(values[i], scale_at(i));
        values[i] = kernels::from_e4m3(codes[i]) * scale_at(i);
      }
      stored.put(name, tensor_type::f8_e4m3, info.shape, codes);
      stored.put(name + "_scale_inv", tensor_type::f32, {rows / block[0] + (rows % block[0] != 0), across}, scales);
      expanded.put(name, tensor_type::f32, info.shape, values);
      weights += codes.size();
    }
    const auto opened = open_fp8(std::make_unique<memory_checkpoint>(stored), block);
    CHECK(check_tensors(*opened, golden.config).empty());
    for (const auto& name : opened->tensors())
      if (view.is_layer_matrix(name)) {
        const auto& info = *opened->find(name);
        bytes += info.bytes;
        CHECK(info.type ==
              (block[1] >= info.shape[1] ? tensor_type::fp8
                 : block[1] == 128       ? tensor_type::fp8_128
                                         : tensor_type::fp8_32));
        CHECK(presented_weights(*opened, name) == presented_weights(expanded, name));
      }
    CHECK(bytes < weights * (block[1] == 128 ? 1.05 : 1.15));
    for (const troupe::precision precision :
         {precision(dtype::f32), precision(dtype::bf16), precision(dtype::bf16, kernels::quantization::int8)}) {
      const auto got = last_logits(*opened, golden.config, precision);
      const auto want = last_logits(expanded, golden.config, precision);
      check_near(got, want, precision);
    }
  }
}

TEST_CASE("FP8 with blocks of powers of two (MXFP8) keeps their values") {
  constexpr std::size_t outputs = 3, inputs = 96;
  const std::string name = "model.layers.0.mlp.up_proj.weight";
  memory_checkpoint stored;
  std::vector<std::uint8_t> codes(outputs * inputs), scales(outputs * 3);
  for (std::size_t i = 0; i < codes.size(); ++i)
    codes[i] = kernels::to_e4m3(float(i % 15) - 7);
  for (std::size_t i = 0; i < scales.size(); ++i)
    scales[i] = static_cast<std::uint8_t>(120 + i);
  stored.put(name, tensor_type::f8_e4m3, {outputs, inputs}, codes);
  stored.put(name + "_scale", tensor_type::u8, {outputs, 3}, scales);
  const auto opened = open_fp8(std::make_unique<memory_checkpoint>(stored));
  CHECK(opened->find(name)->type == tensor_type::fp8_32);
  const auto weights = presented_weights(*opened, name);
  for (std::size_t i = 0; i < weights.size(); ++i)
    CHECK(weights[i] == std::ldexp(float(i % 15) - 7, int(i / 32) - 7));
}

TEST_CASE("FP8 with a scale for each block of another size is expanded to bf16") {
  constexpr std::size_t outputs = 5, inputs = 6;
  const std::string name = "model.layers.0.mlp.up_proj.weight";
  std::vector<std::uint8_t> codes(outputs * inputs);
  for (std::size_t i = 0; i < codes.size(); ++i)
    codes[i] = kernels::to_e4m3(float(i % 7) - 3);
  memory_checkpoint stored;
  stored.put(name, tensor_type::f8_e4m3, {outputs, inputs}, codes);
  stored.put("model.layers.0.mlp.up_proj.activation_scale", tensor_type::f32, {}, std::vector<float>{1});
  const auto open = [&](std::array<std::size_t, 2> block) {
    return open_fp8(std::make_unique<memory_checkpoint>(stored), block);
  };
  // Rows and columns of scales, what the configuration says, and what a scale is for.
  struct shape {
    std::array<std::size_t, 2> scales, said, block;
  };
  for (const auto& [scales, said, block] :
       {shape{{3, 2}, {2, 4}, {2, 4}}, {{5, 3}, {}, {1, 2}}, {{3, 1}, {2, 128}, {2, 6}}, {{1, 1}, {128, 128}, {5, 6}}})
    for (const char* suffix : {"_scale_inv", "_scale"}) {
      CAPTURE(scales[0]);
      CAPTURE(suffix);
      auto values = std::vector<float>(scales[0] * scales[1]);
      for (std::size_t i = 0; i < values.size(); ++i)
        values[i] = 0.25f * float(i + 1); // so that bf16 holds the products
      stored.put(name + suffix, tensor_type::f32, {scales[0], scales[1]}, values);
      const auto opened = open(said);
      CHECK(opened->tensors() == std::vector<std::string>{name});
      CHECK(opened->find(name)->type == (scales[1] == 1 ? tensor_type::fp8 : tensor_type::bf16));
      const auto weights = presented_weights(*opened, name);
      for (std::size_t i = 0; i < weights.size(); ++i)
        CHECK(weights[i] == values[i / inputs / block[0] * scales[1] + i % inputs / block[1]] * (float(i % 7) - 3));
      stored.drop(name + suffix);
    }
  stored.put(name + "_scale_inv", tensor_type::f32, {3, 2}, std::vector<float>(6));
  CHECK(failure_of([&] {
          open({128, 128});
        }) ==
        "m.safetensors: tensor `" + name +
          "_scale_inv` has the shape [3, 2], expected one scale, [5, 1] or one for each block of 128 x 128");
}

TEST_CASE("FP8 in E5M2 is expanded to bf16, whatever shares a scale") {
  const std::string name = "model.layers.0.mlp.up_proj.weight";
  std::vector<std::uint8_t> codes;
  for (int code = 0; code < 256; ++code)
    if ((code & 0x7c) != 0x7c) // infinities and NaN
      codes.push_back(static_cast<std::uint8_t>(code));
  const std::size_t inputs = codes.size() / 4;
  for (const std::size_t scales : {1, 4}) {
    memory_checkpoint stored;
    stored.put(name, tensor_type::f8_e5m2, {4, inputs}, codes);
    stored.put(name + "_scale", tensor_type::f32, {scales, 1}, std::vector<float>{0.5f, 1, 2, 4});
    stored.about(name + "_scale").bytes = scales * sizeof(float);
    const auto opened = open_fp8(std::make_unique<memory_checkpoint>(stored));
    CHECK(opened->find(name)->type == tensor_type::bf16);
    const auto weights = presented_weights(*opened, name);
    for (std::size_t i = 0; i < codes.size(); ++i) {
      const int exponent = codes[i] >> 2 & 31, mantissa = codes[i] & 3;
      const float size = exponent == 0 ? std::ldexp(float(mantissa), -16)
                                       : std::ldexp(float(4 + mantissa), exponent - 17);
      CHECK(weights[i] == (codes[i] & 0x80 ? -size : size) * std::ldexp(0.5f, scales == 1 ? 0 : int(i / inputs)));
    }
  }
}

TEST_CASE("Configurations say the blocks of fp8, or are refused by key") {
  const temp_folder folder;
  write(folder.path() / "model.safetensors", fp8_file());
  const auto read = [&](const std::string& quantization) {
    write(folder.path() / "config.json", config_with(quantization));
    const auto said = failure_of([&] { open_model(folder.path().string()); });
    const auto at = said.find("config.json");
    return at == std::string::npos ? said : said.substr(at);
  };
  const std::string groups = R"({"quant_method": "compressed-tensors", "config_groups": {"group_0": {"weights": )";
  CHECK(read(R"({"quant_method": "fp8", "weight_block_size": [128, 128]})").empty());
  CHECK(read(R"({"quant_method": "fp8", "weight_block_size": null})").empty());
  CHECK(read(groups + R"({"num_bits": 8, "type": "float", "block_structure": "128x128"}}}})").empty());
  CHECK(read(groups + R"({"num_bits": 8, "type": "float", "block_structure": [128, 128]}}}})").empty());
  CHECK(read(R"({"quant_method": "fp8", "weight_block_size": [128]})") ==
        "config.json: `quantization_config`: `weight_block_size` must be two sizes, found an array");
  CHECK(read(groups + R"({"num_bits": 8, "type": "float", "block_structure": "128x"}}}})") ==
        "config.json: `quantization_config`: `config_groups`: `group_0`: `weights`: `block_structure` must be two "
        "sizes, found a string");
}

namespace {

double alike(const std::vector<float>& a, const std::vector<float>& b) {
  const auto product = [](const auto& x, const auto& y) {
    return std::inner_product(x.begin(), x.end(), y.begin(), 0.0);
  };
  return product(a, b) / std::sqrt(product(a, a) * product(b, b));
}

} // namespace

TEST_CASE("Experts in fp4 beside matrices in fp8: every code and power of two has its value, in MXFP4") {
  constexpr std::size_t rows = 254, cols = 64;
  constexpr float values[] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6, 0, -0.5f, -1, -1.5f, -2, -3, -4, -6};
  std::vector<std::uint8_t> codes(rows * cols / 2), scales(rows * 2);
  for (std::size_t i = 0; i < codes.size(); ++i)
    codes[i] = static_cast<std::uint8_t>(i * 37 + i / 256);
  for (std::size_t i = 0; i < scales.size(); ++i)
    scales[i] = static_cast<std::uint8_t>(i % 2 == 0 ? i / 2 : 253 - i / 2);
  for (const std::string scale : {"a.scale", "a.weight_scale_inv"}) {
    auto stored = std::make_unique<memory_checkpoint>();
    stored->put("a.weight", tensor_type::i8, {rows, cols / 2}, codes);
    stored->put(scale, tensor_type::f8_e8m0, {rows, 2}, scales);
    quantised_storage how;
    how.method = quantised_storage::method_name::fp8;
    const auto opened = open_quantised(std::move(stored), how);
    CHECK(opened->tensors() == std::vector<std::string>{"a.weight"});
    const auto& info = *opened->find("a.weight");
    CHECK(info.type == tensor_type::mxfp4);
    CHECK(info.shape == std::vector<std::size_t>{rows, cols});
    const auto weights = presented_weights(*opened, "a.weight");
    for (std::size_t i = 0; i < weights.size(); ++i) {
      const auto code = codes[i / 2] >> i % 2 * 4 & 15;
      REQUIRE(weights[i] == std::ldexp(values[code], scales[i / 32] - 127));
    }
    auto unscaled = std::make_unique<memory_checkpoint>();
    unscaled->put("a.weight", tensor_type::i8, {rows, cols / 2}, codes);
    unscaled->put(scale, tensor_type::f8_e8m0, {rows, 2}, std::vector<std::uint8_t>(rows * 2, 255));
    CHECK(failure_of([&] { open_quantised(std::move(unscaled), how)->read("a.weight"); }) ==
          "m.safetensors: tensor `" + scale + "` has an exponent of 255, which is no number");
  }
}

TEST_CASE("DeepSeek V4 as published, with experts in fp4 and other matrices in fp8: transformers' weights and logits") {
  const auto folder = data() / "quantised/deepseek-v4-fp4";
  const auto source = open_model(folder.string());
  CHECK(check_tensors(*source.tensors, source.config).empty());
  const auto stored = open_safetensors(folder);
  const auto opened = open_fp8(open_fp4_experts(open_safetensors(folder)), {32, 32});
  const auto expected = json::document::load(folder / "expected.json");
  std::size_t experts = 0;
  for (const auto [name, samples] : expected.root()["samples"].get_object()) {
    CAPTURE(std::string(name));
    const auto& info = *opened->find(name);
    const bool expert = name.find(".experts.") != name.npos;
    CHECK(stored->find(name)->type == (expert ? tensor_type::i8 : tensor_type::f8_e4m3));
    CHECK(info.type == (expert ? tensor_type::mxfp4 : info.shape[1] == 32 ? tensor_type::fp8 : tensor_type::fp8_32));
    const auto weights = presented_weights(*opened, std::string(name));
    for (json::value sample : samples.get_array())
      CHECK(weights[sample.at(0).get_uint64().value() * info.shape[1] + sample.at(1).get_uint64().value()] ==
            sample.at(2).get_double().value());
    experts += expert;
  }
  CHECK(experts == 2 * 8 * 3);
  CHECK(source.tensors->find("model.layers.1.mlp.experts.7.down_proj.weight")->type == tensor_type::mxfp4);
  const auto ids = list<token_id>(expected.root()["ids"]);
  const auto logits = list<float>(expected.root()["logits"]);
  const expanded_view floats(*source.tensors);
  const auto exact = logits_behind(floats, source.config, dtype::f32, ids);
  CHECK(largest_difference(exact, logits) < 2e-3);
  const auto as_stored = logits_behind(*source.tensors, source.config, dtype::f32, ids);
  CHECK(as_stored != exact); // inputs of fp4 are rounded to int8
  CHECK(alike(as_stored, logits) > 0.999);
}

TEST_CASE("Experts in fp4 whose scales are missing, of another type or shape are refused by tensor") {
  const auto said = [](const std::function<void(memory_checkpoint&)>& change) {
    auto stored = std::make_unique<memory_checkpoint>();
    stored->put("a.weight", tensor_type::i8, {2, 32}, std::vector<std::uint8_t>(64));
    stored->put("a.scale", tensor_type::f8_e8m0, {2, 2}, std::vector<std::uint8_t>(4));
    change(*stored);
    return failure_of([&] { open_fp4_experts(std::move(stored)); });
  };
  CHECK(said([](memory_checkpoint&) {}).empty());
  CHECK(said([](memory_checkpoint& c) { c.drop("a.scale"); }) == "m.safetensors: tensor `a.weight_scale` is missing");
  CHECK(said([](memory_checkpoint& c) {
          c.put("a.scale", tensor_type::f32, {2, 2}, std::vector<float>(4));
        }) == "m.safetensors: tensor `a.scale` is F32 [2, 2], expected U8 or F8_E8M0");
  CHECK(said([](memory_checkpoint& c) { c.about("a.scale").shape = {4}; }) ==
        "m.safetensors: tensor `a.scale` has the shape [4], expected [2, 2]");
  CHECK(said([](memory_checkpoint& c) {
          c.about("a.weight").shape = {4, 15};
        }) == "m.safetensors: tensor `a.weight` has the shape [4, 15], expected rows of whole groups of 32 codes");
}
