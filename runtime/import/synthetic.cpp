// Random weights in the shape of real models, for measurements.
#include "kernels/formats/e4m3.hpp"
#include "kernels/formats/f16.hpp"
#include "kernels/formats/pruned_weights.hpp"
#include "runtime/checkpoint/tensor_index.hpp"
#include "runtime/import/model_source.hpp"
#include "runtime/model/tensor_names.hpp"
#include "runtime/support/error.hpp"
#include "runtime/support/json/json.hpp"
#include "runtime/support/types.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstring>
#include <map>
#include <numbers>

namespace troupe {

namespace {

struct synthetic_shape {
  std::string_view name, family;
  int layers, hidden, heads, kv_heads, head_dim, ffn, vocab;
  bool tied;
  int experts = 0, chosen = 0; // `ffn` is that of one expert

  bool gated_relu() const { return name == "reglu-1b"; }
  bool relu() const { return name == "opt-1b" || gated_relu(); }
};

// The mixtures have the widths of real ones, with fewer layers: 1.8 and 2.6 billion parameters, of which a token reads
// 0.6 and 0.3 billion.
constexpr std::array shapes{
  synthetic_shape{"llama-135m", "llama", 30, 576, 9, 3, 64, 1536, 49152, true},
  synthetic_shape{"llama-1b", "llama", 16, 2048, 32, 8, 64, 8192, 50257, true},
  synthetic_shape{"llama-8b", "llama", 32, 4096, 32, 8, 128, 14336, 128256, false},
  synthetic_shape{"moe-8x", "mixtral", 16, 2048, 32, 8, 64, 2048, 32000, true, 8, 2},
  synthetic_shape{"qwen3-moe", "qwen3_moe", 4, 2048, 32, 4, 128, 768, 32000, true, 128, 8},
  synthetic_shape{"opt-1b", "opt", 24, 2048, 32, 32, 64, 8192, 50272, true},
  synthetic_shape{"heads-768", "llama", 12, 768, 8, 8, 96, 2048, 32000, true},
  synthetic_shape{"reglu-1b", "llama", 16, 2048, 32, 8, 64, 8192, 50257, true},
};

/// Shapes whose layers differ, as config.json describes them.
struct described_shape {
  std::string_view name, config;
};

constexpr std::array described_shapes{
  described_shape{"qwen3.5-2b", R"({"model_type": "qwen3_5_text", "hidden_size": 2048, "intermediate_size": 6144,
    "num_hidden_layers": 24, "full_attention_interval": 4, "num_attention_heads": 8, "num_key_value_heads": 2,
    "head_dim": 256, "linear_num_key_heads": 16, "linear_num_value_heads": 16, "linear_key_head_dim": 128,
    "linear_value_head_dim": 128, "linear_conv_kernel_dim": 4, "max_position_embeddings": 262144,
    "rope_parameters": {"rope_type": "default", "rope_theta": 10000000, "partial_rotary_factor": 0.25},
    "rms_norm_eps": 1e-6, "tie_word_embeddings": true, "vocab_size": 248320})"},
  described_shape{"lfm2-1b", R"({"model_type": "lfm2", "hidden_size": 2048, "intermediate_size": 8192,
    "block_auto_adjust_ff_dim": false, "num_hidden_layers": 16, "num_attention_heads": 32, "num_key_value_heads": 8,
    "layer_types": ["conv", "conv", "full_attention", "conv", "conv", "full_attention", "conv", "conv",
      "full_attention", "conv", "full_attention", "conv", "full_attention", "conv", "full_attention", "conv"],
    "conv_L_cache": 3, "conv_bias": false, "max_position_embeddings": 128000, "rope_theta": 1000000,
    "norm_eps": 1e-5, "tie_word_embeddings": true, "vocab_size": 65536})"},
};

constexpr double weight_deviation = 0.02;
constexpr double most_zeros = 0.9999;

