#include "runtime/import/model_source.hpp"
#include "runtime/model/model_config.hpp"
#include "runtime/support/json/json.hpp"
#include "tests/runtime/model/model_test_data.hpp"

#include <optional>
#include <random>

using namespace troupe;
using namespace troupe::test;

namespace {

/// A small configuration of the family `type`, with `changes` (JSON members).
std::string with(const std::string& changes, const std::string& type = "llama") {
  std::string text = "{";
  text.append(changes).append(changes.empty() ? "" : ",").append(R"("model_type": ")").append(type).append("\"");
  const auto otherwise = [&](const char* member, const char* value) {
    if (changes.find(member) == changes.npos)
      text.append(", ").append(member).append(": ").append(value);
  };
  otherwise(R"("vocab_size")", "100");
  otherwise(R"("hidden_size")", "64");
  otherwise(R"("num_hidden_layers")", "4");
  otherwise(R"("num_attention_heads")", "8");
  otherwise(R"("intermediate_size")", "96");
  if (type != "llama")
    otherwise(R"("num_key_value_heads")", "4");
  return text.append("}");
}

model_config parse(const std::string& text) { return parse_model_config(json::document::parse(text, "config.json")); }

generation_defaults generation_of(const std::string& text, const std::string& config = "{}") {
  const auto config_document = json::document::parse(config, "config.json");
  const auto document = json::document::parse(text, "generation_config.json");
  return parse_generation_config(&document, config_document);
}

} // namespace

TEST_CASE("The golden checkpoints' configurations are read") {
  const auto llama = open_model((data() / "golden/llama-gqa").string());
  CHECK(llama.name == "llama-gqa");
  CHECK(llama.config.vocab == 768);
  CHECK(llama.config.heads == 8);
  CHECK(llama.config.kv_heads == 2);
  CHECK(llama.config.rope.theta == 500000);
  CHECK(llama.config.max_context == 2048);
  CHECK(!llama.config.tied);
  CHECK(llama.generation.stops == std::vector<token_id>{4});
  const auto scaled = read_config(data() / "golden/llama-mqa-rope3").model;
  CHECK(scaled.rope.type == rope_type::llama3);
  CHECK(scaled.rope.original_context == 64);
  CHECK(scaled.max_context == 2048);
  CHECK(scaled.tied);
  const auto mistral = read_config(data() / "golden/mistral-swa").model;
  CHECK(mistral.windows == std::vector<int>{32, 32});
  const auto qwen2 = read_config(data() / "golden/qwen2").model;
  CHECK(qwen2.qkv_bias);
  CHECK(!qwen2.o_bias);
  CHECK(qwen2.windows == std::vector<int>{0, 0});
  CHECK(qwen2.head_dim == 16);
  const auto qwen3 = read_config(data() / "golden/qwen3").model;
  CHECK(qwen3.qk_norm);
  CHECK(!qwen3.qkv_bias);
  CHECK(qwen3.head_dim == 32);
}

TEST_CASE("Both spellings of a configuration mean the same") {
  for (const auto& name : tiny_models) {
    CAPTURE(name);
    const auto folder = data() / "tiny" / name;
    const auto now = parse_model_config(json::document::load(folder / "config.json"));
    CHECK(now == parse_model_config(json::document::load(folder / "config.v4.json")));
  }
}

TEST_CASE("Absent keys take the family's defaults") {
  const auto llama = parse(with(""));
  CHECK(llama.kv_heads == 8);
  CHECK(llama.head_dim == 8);
  CHECK(llama.max_context == 2048);
  CHECK(llama.norm_eps == 1e-6f);
  CHECK(llama.rope == rope_config{});
  CHECK(!llama.tied);
  CHECK(parse(with(R"("num_key_value_heads": null, "head_dim": null)")) == llama);

  const auto mistral = parse(with("", "mistral"));
  CHECK(mistral.windows == std::vector<int>(4, 4096));
  CHECK(mistral.max_context == 131072);
  CHECK(parse(with(R"("sliding_window": null)", "mistral")).windows == std::vector<int>(4, 0));
  CHECK(parse(with(R"("num_key_value_heads": null)", "mistral")).kv_heads == 8);

  CHECK(parse(with("", "qwen2")).windows == std::vector<int>(4, 0));
  CHECK(parse(with(R"("use_sliding_window": true, "max_window_layers": 3)", "qwen2")).windows ==
        std::vector<int>{0, 0, 0, 4096});
  CHECK(parse(with(R"("use_sliding_window": true, "sliding_window": null)", "qwen2")).windows ==
        std::vector<int>(4, 0));
  CHECK(parse(with("", "qwen3")).head_dim == 128);
  CHECK(parse(with(R"("use_sliding_window": true, "sliding_window": 9, "layer_types":
    ["sliding_attention", "full_attention", "full_attention", "sliding_attention"])",
                   "qwen3"))
          .windows == std::vector<int>{9, 0, 0, 9});
}

