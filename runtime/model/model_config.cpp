#include "runtime/model/model_config.hpp"

#include "runtime/model/config_limits.hpp"
#include "runtime/sampling/sampling_table.hpp"
#include "runtime/support/json_reader.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <sstream>

namespace troupe {

namespace {

using namespace config_limits;

/// Defaults of a family for absent keys, as in transformers' configuration classes.
struct family_traits {
  std::string_view name;
  int kv_heads; // 0: as many as heads
  int head_dim; // 0: hidden / heads
  int max_context;
  bool has_attention_bias; // the key `attention_bias` governs q, k, v and o
  bool qkv_bias;           // q, k and v have a bias, without a key
  bool has_mlp_bias;
  bool qk_norm;
  bool windows_by_layer; // `use_sliding_window`, `max_window_layers`, `layer_types`
  int window;            // default of `sliding_window`; 0: the family has none
};

constexpr std::array families{
  family_traits{"llama", 0, 0, 2048, true, false, true, false, false, 0},
  family_traits{"mistral", 8, 0, 131072, false, false, false, false, false, 4096},
  family_traits{"qwen2", 32, 0, 32768, false, true, false, false, true, 4096},
  family_traits{"qwen3", 32, 128, 32768, true, false, false, true, true, 4096},
};

const family_traits& family_of(const json::reader& config) {
  const auto type = config.string("model_type");
  if (!type)
    throw failure(errc::bad_file, config.label("model_type") + " is missing");
  std::string known;
  for (const auto& family : families) {
    if (family.name == *type)
      return family;
    known += (known.empty() ? "" : ", ") + std::string(family.name);
  }
  throw failure(errc::unsupported, config.label("model_type") + " is `" + *type + "`, supported are " + known);
}

[[noreturn]] void contradiction(const std::string& what) { throw failure(errc::bad_file, what); }

std::vector<int> read_windows(const json::reader& config, const family_traits& family, int layers) {
  std::vector<int> windows(static_cast<std::size_t>(layers), 0);
  if (family.window == 0)
    return windows;
  const int window = config.contains("sliding_window") ? config.integer("sliding_window", 1, max_positions, 0)
                                                       : family.window;
  if (!family.windows_by_layer) {
    std::ranges::fill(windows, window);
    return windows;
  }
  const bool used = config.boolean("use_sliding_window", false) && window != 0;
  const int first = config.integer("max_window_layers", 0, max_layers, 28);
  const auto types = config.find("layer_types");
  if (!types) {
    for (int i = first; used && i < layers; ++i)
      windows[static_cast<std::size_t>(i)] = window;
    return windows;
  }
  json::array list;
  if (types->get(list) || list.size() != windows.size())
    contradiction(config.label("layer_types") + " must be an array of " + std::to_string(layers) + " strings");
  std::size_t layer = 0;
  for (json::value item : list) {
    std::string_view type;
    if (item.get(type) || (type != "full_attention" && type != "sliding_attention"))
      throw failure(errc::unsupported,
                    config.label("layer_types") + " holds " + simdjson::minify(item).substr(0, 60) +
                      ", supported are full_attention and sliding_attention");
    if (type == "sliding_attention") {
      if (!used)
        contradiction(config.label("layer_types") +
                      " asks for sliding attention, but `use_sliding_window` or `sliding_window` switches it off");
      windows[layer] = window;
    }
    ++layer;
  }
  return windows;
}

/// transformers 5 has all parameters in `rope_parameters`; transformers 4 has the base in `rope_theta` and the others
/// in `rope_scaling`, with `type` as the older name of `rope_type`. The order of precedence is transformers'.
rope_config read_rope(const json::reader& config, int head_dim, int max_positions_given) {
  constexpr double most = 1e30;
  rope_config rope;
  rope.theta = config.number("rope_theta", 1.000001, most).value_or(rope.theta);
  auto partial = config.number("partial_rotary_factor", 0, 1);
  auto given = config.object("rope_scaling");
  if (!given)
    given = config.object("rope_parameters");
  if (given) {
    rope.theta = given->number("rope_theta", 1.000001, most).value_or(rope.theta);
    if (const auto inner = given->number("partial_rotary_factor", 0, 1))
      partial = inner;
  }
  if (partial.value_or(1) != 1)
    throw failure(errc::unsupported, config.label("partial_rotary_factor") + " other than 1 is not supported");
  if (!given)
    return rope;
  for (const char* layer_type : {"full_attention", "sliding_attention"})
    if (given->find(layer_type))
      throw failure(errc::unsupported, given->label(layer_type) + ": parameters per layer type are not supported");
  auto type = given->string("rope_type");
  if (!type)
    type = given->string("type").value_or("default");
  if (*type == "default")
    return rope;
  constexpr std::array types{std::pair("linear", rope_type::linear), std::pair("dynamic", rope_type::dynamic),
                             std::pair("yarn", rope_type::yarn), std::pair("llama3", rope_type::llama3)};
  const auto known = std::ranges::find(types, *type, [](const auto& t) { return t.first; });
  if (known == types.end())
    throw failure(errc::unsupported,
                  given->label("rope_type") + " is `" + *type +
                    "`, supported are default, linear, dynamic, yarn and llama3");
  rope.type = known->second;
  if (rope.type == rope_type::dynamic && head_dim == 2)
    throw failure(errc::unsupported, given->label("rope_type") + " dynamic needs heads of more than 2 dimensions");

  rope.original_context = max_positions_given;
  if (rope.type == rope_type::yarn || rope.type == rope_type::llama3) {
    const auto outer = config.integer("original_max_position_embeddings", 1, max_positions);
    const auto inner = given->integer("original_max_position_embeddings", 1, max_positions);
    rope.original_context = static_cast<double>(outer.value_or(inner.value_or(max_positions_given)));
  }
  const auto factor = given->number("factor", 1e-3, 1e6);
  if (!factor && rope.type != rope_type::yarn)
    contradiction(given->label("factor") + " is missing");
  rope.factor = factor.value_or(max_positions_given / rope.original_context);
  if (rope.type == rope_type::yarn) {
    const auto attention = given->number("attention_factor", 0, 1e6);
    rope.attention_factor = attention
      ? *attention
      : yarn_attention_factor(rope.factor, given->number("mscale", 0, 1e6), given->number("mscale_all_dim", 0, 1e6));
    // Zero means the default, as in transformers.
    for (auto [key, value] : {std::pair("beta_fast", &rope.beta_fast), std::pair("beta_slow", &rope.beta_slow)})
      if (const auto beta = given->number(key, 0, 1e9); beta.value_or(0) != 0)
        *value = *beta;
    rope.truncate = given->boolean("truncate", true);
  }
  if (rope.type == rope_type::llama3) {
    for (auto [key, value] :
         {std::pair("low_freq_factor", &rope.low_freq_factor), std::pair("high_freq_factor", &rope.high_freq_factor)}) {
      const auto found = given->number(key, 1e-6, 1e9);
      if (!found)
        contradiction(given->label(key) + " is missing");
      *value = *found;
    }
    if (rope.high_freq_factor <= rope.low_freq_factor)
      contradiction(given->label("high_freq_factor") + " must be greater than `low_freq_factor`");
  }
  return rope;
}

/// Linear and dynamic scaling leave `max_position_embeddings` at the original length, YaRN does so in some checkpoints,
/// llama3 never.
int scaled_context(const rope_config& rope, int given) {
  double scaled = given;
  if (rope.type == rope_type::linear || rope.type == rope_type::dynamic)
    scaled = given * rope.factor;
  else if (rope.type == rope_type::yarn)
    scaled = std::max(scaled, rope.original_context * rope.factor);
  return static_cast<int>(std::clamp(scaled, 1.0, double(max_positions)));
}

} // namespace

model_config parse_model_config(const json::document& document) {
  const json::reader config(document);
  const auto& family = family_of(config);
  parse_quantised_storage(document); // refuses unsupported quantisation
  if (const auto activation = config.string("hidden_act");
      activation && *activation != "silu" && *activation != "swish")
    throw failure(errc::unsupported, config.label("hidden_act") + " is `" + *activation + "`, supported is silu");

  model_config model;
  model.family = family.name;
  model.vocab = config.size("vocab_size", max_vocab);
  model.hidden = config.size("hidden_size", max_hidden);
  model.layers = config.size("num_hidden_layers", max_layers);
  model.heads = config.size("num_attention_heads", max_heads);
  model.ffn = config.size("intermediate_size", max_ffn);
  // null means as many as heads, even if the family's default is another.
  const int kv_heads = config.contains("num_key_value_heads") || family.kv_heads == 0 ? model.heads : family.kv_heads;
  model.kv_heads = config.integer("num_key_value_heads", 1, max_heads, kv_heads);
  if (model.heads % model.kv_heads != 0)
    contradiction(config.label("num_attention_heads") + " must be a multiple of `num_key_value_heads`, found " +
                  std::to_string(model.heads) + " and " + std::to_string(model.kv_heads));
  if (!config.find("head_dim") && family.head_dim == 0 && model.hidden % model.heads != 0)
    contradiction(config.label("hidden_size") +
                  " must be a multiple of `num_attention_heads` where `head_dim` is not given, found " +
                  std::to_string(model.hidden) + " and " + std::to_string(model.heads));
  model.head_dim = config.integer("head_dim", 1, max_head_dim,
                                  family.head_dim ? family.head_dim : model.hidden / model.heads);
  if (model.head_dim % 2 != 0 || model.head_dim > max_head_dim)
    throw failure(errc::unsupported,
                  config.source() + ": heads of " + std::to_string(model.head_dim) +
                    " dimensions are not supported, only even numbers up to " + std::to_string(max_head_dim));
  const bool attention_bias = family.has_attention_bias && config.boolean("attention_bias", false);
  model.qkv_bias = attention_bias || family.qkv_bias;
  model.o_bias = attention_bias;
  model.mlp_bias = family.has_mlp_bias && config.boolean("mlp_bias", false);
  model.qk_norm = family.qk_norm;
  model.tied = config.boolean("tie_word_embeddings", false);
  model.norm_eps = static_cast<float>(config.number("rms_norm_eps", 0, 1).value_or(1e-6));
  model.windows = read_windows(config, family, model.layers);
  const int positions = config.integer("max_position_embeddings", 1, max_positions, family.max_context);
  model.rope = read_rope(config, model.head_dim, positions);
  model.max_context = scaled_context(model.rope, positions);
  return model;
}

namespace {

/// `given`, or the nearest value that a request may ask for, with a remark.
template <class T>
T within(const std::string& label, T given, T least, T most, std::vector<std::string>& remarks) {
  const T taken = std::clamp(given, least, most);
  if (taken != given) {
    std::ostringstream line;
    line << label << " is " << given << ", taken as " << taken << ": it must be from " << least << " to " << most;
    remarks.push_back(line.str());
  }
  return taken;
}

void read_sampling_defaults(const json::reader& from, generation_defaults& to) {
  sampling_fields::for_each([&]<class T>(const sampling_field<T>& field) {
    if (!field.sources.checkpoint)
      return;
    using limits = std::numeric_limits<typename sampling_field<T>::bound>;
    const auto given = [&] {
      if constexpr (std::is_integral_v<T>)
        return from.integer(field.name, limits::min(), limits::max());
      else
        return from.number(field.name, limits::lowest(), limits::max());
    }();
    if (given)
      to.sampling.*
        field.member = static_cast<T>(within(from.label(field.name), *given, field.least, field.most, to.remarks));
  });
}

} // namespace

generation_defaults parse_generation_config(const json::document* generation, const json::document& config) {
  constexpr auto max_id = std::numeric_limits<token_id>::max();
  generation_defaults result;
  std::optional<std::vector<token_id>> stops;
  if (generation) {
    const json::reader given(*generation);
    stops = given.integers("eos_token_id", 0, max_id);
    result.sample = given.boolean("do_sample", false);
    read_sampling_defaults(given, result);
  }
  if (!stops)
    stops = json::reader(config).integers("eos_token_id", 0, max_id);
  result.stops = stops.value_or(std::vector<token_id>{});
  return result;
}

checkpoint_config read_config(const std::filesystem::path& folder) {
  const auto config = json::document::load(folder / "config.json");
  std::optional<json::document> generation;
  if (const auto file = folder / "generation_config.json"; is_there(file))
    generation = json::document::load(file);
  return {parse_model_config(config), parse_generation_config(generation ? &*generation : nullptr, config),
          parse_quantised_storage(config)};
}

} // namespace troupe