std::uint16_t to_bf16(float value) { // rounds to nearest; not for NaN
  const auto bits = std::bit_cast<std::uint32_t>(value);
  return static_cast<std::uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/// Step of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014).
std::uint64_t next_random(std::uint64_t& state) {
  std::uint64_t z = state += 0x9e3779b97f4a7c15;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
  z = (z ^ z >> 27) * 0x94d049bb133111eb;
  return z ^ z >> 31;
}

/// Samples of a normal distribution with standard deviation `weight_deviation`; weights are picked from them by 12
/// random bits.
std::array<std::uint16_t, 4096> normal_samples() {
  std::array<std::uint16_t, 4096> samples;
  std::uint64_t state = 1;
  for (auto& sample : samples) {
    const double u = (double(next_random(state) >> 11) + 0.5) * 0x1p-53, v = double(next_random(state) >> 11) * 0x1p-53;
    sample = to_bf16(float(weight_deviation * std::sqrt(-2 * std::log(u)) * std::cos(2 * std::numbers::pi * v)));
  }
  return samples;
}

/// The value that a share of standard normal numbers stays below.
double normal_quantile(double share) {
  double low = -10, high = 10;
  for (int i = 0; i < 60; ++i) {
    const double middle = (low + high) / 2;
    (std::erfc(-middle / std::numbers::sqrt2) / 2 < share ? low : high) = middle;
  }
  return low;
}

/// The bias in front of ReLU behind which a share of the activations is 0: layer norms give inputs with a mean square
/// of 1.
float bias_for_zeros(double share, int hidden) {
  return static_cast<float>(-normal_quantile(share) * weight_deviation * std::sqrt(double(hidden)));
}

/// "90" of `opt-1b:90` as a share.
double parse_zeros(std::string_view text, std::string_view shape) {
  double percent = -1;
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), percent);
  if (failed != std::errc() || end != text.data() + text.size() || !(percent > 0 && percent <= 100 * most_zeros))
    throw failure(errc::bad_request,
                  "synthetic:" + std::string(shape) +
                    ": after the colon comes the percentage of zeros after ReLU, above 0 and at most 99.99");
  return percent / 100;
}

/// KV heads instead of the shape's: the 2 of "llama-1b+kv2".
int parse_kv_heads(std::string_view text, int heads, std::string_view shape) {
  int count = 0;
  if (text.starts_with("kv")) {
    const auto [end, failed] = std::from_chars(text.data() + 2, text.data() + text.size(), count);
    if (failed == std::errc() && end == text.data() + text.size() && count > 0 && heads % count == 0)
      return count;
  }
  throw failure(errc::bad_request,
                "synthetic:" + std::string(shape) +
                  ": after + comes the number of KV heads, as kv2; it must divide the " + std::to_string(heads) +
                  " heads");
}

/// How the matrices of layers can be stored: "llama-1b@q8_0".
tensor_type parse_storage(std::string_view name, std::string_view shape) {
  for (const auto& [known, type] : {std::pair<std::string_view, tensor_type>{"bf16", tensor_type::bf16},
                                    {"pruned", tensor_type::bf16_24},
                                    {"fp8", tensor_type::fp8_128},
                                    {"q8_0", tensor_type::q8_0},
                                    {"q4_0", tensor_type::q4_0}})
    if (name == known)
      return type;
  throw failure(errc::bad_request,
                "synthetic:" + std::string(shape) +
                  ": after @ comes how matrices are stored: bf16, pruned, fp8, q8_0 or q4_0");
}

class synthetic_checkpoint final : public checkpoint {
public:
  /// `bias`: of the products `biased`, whose results are activated. `storage`: of the matrices of layers.
  synthetic_checkpoint(std::string name, const model_config& config, std::string_view biased, float bias,
                       tensor_type storage)
    : name_(std::move(name)), biased_(std::string(biased) + ".bias"), bias_(bias), storage_(storage) {
    for (auto& wanted : tensor_names(config).all())
      add(std::move(wanted.name), std::move(wanted.shape));
  }

  std::string name() const override { return name_; }

  std::vector<std::string> tensors() const override { return names_in(tensors_); }