TEST_CASE("Biases follow each family's keys") {
  const auto biased = R"("attention_bias": true, "mlp_bias": true)";
  const auto flags = [&](const char* family) {
    const auto c = parse(with(biased, family));
    return std::vector<bool>{c.qkv_bias, c.o_bias, c.mlp_bias};
  };
  CHECK(flags("llama") == std::vector<bool>{true, true, true});
  CHECK(flags("mistral") == std::vector<bool>{false, false, false});
  CHECK(flags("qwen2") == std::vector<bool>{true, false, false});
  CHECK(flags("qwen3") == std::vector<bool>{true, true, false});
}

TEST_CASE("Scaled rope extends the context where max_position_embeddings does not include it") {
  const auto context = [](const std::string& rope) {
    return parse(with(R"("max_position_embeddings": 1000, "rope_scaling": )" + rope)).max_context;
  };
  CHECK(context(R"({"type": "linear", "factor": 2.5})") == 2500);
  CHECK(context(R"({"rope_type": "dynamic", "factor": 2})") == 1000); // see rope_table
  CHECK(context(R"({"rope_type": "yarn", "factor": 4, "original_max_position_embeddings": 1000})") == 4000);
  CHECK(context(R"({"rope_type": "yarn", "factor": 4, "original_max_position_embeddings": 250})") == 1000);
  CHECK(context(R"({"rope_type": "llama3", "factor": 8, "low_freq_factor": 1, "high_freq_factor": 4,
                    "original_max_position_embeddings": 125})") == 1000);
  CHECK(context(R"({"rope_type": "linear", "factor": 1000000})") == 1 << 28); // the most that is supported
}

