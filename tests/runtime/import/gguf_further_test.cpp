// Encoders, Gemma 4 and Apertus in GGUF files, written here with llama.cpp's names and keys, give what the checkpoints
// give.
#include "runtime/checkpoint/gguf_writer.hpp"
#include "runtime/checkpoint/weight_values.hpp"
#include "runtime/import/gguf_model.hpp"
#include "runtime/model/tensor_names.hpp"
#include "tests/runtime/model/decoder_checks.hpp"

#include <map>

using namespace troupe;
using namespace troupe::test;

namespace {

struct written_tensor {
  std::vector<std::size_t> shape;
  std::vector<float> values;
};

struct further_case {
  const char *architecture, *model;
  bool fused_qkv = false, fused_up = false;
  const char *dense = nullptr, *norm = nullptr, *labels = nullptr; // of a classifier: stems in the checkpoint
};

const further_case further_cases[] = {
  {"apertus", "tiny_families/apertus"},
  {"bert", "tiny_encoders/bert"},
  {"bert", "tiny_encoders/xlm-roberta"},
  {.architecture = "bert", .model = "tiny_encoders/bert-ranker", .dense = "bert.pooler.dense", .labels = "classifier"},
  {.architecture = "bert",
   .model = "tiny_encoders/xlm-roberta-ranker",
   .dense = "classifier.dense",
   .labels = "classifier.out_proj"},
  {.architecture = "modern-bert",
   .model = "tiny_encoders/modernbert-ranker",
   .fused_qkv = true,
   .fused_up = true,
   .dense = "head.dense",
   .norm = "head.norm",
   .labels = "classifier"},
  {"gemma4", "tiny_families/gemma4"},
  {"gemma4", "tiny_families/gemma4-experts"},
  {"gemma4", "tiny_families/gemma4-keys"},
  {"modern-bert", "tiny_encoders/modernbert", true, true},
  {"nomic-bert", "tiny_encoders/nomic", true},
};

/// Names of a layer's tensors but for experts, "" for those that are none of the file's.
const std::map<std::string, std::string> names_of_layers{
  {"input_layernorm", "attn_norm"},
  {"pre_feedforward_layernorm", "ffn_norm"},
  {"self_attn.q_proj", "attn_q"},
  {"self_attn.k_proj", "attn_k"},
  {"self_attn.v_proj", "attn_v"},
  {"self_attn.o_proj", "attn_output"},
  {"self_attn.q_norm", "attn_q_norm"},
  {"self_attn.k_norm", "attn_k_norm"},
  {"mlp.gate_proj", "ffn_gate"},
  {"mlp.up_proj", "ffn_up"},
  {"mlp.down_proj", "ffn_down"},
  {"mlp.shared_expert.gate_proj", "ffn_gate"},
  {"mlp.shared_expert.up_proj", "ffn_up"},
  {"mlp.shared_expert.down_proj", "ffn_down"},
  {"mlp.gate", "ffn_gate_inp"},
  {"mlp.experts_norm", "pre_ffw_norm_2"},
  {"mlp.shared_expert_norm", "post_ffw_norm_1"},
  {"mlp.experts_result_norm", "post_ffw_norm_2"},
  {"per_layer_input_gate", "inp_gate"},
  {"per_layer_projection", "proj"},
  {"post_per_layer_input_norm", "post_norm"},
};

const std::map<std::string, std::string> outer_names{
  {"model.embed_tokens.weight", "token_embd.weight"},
  {"model.embedding_norm.weight", "token_embd_norm.weight"},
  {"model.embedding_norm.bias", "token_embd_norm.bias"},
  {"model.token_type_embeddings.weight", "token_types.weight"},
  {"model.position_embeddings.weight", "position_embd.weight"},
  {"model.norm.weight", "output_norm.weight"},
  {"lm_head.weight", "output.weight"},
  {"model.embed_tokens_per_layer.weight", "per_layer_token_embd.weight"},
  {"model.per_layer_model_projection.weight", "per_layer_model_proj.weight"},
  {"model.per_layer_projection_norm.weight", "per_layer_proj_norm.weight"},
};

std::string gguf_name_of(const std::string& rest, const model_config& model) {
  if (rest == "layer_scalar")
    return "layer_output_scale.weight";
  const bool sums = model.norms == norm_place::sum, both = model.norms == norm_place::both;
  const auto dot = rest.rfind('.');
  const auto stem = rest.substr(0, dot), suffix = rest.substr(dot);
  if (stem == "post_attention_layernorm")
    return (sums ? "attn_output_norm" : both ? "post_attention_norm" : "ffn_norm") + suffix;
  if (stem == "post_feedforward_layernorm")
    return (sums ? "layer_output_norm" : "post_ffw_norm") + suffix;
  if (rest == "mlp.gate_norm.weight")
    return "ffn_gate_inp.scale";
  if (rest == "mlp.gate.expert_scale")
    return "ffn_down_exps.scale";
  const auto found = names_of_layers.find(stem);
  REQUIRE_MESSAGE(found != names_of_layers.end(), rest);
  return found->second + suffix;
}

class further_file {
public:
  further_file(const model_source& source, const further_case& c) : source_(source), case_(c) {
    for (const auto& wanted : tensor_names(source.config).all())
      add(wanted);
    for (const auto& [stem, name] : {std::pair(c.dense, "cls"), {c.norm, "cls.norm"}, {c.labels, "cls.output"}})
      for (const std::string suffix : {".weight", ".bias"})
        if (const auto* info = stem ? source.tensors->find(stem + suffix) : nullptr)
          append(name + suffix, {stem + suffix, info->shape}, read({stem + suffix, info->shape}), false);
    write_keys();
  }

