#include "runtime/techniques/adapters/adapter_file.hpp"

#include "runtime/checkpoint/gguf_file.hpp"
#include "runtime/checkpoint/safetensors.hpp"
#include "runtime/checkpoint/text_tensors.hpp"
#include "runtime/checkpoint/weight_values.hpp"
#include "runtime/model/families/family.hpp"
#include "runtime/support/error.hpp"
#include "runtime/support/files/file_reading.hpp"
#include "runtime/support/files/mapped_file.hpp"
#include "runtime/support/json/json_brief.hpp"
#include "runtime/support/json/json_reader.hpp"
#include "runtime/support/types.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>

namespace troupe {

namespace {

struct projection_name {
  std::string_view peft, gguf;
};
constexpr std::array<projection_name, projection_count> projection_names{{{"self_attn.q_proj", "attn_q"},
                                                                          {"self_attn.k_proj", "attn_k"},
                                                                          {"self_attn.v_proj", "attn_v"},
                                                                          {"self_attn.o_proj", "attn_output"},
                                                                          {"mlp.gate_proj", "ffn_gate"},
                                                                          {"mlp.up_proj", "ffn_up"},
                                                                          {"mlp.down_proj", "ffn_down"}}};

/// One of a pair, as stored.
struct adapter_half {
  std::string name; // of the tensor
  tensor_info info;
  const std::byte* bytes = nullptr;
};

struct adapter_pair {
  std::string module; // without the prefix of PEFT
  adapter_half a, b;
};

/// The pairs of an adapter, by layer and projection.
using adapter_pairs = std::map<std::pair<std::size_t, std::size_t>, adapter_pair>;

[[noreturn]] void refuse_adapter_tensor(const std::string& file, std::string_view tensor, const std::string& why,
                                        errc code = errc::bad_file) {
  throw failure(code, file + ": tensor " + shown(tensor) + " " + why);
}

/// Where tensors of one format belong.
class pair_collector {
public:
  pair_collector(std::string file, const model_products& target, bool gguf)
    : file_(std::move(file)), target_(target), gguf_(gguf) {}

  void add(const std::string& name, const tensor_info& info, const std::byte* bytes) {
    const std::string_view suffix_a = gguf_ ? ".weight.lora_a" : ".lora_A.weight",
                           suffix_b = gguf_ ? ".weight.lora_b" : ".lora_B.weight";
    const std::string_view outer = gguf_ ? "" : "base_model.model.", before = gguf_ ? "blk." : "model.layers.";
    const bool is_a = name.ends_with(suffix_a);
    if (!name.starts_with(outer) || (!is_a && !name.ends_with(suffix_b)))
      refuse_unknown(name);
    const auto module = name.substr(outer.size(), name.size() - outer.size() - suffix_a.size());
    const auto within = text_tensor_name(module); // of the text, where the base model is multimodal
    std::string_view rest = within;
    if (!rest.starts_with(before))
      refuse_unknown(name);
    rest.remove_prefix(before.size());
    std::size_t layer = 0;
    const auto number = std::from_chars(rest.data(), rest.data() + rest.size(), layer);
    rest.remove_prefix(static_cast<std::size_t>(number.ptr - rest.data()));
    if (number.ec != std::errc() || !rest.starts_with('.'))
      refuse_unknown(name);
    rest.remove_prefix(1);
    const auto found = std::ranges::find(projection_names, rest,
                                         gguf_ ? &projection_name::gguf : &projection_name::peft);
    if (found == projection_names.end())
      refuse_unknown(name);
    if (layer >= target_.layers.size())
      refuse_adapter_tensor(file_, name,
                            "is for a layer that the model does not have; its layers are 0 to " +
                              std::to_string(target_.layers.size() - 1));
    const auto which = static_cast<std::size_t>(found - projection_names.begin());
    if (target_.layers[layer][which].outputs == 0)
      refuse_adapter_tensor(file_, name, "is for a matrix that takes no adapter in this model", errc::unsupported);
    auto& pair = pairs_[{layer, which}];
    pair.module = module;
    auto& half = is_a ? pair.a : pair.b;
    if (half.bytes)
      refuse_adapter_tensor(file_, name, "is there twice");
    half = {name, info, bytes};
  }

