// Architectures of GGUF files: checkpoints of each family, written here as llama.cpp's converter does, give the bits of
// the originals.
#include "runtime/checkpoint/gguf_writer.hpp"
#include "runtime/checkpoint/safetensors.hpp"
#include "runtime/checkpoint/weight_values.hpp"
#include "runtime/import/gguf_model.hpp"
#include "runtime/model/tensor_names.hpp"
#include "tests/runtime/model/decoder_checks.hpp"

#include <array>
#include <map>
#include <regex>

using namespace troupe;
using namespace troupe::test;

namespace {

struct architecture_case {
  const char *architecture, *model; // the folder in the tests' data
  bool pairs = false;               // q and k are stored for rotating neighbours
  bool fused_qkv = false, fused_up = false;
  bool fused_experts = false; // gate and up of experts are one tensor
  bool halves = false;        // of latent attention: keys and values are made by two tensors
  bool axes = false;          // positions of three axes, as multimodal models have
};

const architecture_case architecture_cases[] = {
  {"llama", "families/mixtral", true},
  {"llama", "tiny/llama-bias", true, true},
  {"arcee", "tiny_families/arcee", true},
  {"bloom", "families/bloom", false, true},
  {"chatglm", "tiny_families/glm", true, true, true},
  {"cohere2", "families/cohere2", true},
  {"command-r", "tiny_families/cohere", true},
  {"command-r", "tiny_families/cohere-normed", true},
  {"deepseek2", "tiny_families/deepseek-v2"},
  {.architecture = "deepseek2", .model = "tiny_families/deepseek-v2", .halves = true},
  {"deepseek2", "tiny_families/deepseek-v2-lite"},
  {.architecture = "deepseek2", .model = "tiny_families/deepseek-v2-lite", .halves = true},
  {"deepseek2", "tiny_families/deepseek-v3"},
  {.architecture = "deepseek2", .model = "tiny_families/deepseek-v3", .fused_experts = true, .halves = true},
  {.architecture = "deepseek2", .model = "tiny_families/deepseek-wide", .halves = true},
  {"deepseek2", "families/glm4-moe-lite"},
  {.architecture = "deepseek2", .model = "families/glm4-moe-lite", .halves = true},
  {"dots1", "tiny_families/dots1"},
  {"ernie4_5", "tiny_families/ernie4.5", true},
  {"ernie4_5-moe", "tiny_families/ernie4.5-moe", true},
  {"exaone4", "families/exaone4"},
  {"exaone4", "tiny_families/exaone4-full"},
  {"falcon", "tiny_families/falcon", false, true},
  {"falcon", "tiny_families/falcon-new", false, true},
  {"gemma", "tiny_families/gemma"},
  {"gemma2", "families/gemma2"},
  {"gemma3", "families/gemma3"},
  {"glm4", "tiny_families/glm4", true, false, true},
  {.architecture = "glm4", .model = "tiny_families/glm4v", .fused_up = true, .axes = true}, // halves are rotated
  {"glm4moe", "families/glm4-moe"},
  {"glm4moe", "tiny_families/glm4-moe-grouped"},
  {"gpt-oss", "families/gpt-oss"},
  {.architecture = "gpt-oss", .model = "families/gpt-oss", .fused_experts = true},
  {"gpt2", "tiny_families/gpt2-wide", false, true},
  {"gptneox", "families/gpt-neox", false, true},
  {"gptneox", "tiny_families/gpt-neox-sequential", false, true},
  {"granite", "families/granite", true},
  {"granitemoe", "tiny_families/granitemoe", true},
  {"hunyuan-dense", "tiny_families/hunyuan"},
  {"hunyuan-moe", "tiny_families/hunyuan-moe"},
  {"llama4", "families/llama4", true},
  {"llama4", "tiny_families/llama4", true},
  {"minimax-m2", "tiny_families/minimax-m2"},
  {"mistral3", "tiny_families/llava", true},
  {"mistral3", "tiny_families/ministral3", true},
  {.architecture = "mistral4", .model = "tiny_families/mistral4", .halves = true},
  {"nemotron", "tiny_families/nemotron"},
  {"olmo2", "families/olmo2"},
  {"olmo2", "tiny_families/olmo3"},
  {"olmoe", "tiny_families/olmoe"},
  {"phi2", "tiny_families/phi", false, true},
  {"phi3", "families/phi3", false, true, true},
  {"phi3", "families/phi3-longrope", false, true, true},
  {"phi3", "families/phi4-longrope", false, true, true},
  {"phi3", "tiny_families/phi3-longrope", false, true, true},
  {"qwen2moe", "tiny_families/qwen2-moe"},
  {.architecture = "qwen2vl", .model = "tiny_families/qwen2-vl", .axes = true},
  {"qwen3moe", "families/qwen3-moe"},
  {.architecture = "qwen3vl", .model = "tiny_families/qwen3-vl", .axes = true},
  {.architecture = "qwen3vlmoe", .model = "tiny_families/qwen3-vl-moe", .axes = true},
  {"seed_oss", "tiny_families/seed-oss"},
  {"smallthinker", "tiny_families/smallthinker"},
  {"smallthinker", "tiny_families/smallthinker-softmax"},
  {"smollm3", "families/smollm3", true},
  {"stablelm", "tiny_families/stablelm"},
  {"stablelm", "tiny_families/stablelm-parallel"},
  {"starcoder", "tiny_families/gpt-bigcode", false, true},
  {"starcoder2", "tiny_families/starcoder2"},
};

struct f32_tensor {
  std::vector<std::size_t> shape;
  std::vector<float> values;
};

using tensor_table = std::map<std::string, f32_tensor>;

f32_tensor read_f32(const checkpoint& tensors, const wanted_tensor& wanted) {
  const auto& info = require_tensor(tensors, wanted);
  f32_tensor result{wanted.shape, {}};
  std::size_t count = 1;
  for (const auto dimension : wanted.shape)
    count *= dimension;
  result.values.resize(count);
  const auto data = tensors.read(wanted.name);
  to_floats(*weight_format_of(info.type), data.get(), count, result.values.data());
  return result;
}

/// Undoes the order in which kernels rotate, for rows of heads.
void restore_order(f32_tensor& tensor, const std::vector<std::uint32_t>& order) {
  if (order.empty())
    return;
  const auto before = tensor.values;
  const auto cols = tensor.values.size() / tensor.shape[0];
  for (std::size_t row = 0; row < tensor.shape[0]; ++row) {
    const auto to = row / order.size() * order.size() + order[row % order.size()];
    std::copy_n(before.begin() + static_cast<std::ptrdiff_t>(row * cols), cols,
                tensor.values.begin() + static_cast<std::ptrdiff_t>(to * cols));
  }
}

/// llama.cpp's name of a tensor within its layer, without experts.
std::string layer_name(const std::string& rest, const model_config& model, const architecture_case& c) {
  constexpr std::array<std::string_view, 3> by_place{"gpt-oss", "glm4moe", "seed_oss"};
  const std::string post_attention = model.norms != norm_place::before ||
      std::ranges::find(by_place, c.architecture) != by_place.end()
    ? "post_attention_norm"
    : "ffn_norm";
  const bool falcon = c.architecture == std::string("falcon") && !model.shared_norm;
  const std::pair<std::string, std::string> names[] = {
    {"input_layernorm", falcon ? "attn_norm_2" : "attn_norm"},
    {"post_attention_layernorm", falcon ? "attn_norm" : post_attention},
    {"pre_feedforward_layernorm", "ffn_norm"},
    {"post_feedforward_layernorm", "post_ffw_norm"},
    {"self_attn.q_proj", "attn_q"},
    {"self_attn.k_proj", "attn_k"},
    {"self_attn.v_proj", "attn_v"},
    {"self_attn.o_proj", "attn_output"},
    {"self_attn.q_norm", "attn_q_norm"},
    {"self_attn.k_norm", "attn_k_norm"},
    {"mlp.gate_proj", "ffn_gate"},
    {"mlp.up_proj", "ffn_up"},
    {"mlp.down_proj", "ffn_down"},
    {"mlp.shared_expert_gate", "ffn_gate_inp_shexp"},
    {"mlp.shared_expert.gate_proj", "ffn_gate_shexp"},
    {"mlp.shared_expert.up_proj", "ffn_up_shexp"},
    {"mlp.shared_expert.down_proj", "ffn_down_shexp"},
    {"mlp.gate", "ffn_gate_inp"},
    {"self_attn.q_a_proj", "attn_q_a"},
    {"self_attn.q_a_layernorm", "attn_q_a_norm"},
    {"self_attn.kv_a_layernorm", "attn_kv_a_norm"},
  };
  if (rest == "self_attn.sinks")
    return "attn_sinks.weight";
  if (rest == "mlp.gate.e_score_correction_bias")
    return "exp_probs_b.bias";
  const auto dot = rest.rfind('.');
  for (const auto& [canonical, gguf] : names)
    if (rest.substr(0, dot) == canonical)
      return gguf + rest.substr(dot);
  FAIL("no GGUF name for ", rest);
  return {};
}

void append_rows(f32_tensor& to, const f32_tensor& part) {
  if (to.shape.empty())
    to.shape = {0};
  if (part.shape.size() > 1)
    to.shape = {to.shape[0], part.shape[1]};
  to.shape[0] += part.shape[0];
  to.values.insert(to.values.end(), part.values.begin(), part.values.end());
}

/// The projections of latent attention, which sources present in another order, from the checkpoint itself: as they are
/// but for kv_b, [heads, key and value, latent], which newer files have as keys, turned, and values.
void add_latent_projections(tensor_table& to, const model_config& model, const architecture_case& c) {
  const auto raw = open_safetensors(data() / c.model);
  const auto& latent = model.latent;
  const auto read = [&](int layer, const std::string& name) {
    const auto full = "model.layers." + std::to_string(layer) + ".self_attn." + name + ".weight";
    const auto* info = raw->find(full);
    REQUIRE(info);
    return read_f32(*raw, {full, info->shape});
  };
  for (int layer = 0; layer < model.layers; ++layer) {
    const auto blk = "blk." + std::to_string(layer) + ".";
    if (latent.q_rank > 0)
      to[blk + "attn_q_b.weight"] = read(layer, "q_b_proj");
    else
      to[blk + "attn_q.weight"] = read(layer, "q_proj");
    to[blk + "attn_kv_a_mqa.weight"] = read(layer, "kv_a_proj_with_mqa");
    const auto whole = read(layer, "kv_b_proj");
    if (!c.halves) {
      to[blk + "attn_kv_b.weight"] = whole;
      continue;
    }
    const auto heads = as_size(model.heads), plain = as_size(latent.plain), value = as_size(latent.value),
               rank = as_size(latent.kv_rank);
    auto& k = to[blk + "attn_k_b.weight"] = {{heads, rank, plain}, {}};
    auto& v = to[blk + "attn_v_b.weight"] = {{heads, value, rank}, {}};
    for (std::size_t head = 0; head < heads; ++head) {
      const auto* rows = whole.values.data() + head * (plain + value) * rank;
      for (std::size_t col = 0; col < rank; ++col)
        for (std::size_t row = 0; row < plain; ++row)
          k.values.push_back(rows[row * rank + col]);
      v.values.insert(v.values.end(), rows + plain * rank, rows + (plain + value) * rank);
    }
  }
}

/// gate and up of experts, [experts, ffn, hidden] each, as one tensor.
void fuse_experts(tensor_table& tensors, int layers) {
  for (int layer = 0; layer < layers; ++layer)
    for (const std::string suffix : {"weight", "bias"}) {
      const auto stem = "blk." + std::to_string(layer) + ".ffn_";
      const auto gate = tensors.find(stem + "gate_exps." + suffix), up = tensors.find(stem + "up_exps." + suffix);
      if (gate == tensors.end())
        continue;
      f32_tensor both{gate->second.shape, {}};
      const auto experts = both.shape[0], part = gate->second.values.size() / experts;
      both.shape[1] *= 2;
      for (std::size_t e = 0; e < experts; ++e)
        for (const auto* half : {&gate->second, &up->second})
          both.values.insert(both.values.end(), half->values.begin() + static_cast<std::ptrdiff_t>(e * part),
                             half->values.begin() + static_cast<std::ptrdiff_t>((e + 1) * part));
      tensors.erase(gate);
      tensors.erase(up);
      tensors[stem + "gate_up_exps." + suffix] = std::move(both);
    }
}

/// All tensors under llama.cpp's names and in its layouts.
tensor_table gguf_tensors(const model_source& source, const architecture_case& c) {
  const auto& model = source.config;
  const auto is_projection = [&](const std::string& name) {
    return model.latent &&
      std::ranges::any_of(std::array{".q_proj.", ".q_b_proj.", ".kv_a_proj", ".latent_"},
                          [&](const char* part) { return name.find(part) != name.npos; });
  };
  auto stored_rope = model.rope;
  stored_rope.interleaved = c.pairs;
  const auto here = rotated_order(model.rope, model.head_dim), there = rotated_order(stored_rope, model.head_dim);
  const std::map<std::string, std::string> outer{{"model.embed_tokens.weight", "token_embd.weight"},
                                                 {"model.position_embeddings.weight", "position_embd.weight"},
                                                 {"model.embedding_norm.weight", "token_embd_norm.weight"},
                                                 {"model.embedding_norm.bias", "token_embd_norm.bias"},
                                                 {"model.norm.weight", "output_norm.weight"},
                                                 {"model.norm.bias", "output_norm.bias"},
                                                 {"lm_head.weight", "output.weight"},
                                                 {"lm_head.bias", "output.bias"}};
  const std::regex in_layer(R"(model\.layers\.(\d+)\.(.*))"), expert(R"(mlp\.experts\.\d+\.(gate|up|down)_proj\.(.*))");
  tensor_table result;
  for (const auto& wanted : tensor_names(model).all()) {
    if (is_projection(wanted.name))
      continue;
    auto tensor = read_f32(*source.tensors, wanted);
    if (const auto found = outer.find(wanted.name); found != outer.end()) {
      result[found->second] = tensor;
      continue;
    }
    std::smatch layer, e;
    REQUIRE(std::regex_match(wanted.name, layer, in_layer));
    const std::string prefix = "blk." + layer[1].str() + ".", rest = layer[2].str();
    if (std::regex_match(rest, e, expert)) { // in order, so that slices follow each other
      auto& all = result[prefix + "ffn_" + e[1].str() + "_exps." + e[2].str()];
      if (all.shape.empty()) {
        all.shape = tensor.shape;
        all.shape.insert(all.shape.begin(), 0);
      }
      ++all.shape[0];
      all.values.insert(all.values.end(), tensor.values.begin(), tensor.values.end());
      continue;
    }
    if (!model.latent && (rest.starts_with("self_attn.q_") || rest.starts_with("self_attn.k_"))) // norms, too
      restore_order(tensor, there);
    if (rest.find("shared_expert_gate") != rest.npos)
      tensor.shape = {tensor.shape[1]};
    auto name = layer_name(rest, model, c);
    const auto suffix = name.substr(name.rfind('.'));
    if (c.fused_qkv && (name.starts_with("attn_q.") || name.starts_with("attn_k.") || name.starts_with("attn_v.")))
      append_rows(result[prefix + "attn_qkv" + suffix], tensor);
    else if (c.fused_up && name.starts_with("ffn_gate."))
      append_rows(result[prefix + "ffn_up" + suffix], tensor);
    else if (c.fused_up && name.starts_with("ffn_up."))
      append_rows(result[prefix + "ffn_up" + suffix], tensor);
    else
      result[prefix + name] = tensor;
  }
  CHECK((here.empty() || !there.empty() || !c.pairs));
  if (model.latent)
    add_latent_projections(result, model, c);
  if (c.fused_experts)
    fuse_experts(result, model.layers);
  return result;
}

std::uint32_t count_of(std::size_t n) { return static_cast<std::uint32_t>(n); }

/// With keys and values made by two tensors, the usual keys are those of attention in the absorbed form.
void write_latent_keys(gguf_writer& to, const model_config& m, const std::string& architecture, bool halves) {
  const auto count = [&](const std::string& name, int value) {
    to.add(architecture + "." + name, count_of(static_cast<std::size_t>(value)));
  };
  const auto& latent = m.latent;
  const std::string own = halves ? "_mla" : "";
  count("attention.head_count_kv", halves ? 1 : m.heads);
  if (halves) {
    count("attention.key_length", latent.kv_rank + latent.rotated);
    count("attention.value_length", latent.kv_rank);
  }
  count("attention.key_length" + own, latent.plain + latent.rotated);
  count("attention.value_length" + own, latent.value);
  count("attention.kv_lora_rank", latent.kv_rank);
  if (latent.q_rank > 0)
    count("attention.q_lora_rank", latent.q_rank);
  if (m.rope.type == rope_type::yarn) // mscale and mscale_all_dim, which are equal here, as in all such models
    to.add(architecture + ".rope.scaling.yarn_log_multiplier", m.family == "deepseek_v2" ? 0.0707f : 0.1f);
  const auto& experts = m.experts;
  const auto shared = experts.ffn > 0 ? experts.shared_ffn / experts.ffn : 0;
  count("expert_shared_count", shared);
  count("leading_dense_block_count", static_cast<int>(std::ranges::count(m.sparse, false)));
  to.add(architecture + ".expert_weights_scale", experts.scale);
  to.add(architecture + ".expert_weights_norm", experts.renormalise);
  if (experts.groups > 1) {
    count("expert_group_count", experts.groups);
    count("expert_group_used_count", experts.chosen_groups);
  }
  if (halves) // older files do not say it
    count("expert_gating_func", experts.scores == router_scores::sigmoid ? 2 : 1);
}

void write_keys(gguf_writer& to, const model_config& m, const architecture_case& c) {
  const std::string architecture = c.architecture;
  const auto key = [&](const char* name) { return architecture + "." + name; };
  const auto count = [&](const char* name, int value) { to.add(key(name), count_of(static_cast<std::size_t>(value))); };
  to.add("general.architecture", architecture);
  count("vocab_size", m.vocab);
  count("context_length", m.max_context);
  count("embedding_length", m.hidden);
  count("block_count", m.layers);
  count("feed_forward_length", m.ffn);
  count("attention.head_count", m.heads);
  if (m.latent) {
    write_latent_keys(to, m, architecture, c.halves);
  } else {
    count("attention.head_count_kv", m.kv_heads);
    count("attention.key_length", m.head_dim);
    count("attention.value_length", m.head_dim);
  }
  to.add(key(m.norm == norm_type::layer ? "attention.layer_norm_epsilon" : "attention.layer_norm_rms_epsilon"),
         m.norm_eps);
  count("rope.dimension_count", m.rope.dims > 0 ? m.rope.dims : m.head_dim);
  to.add(key("rope.freq_base"), static_cast<float>(m.rope.theta));
  if (c.axes) {
    constexpr std::array<std::int32_t, 4> sections{2, 1, 1, 0};
    to.add(key("rope.dimension_sections"),
           gguf_value{gguf_type::array, std::as_bytes(std::span(sections)), gguf_type::i32, sections.size()});
  }
  if (m.rope.type == rope_type::yarn) {
    to.add(key("rope.scaling.type"), "yarn");
    to.add(key("rope.scaling.factor"), static_cast<float>(m.rope.factor));
    to.add(key("rope.scaling.original_context_length"), count_of(static_cast<std::size_t>(m.rope.original_context)));
  }
  if (m.rope.type == rope_type::longrope) {
    to.add(key("rope.scaling.original_context_length"), count_of(static_cast<std::size_t>(m.rope.original_context)));
    to.add(key("rope.scaling.attn_factor"), static_cast<float>(m.rope.attention_factor));
  }
  if (const int window = *std::ranges::max_element(m.windows); window > 0)
    count("attention.sliding_window", window);
  if (m.family == "olmo3") { // as a list of layers
    std::vector<std::byte> slides;
    for (const int window : m.windows)
      slides.push_back(std::byte{window > 0});
    to.add(key("attention.sliding_window_pattern"),
           gguf_value{gguf_type::array, slides, gguf_type::boolean, slides.size()});
  }
  if (architecture == "gemma3")
    count("attention.sliding_window_pattern", 3);
  if (m.experts.count > 0) {
    count("expert_count", m.experts.count);
    count("expert_used_count", m.experts.chosen);
    count("expert_feed_forward_length", m.experts.ffn);
    if (m.experts.shared_ffn > 0 && !m.latent)
      count("expert_shared_feed_forward_length", m.experts.shared_ffn);
  }
  if (m.attention_cap > 0)
    to.add(key("attn_logit_softcapping"), m.attention_cap);
  if (m.logit_cap > 0)
    to.add(key("final_logit_softcapping"), m.logit_cap);
  if (architecture.starts_with("granite")) {
    to.add(key("embedding_scale"), m.embedding_scale);
    to.add(key("residual_scale"), m.residual_scale);
    to.add(key("logit_scale"), 1 / m.logit_scale);
    to.add(key("attention.scale"), m.attention_scale);
  }
  if (m.norm == norm_type::layer && m.logit_scale != 1)
    to.add(key("logit_scale"), m.logit_scale);
  if (m.growth)
    to.add(key("attention.temperature_scale"), m.growth.rate);
  if (m.growth && !m.latent && architecture != "mistral3")
    count("attention.temperature_length", m.growth.period);
  if (architecture == "mistral3" && m.growth)
    to.add(key("rope.scaling.yarn_log_multiplier"), 1.0f);
  if (!m.chunks.empty())
    count("attention.chunk_size", *std::ranges::max_element(m.chunks));
  if (m.experts.early) // whose normed weights go without saying
    count("expert_gating_func", m.experts.scores == router_scores::sigmoid ? 2 : 1);
  if (m.experts.correction && !m.latent) {
    count("expert_gating_func", m.experts.scores == router_scores::sigmoid ? 2 : 1);
    to.add(key("expert_weights_scale"), m.experts.scale);
    to.add(key("expert_weights_norm"), m.experts.renormalise);
    if (m.experts.groups > 1) {
      count("expert_group_count", m.experts.groups);
      count("expert_group_used_count", m.experts.chosen_groups);
    }
  }
  if (architecture == "gptneox")
    to.add(key("use_parallel_residual"), m.parallel);
}

} // namespace

