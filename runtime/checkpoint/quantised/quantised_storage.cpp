#include "runtime/checkpoint/quantised/quantised_storage.hpp"

#include "runtime/support/error.hpp"
#include "runtime/support/json/json_reader.hpp"

#include <algorithm>
#include <charconv>
#include <string>
#include <utility>

namespace troupe {

namespace {

constexpr int most_size = 1 << 20;
constexpr std::size_t default_group = 128;

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

/// Inputs per scale; 0 for all of them.
std::size_t read_group(const json::reader& config, std::size_t fallback) {
  const auto group = config.integer("group_size", -1, most_size);
  if (group && *group == 0)
    refuse_value(config, "group_size", "0", "a positive number or -1");
  return !group ? fallback : *group < 0 ? 0 : static_cast<std::size_t>(*group);
}

/// The members of an object that are not null, each with its name; there may be as many as modules.
std::vector<std::pair<std::string_view, json::reader>> rules_of_modules(const json::reader& rules) {
  std::vector<std::pair<std::string_view, json::reader>> result;
  for (const auto [name, rule] : rules.object())
    if (!json::value(rule).is_null())
      result.emplace_back(name, json::reader(rule, rules.source(), rules.path(name), json::config_wording));
  return result;
}

/// A rule of some modules. Bounds what every matrix is compared with.
void add_rule(const json::reader& rule, int bits, quantised_storage& to) {
  constexpr std::size_t most_groups = 64;
  const auto group = read_group(rule, to.group);
  if (std::ranges::find(to.code_bits, bits) == to.code_bits.end())
    to.code_bits.push_back(bits);
  if (std::ranges::find(to.groups, group) != to.groups.end())
    return;
  if (to.groups.size() == most_groups)
    refuse_value(rule, "group_size", "another than 64 that other modules have", "at most 64 of them");
  to.groups.push_back(group);
}

/// The rules of modules. Which of them is a matrix's, the shapes of its tensors tell.
void read_rules(const json::reader& config, quantised_storage& to) {
  const auto rules = config.object("dynamic");
  if (!rules)
    return;
  to.by_module = true;
  to.groups = {to.group};
  to.code_bits.assign(gptq_bits.begin(), gptq_bits.end());
  for (const auto& [pattern, rule] : rules_of_modules(*rules)) {
    if (pattern.starts_with("-:")) // not quantised
      continue;
    const int bits = rule.integer("bits", 1, 64, to.bits);
    check_gptq_bits(rule, bits);
    add_rule(rule, bits, to);
  }
}

void read_gptq_or_awq(const json::reader& config, bool awq, quantised_storage& to) {
  to.bits = config.integer("bits", 1, 64, 4);
  if (awq && to.bits != 4)
    refuse_value(config, "bits", std::to_string(to.bits), "4");
  check_gptq_bits(config, to.bits);
  to.group = read_group(config, default_group);
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
  read_rules(config, to);
}

/// How AutoRound laid codes out: as GPTQ does, with zero points less one or as they are, as AWQ does, in fp8, or in MX and
/// NV types as compressed-tensors does.
void read_packing(const json::reader& config, quantised_storage& to) {
  // Versions before 0.5 have it in `backend`, which later says what shall multiply.
  auto packing = config.string("packing_format");
  if (const auto backend = packing ? std::nullopt : config.string("backend");
      backend && (backend->starts_with("auto_round") || backend->starts_with("autoround")))
    packing = backend;
  const auto format = packing.value_or("auto_round:auto_gptq");
  constexpr std::array<std::string_view, 6> less_one{"auto",
                                                     "auto_round:auto_gptq",
                                                     "auto_round:gptq",
                                                     "auto_round:gptq:exllamav2",
                                                     "auto_round:auto_gptq:exllamav2",
                                                     "autoround:gptq:exllamav2"};
  constexpr std::array<std::string_view, 6> as_they_are{"auto_round",           "auto_round:gptqmodel",
                                                        "auto_round:exllamav2", "auto_round:tritonv2",
                                                        "autoround:exllamav2",  "autoround:tritonv2"};
  constexpr std::array<std::string_view, 3> like_awq{"auto_round:auto_awq", "auto_round:awq", "auto_round:awq:gemm"};
  constexpr std::array<std::string_view, 2> in_fp8{"auto_round:fp8", "auto_round:fp8_static"};
  const auto among = [&](const auto& names) { return std::ranges::find(names, format) != names.end(); };
  if (among(in_fp8))
    to.method = quantised_storage::method_name::fp8;
  else if (among(like_awq))
    to.method = quantised_storage::method_name::awq;
  else if (format == "auto_round:llm_compressor")
    to.method = quantised_storage::method_name::compressed;
  else if (!among(less_one) && !among(as_they_are))
    refuse_value(config, packing && !config.has("packing_format") ? "backend" : "packing_format", "`" + format + "`",
                 "auto_round, auto_round:auto_gptq, auto_round:gptqmodel, auto_round:auto_awq, auto_round:fp8, "
                 "auto_round:fp8_static or auto_round:llm_compressor");
  to.zeros_less_one = among(less_one);
}

/// Rotated weights are to be multiplied with rotated activations.
void refuse_rotation(const json::reader& config) {
  for (const char* key : {"rotation_config", "spinquant_config"})
    if (const auto found = config.child(key); found && !(found->is_object() && found->object().size() == 0))
      throw failure(errc::unsupported, config.label(key) + ": weights that AutoRound rotated are not supported");
}

/// Refuses codes that are no plain integers, and activations that are to be rounded. In compressed-tensors' layout,
/// refuses codes of other than the types whose tensors tell them apart; activations are not rounded to these.
void check_auto_round_scheme(const json::reader& config, bool compressed) {
  if (compressed) {
    if (const auto type = config.string("data_type");
        type && !type->starts_with("mx_fp") && !type->starts_with("nv_fp"))
      refuse_value(config, "data_type", "`" + *type + "`", "mx_fp or nv_fp in this layout");
    return refuse_rotation(config);
  }
  constexpr std::array<std::string_view, 3> integers{"int", "int_sym", "int_asym"};
  if (const auto type = config.string("data_type").value_or("int"); std::ranges::find(integers, type) == integers.end())
    refuse_value(config, "data_type", "`" + type + "`", "int");
  if (const auto bits = config.integer("act_bits", 1, 64, 16); bits < 16)
    refuse_value(config, "act_bits", std::to_string(bits), "16");
  refuse_rotation(config);
}

constexpr int least_float_bits = 9; // modules of so many are not quantised

int read_auto_round_bits(const json::reader& config, bool awq, int fallback) {
  const int bits = config.integer("bits", 1, 64, fallback);
  if (bits >= least_float_bits)
    return bits;
  if (awq && (bits < 4 || bits > 7))
    refuse_value(config, "bits", std::to_string(bits), "4 to 7 in AWQ's layout");
  if (std::ranges::find(auto_round_bits, bits) == auto_round_bits.end())
    refuse_value(config, "bits", std::to_string(bits), "2 to 8");
  return bits;
}

void read_auto_round(const json::reader& config, quantised_storage& to) {
  refuse_rotation(config);
  read_packing(config, to);
  if (to.method == quantised_storage::method_name::fp8) {
    to.scale_block = read_block(config, "weight_block_size").value_or(to.scale_block);
    return;
  }
  const bool compressed = to.method == quantised_storage::method_name::compressed;
  check_auto_round_scheme(config, compressed);
  const bool awq = to.method == quantised_storage::method_name::awq;
  to.bits = read_auto_round_bits(config, awq, 4);
  if (to.bits >= least_float_bits)
    refuse_value(config, "bits", std::to_string(to.bits), "2 to 8");
  to.group = read_group(config, default_group);
  to.by_module = true;
  to.groups = {to.group};
  to.code_bits = {to.bits};
  // Names are those of modules, or regular expressions; shapes tell which rule is a matrix's.
  if (const auto rules = config.object("extra_config"))
    for (const auto& [_, rule] : rules_of_modules(*rules)) {
      const int bits = read_auto_round_bits(rule, awq, to.bits);
      if (bits >= least_float_bits)
        continue;
      check_auto_round_scheme(rule, compressed);
      add_rule(rule, bits, to);
    }
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
  } else if (method == "hqq") {
    result.method = hqq;
  } else if (method == "auto-round" || method == "intel/auto-round") {
    read_auto_round(*config, result);
  } else if (method == "mxfp4") {
    result.method = mxfp4;
  } else if (method == "gptq" || method == "awq") {
    read_gptq_or_awq(*config, method == "awq", result);
  } else {
    throw failure(errc::unsupported,
                  outer.label("quantization_config") + ": weights quantised by `" + method +
                    "` are not supported, only by gptq, awq, auto-round, hqq, bitsandbytes, compressed-tensors, "
                    "torchao, modelopt, fbgemm_fp8, fp8 and mxfp4");
  }
  return result;
}

} // namespace troupe