  /// Each pair complete.
  const adapter_pairs& done() const {
    if (pairs_.empty())
      throw failure(errc::bad_file, file_ + ": has no tensors, expected pairs of low-rank matrices");
    for (const auto& [_, pair] : pairs_)
      if (!pair.a.bytes || !pair.b.bytes)
        refuse_adapter_tensor(file_, pair.a.bytes ? pair.a.name : pair.b.name,
                              std::string("has no counterpart lora_") + (pair.a.bytes ? "B" : "A"));
    return pairs_;
  }

private:
  [[noreturn]] void refuse_unknown(const std::string& name) const {
    std::string all;
    for (const auto& p : projection_names)
      all += (all.empty() ? "" : ", ") + std::string(gguf_ ? p.gguf : p.peft.substr(p.peft.find('.') + 1));
    refuse_adapter_tensor(file_, name,
                          "is not a low-rank matrix of a layer's " + all + (gguf_ ? "" : " (lora_A or lora_B)") +
                            "; others are not supported",
                          errc::unsupported);
  }

  std::string file_;
  const model_products& target_;
  bool gguf_;
  adapter_pairs pairs_;
};

std::vector<float> adapter_values(const std::string& file, const adapter_half& half, std::size_t rows,
                                  std::size_t cols) {
  const auto format = weight_format_of(half.info.type);
  if (!format)
    refuse_adapter_tensor(file, half.name,
                          "is of type " + std::string(to_string(half.info.type)) +
                            ", which is not supported for adapters");
  if (half.info.shape != std::vector{rows, cols})
    refuse_adapter_tensor(file, half.name,
                          "has the shape " + to_string(half.info.shape) + ", expected " + to_string({rows, cols}));
  std::vector<float> values(rows * cols);
  const auto stride = rows == 0 ? 0 : half.info.bytes / rows;
  for (std::size_t r = 0; r < rows; ++r)
    to_floats(*format, half.bytes + r * stride, cols, &values[r * cols]);
  if (!std::ranges::all_of(values, [](float v) { return std::isfinite(v); }))
    refuse_adapter_tensor(file, half.name, "has values that are not finite");
  return values;
}

/// Rows of each head in the order in which kernels rotate: row i is row order[i] as stored.
void reorder_heads(std::vector<float>& b, std::size_t rank, std::span<const std::uint32_t> order) {
  const auto stored = b;
  for (std::size_t row = 0; row < b.size() / rank; ++row) {
    const auto in_head = row % order.size();
    std::copy_n(&stored[(row - in_head + order[in_head]) * rank], rank, &b[row * rank]);
  }
}

/// `scale_of`(pair, rank) checks the rank as well.
template <class ScaleOf>
adapter_weights read_pairs(const std::string& file, const adapter_pairs& pairs, const model_products& target,
                           std::span<const std::uint32_t> order, const ScaleOf& scale_of) {
  adapter_weights result;
  result.layers.resize(target.layers.size());
  std::size_t bytes = 0;
  for (const auto& [where, pair] : pairs) {
    const auto& [layer, which] = where;
    const auto& shape = target.layers[layer][which];
    if (pair.a.info.shape.size() != 2)
      refuse_adapter_tensor(file, pair.a.name,
                            "has the shape " + to_string(pair.a.info.shape) + ", expected [rank, " +
                              std::to_string(shape.inputs) + "]");
    const auto rank = pair.a.info.shape[0];
    if (rank == 0 || rank > most_adapter_rank)
      refuse_adapter_tensor(file, pair.a.name,
                            "has the rank " + std::to_string(rank) + ", expected 1 to " +
                              std::to_string(most_adapter_rank));
    bytes += rank * (shape.inputs + shape.outputs) * sizeof(float);
    if (bytes > most_adapter_bytes)
      throw failure(errc::unsupported, file + ": has more than " + std::to_string(most_adapter_bytes >> 20) + " MiB");
    const float scale = scale_of(pair, rank);
    auto& to = result.layers[layer][which];
    to.rank = rank;
    to.a = adapter_values(file, pair.a, rank, shape.inputs);
    to.b = adapter_values(file, pair.b, shape.outputs, rank);
    for (auto& v : to.b) {
      v *= scale;
      if (!std::isfinite(v))
        refuse_adapter_tensor(file, pair.b.name, "has values that are not finite once they are scaled");
    }
    if (!order.empty() &&
        (which == static_cast<std::size_t>(projection::q) || which == static_cast<std::size_t>(projection::k)))
      reorder_heads(to.b, rank, order);
  }
  return result;
}

/// PEFT's rank_pattern and alpha_pattern: the first key that is the module's name or its end counts.
class module_pattern {
public:
  module_pattern(const json::reader& config, const char* key, double low, double high) {
    const auto given = config.object(key);
    if (!given)
      return;
    for (auto [name, _] : given->object()) {
      std::string_view text = name;
      const bool whole = text.starts_with('^');
      text.remove_prefix(whole ? 1 : 0);
      if (text.find_first_of("*+?()[]{}|\\^$") != text.npos)
        given->refuse("has the key " + shown(name) + ", a regular expression, which is not supported");
      const auto value = given->number(name, low, high);
      if (!value)
        given->refuse("has no value for the key " + shown(name));
      entries_.push_back({std::string(text), whole, *value});
    }
  }

