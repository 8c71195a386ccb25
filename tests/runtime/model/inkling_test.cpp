// Inkling: what its configurations mean, as transformers and as its authors write them, the authors' names of tensors,
// that every part counts, and what is refused.
#include "runtime/checkpoint/safetensors.hpp"
#include "runtime/model/branch_convolutions.hpp"
#include "runtime/model/decoder/memory_estimate.hpp"
#include "runtime/model/recurrent_layers.hpp"
#include "runtime/model/size_estimate.hpp"
#include "runtime/model/tensor_names.hpp"
#include "runtime/support/files/mapped_file.hpp"
#include "tests/runtime/model/decoder_checks.hpp"

#include <filesystem>
#include <map>

using namespace troupe;
using namespace troupe::test;

namespace {

const char* const ink_model = "families/inkling";

/// As thinkingmachines/Inkling has it: the text says nothing of its type, and sizes have the authors' names.
const char* const ink_published = R"({"model_type":"inkling_mm_model","eos_token_id":200006,"text_config":{
"model_max_length":1048576,"hidden_size":6144,"num_hidden_layers":66,"vocab_size":201024,"num_attention_heads":64,
"num_key_value_heads":8,"head_dim":128,"d_rel":16,"rel_extent":1024,"log_scaling_n_floor":128000,
"log_scaling_alpha":0.1,"rms_norm_eps":1e-6,"dense_mlp_idx":2,"sconv_kernel_size":4,"unpadded_vocab_size":200058,
"logits_mup_width_multiplier":24.0,"swa_num_key_value_heads":16,"sliding_window_size":512,"n_routed_experts":256,
"num_experts_per_tok":6,"n_shared_experts":2,"dense_intermediate_size":24576,"intermediate_size":3072,
"route_scale":8.0,"norm_after_topk":true,"shared_expert_sink":true,"use_sconv":true,"use_embed_norm":true,
"use_gate_bias":true,"use_global_scale":true,"gate_activation":"sigmoid"},"vision_config":{}})";

model_config ink_config(const std::string& text) {
  return parse_model_config(json::document::parse(text, "config.json"));
}

std::string ink_with(const std::string& from, const std::string& to) {
  auto text = content(data() / ink_model / "config.json");
  const auto at = text.find(from);
  REQUIRE(at != text.npos);
  return text.replace(at, from.size(), to);
}

std::string ink_refusal(const std::string& from, const std::string& to) {
  return failure_of([&] { ink_config(ink_with(from, to)); });
}

/// Stored tensors, as bytes of bf16.
struct ink_tensor {
  std::vector<std::size_t> shape;
  std::string bytes;
};
using ink_tensors = std::map<std::string, ink_tensor>;

ink_tensors read_ink_tensors() {
  const auto file = data() / ink_model / "model.safetensors";
  const mapped_file map(file);
  ink_tensors all;
  for (const auto& [name, tensor] : read_safetensors_header(map.bytes(), file.string()))
    all[name] = {tensor.info.shape,
                 std::string(reinterpret_cast<const char*>(map.bytes().data()) + tensor.offset, tensor.info.bytes)};
  return all;
}

/// The rows of two matrices in turn.
std::string in_turn(const std::string& a, const std::string& b, std::size_t row_bytes) {
  std::string result;
  for (std::size_t at = 0; at < a.size(); at += row_bytes)
    result += a.substr(at, row_bytes) + b.substr(at, row_bytes);
  return result;
}

