// Figures that papers and model cards print, from the code that plans memory and steps: a reader can check one against
// the other.
#include "kernels/cpu/cpu_backend.hpp"
#include "kernels/sharded/column_ranges.hpp"
#include "runtime/model/decoder/memory_estimate.hpp"
#include "runtime/model/tensor_names.hpp"
#include "runtime/sampling/logits_processors.hpp"
#include "runtime/scheduling/cost/step_cost.hpp"
#include "tests/runtime/model/model_test_data.hpp"

#include <cmath>
#include <map>

using namespace troupe;
using namespace troupe::test;

namespace {

/// The tensors that a configuration asks for, in f16, without data.
class shapes_alone final : public checkpoint {
public:
  explicit shapes_alone(const model_config& config) {
    for (const auto& wanted : tensor_names(config).all()) {
      tensor_info info;
      info.type = tensor_type::f16;
      info.shape = wanted.shape;
      info.bytes = 2;
      for (const auto size : wanted.shape)
        info.bytes *= size;
      bytes_ += info.bytes;
      tensors_[wanted.name] = info;
    }
  }

  std::string name() const override { return "shapes"; }
  std::vector<std::string> tensors() const override { return {}; }
  const tensor_info* find(std::string_view tensor) const override {
    const auto found = tensors_.find(std::string(tensor));
    return found == tensors_.end() ? nullptr : &found->second;
  }
  tensor_data read(std::string_view) const override { return nullptr; }
  std::string where(std::string_view) const override { return "shapes"; }

  std::size_t bytes() const { return bytes_; }

private:
  std::map<std::string, tensor_info> tensors_;
  std::size_t bytes_ = 0;
};

model_config published(const std::string& text) {
  return parse_model_config(json::document::parse(text, "config.json"));
}

model_config llama2_7b() {
  return published(
    R"({"model_type": "llama", "hidden_size": 4096, "intermediate_size": 11008, "num_attention_heads": 32,
    "num_key_value_heads": 32, "num_hidden_layers": 32, "vocab_size": 32000, "max_position_embeddings": 4096,
    "rms_norm_eps": 1e-5, "tie_word_embeddings": false})");
}

model_config opt_13b() {
  return published(R"({"model_type": "opt", "hidden_size": 5120, "ffn_dim": 20480, "num_attention_heads": 40,
    "num_hidden_layers": 40, "vocab_size": 50272, "max_position_embeddings": 2048, "word_embed_proj_dim": 5120,
    "do_layer_norm_before": true, "activation_function": "relu"})");
}

/// K and V of one token in 16 bits.
std::size_t token_bytes(const model_config& config) {
  const precision half(kernels::dtype::bf16);
  return kv_shape_of(config, half, 1).block_bytes() / std::size_t(kernels::block_tokens);
}

memory_estimate memory_of(const model_config& config) {
  const shapes_alone shapes(config);
  const auto backend = kernels::make_cpu_backend({.threads = 1});
  return estimate_memory(shapes, config, precision(kernels::dtype::bf16), *backend, {1, 1, 64});
}

} // namespace

TEST_CASE("Llama 2 7B: 14 GB of weights, 512 KiB a token, 2 GiB for a context of 4,096") {
  const auto config = llama2_7b();
  CHECK(shapes_alone(config).bytes() / 2 == 6'738'415'616); // its parameters
  CHECK(double(memory_of(config).weights) == doctest::Approx(14e9).epsilon(0.05));
  CHECK(token_bytes(config) == 512 << 10);
  CHECK(memory_of(config).kv_block * (4096 / kernels::block_tokens) == std::size_t(2) << 30);
}

TEST_CASE("GPT-3: 2.4 million values, 4.7 MB a token") {
  const auto config = published(
    R"({"model_type": "gpt2", "n_embd": 12288, "n_head": 96, "n_layer": 96, "n_positions": 2048,
    "vocab_size": 50257})");
  CHECK(double(token_bytes(config)) / 2 == doctest::Approx(2.4e6).epsilon(0.02));
  CHECK(double(token_bytes(config)) == doctest::Approx(4.7e6).epsilon(0.01));
  CHECK(double(shapes_alone(config).bytes()) / 2 == doctest::Approx(175e9).epsilon(0.01));
}

TEST_CASE("13 B parameters on 40 GB: 65 % are weights, 30 % are left for K and V where a twentieth serves the rest") {
  const auto config = opt_13b();
  constexpr double memory = 40e9;
  CHECK(double(shapes_alone(config).bytes()) / memory == doctest::Approx(0.65).epsilon(0.01));
  CHECK(token_bytes(config) == 800 << 10); // 1.6 GB for 2,048 tokens
  const double left = 0.95 * memory - double(shapes_alone(config).bytes());
  CHECK(left / memory == doctest::Approx(0.30).epsilon(0.02));
  CHECK(left / double(token_bytes(config)) == doctest::Approx(14'900).epsilon(0.05)); // tokens at once
}

TEST_CASE("p = 0.6 over 0.3, 0.2, 0.15, ... keeps three") {
  const double shares[] = {0.3, 0.2, 0.15, 0.1, 0.1, 0.08, 0.07};
  std::vector<float> logits;
  for (const double share : shares)
    logits.push_back(static_cast<float>(std::log(share)));
  candidates tokens;
  tokens.reset(logits);
  keep_top_p(tokens, 0.6f);
  CHECK(std::vector<token_id>(tokens.ids().begin(), tokens.ids().end()) == std::vector<token_id>{0, 1, 2});
}

TEST_CASE("Four stages hold a quarter each, two ranks a half") {
  auto config = llama2_7b();
  const auto whole = memory_of(config);
  std::size_t sum = 0;
  for (int stage = 0; stage < 4; ++stage) {
    config.span = layer_span{8 * stage, 8 * (stage + 1), stage == 0, stage == 3};
    const auto part = memory_of(config);
    CHECK(part.kv_block * 4 == whole.kv_block);
    CHECK(double(part.weights) / double(whole.weights) == doctest::Approx(0.25).epsilon(0.06)); // the ends have a table
    sum += part.weights;
  }
  CHECK(sum == whole.weights);

  config = llama2_7b();
  for (const auto& [outputs, unit] : {std::pair<std::size_t, std::size_t>{3 * 4096, 128},
                                      {4096, kernels::column_unit},
                                      {11008, kernels::column_unit},
                                      {32000, kernels::column_unit}})
    for (std::size_t rank = 0; rank < 2; ++rank)
      CHECK(kernels::columns_of(outputs, rank, 2, unit).count * 2 == outputs);
}

TEST_CASE("Few rows cost what one does, where reading the weights takes the time") {
  // A machine that reads the weights in 20 ms and computes a row in 0.5.
  step_cost cost;
  const auto measured = [](double rows) { return std::max(20.0, 0.5 * rows); };
  for (int round = 0; round < 200; ++round)
    for (const double rows : {1, 2, 4, 8, 16, 32, 64, 128, 256})
      cost.observe({rows, 0, 0, 0}, measured(rows));
  const auto expected = [&](double rows) { return cost.expected_ms({rows, 0, 0, 0}); };
  CHECK(expected(1) == doctest::Approx(20).epsilon(0.05));
  CHECK(expected(16) / expected(1) < 1.1);
  CHECK(expected(32) / expected(1) < 1.1);
  CHECK(expected(256) / expected(1) == doctest::Approx(6.4).epsilon(0.1));
  CHECK(cost.marginal_ms({1, 0, 0, 0}, {15, 0, 0, 0}) < 2); // 15 guesses for less than a tenth of a step
}