  double of(std::string_view module, double fallback) const {
    for (const auto& e : entries_)
      if (module == e.name || (!e.whole && module.ends_with("." + e.name)))
        return e.value;
    return fallback;
  }

private:
  struct entry {
    std::string name;
    bool whole;
    double value;
  };
  std::vector<entry> entries_;
};

bool is_set(const std::optional<json::value>& value) {
  return value && !(value->is_array() && json::array(*value).size() == 0) &&
    !(value->is_object() && json::object(*value).size() == 0);
}

/// Refuses what is more than a plain LoRA. Saved modules are tensors, which are refused by name where there are any.
void check_plain_lora(const json::reader& config, std::vector<std::string>& remarks) {
  const auto unsupported = [&](const char* key, const std::string& found) {
    throw failure(errc::unsupported,
                  config.label(key) + " is " + found + ", which is not supported: adapters are plain LoRA");
  };
  if (const auto type = config.text("peft_type"); !type || *type != "LORA")
    unsupported("peft_type", type ? shown(*type) : std::string("missing"));
  if (const auto bias = config.text("bias"); bias && *bias != "none")
    unsupported("bias", shown(*bias));
  for (const auto* key : {"use_dora", "fan_in_fan_out", "lora_bias", "use_qalora", "use_bdlora"})
    if (const auto value = config.find(key); value && !(value->is_bool() && !bool(*value)))
      unsupported(key, json_brief(*value));
  for (const auto* key :
       {"trainable_token_indices", "layer_replication", "alora_invocation_tokens", "target_parameters", "arrow_config"})
    if (is_set(config.find(key)))
      unsupported(key, "set");
  if (is_set(config.find("modules_to_save")))
    remarks.push_back(config.label("modules_to_save") + " is set, but no module is saved; it has no effect");
  if (const auto start = config.find("init_lora_weights"); start && start->is_string()) {
    const auto how = config.text("init_lora_weights").value_or("");
    for (const auto* changed : {"pissa", "olora", "corda", "loftq"}) // they change the base model's weights
      if (how.starts_with(changed))
        unsupported("init_lora_weights", shown(how));
  }
}

adapter_weights read_peft(const std::filesystem::path& folder, const model_products& target) {
  const auto document = json::document::load(folder / "adapter_config.json");
  const json::reader config(document);
  config.object();
  std::vector<std::string> remarks;
  check_plain_lora(config, remarks);
  constexpr double most_alpha = 1e6;
  const auto most_rank = static_cast<int>(most_adapter_rank);
  const int r = config.size("r", most_rank);
  const double alpha = config.number("lora_alpha", -most_alpha, most_alpha).value_or(8); // PEFT's default
  const bool rooted = config.boolean("use_rslora", false);
  const module_pattern ranks(config, "rank_pattern", 1, most_rank),
    alphas(config, "alpha_pattern", -most_alpha, most_alpha);
  const auto file = folder / "adapter_model.safetensors";
  const mapped_file map(file);
  pair_collector pairs(file.string(), target, false);
  for (const auto& [name, tensor] : read_safetensors_header(map.bytes(), file.string()))
    pairs.add(name, tensor.info, map.bytes().data() + tensor.offset);
  const auto scale_of = [&](const adapter_pair& pair, std::size_t rank) {
    const auto wanted = ranks.of(pair.module, r);
    if (static_cast<double>(rank) != wanted)
      refuse_adapter_tensor(file.string(), pair.a.name,
                            "has the rank " + std::to_string(rank) + ", expected " +
                              std::to_string(static_cast<int>(wanted)) + " as adapter_config.json says");
    const auto by = rooted ? std::sqrt(wanted) : wanted;
    return static_cast<float>(alphas.of(pair.module, alpha) / by);
  };
  auto result = read_pairs(file.string(), pairs.done(), target,
                           target.family_pairs ? target.pair_order : target.half_order, scale_of);
  result.remarks = std::move(remarks);
  return result;
}

adapter_weights read_gguf_adapter(const std::filesystem::path& path, const model_products& target) {
  const gguf_file file(path);
  const auto& about = file.metadata();
  const auto require_text = [&](const char* key, std::string_view wanted) {
    const auto found = about.string(key);
    if (found != wanted)
      throw failure(errc::bad_file,
                    about.label(key) + " is " + (found ? shown(*found) : std::string("missing")) + ", expected " +
                      shown(wanted));
  };
  require_text("general.type", "adapter");
  require_text("adapter.type", "lora");
  if (constexpr auto invoked = "adapter.alora.invocation_tokens"; about.find(invoked))
    throw failure(errc::unsupported, about.label(invoked) + " is set, which is not supported: adapters are plain LoRA");
  const auto alpha = about.number("adapter.lora.alpha", -1e6, 1e6);
  if (!alpha)
    throw failure(errc::bad_file, about.label("adapter.lora.alpha") + " is missing, expected a number");
  pair_collector pairs(file.name(), target, true);
  for (const auto& [name, tensor] : file.tensors())
    pairs.add(name, tensor.info, file.bytes_of(tensor).data());
  const bool in_pairs = gguf_has_pairs(about.string("general.architecture").value_or(""));
  // An alpha of 0 stands for one that is the rank, as in llama.cpp.
  return read_pairs(file.name(), pairs.done(), target, in_pairs ? target.pair_order : target.half_order,
                    [&](const adapter_pair&, std::size_t rank) {
                      return *alpha == 0 ? 1.0f : static_cast<float>(*alpha / static_cast<double>(rank));
                    });
}

} // namespace

adapter_weights read_adapter(const std::filesystem::path& path, const model_products& target) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored))
    return read_peft(path, target);
  if (read_start(path, 4) == "GGUF")
    return read_gguf_adapter(path, target);
  throw failure(errc::bad_file,
                path.string() +
                  ": is not an adapter; expected a folder with adapter_config.json and "
                  "adapter_model.safetensors, or a GGUF file");
}

} // namespace troupe
