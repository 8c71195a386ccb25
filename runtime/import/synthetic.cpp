// Random weights in the shape of real models, for measurements.
#include "runtime/import/model_source.hpp"
#include "runtime/model/tensor_names.hpp"
#include "runtime/support/error.hpp"
#include "runtime/support/types.hpp"

#include <array>
#include <bit>
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
};

// The mixtures have the widths of real ones, with fewer layers: 1.8 and 2.6 billion parameters, of which a token reads
// 0.6 and 0.3 billion.
constexpr std::array shapes{
  synthetic_shape{"llama-135m", "llama", 30, 576, 9, 3, 64, 1536, 49152, true},
  synthetic_shape{"llama-1b", "llama", 16, 2048, 32, 8, 64, 8192, 50257, true},
  synthetic_shape{"llama-8b", "llama", 32, 4096, 32, 8, 128, 14336, 128256, false},
  synthetic_shape{"moe-8x", "mixtral", 16, 2048, 32, 8, 64, 2048, 32000, true, 8, 2},
  synthetic_shape{"qwen3-moe", "qwen3_moe", 4, 2048, 32, 4, 128, 768, 32000, true, 128, 8},
};

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

/// Samples of a normal distribution with standard deviation 0.02; weights are picked from them by 12 random bits.
std::array<std::uint16_t, 4096> normal_samples() {
  std::array<std::uint16_t, 4096> samples;
  std::uint64_t state = 1;
  for (auto& sample : samples) {
    const double u = (double(next_random(state) >> 11) + 0.5) * 0x1p-53, v = double(next_random(state) >> 11) * 0x1p-53;
    sample = to_bf16(float(0.02 * std::sqrt(-2 * std::log(u)) * std::cos(2 * std::numbers::pi * v)));
  }
  return samples;
}

class synthetic_checkpoint final : public checkpoint {
public:
  synthetic_checkpoint(std::string name, const model_config& config) : name_(std::move(name)) {
    for (auto& wanted : tensor_names(config).all())
      add(std::move(wanted.name), std::move(wanted.shape));
  }

  std::string name() const override { return name_; }

  std::vector<std::string> tensors() const override {
    std::vector<std::string> names;
    for (const auto& [name, _] : tensors_)
      names.push_back(name);
    return names;
  }

  const tensor_info* find(std::string_view tensor) const override {
    const auto found = tensors_.find(tensor);
    return found == tensors_.end() ? nullptr : &found->second;
  }

  tensor_data read(std::string_view tensor) const override {
    const auto& info = tensors_.at(std::string(tensor));
    const std::size_t count = info.bytes / sizeof(std::uint16_t);
    std::shared_ptr<std::uint16_t[]> data(new std::uint16_t[count]);
    if (info.shape.size() == 1) {
      std::fill_n(data.get(), count, to_bf16(1));
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
  std::map<std::string, tensor_info, std::less<>> tensors_;
  std::array<std::uint16_t, 4096> samples_ = normal_samples();
};

} // namespace

model_source make_synthetic(std::string_view shape) {
  std::string known;
  for (const auto& s : shapes) {
    if (s.name != shape) {
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
    source.tensors = std::make_unique<synthetic_checkpoint>(source.name, config);
    return source;
  }
  throw failure(errc::not_found, "synthetic:" + std::string(shape) + ": no such shape, there are " + known);
}

} // namespace troupe