  void write(const std::filesystem::path& file) {
    std::vector<const written_tensor*> order;
    for (const auto& [name, tensor] : tensors_) {
      writer_.add_tensor(name, tensor_type::f32, tensor.shape);
      order.push_back(&tensor);
    }
    writer_.write(file, [&](std::size_t i) { return std::as_bytes(std::span(order[i]->values)); });
  }

private:
  std::vector<float> read(const wanted_tensor& wanted) const {
    const auto& info = require_tensor(*source_.tensors, wanted);
    std::size_t count = 1;
    for (const auto size : wanted.shape)
      count *= size;
    std::vector<float> values(count);
    to_floats(*weight_format_of(info.type), source_.tensors->read(wanted.name).get(), count, values.data());
    return values;
  }

  void append(const std::string& name, const wanted_tensor& wanted, const std::vector<float>& values, bool slice) {
    auto& to = tensors_[name];
    if (to.shape.empty()) {
      to.shape = wanted.shape;
      if (slice)
        to.shape.insert(to.shape.begin(), 0);
      else
        to.shape.front() = 0;
    }
    to.shape.front() += slice ? 1 : wanted.shape.front();
    to.values.insert(to.values.end(), values.begin(), values.end());
  }

  void add(const wanted_tensor& wanted) {
    auto values = read(wanted);
    if (wanted.name == "model.position_embeddings.weight") { // from the first that is used on
      const auto unused = source_.config.position_offset;
      values.erase(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(unused * wanted.shape[1]));
      return append("position_embd.weight", {wanted.name, {wanted.shape[0] - unused, wanted.shape[1]}}, values, false);
    }
    if (const auto outer = outer_names.find(wanted.name); outer != outer_names.end())
      return append(outer->second, wanted, values, false);
    const auto number = std::string("model.layers.").size(), end = wanted.name.find('.', number);
    const auto blk = "blk." + wanted.name.substr(number, end - number) + ".", rest = wanted.name.substr(end + 1);
    if (rest.starts_with("mlp.act_fn."))
      return activations_[rest.substr(std::string("mlp.act_fn.").size())].push_back(values.front());
    if (rest.starts_with("mlp.experts."))
      return append(blk + "ffn_" +
                      rest.substr(rest.rfind('.', rest.rfind('.') - 1) + 1,
                                  rest.rfind('_') - rest.rfind('.', rest.rfind('.') - 1) - 1) +
                      "_exps.weight",
                    wanted, values, true);
    auto name = gguf_name_of(rest, source_.config);
    if (name == "ffn_gate_inp.scale")
      for (float& v : values) // as the checkpoint has it
        v *= std::sqrt(static_cast<float>(source_.config.hidden));
    const auto suffix = name.substr(name.rfind('.'));
    if (case_.fused_qkv && (name.starts_with("attn_q.") || name.starts_with("attn_k.") || name.starts_with("attn_v.")))
      name = "attn_qkv" + suffix;
    if (case_.fused_up && (name.starts_with("ffn_gate.") || name.starts_with("ffn_up.")))
      name = "ffn_up" + suffix;
    append(blk + name, wanted, values, false);
  }