TEST_CASE("A wrong or unsupported configuration is refused with a sentence that names the key") {
  const std::pair<std::string, std::string> table[] = {
    {"[]", "config.json must be an object, found an array"},
    {"{}", "`model_type` is missing"},
    {with("", "rwkv"), "`model_type` is `rwkv`, supported are llama, mistral, qwen2, qwen3, "},
    {with(R"("hidden_size": null)"), "`hidden_size` is missing"},
    {with(R"("hidden_size": "64")"), "`hidden_size` must be an integer, found a string"},
    {with(R"("hidden_size": 64.0)"), "`hidden_size` must be an integer, found a number"},
    {with(R"("hidden_size": 0)"), "`hidden_size` must be from 1 to 1048576, found 0"},
    {with(R"("num_hidden_layers": -1)"), "`num_hidden_layers` must be from 1 to 4096, found -1"},
    {with(R"("num_hidden_layers": 18446744073709551615)"),
     "`num_hidden_layers` must be from 1 to 4096, found 18446744073709551615"},
    {with(R"("vocab_size": 1000000000)"), "`vocab_size` must be from 1 to 16777216"},
    {with(R"("intermediate_size": 99999999)"), "`intermediate_size` must be from 1"},
    {with(R"("num_attention_heads": 1000000)"), "`num_attention_heads` must be from 1 to 4096"},
    {with(R"("num_key_value_heads": 3)"), "must be a multiple of `num_key_value_heads`, found 8 and 3"},
    {with(R"("num_key_value_heads": 0)"), "`num_key_value_heads` must be from 1"},
    {with(R"("num_key_value_heads": 16)"), "found 8 and 16"},
    {with(R"("hidden_size": 60)"), "`hidden_size` must be a multiple of `num_attention_heads`"},
    {with(R"("head_dim": 7)"), "heads of 7 dimensions are not supported"},
    {with(R"("head_dim": 0)"), "`head_dim` must be from 1"},
    {with(R"("hidden_size": 1048576, "num_attention_heads": 1)"), "heads of 1048576 dimensions are not supported"},
    {with(R"("hidden_act": "gelu")"), "`hidden_act` is `gelu`, supported is silu"},
    {with(R"("rms_norm_eps": -1)"), "`rms_norm_eps` must be from 0 to 1, found -1"},
    {with(R"("rms_norm_eps": "x")"), "`rms_norm_eps` must be a number, found a string"},
    {with(R"("tie_word_embeddings": 1)"), "`tie_word_embeddings` must be a boolean, found an integer"},
    {with(R"("max_position_embeddings": 0)"), "`max_position_embeddings` must be from 1"},
    {with(R"("quantization_config": {"quant_method": "aqlm"})"),
     "weights quantised by `aqlm` are not supported, only by gptq, awq, auto-round, hqq, bitsandbytes, "
     "compressed-tensors, torchao, modelopt, fbgemm_fp8, fp8 and mxfp4"},
    {with(R"("quantization_config": {"quant_method": "compressed-tensors", "format": "marlin-24"})"),
     "`format` is `marlin-24`, supported is float-quantized"},
    {with(
       R"("quantization_config": {"quant_method": "compressed-tensors", "sparsity_config": {"format": "sparse-bitmask"}})"),
     "`format` is `sparse-bitmask`, supported is dense or sparse-24-bitmask"},
    {with(R"("quantization_config": {"quant_method": "gptq", "bits": 5})"), "`bits` is 5, supported is 2, 3, 4 or 8"},
    {with(R"("quantization_config": {"quant_method": "awq", "bits": 8})"), "`bits` is 8, supported is 4"},
    {with(R"("quantization_config": {"quant_method": "gptq", "checkpoint_format": "marlin"})"),
     "`checkpoint_format` is `marlin`, supported is gptq or gptq_v2"},
    {with(R"("quantization_config": {"quant_method": "gptq", "group_size": 0})"), "`group_size` is 0"},
    {with(R"("quantization_config": {"quant_method": "awq", "version": "gemv"})"),
     "`version` is `gemv`, supported is gemm"},
    {with(R"("quantization_config": {"quant_method": "awq", "zero_point": false})"), "`zero_point` is false"},
    {with(R"("partial_rotary_factor": 0.5)"), "`partial_rotary_factor` other than 1"},
    {with(R"("rope_theta": 0)"), "`rope_theta` must be from"},
    {with(R"("rope_scaling": 3)"), "`rope_scaling` must be an object, found an integer"},
    {with(R"("rope_scaling": {"rope_type": "proportional", "factor": 2})"),
     "`rope_scaling`: `rope_type` is `proportional`, supported are"},
    {with(R"("rope_scaling": {"rope_type": "longrope", "factor": 2})"), "`rope_scaling`: `short_factor` is missing"},
    {with(R"("rope_scaling": {"rope_type": "longrope", "short_factor": [1, 2], "long_factor": [1, 2, 3, 4]})"),
     "`rope_scaling`: `short_factor` must hold 4 numbers, found 2"},
    {with(R"("rope_scaling": {"type": "linear"})"), "`rope_scaling`: `factor` is missing"},
    {with(R"("rope_parameters": {"rope_type": "linear", "factor": 0})"),
     "`rope_parameters`: `factor` must be from 0.001"},
    {with(R"("rope_parameters": {"rope_type": "llama3", "factor": 8})"), "`low_freq_factor` is missing"},
    {with(R"("rope_parameters": {"rope_type": "llama3", "factor": 8, "low_freq_factor": 4, "high_freq_factor": 4})"),
     "`high_freq_factor` must be greater"},
    {with(R"("rope_parameters": {"rope_type": "yarn", "factor": 8, "original_max_position_embeddings": 0})"),
     "`original_max_position_embeddings` must be from 1"},
    {with(R"("rope_parameters": {"rope_type": "yarn", "factor": 8, "truncate": 1})"), "`truncate` must be a boolean"},
    {with(R"("rope_parameters": {"full_attention": {"rope_type": "default"}})", "qwen3"), "parameters per layer type"},
    {with(R"("head_dim": 2, "rope_scaling": {"type": "dynamic", "factor": 2})"), "more than 2 dimensions"},
    {with(R"("sliding_window": 0)", "mistral"), "`sliding_window` must be from 1"},
    {with(R"("layer_types": ["full_attention"])", "qwen3"), "`layer_types` must be an array of 4 strings"},
    {with(R"("layer_types": "full_attention")", "qwen3"), "`layer_types` must be an array of 4 strings"},
    {with(R"("layer_types": ["full_attention", 1, "full_attention", "full_attention"])", "qwen3"),
     "`layer_types` holds 1"},
    {with(R"("num_hidden_layers": 1, "layer_types": ["linear_attention"])", "qwen3"), "holds \"linear_attention\""},
    {with(R"("num_hidden_layers": 1, "layer_types": [")" + std::string(58, 'x') + R"(é"])", "qwen3"), "xxx, supported"},
    {with(R"("num_hidden_layers": 1, "layer_types": ["sliding_attention"])", "qwen2"), "switches it off"},
    {with(R"("hidden_activation": "mish")", "gemma2"), "`hidden_activation` is `mish`, supported are silu, gelu,"},
    {with(R"("query_pre_attn_scalar": 0)", "gemma2"), "`query_pre_attn_scalar` must be from"},
    {with(R"("qk_layernorm": true)", "phi"), "`qk_layernorm` is true, which is not supported"},
    {with(R"("partial_rotary_factor": 0.1)", "phi"), "asks to rotate 0 of 8 dimensions"},
    {with(R"("num_experts_per_tok": 9)", "mixtral"), "`num_experts_per_tok` is 9, more than the experts, 8"},
    {with(R"("num_local_experts": 4096, "num_hidden_layers": 100)", "mixtral"), "supported are 65536 in all"},
    {with(R"("mlp_only_layers": "all")", "qwen3_moe"), "`mlp_only_layers` must be an integer"},
    {with(R"("no_rope_layers": [1, 0])", "smollm3"), "`no_rope_layers` must hold 4 numbers, found 2"},
    {with(R"("embedding_multiplier": 0)", "granite"), "`embedding_multiplier` must be from"},
    {with(R"("rope_parameters": {"sliding_attention": {"rope_type": "yarn"}})", "gemma3_text"),
     "`rope_type` of sliding layers is supported as default only"},
  };
  for (const auto& [text, message] : table) {
    const auto said = failure_of([&] { parse(text); });
    CHECK_MESSAGE(said.starts_with("config.json"), message, " in: ", said);
    CHECK_MESSAGE(said.find(message) != said.npos, message, " in: ", said);
  }
}

