// Random weights in the shape of real models, for measurements.
#include "runtime/checkpoint/tensor_index.hpp"
#include "runtime/import/model_source.hpp"
#include "runtime/model/tensor_names.hpp"
#include "runtime/support/error.hpp"
#include "runtime/support/json.hpp"
#include "runtime/support/types.hpp"

#include <array>
#include <bit>
#include <charconv>
#include <cmath>
#include <map>
#include <numbers>

namespace troupe {

namespace {

struct synthetic_shape {
  std::string_view name, family;
  int layers, hidden, heads, kv_heads, head_dim, ffn, vocab;
  bool tied;
  int experts = 0, chosen = 0; // `ffn` is that of one expert

  bool relu() const { return family == "opt"; }
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

class synthetic_checkpoint final : public checkpoint {
public:
  /// `up_bias`: of the products whose results are activated.
  synthetic_checkpoint(std::string name, const model_config& config, float up_bias)
    : name_(std::move(name)), up_bias_(up_bias) {
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
    const std::size_t count = info.bytes / sizeof(std::uint16_t);
    std::shared_ptr<std::uint16_t[]> data(new std::uint16_t[count]);
    if (info.shape.size() == 1) {
      const float value = !tensor.ends_with(".bias") ? 1 : tensor.ends_with("up_proj.bias") ? up_bias_ : 0;
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
    std::size_t bytes = size_of(tensor_type::bf16);
    for (auto dimension : shape)
      bytes *= dimension;
    tensors_.emplace(std::move(name), tensor_info{tensor_type::bf16, std::move(shape), bytes});
  }

  std::string name_;
  float up_bias_;
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
    source.tensors = std::make_unique<synthetic_checkpoint>(source.name, source.config, 0.0f);
    return source;
  }
  const auto name = shape.substr(0, shape.find(':'));
  for (const auto& s : shapes) {
    if (s.name != name || (name != shape && !s.relu())) {
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
    config.kv_heads = s.kv_heads;
    config.head_dim = s.head_dim;
    config.ffn = s.ffn;
    config.tied = s.tied;
    config.norm_eps = 1e-5f;
    config.windows.assign(as_size(s.layers), 0);
    config.qk_norm = s.family == "qwen3_moe";
    if (s.experts > 0) {
      config.experts = {.count = s.experts, .chosen = s.chosen, .ffn = s.ffn, .renormalise = true};
      config.sparse.assign(as_size(s.layers), true);
    }
    config.max_context = 8192;
    double zeros = 0.5; // behind ReLU
    if (s.relu()) {
      config.norm = norm_type::layer;
      config.norm_bias = config.qkv_bias = config.o_bias = config.mlp_bias = true;
      config.positions = position_type::learned;
      config.max_context = 2048;
      config.position_rows = 2050;
      config.position_offset = 2;
      config.gated = false;
      config.act.type = kernels::activation_type::relu;
      if (name != shape)
        zeros = parse_zeros(shape.substr(name.size() + 1), shape);
    }
    source.tensors = std::make_unique<synthetic_checkpoint>(source.name, config, bias_for_zeros(zeros, s.hidden));
    return source;
  }
  throw failure(errc::not_found, "synthetic:" + std::string(shape) + ": no such shape, there are " + known + described);
}

} // namespace troupe