  void write_keys() {
    const auto& m = source_.config;
    const std::string prefix = std::string(case_.architecture) + ".";
    const auto count = [&](const char* name, int value) {
      writer_.add(prefix + name, static_cast<std::uint32_t>(value));
    };
    const auto list = [&](const char* name, const std::vector<std::int32_t>& values) {
      writer_.add(prefix + name, values);
    };
    writer_.add("general.architecture", case_.architecture);
    count("vocab_size", m.vocab);
    count("context_length", m.max_context);
    count("embedding_length", m.hidden);
    count("block_count", m.layers);
    count("attention.head_count", m.heads);
    count("attention.key_length", m.head_dim);
    count("attention.value_length", m.head_dim);
    writer_.add(prefix +
                  (m.norm == norm_type::layer ? "attention.layer_norm_epsilon" : "attention.layer_norm_rms_epsilon"),
                m.norm_eps);
    writer_.add(prefix + "rope.freq_base", static_cast<float>(m.rope.theta));
    std::vector<std::int32_t> heads, ffns;
    std::vector<std::byte> slides;
    for (int i = 0; i < m.layers; ++i) {
      heads.push_back(m.kv_heads_of(i));
      ffns.push_back(m.ffn_of(i));
      slides.push_back(std::byte{m.slides(i)});
    }
    list("attention.head_count_kv", heads);
    list("feed_forward_length", ffns);
    if (const int window = *std::ranges::max_element(m.windows); window > 0) {
      count("attention.sliding_window", m.encoder ? 2 * (window - 1) : window);
      writer_.add(prefix + "attention.sliding_window_pattern",
                  gguf_value{gguf_type::array, slides, gguf_type::boolean, slides.size()});
    }
    if (m.local_rope)
      writer_.add(prefix + "rope.freq_base_swa", static_cast<float>(m.local_rope->theta));
    if (m.local_head_dim > 0)
      count("attention.key_length_swa", m.local_head_dim);
    if (m.logit_cap > 0)
      writer_.add(prefix + "final_logit_softcapping", m.logit_cap);
    if (m.layer_inputs > 0)
      count("embedding_length_per_layer_input", m.layer_inputs);
    count("attention.shared_kv_layers", m.layers - m.cached_layers());
    if (m.experts.count > 0) {
      count("expert_count", m.experts.count);
      count("expert_used_count", m.experts.chosen);
      count("expert_feed_forward_length", m.experts.ffn);
    }
    for (const auto& [name, values] : activations_)
      writer_.add("xielu." + name, values);
    if (m.rope.type == rope_type::proportional) { // dimensions that do not rotate
      const auto half = as_size(m.head_dim / 2);
      auto& divisors = tensors_["rope_freqs.weight"] = {{half}, std::vector<float>(half, 1)};
      const auto rotated = static_cast<std::size_t>(m.head_dim * m.rope.portion / 2);
      std::fill(divisors.values.begin() + static_cast<std::ptrdiff_t>(rotated), divisors.values.end(), 1e30f);
    }
    if (m.rope.type == rope_type::llama3) {
      rope_config plain;
      plain.theta = m.rope.theta;
      auto divisors = inverse_frequencies(plain, m.head_dim, 1);
      const auto scaled = inverse_frequencies(m.rope, m.head_dim, 1);
      for (std::size_t i = 0; i < divisors.size(); ++i)
        divisors[i] /= scaled[i];
      tensors_["rope_freqs.weight"] = {{divisors.size()}, {divisors.begin(), divisors.end()}};
    }
  }

  const model_source& source_;
  const further_case& case_;
  gguf_writer writer_;
  std::map<std::string, written_tensor> tensors_;
  std::map<std::string, std::vector<float>> activations_;
};

/// Hidden states behind the last norm of all tokens, [tokens][hidden].
std::vector<row_logits> encoded_states_of(const model_source& source, const std::vector<token_id>& ids) {
  auto backend = kernels::make_cpu_backend({.threads = 1});
  decoder graph(load_weights(*source.tensors, source.config, *backend, dtype::f32), *backend, 64,
                std::min(64, source.config.max_context));
  const auto cache = backend->make_kv_cache(kv_shape_of(source.config, dtype::f32, 8));
  const auto rows = static_cast<std::int32_t>(ids.size());
  const std::vector<kernels::sequence_rows> sequences{{0, rows, 0, 0, rows}};
  std::vector<std::int32_t> all(ids.size());
  std::iota(all.begin(), all.end(), 0);
  const auto width = as_size(source.config.hidden);
  std::vector<float> hidden(ids.size() * width);
  graph.forward(ids, {sequences, first_blocks(ids.size())}, {}, *cache, {}, all,
                {hidden.data(), dtype::f32, ids.size(), width, width});
  std::vector<row_logits> result;
  for (std::size_t i = 0; i < hidden.size(); i += width)
    result.emplace_back(hidden.begin() + static_cast<std::ptrdiff_t>(i),
                        hidden.begin() + static_cast<std::ptrdiff_t>(i + width));
  return result;
}

} // namespace

TEST_CASE("GGUF: encoders, Gemma 4 and Apertus give the states of the checkpoints that they were made of") {
  for (const auto& c : further_cases) {
    CAPTURE(std::string(c.architecture));
    CAPTURE(std::string(c.model));
    const auto original = test::open(c.model);
    const temp_folder folder;
    const auto file = folder.path() / "m.gguf";
    further_file(original, c).write(file);
    const auto written = open_gguf(file);
    CHECK(check_tensors(*written.tensors, written.config).size() == (c.labels ? 1 : 0)); // of its head
    std::mt19937 random(3);
    const auto ids = random_tokens(random, std::min<std::size_t>(40, as_size(original.config.max_context)),
                                   original.config.vocab);
    const auto expected = encoded_states_of(original, ids), got = encoded_states_of(written, ids);
    double worst = 0;
    for (std::size_t i = 0; i < ids.size(); ++i)
      worst = std::max(worst, largest_difference(got[i], expected[i]));
    CHECK(worst < 1e-4);
    CHECK(!written.load_ranker == !original.load_ranker);
    if (!original.load_ranker || !written.load_ranker)
      continue;
    const auto head = original.load_ranker(*original.tensors), other = written.load_ranker(*written.tensors);
    CHECK(head->how() == other->how());
    CHECK(std::abs((*head)(expected.front()).front() - (*other)(expected.front()).front()) < 1e-6f);
  }
}