TEST_CASE("Randomly damaged configurations give a failure or usable sizes") {
  std::mt19937 random(1);
  int refused = 0;
  std::vector<std::string> originals;
  for (const char* model : {"llama-mqa-rope3", "mistral-swa", "qwen2", "qwen3"})
    originals.push_back(content(data() / "golden" / model / "config.json"));
  for (const char* model :
       {"afmoe",        "bloom",       "cohere2-moe", "exaone-moe", "gemma2", "gemma3",   "glm4-moe-lite",
        "gpt-neox",     "gpt-oss",     "gpt2",        "hy-v3",      "mellum", "minicpm3", "mixtral",
        "deepseek-v32", "deepseek-v4", "glm-moe-dsa", "nanochat",   "olmoe",  "opt",      "phi3",
        "smollm3",      "youtu",       "qwen4-exp",   "inkling"})
    originals.push_back(content(data() / "families" / model / "config.json"));
  for (const char* model : {"glm4v", "mistral3", "qwen2-vl", "qwen3-vl-moe"})
    originals.push_back(content(data() / "tiny_families" / model / "config.json"));
  const std::string_view letters = "0123456789[]{},:\"-.etrufalsn";
  for (int round = 0; round < 4000; ++round) {
    std::string text = originals[random() % originals.size()];
    for (int hits = 1 + static_cast<int>(random() % 3); hits > 0; --hits) {
      const auto at = random() % text.size();
      if (random() % 2)
        text[at] = letters[random() % letters.size()];
      else
        text.insert(at, 1, letters[random() % letters.size()]);
    }
    std::optional<model_config> config;
    if (!failure_of([&] { config = parse(text); }).empty()) {
      ++refused;
      continue;
    }
    REQUIRE(config->windows.size() == static_cast<std::size_t>(config->layers));
    REQUIRE((config->head_dim >= 2 && config->head_dim % 2 == 0 && config->heads % config->kv_heads == 0));
    REQUIRE((config->max_context > 0 && config->vocab > 0 && config->hidden > 0 && config->ffn > 0));
    for (float frequency : inverse_frequencies(config->rope, config->head_dim, config->max_context))
      REQUIRE((frequency >= 0 && frequency <= 1e6f));
  }
  CHECK(refused > 500);
  CHECK(refused < 3900);
}