/// The same under the authors' names: gate and up are one matrix, with their rows in turn; `padding` rows follow those of
/// the embeddings.
ink_tensors as_authors_store(const ink_tensors& from, std::size_t padding) {
  ink_tensors to;
  const std::pair<std::string, std::string> parts[] = {
    {".self_attn.q_proj.", ".attn.wq_du."},
    {".self_attn.k_proj.", ".attn.wk_dv."},
    {".self_attn.v_proj.", ".attn.wv_dv."},
    {".self_attn.r_proj.", ".attn.wr_du."},
    {".self_attn.o_proj.", ".attn.wo_ud."},
    {".self_attn.", ".attn."},
    {"sconv.conv1d.", "sconv."},
    {".input_layernorm.", ".attn_norm."},
    {".post_attention_layernorm.", ".mlp_norm."},
    {".gate.e_score_correction_bias", ".gate.bias"},
    {".experts.down_proj", ".experts.w2_weight"},
    {".mlp.down_proj.", ".mlp.w2_md."},
    {".shared_experts.down_proj", ".shared_experts.shared_w2_weight"},
    {"model.embed_tokens.embed_norm.", "model.embed_norm."},
    {"model.embed_tokens.", "model.embed."},
    {"lm_head.", "model.unembed."},
    {"model.", "model.llm."}};
  const std::size_t row = 64 * 2;
  for (const auto& [name, tensor] : from) {
    if (name.find("up_proj") != name.npos && name.find("gate_up") == name.npos)
      continue;
    auto renamed = name;
    for (const auto& [was, is] : parts)
      if (const auto at = renamed.find(was); at != renamed.npos)
        renamed.replace(at, was.size(), is);
    auto& other = to[renamed] = tensor;
    const auto again = [&](const std::string& what, const std::string& by) {
      const auto at = renamed.find(what);
      auto moved = other;
      to.erase(renamed);
      to[renamed.replace(at, what.size(), by)] = std::move(moved);
    };
    const auto up = [&] {
      auto of = name;
      return from.at(of.replace(of.find("gate_proj"), 9, "up_proj")).bytes;
    };
    if (name.find("mlp.gate_proj.weight") != name.npos) {
      other = {{2 * tensor.shape[0], tensor.shape[1]}, in_turn(tensor.bytes, up(), row)};
      again("gate_proj", "w13_dn");
    } else if (name.find("shared_experts.gate_proj") != name.npos) {
      other = {{tensor.shape[0], 2 * tensor.shape[1], tensor.shape[2]}, in_turn(tensor.bytes, up(), row)};
      again("gate_proj", "shared_w13_weight");
    } else if (name.find("experts.gate_up_proj") != name.npos) {
      const auto half = tensor.bytes.size() / tensor.shape[0] / 2;
      other.bytes.clear();
      for (std::size_t at = 0; at < tensor.bytes.size(); at += 2 * half)
        other.bytes += in_turn(tensor.bytes.substr(at, half), tensor.bytes.substr(at + half, half), row);
      again("gate_up_proj", "w13_weight");
    } else if (name == "model.embed_tokens.weight") {
      other.shape[0] += padding;
      other.bytes += std::string(padding * row, '\x7f');
    }
  }
  return to;
}

void write_ink_tensors(const std::filesystem::path& to, const ink_tensors& tensors, const std::string& config) {
  std::string header, bytes;
  for (const auto& [name, tensor] : tensors) {
    header += (header.empty() ? "{\"" : ",\"") + name + R"(":{"dtype":"BF16","shape":)" + to_string(tensor.shape) +
      R"(,"data_offsets":[)" + std::to_string(bytes.size()) + "," + std::to_string(bytes.size() + tensor.bytes.size()) +
      "]}";
    bytes += tensor.bytes;
  }
  write(to / "model.safetensors", safetensors(header + "}", 0) + bytes);
  write(to / "config.json", config);
}

std::vector<row_logits> ink_logits(const model_source& source) {
  std::mt19937 random(3);
  const auto ids = random_tokens(random, 100, 700);
  engine e(source, targets().back(), 1, dtype::f32);
  return e.step({{ids, 0, first_blocks(ids.size())}});
}

} // namespace