  const tensor_info* find(std::string_view tensor) const override {
    const auto found = tensors_.find(tensor);
    return found == tensors_.end() ? nullptr : &found->second;
  }

  tensor_data read(std::string_view tensor) const override {
    const auto& info = tensors_.at(std::string(tensor));
    if (is_fp8(info.type))
      return codes(info, std::hash<std::string_view>{}(tensor));
    if (has_blocks(info.type))
      return blocks(info, std::hash<std::string_view>{}(tensor));
    const std::size_t count = info.bytes / sizeof(std::uint16_t);
    std::shared_ptr<std::uint16_t[]> data(new std::uint16_t[count]);
    if (info.shape.size() == 1) {
      const float value = !tensor.ends_with(".bias") ? 1 : tensor.ends_with(biased_) ? bias_ : 0;
      std::fill_n(data.get(), count, to_bf16(value));
      return data;
    }
    std::uint64_t state = std::hash<std::string_view>{}(tensor);
    for (std::size_t i = 0; i < count;) {
      auto random = next_random(state);
      for (int k = 0; k < 5 && i < count; ++k, random >>= 12)
        data[i++] = samples_[random & 4095];
    }
    return data;
  }

  std::string where(std::string_view) const override { return name_; }

private:
  void add(std::string name, std::vector<std::size_t> shape) {
    const auto type = name.ends_with("_proj.weight") ? storage_ : tensor_type(tensor_type::bf16);
    std::size_t bytes = kernels::row_bytes(*type.format(), shape.back());
    for (std::size_t i = 0; i + 1 < shape.size(); ++i)
      bytes *= shape[i];
    tensors_.emplace(std::move(name), tensor_info{type, std::move(shape), bytes});
  }

  float sample(std::uint64_t random) const {
    return std::bit_cast<float>(std::uint32_t{samples_[random & 4095]} << 16);
  }

  /// Rows of fp8 with one scale, of the same distribution.
  tensor_data codes(const tensor_info& info, std::uint64_t state) const {
    const auto format = *info.type.format();
    const auto cols = info.shape.back(), row = kernels::row_bytes(format, cols);
    const float scale = static_cast<float>(weight_deviation) / 64;
    std::shared_ptr<std::uint8_t[]> data(new std::uint8_t[info.bytes]);
    for (auto* at = data.get(); at < data.get() + info.bytes; at += row)
      for (std::size_t i = 0; i < cols; ++i) {
        std::memcpy(at + fp8_scale_offset(format, i), &scale, sizeof scale);
        at[fp8_offset(format, i)] = kernels::to_e4m3(sample(next_random(state)) / scale);
      }
    return data;
  }

  /// Pairs of weights, or codes with one scale, of the same distribution.
  tensor_data blocks(const tensor_info& info, std::uint64_t state) const {
    const auto format = *info.type.format();
    const auto block = kernels::block_bytes(format);
    std::shared_ptr<std::uint8_t[]> data(new std::uint8_t[info.bytes]());
    const auto value = [&](std::uint64_t random) { return sample(random); };
    const float steps = format == kernels::weight_format::q8_0 ? 32 : 2;
    const auto scale = kernels::to_f16(static_cast<float>(weight_deviation) / steps);
    const auto code = [&](std::uint64_t random, int most) {
      const int rounded = static_cast<int>(std::lround(value(random) * steps / static_cast<float>(weight_deviation)));
      return std::clamp(rounded, -most - 1, most);
    };
    for (auto* at = data.get(); at < data.get() + info.bytes; at += block) {
      if (format == kernels::weight_format::bf16_24) {
        constexpr int places[6][2] = {{0, 1}, {0, 2}, {0, 3}, {1, 2}, {1, 3}, {2, 3}};
        const auto random = next_random(state);
        for (std::size_t four = 0; four < 2; ++four) {
          const auto& [first, second] = places[(random >> (48 + 8 * four)) % 6];
          store_pruned_pair(format, at, four,
                            {value(random >> 24 * four), value(random >> (24 * four + 12)), first, second});
        }
        continue;
      }
      at[0] = static_cast<std::uint8_t>(scale & 255);
      at[1] = static_cast<std::uint8_t>(scale >> 8);
      const bool bytes = format == kernels::weight_format::q8_0;
      for (std::size_t i = 2; i < block; i += 2) {
        const auto random = next_random(state);
        for (std::size_t k = 0; k < 2; ++k) {
          const auto draw = random >> 24 * k;
          at[i + k] = bytes ? static_cast<std::uint8_t>(code(draw, 127))
                            : static_cast<std::uint8_t>((code(draw, 7) + 8) | (code(draw >> 12, 7) + 8) << 4);
        }
      }
    }
    return data;
  }

