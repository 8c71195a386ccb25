// Which matrix of a model gets which format.
#include "runtime/import/format_mix.hpp"

#include <doctest/doctest.h>

#include <map>
#include <string>

using namespace troupe;

namespace {

model_config llama_config(int layers, int heads, int kv_heads, bool tied) {
  model_config config;
  config.family = "llama";
  config.layers = layers;
  config.heads = heads;
  config.kv_heads = kv_heads;
  config.tied = tied;
  return config;
}

/// How many matrices of each type a llama gets.
std::map<std::string, int> types_of(const char* format, const model_config& config, std::size_t hidden, std::size_t ffn,
                                    const mix_conditions& conditions = {}) {
  std::map<std::string, int> result;
  const auto add = [&](const std::string& name, std::size_t inputs) {
    tensor_info info;
    info.shape = {32, inputs};
    ++result[std::string(to_string(written_type(name, info, *find_export_format(format), config, conditions)))];
  };
  add("model.embed_tokens.weight", hidden);
  if (!config.tied)
    add("lm_head.weight", hidden);
  for (int i = 0; i < config.layers; ++i) {
    const auto layer = "model.layers." + std::to_string(i) + ".";
    for (const char* name : {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj",
                             "mlp.gate_proj", "mlp.up_proj"})
      add(layer + name + ".weight", hidden);
    add(layer + "mlp.down_proj.weight", ffn);
  }
  return result;
}

using counts = std::map<std::string, int>;

} // namespace

TEST_CASE("Mixes give as many matrices of each type as llama-quantize does") {
  // Counted in what `llama-quantize` (Debian's llama.cpp) made of random llamas of these shapes.
  const auto eight = llama_config(32, 32, 8, false);
  CHECK(types_of("q4_k_m", eight, 4096, 14336) == counts{{"Q4_K", 193}, {"Q6_K", 33}});
  CHECK(types_of("q4_k_s", eight, 4096, 14336) == counts{{"Q4_K", 217}, {"Q5_K", 8}, {"Q6_K", 1}});
  CHECK(types_of("q5_k_m", eight, 4096, 14336) == counts{{"Q5_K", 193}, {"Q6_K", 33}});
  CHECK(types_of("q5_k_s", eight, 4096, 14336) == counts{{"Q5_K", 225}, {"Q6_K", 1}});
  CHECK(types_of("q3_k_m", eight, 4096, 14336) == counts{{"Q3_K", 129}, {"Q4_K", 92}, {"Q5_K", 4}, {"Q6_K", 1}});
  CHECK(types_of("q3_k_l", eight, 4096, 14336) == counts{{"Q3_K", 129}, {"Q5_K", 96}, {"Q6_K", 1}});
  CHECK(types_of("q3_k_s", eight, 4096, 14336) == counts{{"Q3_K", 225}, {"Q6_K", 1}});
  CHECK(types_of("q2_k", eight, 4096, 14336) == counts{{"Q2_K", 129}, {"Q3_K", 64}, {"Q4_K", 32}, {"Q6_K", 1}});
  CHECK(types_of("q2_k_s", eight, 4096, 14336) == counts{{"Q2_K", 189}, {"Q4_K", 36}, {"Q6_K", 1}});
  CHECK(types_of("iq4_xs", eight, 4096, 14336) == counts{{"IQ4_XS", 189}, {"Q5_K", 36}, {"Q6_K", 1}});
  CHECK(types_of("iq4_xs", eight, 4096, 14336, {.importance = true}) ==
        counts{{"IQ4_XS", 193}, {"Q5_K", 32}, {"Q6_K", 1}});
  CHECK(types_of("q6_k", eight, 4096, 14336) == counts{{"Q6_K", 226}});

  // SmolLM2 135M, whose rows of 576 weights do not fill blocks of 256; its head is tied.
  const auto small = llama_config(30, 9, 3, true);
  CHECK(types_of("q4_k_m", small, 576, 1536) == counts{{"Q5_0", 166}, {"Q8_0", 15}, {"Q6_K", 14}, {"Q4_K", 16}});
  CHECK(types_of("q2_k", small, 576, 1536) == counts{{"Q4_0", 180}, {"Q8_0", 1}, {"Q3_K", 30}});
  CHECK(types_of("iq4_xs", small, 576, 1536) == counts{{"IQ4_NL", 180}, {"Q8_0", 1}, {"IQ4_XS", 27}, {"Q5_K", 3}});
  CHECK(types_of("q5_k_s", small, 576, 1536) == counts{{"Q5_1", 180}, {"Q8_0", 1}, {"Q5_K", 30}});
}

TEST_CASE("Blocks of 32 keep embedding and head in Q8_0; pure files and rows that fill no block") {
  const auto config = llama_config(2, 4, 4, false);
  CHECK(types_of("q4_0", config, 256, 256) == counts{{"Q4_0", 14}, {"Q8_0", 2}});
  CHECK(types_of("q5_1", config, 256, 256) == counts{{"Q5_1", 14}, {"Q8_0", 2}});
  CHECK(types_of("q4_k_m", config, 256, 256, {.pure = true}) == counts{{"Q4_K", 16}});
  CHECK(types_of("q4_0", config, 256, 256, {.pure = true}) == counts{{"Q4_0", 16}});
  CHECK(types_of("f16", config, 256, 256) == counts{{"F16", 16}});
  CHECK(types_of("f32", config, 20, 20) == counts{{"F32", 16}});
  CHECK(types_of("q4_k_m", config, 20, 20) == counts{{"F16", 16}});
  tensor_info vector;
  vector.shape = {256};
  CHECK(written_type("model.norm.weight", vector, *find_export_format("q2_k"), config) == tensor_type::f32);
}

TEST_CASE("Numbers of distances and taps of convolutions are written as they are") {
  const auto config = llama_config(2, 4, 4, false);
  tensor_info matrix;
  matrix.shape = {8, 256};
  for (const char* name : {"model.layers.0.self_attn.distances", "model.layers.1.branches.mlp_conv.weight"})
    CHECK(written_type(name, matrix, *find_export_format("q8_0"), config) == tensor_type::f32);
  CHECK(written_type("model.layers.0.self_attn.distance_proj.weight", matrix, *find_export_format("q8_0"), config) ==
        tensor_type::q8_0);
}

TEST_CASE("Formats have names; those of llama.cpp that name no size mean the medium one") {
  for (const auto& format : export_formats())
    CHECK(find_export_format(format.name) == &format);
  CHECK(find_export_format("q4_k") == find_export_format("q4_k_m"));
  CHECK(find_export_format("q3_k") == find_export_format("q3_k_m"));
  CHECK(find_export_format("q5_k") == find_export_format("q5_k_m"));
  for (const char* unknown : {"", "q7_k", "Q4_K_M", "q4_k_m_m", "q2_k_m", "gptq"})
    CHECK(find_export_format(unknown) == nullptr);
}