TEST_CASE("Inkling: what a configuration says, in transformers' words") {
  const auto config = open(ink_model).config;
  CHECK(config.windows == std::vector<int>{32, 32, 32, 0});
  CHECK(config.positions == position_type::distances);
  CHECK(config.distances == distance_config{8, 64});
  CHECK(config.distance_extent_of(0) == 32);
  CHECK(config.distance_extent_of(3) == 64);
  CHECK(config.heads_of(0) == 6);
  CHECK(config.heads_of(3) == 4);
  CHECK(config.attention_scale_of(0) == 1 / 16.0f);
  CHECK(config.growth == query_growth{.rate = 0.3f, .period = 64, .first = 1, .unwindowed = true, .smooth = true});
  CHECK(config.experts.count == 7);
  CHECK(config.experts.chosen == 3);
  CHECK(config.experts.always == 1);
  CHECK(config.sparse == std::vector<bool>{false, true, true, true});
  CHECK(config.logit_scale == 0.5f);
  CHECK(config.has_states());
  CHECK(config.state_layers() == 0);
  const auto shape = state_shape_of(config, 2, 1, 8);
  REQUIRE(shape.spread.size() == 16);
  CHECK(shape.spread[as_size(branch_state(config, 1, branch_site::values))].channels == 32);
  CHECK(shape.spread[as_size(branch_state(config, 3, branch_site::mlp))].channels == 64);
  CHECK(state_bytes_per_sequence(config) == 4 * 3 * (32 + 32 + 64 + 64) * sizeof(float));
  auto later = config;
  later.span = layer_span{2, 4, false, true};
  CHECK(state_shape_of(later, 2, 1, 8).spread.size() == 8);
  CHECK(branch_state(later, 2, branch_site::keys) == 0);
}

TEST_CASE("Inkling: a configuration as its authors publish it, and the sizes that follow") {
  const auto config = ink_config(ink_published);
  CHECK(config.family == "inkling_text");
  CHECK(config.multimodal == "inkling_mm_model");
  CHECK(config.vocab == 200058);
  CHECK(config.ffn == 24576);
  CHECK(config.experts.ffn == 3072);
  CHECK(config.experts.count == 258);
  CHECK(config.max_context == 1048576);
  CHECK(config.windows[4] == 512);
  CHECK(config.windows[5] == 0);
  CHECK_FALSE(config.is_sparse(1));
  CHECK(config.is_sparse(2));
  CHECK(config.kv_heads_of(0) == 16);
  CHECK(config.kv_heads_of(5) == 8);
  CHECK(count_parameters(config) / 1e9 == doctest::Approx(947).epsilon(0.001)); // of the text
  CHECK(kv_bytes_per_token(config, kernels::kv_type::bf16) == 2 * 2 * 128 * (11 * 8 + 55 * 16));
  CHECK(state_bytes_per_sequence(config) == 4 * 3 * (11 * (2 * 8 * 128 + 2 * 6144) + 55 * (2 * 16 * 128 + 2 * 6144)));
}

TEST_CASE(
  "Inkling: tensors under the authors' names give the bits of transformers' names, with rows of padding or not") {
  const auto expected = ink_logits(open(ink_model));
  const auto stored = read_ink_tensors();
  const std::string config = R"({"model_type":"inkling_mm_model","vision_config":{},"text_config":{"hidden_size":64,
"num_hidden_layers":4,"vocab_size":)";
  const std::string rest = R"("unpadded_vocab_size":700,"num_attention_heads":4,"num_key_value_heads":2,"head_dim":16,
