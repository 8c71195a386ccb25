#include "runtime/import/model_source.hpp"
#include "runtime/support/error.hpp"

#include <array>
#include <bit>
#include <cmath>
#include <map>
#include <numbers>

namespace troupe {

namespace {

struct synthetic_shape {
  std::string_view name;
  int layers, hidden, heads, kv_heads, ffn, vocab;
  bool tied;
};

constexpr std::array shapes{
  synthetic_shape{"llama-135m", 30, 576, 9, 3, 1536, 49152, true},
  synthetic_shape{"llama-1b", 16, 2048, 32, 8, 8192, 50257, true},
  synthetic_shape{"llama-8b", 32, 4096, 32, 8, 14336, 128256, false},
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
  synthetic_checkpoint(std::string name, const model_config& c) : name_(std::move(name)) {
    const auto size = [](int n) { return static_cast<std::size_t>(n); };
    const auto hidden = size(c.hidden), ffn = size(c.ffn), vocab = size(c.vocab), q = size(c.heads) * size(c.head_dim),
               kv = size(c.kv_heads) * size(c.head_dim);
    add("model.embed_tokens.weight", {vocab, hidden});
    add("model.norm.weight", {hidden});
    if (!c.tied)
      add("lm_head.weight", {vocab, hidden});
    for (int i = 0; i < c.layers; ++i) {
      const auto p = "model.layers." + std::to_string(i) + ".";
      add(p + "input_layernorm.weight", {hidden});
      add(p + "post_attention_layernorm.weight", {hidden});
      add(p + "self_attn.q_proj.weight", {q, hidden});
      add(p + "self_attn.k_proj.weight", {kv, hidden});
      add(p + "self_attn.v_proj.weight", {kv, hidden});
      add(p + "self_attn.o_proj.weight", {hidden, q});
      add(p + "mlp.gate_proj.weight", {ffn, hidden});
      add(p + "mlp.up_proj.weight", {ffn, hidden});
      add(p + "mlp.down_proj.weight", {hidden, ffn});
    }
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
    config.family = "llama";
    config.vocab = s.vocab;
    config.hidden = s.hidden;
    config.layers = s.layers;
    config.heads = s.heads;
    config.kv_heads = s.kv_heads;
    config.head_dim = s.hidden / s.heads;
    config.ffn = s.ffn;
    config.tied = s.tied;
    config.norm_eps = 1e-5f;
    config.windows.assign(static_cast<std::size_t>(s.layers), 0);
    config.max_context = 8192;
    source.tensors = std::make_unique<synthetic_checkpoint>(source.name, config);
    return source;
  }
  throw failure(errc::not_found, "synthetic:" + std::string(shape) + ": no such shape, there are " + known);
}

} // namespace troupe
