#include "runtime/model/families/config_reading.hpp"

#include "runtime/model/config_limits.hpp"
#include "runtime/support/json/json_brief.hpp"
#include "runtime/support/types.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

namespace troupe::families {

using namespace config_limits;

namespace {

[[noreturn]] void contradiction(const std::string& what) { throw failure(errc::bad_file, what); }

constexpr double most = 1e30;
constexpr int most_of_any = std::numeric_limits<int>::max();

std::vector<float> read_divisors(const reader& given, const char* key, std::size_t count) {
  std::vector<float> divisors;
  for (const auto& item : given.at(key).items())
    divisors.push_back(static_cast<float>(item.number(1e-6, 1e9)));
  if (divisors.size() != count)
    contradiction(given.label(key) + " must hold " + std::to_string(count) + " numbers, found " +
                  std::to_string(divisors.size()));
  return divisors;
}

void read_longrope(const reader& config, const reader& given, rope_config& rope, int head_dim, int positions) {
  const auto pairs = static_cast<std::size_t>((rope.dims > 0 ? rope.dims : head_dim) / 2);
  rope.short_divisors = read_divisors(given, "short_factor", pairs);
  rope.long_divisors = read_divisors(given, "long_factor", pairs);
  rope.factor = given.number("factor", 1e-3, 1e6).value_or(positions / rope.original_context);
  const double natural = rope.factor <= 1 || rope.original_context <= 1
    ? 1
    : std::sqrt(1 + std::log(rope.factor) / std::log(rope.original_context));
  rope.attention_factor = given.number("attention_factor", 0, 1e6).value_or(natural);
  if (rope.original_context != std::floor(rope.original_context))
    contradiction(config.label("original_max_position_embeddings") + " must be an integer");
}

void read_llama3(const reader& given, rope_config& rope) {
  for (auto [key, value] :
       {std::pair("low_freq_factor", &rope.low_freq_factor), std::pair("high_freq_factor", &rope.high_freq_factor)}) {
    const auto found = given.number(key, 1e-6, 1e9);
    if (!found)
      contradiction(given.label(key) + " is missing");
    *value = *found;
  }
  if (rope.high_freq_factor <= rope.low_freq_factor)
    contradiction(given.label("high_freq_factor") + " must be greater than `low_freq_factor`");
}

void read_yarn(const reader& given, rope_config& rope) {
  const auto attention = given.number("attention_factor", 0, 1e6);
  rope.attention_factor = attention
    ? *attention
    : yarn_attention_factor(rope.factor, given.number("mscale", 0, 1e6), given.number("mscale_all_dim", 0, 1e6));
  // Zero means the default, as in transformers.
  for (auto [key, value] : {std::pair("beta_fast", &rope.beta_fast), std::pair("beta_slow", &rope.beta_slow)})
    if (const auto beta = given.number(key, 0, 1e9); beta.value_or(0) != 0)
      *value = *beta;
  rope.truncate = given.boolean("truncate", true);
}

/// The dimensions that are rotated; 0: all.
int read_rotated(const reader& config, double part, int head_dim, const position_rules& rules) {
  if (part == 1)
    return 0;
  if (!rules.partial)
    throw failure(errc::unsupported, config.label("partial_rotary_factor") + " other than 1 is not supported");
  const int dims = static_cast<int>(head_dim * part);
  if (dims < 2 || dims % 2 != 0)
    throw failure(errc::unsupported,
                  config.label("partial_rotary_factor") + " asks to rotate " + std::to_string(dims) + " of " +
                    std::to_string(head_dim) + " dimensions, supported are even numbers from 2 on");
  return dims == head_dim ? 0 : dims;
}

} // namespace

void read_sizes(const reader& config, model_config& model, const size_rules& rules) {
  model.vocab = config.size("vocab_size", max_vocab);
  model.hidden = config.size(rules.hidden, max_hidden);
  model.layers = config.size(rules.layers, max_layers);
  model.heads = config.size(rules.heads, max_heads);
  if (rules.ffn)
    model.ffn = config.size(rules.ffn, max_ffn);
  // null means as many as heads, even if the family's default is another.
  model.kv_heads = model.heads;
  if (rules.kv_heads) {
    const int kv_heads = config.contains(rules.kv_heads) || rules.default_kv_heads == 0 ? model.heads
                                                                                        : rules.default_kv_heads;
    model.kv_heads = config.integer(rules.kv_heads, 1, max_heads, kv_heads);
    if (model.heads % model.kv_heads != 0)
      contradiction(config.label(rules.heads) + " must be a multiple of `" + rules.kv_heads + "`, found " +
                    std::to_string(model.heads) + " and " + std::to_string(model.kv_heads));
  }
  if (!config.find("head_dim") && rules.default_head_dim == 0 && model.hidden % model.heads != 0)
    contradiction(config.label(rules.hidden) + " must be a multiple of `" + rules.heads +
                  "` where `head_dim` is not given, found " + std::to_string(model.hidden) + " and " +
                  std::to_string(model.heads));
  model.head_dim = config.integer("head_dim", 1, rules.most_head_dim,
                                  rules.default_head_dim ? rules.default_head_dim : model.hidden / model.heads);
  if (model.head_dim % 2 != 0 || model.head_dim > rules.most_head_dim)
    throw failure(errc::unsupported,
                  config.source() + ": heads of " + std::to_string(model.head_dim) +
                    " dimensions are not supported, only even numbers up to " + std::to_string(rules.most_head_dim));
  model.tied = config.boolean("tie_word_embeddings", rules.tied);
  model.norm_eps = static_cast<float>(config.number(rules.norm_eps, 0, 1).value_or(rules.default_norm_eps));
  model.windows.assign(static_cast<std::size_t>(model.layers), 0);
}

/// transformers 5 has all parameters in `rope_parameters`; transformers 4 has the base in `rope_theta` and the others
/// in `rope_scaling`, with `type` as the older name of `rope_type`. The order of precedence is transformers'.
rope_config read_rope(const reader& config, const std::optional<reader>& given, int head_dim, int positions,
                      const position_rules& rules) {
  rope_config rope;
  rope.theta = rules.theta_by_layer ? rules.theta : config.number("rope_theta", 1.000001, most).value_or(rules.theta);
  auto partial = config.number("partial_rotary_factor", 0, 1);
  if (given) {
    rope.theta = given->number("rope_theta", 1.000001, most).value_or(rope.theta);
    if (const auto inner = given->number("partial_rotary_factor", 0, 1))
      partial = inner;
  }
  rope.interleaved = rules.interleaved;
  rope.dims = rules.whole ? 0 : read_rotated(config, partial.value_or(rules.default_partial), head_dim, rules);
  if (!given)
    return rope;
  for (const char* layer_type : {"full_attention", "sliding_attention"})
    if (given->find(layer_type))
      throw failure(errc::unsupported, given->label(layer_type) + ": parameters per layer type are not supported");
  auto type = given->string("rope_type");
  if (!type)
    type = given->string("type").value_or("default");
  // `mrope` has a position for each of three axes, which are the same for text.
  if (*type == "default" || *type == "mrope")
    return rope;
  constexpr std::array types{std::pair("linear", rope_type::linear),     std::pair("dynamic", rope_type::dynamic),
                             std::pair("yarn", rope_type::yarn),         std::pair("llama3", rope_type::llama3),
                             std::pair("longrope", rope_type::longrope), std::pair("su", rope_type::longrope)};
  const auto known = std::ranges::find(types, *type, [](const auto& t) { return t.first; });
  if (known == types.end())
    throw failure(errc::unsupported,
                  given->label("rope_type") + " is `" + *type +
                    "`, supported are default, linear, dynamic, yarn, llama3 and longrope");
  rope.type = known->second;
  if (rope.type == rope_type::dynamic && (rope.dims > 0 ? rope.dims : head_dim) == 2)
    throw failure(errc::unsupported, given->label("rope_type") + " dynamic needs heads of more than 2 dimensions");

  rope.original_context = positions;
  if (rope.type == rope_type::yarn || rope.type == rope_type::llama3 || rope.type == rope_type::longrope) {
    const auto outer = config.integer("original_max_position_embeddings", 1, max_positions);
    const auto inner = given->integer("original_max_position_embeddings", 1, max_positions);
    rope.original_context = static_cast<double>(outer.value_or(inner.value_or(positions)));
  }
  if (rope.type == rope_type::longrope) {
    read_longrope(config, *given, rope, head_dim, positions);
    return rope;
  }
  const auto factor = given->number("factor", 1e-3, 1e6);
  if (!factor && rope.type != rope_type::yarn)
    contradiction(given->label("factor") + " is missing");
  rope.factor = factor.value_or(positions / rope.original_context);
  if (rope.type == rope_type::yarn)
    read_yarn(*given, rope);
  if (rope.type == rope_type::llama3)
    read_llama3(*given, rope);
  return rope;
}

query_growth read_growth(const reader& config) {
  for (const char* key : {"rope_scaling", "rope_parameters"})
    if (const auto given = config.object(key))
      if (const auto rate = given->number("llama_4_scaling_beta", 0, 1e6); rate && *rate > 0)
        return {static_cast<float>(*rate), given->size("original_max_position_embeddings", max_positions)};
  return {};
}

/// Linear scaling leaves `max_position_embeddings` at the original length, YaRN does so in some checkpoints, llama3 and
/// longrope never. Dynamic scaling does, too, but begins only beyond it (see rope_table).
void set_context(model_config& model, int positions) {
  const auto& rope = model.rope;
  double scaled = positions;
  if (rope.type == rope_type::linear)
    scaled = positions * rope.factor;
  else if (rope.type == rope_type::yarn)
    scaled = std::max(scaled, rope.original_context * rope.factor);
  model.max_context = static_cast<int>(std::clamp(scaled, 1.0, double(max_positions)));
}

void read_positions(const reader& config, model_config& model, const position_rules& rules) {
  const int positions = config.integer(rules.context, 1, max_positions, rules.default_context);
  auto given = config.object("rope_scaling");
  if (!given)
    given = config.object("rope_parameters");
  model.rope = read_rope(config, given, model.head_dim, positions, rules);
  set_context(model, positions);
}

void read_layer_positions(const reader& config, model_config& model, const position_rules& rules, double local_theta) {
  const int positions = config.integer(rules.context, 1, max_positions, rules.default_context);
  const auto parameters = config.object("rope_parameters");
  const auto of = [&](const char* type) { return parameters ? parameters->object(type) : std::nullopt; };
  const auto full = of("full_attention"), sliding = of("sliding_attention");
  model.rope = read_rope(config, full ? full : config.object("rope_scaling"), model.head_dim, positions, rules);
  set_context(model, positions);
  rope_config local;
  local.theta = local_theta;
  local.dims = rules.partial ? model.rope.dims : 0;
  if (sliding) {
    if (sliding->string("rope_type").value_or("default") != "default")
      throw failure(errc::unsupported, sliding->label("rope_type") + " of sliding layers is supported as default only");
    local.theta = sliding->number("rope_theta", 1.000001, most).value_or(local_theta);
    if (const auto part = sliding->number("partial_rotary_factor", 0, 1); part && rules.partial)
      local.dims = read_rotated(*sliding, *part, model.head_dim, rules);
  }
  if (local != model.rope)
    model.local_rope = local;
}

rope_config read_proportional(const reader& config, const char* kind, double theta, double portion) {
  rope_config rope;
  rope.theta = theta;
  const auto all = config.object("rope_parameters");
  const auto given = all ? all->object(kind) : std::nullopt;
  const auto type = given ? given->string("rope_type").value_or("default") : portion == 1 ? "default" : "proportional";
  if (given) {
    rope.theta = given->number("rope_theta", 1.000001, most).value_or(theta);
    portion = given->number("partial_rotary_factor", 1e-3, 1).value_or(1);
    rope.factor = given->number("factor", 1e-3, 1e6).value_or(1);
  }
  if (type == "default")
    return rope;
  if (type != "proportional")
    throw failure(errc::unsupported,
                  given->label("rope_type") + " is `" + type + "`, supported are default and proportional");
  rope.type = rope_type::proportional;
  rope.portion = portion;
  return rope;
}

bool read_layer_thetas(const reader& config, model_config& model) {
  constexpr const char* key = "layer_rope_theta";
  const auto given = config.child(key);
  if (!given)
    return false;
  const auto listed = given->items();
  if (listed.size() != as_size(model.layers))
    contradiction(config.label(key) + " must hold " + std::to_string(model.layers) + " numbers, found " +
                  std::to_string(listed.size()));
  double full = 0, sliding = 0;
  for (int i = 0; i < model.layers; ++i) {
    const double theta = listed[as_size(i)].number(0, most);
    model.unrotated.push_back(theta == 0);
    auto& own = model.slides(i) ? sliding : full;
    if (theta != 0 && (theta <= 1 || (own != 0 && own != theta)))
      throw failure(errc::unsupported,
                    config.label(key) +
                      " must hold 0 or numbers above 1, of which layers with a window share one, and so do the others");
    own = theta != 0 ? theta : own;
  }
  if (std::ranges::find(model.unrotated, true) == model.unrotated.end())
    model.unrotated.clear();
  const double of_rope = full != 0 ? full : sliding;
  model.rope.theta = of_rope != 0 ? of_rope : model.rope.theta;
  if (full != 0 && sliding != 0 && full != sliding) {
    model.local_rope = model.rope;
    model.local_rope->theta = sliding;
  }
  return true;
}

namespace {

/// Which of two words a list has for each layer: whether it is the second. Nothing if the key is absent.
std::optional<std::vector<bool>> read_layer_words(const reader& config, const char* key, int layers,
                                                  std::string_view first, std::string_view second) {
  const auto types = config.find(key);
  if (!types)
    return std::nullopt;
  json::array list;
  if (types->get(list) || list.size() != static_cast<std::size_t>(layers))
    contradiction(config.label(key) + " must be an array of " + std::to_string(layers) + " strings");
  std::vector<bool> result;
  for (json::value item : list) {
    std::string_view type;
    if (item.get(type) || (type != first && type != second))
      throw failure(errc::unsupported,
                    config.label(key) + " holds " + json_brief(item, 60) + ", supported are " + std::string(first) +
                      " and " + std::string(second));
    result.push_back(type == second);
  }
  return result;
}

} // namespace

std::optional<std::vector<bool>> read_layer_types(const reader& config, int layers) {
  return read_layer_words(config, "layer_types", layers, "full_attention", "sliding_attention");
}

std::optional<std::vector<bool>> read_mlp_types(const reader& config, int layers) {
  return read_layer_words(config, "mlp_layer_types", layers, "dense", "sparse");
}

int read_window(const reader& config, int fallback) {
  return config.contains("sliding_window") ? config.integer("sliding_window", 1, max_positions, 0) : fallback;
}

void read_one_window(const reader& config, model_config& model, int fallback) {
  std::ranges::fill(model.windows, read_window(config, fallback));
}

void read_alternating_windows(const reader& config, model_config& model, int fallback, int period, int before) {
  const int window = read_window(config, fallback);
  const auto types = read_layer_types(config, model.layers);
  for (int i = 0; i < model.layers; ++i) {
    const auto layer = static_cast<std::size_t>(i);
    model.windows[layer] = (types ? (*types)[layer] : (before + i + 1) % period != 0) ? window : 0;
  }
}

void read_kv_sharing(const reader& config, model_config& model, int fallback) {
  const int shared = config.integer("num_kv_shared_layers", 0, model.layers, std::min(fallback, model.layers)),
            first = model.layers - shared;
  for (int i = 0; shared > 0 && i < model.layers; ++i) {
    int from = std::min(i, first - 1);
    while (i >= first && from >= 0 && model.slides(from) != model.slides(i))
      --from;
    if (i < first)
      from = i;
    if (from < 0)
      contradiction(config.label("num_kv_shared_layers") + " is " + std::to_string(shared) +
                    ", which leaves no layer whose K and V layer " + std::to_string(i) + " could read");
    model.kv_layers.push_back(from);
  }
}

void read_late_windows(const reader& config, model_config& model, int fallback) {
  const int window = read_window(config, fallback);
  const bool used = config.boolean("use_sliding_window", false) && window != 0;
  const int first = config.integer("max_window_layers", 0, max_layers, 28);
  const auto types = read_layer_types(config, model.layers);
  if (types && !used && std::ranges::find(*types, true) != types->end())
    contradiction(config.label("layer_types") +
                  " asks for sliding attention, but `use_sliding_window` or `sliding_window` switches it off");
  for (int i = 0; used && i < model.layers; ++i)
    if (types ? (*types)[static_cast<std::size_t>(i)] : i >= first)
      model.windows[static_cast<std::size_t>(i)] = window;
}

void read_activation(const reader& config, model_config& model, const char* key, const char* fallback, bool only_silu) {
  using enum kernels::activation_type;
  constexpr std::array names{std::pair("silu", silu),           std::pair("swish", silu),
                             std::pair("gelu", gelu),           std::pair("gelu_new", gelu_tanh),
                             std::pair("gelu_fast", gelu_tanh), std::pair("gelu_pytorch_tanh", gelu_tanh),
                             std::pair("relu", relu),           std::pair("relu2", relu_squared)};
  const auto name = config.string(key).value_or(fallback);
  const auto found = std::ranges::find(names, name, [](const auto& n) { return n.first; });
  if (found == names.end() || (only_silu && found->second != silu))
    throw failure(errc::unsupported,
                  config.label(key) + " is `" + name + "`, supported " +
                    (only_silu ? "is silu" : "are silu, gelu, gelu_new, gelu_pytorch_tanh, relu and relu2"));
  model.act = {found->second};
}

void require(const reader& config, const char* key, bool expected) {
  if (config.boolean(key, expected) != expected)
    throw failure(errc::unsupported,
                  config.label(key) + " is " + (expected ? "false" : "true") + ", which is not supported");
}

void require_word(const reader& config, const char* key, std::initializer_list<std::string_view> known) {
  const auto found = config.string(key);
  if (!found || std::ranges::find(known, *found) != known.end())
    return;
  std::string list;
  for (const auto word : known)
    list += (list.empty() ? "" : " and ") + std::string(word);
  throw failure(errc::unsupported,
                config.label(key) + " is `" + *found + "`, supported " + (known.size() > 1 ? "are " : "is ") + list);
}

void require_number(const reader& config, const char* key, int expected) {
  if (const int found = config.integer(key, 0, most_of_any, expected); found != expected)
    throw failure(errc::unsupported,
                  config.label(key) + " is " + std::to_string(found) + ", supported is " + std::to_string(expected));
}

void read_expert_counts(const reader& config, model_config& model, std::initializer_list<const char*> count_keys,
                        int default_count, int default_chosen) {
  auto& experts = model.experts;
  const char* key = *count_keys.begin();
  for (const char* other : count_keys)
    if (config.has(other)) {
      key = other;
      break;
    }
  experts.count = config.integer(key, 1, max_experts, default_count);
  experts.chosen = config.integer("num_experts_per_tok", 1, max_experts, default_chosen);
  if (experts.chosen > experts.count)
    contradiction(config.label("num_experts_per_tok") + " is " + std::to_string(experts.chosen) +
                  ", more than the experts, " + std::to_string(experts.count));
  if (std::int64_t{experts.count} * model.layers > max_layer_experts)
    throw failure(errc::unsupported,
                  config.label(key) + " is " + std::to_string(experts.count) + " in each of " +
                    std::to_string(model.layers) + " layers, supported are " + std::to_string(max_layer_experts) +
                    " in all");
  experts.ffn = model.ffn;
  model.sparse.assign(static_cast<std::size_t>(model.layers), true);
}

void read_sparse_layers(const reader& config, model_config& model) {
  const int step = config.integer("decoder_sparse_step", 1, max_layers, 1);
  const auto dense = config.integers("mlp_only_layers", 0, max_layers).value_or(std::vector<std::int32_t>{});
  for (int i = 0; i < model.layers; ++i)
    model.sparse[static_cast<std::size_t>(i)] = (i + 1) % step == 0 && std::ranges::find(dense, i) == dense.end();
}

} // namespace troupe::families