"swa_num_attention_heads":6,"swa_num_key_value_heads":2,"swa_head_dim":16,"sliding_window_size":32,"d_rel":8,
"rel_extent":64,"log_scaling_n_floor":64,"log_scaling_alpha":0.3,"local_layer_ids":[0,1,2],"dense_mlp_idx":1,
"dense_intermediate_size":128,"intermediate_size":32,"n_routed_experts":6,"num_experts_per_tok":2,"n_shared_experts":1,
"route_scale":2.0,"logits_mup_width_multiplier":2.0,"sconv_kernel_size":4,"model_max_length":131072,
"use_sconv":true,"q_bias":false,"gate_activation":"sigmoid"}})";
  for (const std::size_t padding : {0, 4}) {
    CAPTURE(padding);
    const temp_folder folder;
    auto tensors = as_authors_store(stored, padding);
    tensors["model.mtp.layers.0.input_proj.weight"] = {{2}, "1234"};
    write_ink_tensors(folder.path(), tensors, config + std::to_string(700 + padding) + "," + rest);
    const auto source = open_model(folder.path().string());
    auto alike = open(ink_model).config;
    alike.multimodal = source.config.multimodal;
    CHECK(source.config == alike);
    CHECK(check_tensors(*source.tensors, source.config) ==
          std::vector{folder.path().string() +
                      ": of this inkling_mm_model model only the text is used; 1 tensor of other parts, the first "
                      "`model.mtp.layers.0.input_proj.weight`, are left out"});
    CHECK(ink_logits(source) == expected);
  }
}

TEST_CASE("Inkling: every part is part of the result") {
  const auto with = [&](const std::function<void(model_config&)>& change) {
    auto source = open(ink_model);
    change(source.config);
    return ink_logits(source).back();
  };
  const auto expected = with([](model_config&) {});
  const auto changes = [&](const std::function<void(model_config&)>& change) {
    return largest_difference(with(change), expected) > 1e-3;
  };
  CHECK(changes([](model_config& c) { c.growth = {}; }));
  CHECK(changes([](model_config& c) { c.growth.unwindowed = false; }));
  CHECK(changes([](model_config& c) { c.growth.smooth = false; }));
  CHECK(changes([](model_config& c) { c.inverse_scale = false; }));
  CHECK(changes([](model_config& c) { c.experts.scale = 1; }));
  CHECK(changes([](model_config& c) { c.experts.correction = false; }));
  CHECK(changes([](model_config& c) { c.embedding_norm = false; }));
  CHECK(changes([](model_config& c) { c.logit_scale = 1; }));
}

TEST_CASE("Inkling: what is refused, by key") {
  const auto says = [&](const std::string& from, const std::string& to, const std::string& what) {
    CHECK(ink_refusal(from, to) == "config.json: " + what);
  };
  says(R"("swa_head_dim": 16)", R"("swa_head_dim": 18)",
       "`swa_head_dim` is 18, supported are even numbers up to `head_dim`, 16");
  says(R"("swa_num_key_value_heads": 2)", R"("swa_num_key_value_heads": 4)",
       "`swa_num_attention_heads` must be a multiple of `swa_num_key_value_heads`, found 6 and 4");
  says(R"("swa_num_key_value_heads": 2)", R"("swa_num_key_value_heads": 3)",
       "`swa_num_key_value_heads` is 3, supported are divisors of `num_attention_heads`, 4");
  says(R"("hybrid_sliding",)", R"("sliding",)",
       "`layer_types` holds `sliding`, supported are hybrid and hybrid_sliding");
  says(R"("hybrid_sliding",)", "", "`layer_types` must hold 4 strings, found 3");
  says(R"("shared_expert_sink": true)", R"("shared_expert_sink": false)",
       "`shared_expert_sink` is false, which is not supported");
  says(R"("hidden_act": "silu")", R"("hidden_act": "gelu")", "`hidden_act` is `gelu`, supported is silu");
  says(R"("n_shared_experts": 1)", R"("n_shared_experts": 0)", "`n_shared_experts` must be from 1 to 4096, found 0");
  const auto narrow = ink_config(ink_with(R"("swa_head_dim": 16)", R"("swa_head_dim": 8)"));
  CHECK(narrow.head_dim_of(0) == 8);
  CHECK(narrow.attention_scale_of(0) == 0.125f);
  CHECK(narrow.attention_scale_of(3) == 0.0625f);
}