  std::string name_;
  std::string biased_;
  float bias_;
  tensor_type storage_;
  std::map<std::string, tensor_info, std::less<>> tensors_;
  std::array<std::uint16_t, 4096> samples_ = normal_samples();
};

} // namespace

model_source make_synthetic(std::string_view shape) {
  std::string known, described;
  for (const auto& s : described_shapes) {
    if (s.name != shape) {
      described += ", " + std::string(s.name);
      continue;
    }
    model_source source;
    source.name = "synthetic:" + std::string(shape);
    source.config = parse_model_config(json::document::parse(s.config, source.name));
    source.tensors = std::make_unique<synthetic_checkpoint>(source.name, source.config, "up_proj", 0.0f,
                                                            tensor_type::bf16);
    return source;
  }
  const auto stored = shape.substr(0, shape.find(':')), sized = stored.substr(0, stored.find('@')),
             name = sized.substr(0, sized.find('+'));
  const bool has_zeros = stored.size() < shape.size();
  for (const auto& s : shapes) {
    if (s.name != name || (has_zeros && !s.relu())) {
      known += (known.empty() ? "" : ", ") + std::string(s.name);
      continue;
    }
    model_source source;
    source.name = "synthetic:" + std::string(shape);
    auto& config = source.config;
    config.family = s.family;
    config.vocab = s.vocab;
    config.hidden = s.hidden;
    config.layers = s.layers;
    config.heads = s.heads;
    config.kv_heads = name.size() < sized.size() ? parse_kv_heads(sized.substr(name.size() + 1), s.heads, shape)
                                                 : s.kv_heads;
    config.head_dim = s.head_dim;
    config.ffn = s.ffn;
    config.tied = s.tied;
    config.norm_eps = 1e-5f;
    config.windows.assign(as_size(s.layers), 0);
    config.qk_norm = s.name == "qwen3-moe";
    if (s.experts > 0) {
      config.experts = {.count = s.experts, .chosen = s.chosen, .ffn = s.ffn, .renormalise = true};
      config.sparse.assign(as_size(s.layers), true);
    }
    config.max_context = 8192;
    double zeros = 0.5; // behind ReLU
    if (s.gated_relu()) {
      config.mlp_bias = true;
      config.act.type = kernels::activation_type::relu;
    } else if (s.relu()) {
      config.norm = norm_type::layer;
      config.norm_bias = config.qkv_bias = config.o_bias = config.mlp_bias = true;
      config.positions = position_type::learned;
      config.max_context = 2048;
      config.position_rows = 2050;
      config.position_offset = 2;
      config.gated = false;
      config.act.type = kernels::activation_type::relu;
    }
    if (has_zeros)
      zeros = parse_zeros(shape.substr(stored.size() + 1), shape);
    const auto storage = sized.size() < stored.size() ? parse_storage(stored.substr(sized.size() + 1), shape)
                                                      : tensor_type(tensor_type::bf16);
    source.tensors = std::make_unique<synthetic_checkpoint>(
      source.name, config, s.gated_relu() ? "gate_proj" : "up_proj", bias_for_zeros(zeros, s.hidden), storage);
    return source;
  }
  throw failure(errc::not_found, "synthetic:" + std::string(shape) + ": no such shape, there are " + known + described);
}

} // namespace troupe