TEST_CASE("GGUF files of the encoders of multimodal models are refused") {
  const temp_folder folder;
  const auto file = folder.path() / "mmproj-m.gguf";
  gguf_writer writer;
  writer.add("general.architecture", "clip");
  writer.write(file, [](std::size_t) { return std::span<const std::byte>(); });
  CHECK(failure_of([&] { open_gguf(file); }) ==
        file.string() +
          ": holds the encoders of a multimodal model (mmproj), not its text; name the file of the text, "
          "which alone is supported");
}

TEST_CASE("GGUF files of every architecture give the bits of the checkpoints that they were made of") {
  for (const auto& c : architecture_cases) {
    CAPTURE(std::string(c.architecture));
    CAPTURE(std::string(c.model));
    auto original = test::open(c.model);
    auto tensors = gguf_tensors(original, c);
    const auto divisors = [&](const char* name, const std::vector<float>& values) {
      if (!values.empty())
        tensors[name] = {{values.size()}, values};
    };
    divisors("rope_factors_short.weight", original.config.rope.short_divisors);
    divisors("rope_factors_long.weight", original.config.rope.long_divisors);
    gguf_writer writer;
    write_keys(writer, original.config, c);
    std::vector<const f32_tensor*> order;
    for (const auto& [name, tensor] : tensors) {
      writer.add_tensor(name, tensor_type::f32, tensor.shape);
      order.push_back(&tensor);
    }
    const temp_folder folder;
    const auto file = folder.path() / "m.gguf";
    writer.write(file, [&](std::size_t i) { return std::as_bytes(std::span(order[i]->values)); });

    const auto written = open_gguf(file);
    CHECK(check_tensors(*written.tensors, written.config).empty());
    CHECK(written.config.family ==
          (original.config.family == "glm4_moe_lite" ? "deepseek_v3" : original.config.family)); // which it is there
    // What files cannot say: the width that Gemma 2's scores are scaled by, other intervals than 4 in SmolLM 3.
    if (c.architecture == std::string("gemma2"))
      original.config.attention_scale = written.config.attention_scale;
    if (c.architecture == std::string("smollm3"))
      original.config.unrotated = written.config.unrotated;
    const int border = rope_border(original.config.rope, original.config.max_context);
    CHECK(rope_border(written.config.rope, written.config.max_context) == border);
    std::mt19937 random(3);
    for (const int length : border > 0 ? std::vector{border, border + 20} : std::vector{50}) {
      const auto ids = random_tokens(random, as_size(length), original.config.vocab);
      const auto steps = [&](const model_source& source) {
        engine e(source, targets().back(), 1, dtype::f32);
        return e.step({{ids, 0, first_blocks(ids.size())}});
      };
      double worst = 0;
      const auto expected = steps(original), got = steps(written);
      for (std::size_t i = 0; i < ids.size(); ++i)
        worst = std::max(worst, largest_difference(got[i], expected[i]));
      CHECK(worst < 2e-5); // scales that are stored as f32 round once more
    }
  }
}
