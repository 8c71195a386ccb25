// Sizes that are published of models, from their configurations alone.
#include "runtime/model/size_estimate.hpp"
#include "runtime/model/tensor_names.hpp"
#include "tests/runtime/model/decoder_checks.hpp"

#include <doctest/doctest.h>

using namespace troupe;
using namespace troupe::test;
using kernels::kv_type;

namespace {

model_config config_of(const std::string& text) {
  return parse_model_config(json::document::parse(text, "config.json"));
}

const auto llama2_7b_json =
  R"({"model_type":"llama","hidden_size":4096,"intermediate_size":11008,"num_attention_heads":32,
  "num_hidden_layers":32,"vocab_size":32000,"max_position_embeddings":4096,"rms_norm_eps":1e-5,
  "tie_word_embeddings":false})";
const auto gpt3 = R"({"model_type":"gpt2","n_embd":12288,"n_layer":96,"n_head":96,"n_positions":2048,
  "vocab_size":50257})";
const auto opt_13b_json = R"({"model_type":"opt","hidden_size":5120,"ffn_dim":20480,"num_attention_heads":40,
  "num_hidden_layers":40,"vocab_size":50272,"max_position_embeddings":2048})";

} // namespace

TEST_CASE("Llama 2 7B takes 14 GB, 512 KB a token and 2 GB for its context in 16 bits") {
  const auto config = config_of(llama2_7b_json);
  CHECK(count_parameters(config) == 6'738'415'616);
  CHECK(2 * count_parameters(config) / 1e9 == doctest::Approx(14).epsilon(0.04));
  CHECK(kv_bytes_per_token(config, kv_type::bf16) == 512 << 10);
  CHECK(kv_bytes_per_token(config, kv_type::bf16) * 4096 == std::size_t{2} << 30);
  CHECK(kv_bytes_per_token(config, kv_type::f32) == 1 << 20);
}

TEST_CASE("GPT-3 has 175 billion parameters, about 5 MB a token and 10 GB for its context") {
  const auto config = config_of(gpt3);
  CHECK(count_parameters(config) / 1e9 == doctest::Approx(175).epsilon(0.01));
  CHECK(kv_bytes_per_token(config, kv_type::bf16) / 1e6 == doctest::Approx(5).epsilon(0.06));
  CHECK(kv_bytes_per_token(config, kv_type::bf16) * 2048 / 1e9 == doctest::Approx(10).epsilon(0.04));
}

TEST_CASE("13 billion parameters take 65 % of 40 GB, and leave 30 % for K and V beside 5 % of activations") {
  const auto config = config_of(opt_13b_json);
  const auto weights = 2. * static_cast<double>(count_parameters(config));
  CHECK(weights / 40e9 == doctest::Approx(0.65).epsilon(0.02));
  CHECK(1 - weights / 40e9 - 0.05 == doctest::Approx(0.3).epsilon(0.04));
}

TEST_CASE("a group of KV heads takes its share; latents and windows what they are") {
  auto grouped = config_of(R"({"model_type":"llama","hidden_size":768,"intermediate_size":2048,"num_attention_heads":8,
    "num_key_value_heads":2,"num_hidden_layers":1,"vocab_size":100,"max_position_embeddings":64})");
  CHECK(kv_bytes_per_token(grouped, kv_type::bf16) == 2 * 2 * 96 * 2);
  CHECK(state_bytes_per_sequence(grouped) == 0);
}

TEST_CASE("sizes on paper agree with what is stored") {
  for (const std::string name : {"golden/llama-gqa", "golden/qwen3", "families/opt"}) {
    CAPTURE(name);
    const auto source = open(name);
    std::size_t stored = 0;
    for (const auto& wanted : tensor_names(source.config).all())
      stored += source.tensors->find(wanted.name)->bytes /
        (source.tensors->find(wanted.name)->type == tensor_type::f32 ? 4 : 2);
    CHECK(count_parameters(source.config) == stored);
  }
}
