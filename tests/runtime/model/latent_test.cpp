// Latent attention (DeepSeek V2 and V3): its cache, precisions and schedules, and what configurations may say. Logits
// are compared with transformers' in families_test.cpp.
#include "tests/runtime/model/decoder_checks.hpp"

using namespace troupe;
using namespace troupe::test;

namespace {

using kernels::quantization;

const std::vector<std::string> latent_models{"deepseek-v2", "deepseek-v2-lite", "deepseek-v3", "deepseek-wide"};

/// The configuration of a small DeepSeek with other members.
model_config read_latent(const std::string& family, const std::string& changes) {
  return parse_model_config(
    json::document::parse(R"({"model_type": ")" + family + "\"" + changes + R"(, "vocab_size": 50, "hidden_size": 16,
       "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4, "num_experts_per_tok": 2})",
                          "config.json"));
}

std::string latent_refusal(const std::string& family, const std::string& changes) {
  return failure_of([&] { read_latent(family, changes); });
}

std::vector<row_logits> logits_in(const model_source& source, precision precision) {
  std::mt19937 random(3);
  const auto ids = random_tokens(random, 60, source.config.vocab);
  return engine(source, targets().back(), 2, precision).step({{ids, 0, first_blocks(ids.size())}});
}

/// The root mean square of the differences, relative to that of `exact`.
double relative_error(const std::vector<row_logits>& exact, const std::vector<row_logits>& got) {
  double wrong = 0, all = 0;
  for (std::size_t r = 0; r < exact.size(); ++r)
    for (std::size_t i = 0; i < exact[r].size(); ++i) {
      wrong += std::pow(double(got[r][i]) - exact[r][i], 2);
      all += std::pow(double(exact[r][i]), 2);
    }
  return std::sqrt(wrong / all);
}

} // namespace

TEST_CASE("Latent attention: the cache holds one key of the latent and the rotated part, and a value as wide") {
  for (const auto& model : latent_models) {
    CAPTURE(model);
    const auto config = open("tiny_families/" + model).config;
    const auto width = as_size(config.latent.kv_rank + config.latent.rotated);
    const auto shape = kv_shape_of(config, dtype::bf16, 1);
    CHECK(shape.block_bytes() == kernels::block_tokens * as_size(config.layers) * 2 * width * 2);
  }
  // DeepSeek V3: 2304 bytes of a layer for a token, where 128 heads of keys and values would take 81920.
  const auto v3 = read_latent("deepseek_v3", "");
  CHECK(kv_shape_of(v3, dtype::bf16, 1).block_bytes() == kernels::block_tokens * as_size(v3.layers) * 2304);
}

TEST_CASE("Latent attention: logits do not depend on the schedule") {
  std::mt19937 random(11);
  for (const auto& model : latent_models)
    for (const dtype compute : {dtype::f32, dtype::bf16})
      check_schedules("tiny_families/" + model, targets().back(), compute, random);
}

TEST_CASE("Latent attention: bf16 and quantised weights give nearly the logits of f32, int8 nearer than int4") {
  // Without experts, of which rounding may choose others.
  const auto source = open("tiny_families/deepseek-wide");
  const auto exact = logits_in(source, dtype::f32);
  const double bf16 = relative_error(exact, logits_in(source, dtype::bf16)),
               int8 = relative_error(exact, logits_in(source, {dtype::f32, quantization::int8})),
               int4 = relative_error(exact, logits_in(source, {dtype::f32, quantization::int4}));
  CAPTURE(bf16);
  CAPTURE(int8);
  CAPTURE(int4);
  CHECK(bf16 > 0);
  CHECK(bf16 < 0.03);
  CHECK(int8 > 0);
  CHECK(int8 < 0.05);
  CHECK(int4 > 2 * int8);
  CHECK(int4 < 0.5);
}

TEST_CASE("DeepSeek's configurations: defaults, and sentences for what is not supported") {
  const auto v3 = read_latent("deepseek_v3", R"(, "rope_scaling": {"type": "yarn", "factor": 40, "mscale": 1.0,
    "mscale_all_dim": 1.0, "original_max_position_embeddings": 4096})");
  CHECK(v3.kv_heads == 1);
  CHECK(v3.head_dim == 576);
  CHECK(v3.latent.q_rank == 1536);
  CHECK(v3.rope.attention_factor == doctest::Approx(1));
  const double grown = 0.1 * std::log(40.0) + 1;
  CHECK(v3.attention_scale == doctest::Approx(grown * grown / std::sqrt(192.0)));
  CHECK(v3.experts.count == 256);
  CHECK(v3.experts.groups == 8);
  CHECK(v3.experts.correction);
  CHECK(read_latent("deepseek_v2", R"(, "q_lora_rank": null)").latent.q_rank == 0);
  CHECK(read_latent("deepseek_v2", "").attention_scale == doctest::Approx(1 / std::sqrt(192.0)));

  CHECK(latent_refusal("deepseek_v3", R"(, "topk_method": "greedy")") ==
        "config.json: `topk_method` is `greedy`, supported is noaux_tc");
  CHECK(latent_refusal("deepseek_v2", R"(, "topk_method": "noaux_tc")") ==
        "config.json: `topk_method` is `noaux_tc`, supported are greedy and group_limited_greedy for this model_type");
  CHECK(latent_refusal("deepseek_v3", R"(, "scoring_func": "softmax")") ==
        "config.json: `scoring_func` is `softmax`, supported is sigmoid");
  CHECK(latent_refusal("deepseek_v3", R"(, "n_group": 7)") ==
        "config.json: `n_group` is 7 and `topk_group` is 4, which does not fit 256 experts of which 2 are chosen");
  CHECK(latent_refusal("deepseek_v2", R"(, "kv_lora_rank": 601)") ==
        "config.json: `kv_lora_rank` is 601, supported are even numbers");
  CHECK(latent_refusal("deepseek_v2", R"(, "kv_lora_rank": 600)") ==
        "config.json: `kv_lora_rank` and `qk_rope_head_dim` make keys of 664 dimensions, supported are 640");
  CHECK(latent_refusal("deepseek_v2", R"(, "num_key_value_heads": 2)") ==
        "config.json: `num_key_value_heads` must be `num_attention_heads`, 4, as all heads share one latent; found 2");
  CHECK(latent_refusal("deepseek_v2", R"(, "attention_bias": true)") ==
        "config.json: `attention_bias` is true, which is not supported");
  CHECK(latent_refusal("deepseek_v2", R"(, "norm_topk_prob": true)") ==
        "config.json: `norm_topk_prob` is true, which is not supported");
}
