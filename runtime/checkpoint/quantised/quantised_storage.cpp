#include "runtime/checkpoint/quantised/quantised_storage.hpp"

#include "runtime/support/error.hpp"
#include "runtime/support/json/json_reader.hpp"

#include <algorithm>
#include <charconv>
#include <string>

namespace troupe {

namespace {

constexpr int most_size = 1 << 20;

[[noreturn]] void refuse_value(const json::reader& config, const char* key, const std::string& value,
                               const char* supported) {
  throw failure(errc::unsupported, config.label(key) + " is " + value + ", supported is " + supported);
}

/// Two sizes, or nothing. compressed-tensors also wrote "128x128".
std::optional<std::array<std::size_t, 2>> read_block(const json::reader& config, const char* key) {
  const auto found = config.child(key);
  if (!found)
    return std::nullopt;
  std::array<int, 2> sizes{};
  if (found->get().is_string()) {
    const auto text = found->string();
    const auto* end = text.data() + text.size();
    const auto first = std::from_chars(text.data(), end, sizes[0]);
    const bool two = first.ec == std::errc{} && first.ptr != end && *first.ptr == 'x';
    if (!two || std::from_chars(first.ptr + 1, end, sizes[1]).ptr != end)
      sizes = {};
  } else if (const auto items = found->items(); items.size() == 2) {
    for (std::size_t i = 0; i < 2; ++i)
      sizes[i] = static_cast<int>(items[i].integer(1, most_size));
  }
  if (sizes[0] < 1 || sizes[1] < 1)
    found->expected("two sizes");
  return std::array{static_cast<std::size_t>(sizes[0]), static_cast<std::size_t>(sizes[1])};
}

void read_compressed(const json::reader& config, quantised_storage& to) {
  to.method = quantised_storage::method_name::compressed;
  // `mixed-precision` has formats by group of matrices, which each matrix's tensors tell as well.
  constexpr std::array<std::string_view, 9> formats{
    "float-quantized",      "naive-quantized", "int-quantized", "pack-quantized",   "nvfp4-pack-quantized",
    "mxfp4-pack-quantized", "mixed-precision", "dense",         "sparse-24-bitmask"};
  const auto format = config.string("format").value_or("float-quantized");
  if (std::ranges::find(formats, format) == formats.end())
    refuse_value(config, "format", "`" + format + "`",
                 "float-quantized, int-quantized, pack-quantized, nvfp4-pack-quantized, mxfp4-pack-quantized or "
                 "sparse-24-bitmask");
  if (const auto sparsity = config.object("sparsity_config")) {
    const auto kind = sparsity->string("format").value_or("dense");
    if (kind != "dense" && kind != "sparse-24-bitmask")
      refuse_value(*sparsity, "format", "`" + kind + "`", "dense or sparse-24-bitmask");
  }
  const auto groups = config.object("config_groups");
  if (!groups) {
    to.code_bits = {2, 4, 8};
    return;
  }
  for (const auto [name, _] : groups->object()) {
    const auto group = groups->object(name);
    const auto weights = group ? group->object("weights") : std::nullopt;
    if (!weights)
      continue;
    if (weights->string("type").value_or("int") == "int")
      to.code_bits.push_back(weights->integer("num_bits", 1, 8, 8));
    if (const auto block = read_block(*weights, "block_structure")) {
      if (to.scale_block[0] != 0 && to.scale_block != *block)
        refuse_value(*weights, "block_structure", "another than that of another group", "one for all groups");
      to.scale_block = *block;
    }
  }
}

void check_gptq_bits(const json::reader& config, int bits) {
  if (std::ranges::find(gptq_bits, bits) == gptq_bits.end())
    refuse_value(config, "bits", std::to_string(bits), "2, 3, 4 or 8");
}

/// Whether modules have rules of their own. Which of them is a matrix's, the shapes of its tensors tell.
bool has_rules(const json::reader& config) {
  const auto rules = config.object("dynamic");
  if (!rules)
    return false;
  for (const auto [pattern, _] : rules->object()) // those of `-:` are not quantised
    if (const auto rule = pattern.starts_with("-:") ? std::nullopt : rules->object(pattern))
      check_gptq_bits(*rule, rule->integer("bits", 1, 64, gptq_bits.back()));
  return true;
}

void read_gptq_or_awq(const json::reader& config, bool awq, quantised_storage& to) {
  to.bits = config.integer("bits", 1, 64, 4);
  if (awq && to.bits != 4)
    refuse_value(config, "bits", std::to_string(to.bits), "4");
  check_gptq_bits(config, to.bits);
  if (const int group = config.integer("group_size", -1, most_size, 128); group == 0)
    refuse_value(config, "group_size", "0", "a positive number or -1");
  else
    to.group = group < 0 ? 0 : static_cast<std::size_t>(group);
  if (awq) {
    to.method = quantised_storage::method_name::awq;
    if (const auto version = config.string("version").value_or("gemm"); version != "gemm" && version != "GEMM")
      refuse_value(config, "version", "`" + version + "`", "gemm");
    if (!config.boolean("zero_point", true))
      refuse_value(config, "zero_point", "false", "true");
    return;
  }
  const auto format = config.string("checkpoint_format").value_or("gptq");
  if (format != "gptq" && format != "gptq_v2")
    refuse_value(config, "checkpoint_format", "`" + format + "`", "gptq or gptq_v2");
  to.symmetric = config.boolean("sym", true);
  to.zeros_less_one = format == "gptq";
  to.by_module = has_rules(config);
}

/// Which of these formats a matrix has, its tensors tell.
void read_modelopt(const json::reader& config, quantised_storage& to) {
  to.method = quantised_storage::method_name::modelopt;
  constexpr std::array<std::string_view, 6> algorithms{
    "FP8", "FP8_PER_CHANNEL_PER_TOKEN", "FP8_PB_WO", "NVFP4", "MXFP8", "MIXED_PRECISION"};
  const auto algorithm = config.string("quant_algo").value_or("?");
  if (std::ranges::find(algorithms, algorithm) == algorithms.end())
    refuse_value(config, "quant_algo", "`" + algorithm + "`",
                 "FP8, FP8_PER_CHANNEL_PER_TOKEN, FP8_PB_WO, NVFP4, MXFP8 or MIXED_PRECISION");
  if (algorithm == "FP8_PB_WO")
    to.scale_block = {128, 128};
}

} // namespace

std::optional<quantised_storage> parse_modelopt_storage(const json::document& document) {
  const auto config = json::reader(document).object("quantization");
  if (!config || !config->has("quant_algo"))
    return std::nullopt; // of the cache alone
  quantised_storage result;
  read_modelopt(*config, result);
  return result;
}

std::optional<quantised_storage> parse_quantised_storage(const json::document& document) {
  using enum quantised_storage::method_name;
  const json::reader outer(document);
  const auto config = outer.object("quantization_config");
  if (!config)
    return std::nullopt;
  quantised_storage result;
  const auto method = config->string("quant_method").value_or("?");
  if (method == "compressed-tensors") {
    read_compressed(*config, result);
  } else if (method == "fbgemm_fp8" || method == "fp8") {
    result.method = fp8;
    result.scale_block = read_block(*config, "weight_block_size").value_or(result.scale_block);
  } else if (method == "modelopt" || method == "modelopt_fp4") {
    read_modelopt(*config, result);
  } else if (method == "bitsandbytes") {
    result.method = bitsandbytes;
  } else if (method == "torchao") {
    result.method = torchao;
  } else if (method == "mxfp4") {
    result.method = mxfp4;
  } else if (method == "gptq" || method == "awq") {
    read_gptq_or_awq(*config, method == "awq", result);
  } else {
    throw failure(errc::unsupported,
                  outer.label("quantization_config") + ": weights quantised by `" + method +
                    "` are not supported, only by gptq, awq, bitsandbytes, compressed-tensors, torchao, modelopt, "
                    "fbgemm_fp8, fp8 and "
                    "mxfp4");
  }
  return result;
}

} // namespace troupe