TEST_CASE("Stop tokens come from generation_config.json, else from config.json") {
  CHECK(generation_of(R"({"eos_token_id": 7})", R"({"eos_token_id": 1})").stops == std::vector<token_id>{7});
  CHECK(generation_of(R"({"eos_token_id": [7, 9]})").stops == std::vector<token_id>{7, 9});
  CHECK(generation_of(R"({"eos_token_id": null})", R"({"eos_token_id": [1, 2]})").stops == std::vector<token_id>{1, 2});
  CHECK(generation_of("{}").stops.empty());
  const auto config = json::document::parse(R"({"eos_token_id": 3})", "config.json");
  CHECK(parse_generation_config(nullptr, config).stops == std::vector<token_id>{3});
  CHECK(failure_of([] { generation_of(R"({"eos_token_id": "2"})"); }) ==
        "generation_config.json: `eos_token_id` must be an integer, found a string");
  CHECK(failure_of([] { generation_of(R"({"eos_token_id": [-1]})"); }).find("must be from 0") != std::string::npos);
}

TEST_CASE("Sampling defaults are read where they are given, and checked") {
  const auto given = generation_of(
    R"({"do_sample": true, "temperature": 0.6, "top_k": 20, "top_p": 0.95, "min_p": 0.05, "repetition_penalty": 1.1})");
  CHECK(given.sampling_source == "generation_config.json");
  CHECK(given.sampling.temperature == 0.6f);
  CHECK(given.sampling.top_k == 20);
  CHECK(given.sampling.top_p == 0.95f);
  CHECK(given.sampling.min_p == 0.05f);
  CHECK(given.sampling.repetition_penalty == 1.1f);
  const auto none = generation_of("{}");
  CHECK(none.sampling_source.empty());
  CHECK(none.sampling.temperature == 1);
  CHECK(none.sampling.top_k == 0);
  CHECK(none.sampling.top_p == 1);
  CHECK(none.remarks.empty());
  for (const char* wrong : {R"({"temperature": "hot"})", R"({"top_k": 0.5})", R"({"do_sample": "yes"})", "[]"})
    CHECK_MESSAGE(failure_of([&] { generation_of(wrong); }).starts_with("generation_config.json"), wrong);
}

TEST_CASE(
  "Sampling defaults out of range are clamped, with a line each, so that requests without parameters are valid") {
  const auto wild = generation_of(R"({"temperature": 2.5, "top_k": 99999999999, "top_p": 1.5, "min_p": -1,
                                   "repetition_penalty": 1e6})");
  CHECK(wild.sampling.temperature == 2);
  CHECK(wild.sampling.top_k == 2147483647);
  CHECK(wild.sampling.top_p == 1);
  CHECK(wild.sampling.min_p == 0);
  CHECK(wild.sampling.repetition_penalty == 100);
  REQUIRE(wild.remarks.size() == 5);
  CHECK(wild.remarks[0] == "generation_config.json: `temperature` is 2.5, taken as 2: it must be from 0 to 2");
  const auto low = generation_of(R"({"temperature": -1e300, "top_k": -9223372036854775808, "repetition_penalty": 0})");
  CHECK(low.sampling.temperature == 0);
  CHECK(low.sampling.top_k == -1);
  CHECK(low.sampling.repetition_penalty == 0.01f);
  wild.sampling.validate(1);
  low.sampling.validate(1);
  CHECK(generation_of(R"({"temperature": 2, "top_k": -1, "top_p": 0, "repetition_penalty": 100})").remarks.empty());
}

TEST_CASE("A missing model or an unknown shape is refused by name") {
  CHECK(failure_of([] { open_model("/nonexistent/model"); }).starts_with("/nonexistent/model: no such folder"));
  CHECK(failure_of([] { open_model("synthetic:llama-9000b"); }) ==
        "synthetic:llama-9000b: no such shape, there are llama-135m, llama-1b, llama-8b, moe-8x, qwen3-moe, opt-1b, "
        "heads-768, reglu-1b, qwen3.5-2b, lfm2-1b");
  const temp_folder folder;
  CHECK(failure_of([&] { open_model(folder.path().string()); }).find("the folder is empty; ") != std::string::npos);
}
