// Inkling's text: no rotation, but learned numbers for distances, that each head of a row mixes; short convolutions of keys
// and values, and behind attention and MLPs; layers with a window that have heads of their own; queries that grow with the
// logarithm of their position in the others; experts by a sigmoid, weighed together with those that every row has.
#include "runtime/model/config_limits.hpp"
#include "runtime/model/families/config_reading.hpp"
#include "runtime/model/families/lineages.hpp"
#include "runtime/support/types.hpp"

#include <algorithm>
#include <array>

namespace troupe::families {

using namespace config_limits;

namespace {

constexpr int inkling_period = 6; // of layers without a window, where no key says which have one

[[noreturn]] void unsupported_heads(const reader& config, const char* key, int value, const std::string& supported) {
  throw failure(errc::unsupported, config.label(key) + " is " + std::to_string(value) + ", supported " + supported);
}

/// The authors' configurations have switches for what all of their models have.
void check_inkling_parts(const reader& config) {
  for (const char* key :
       {"use_sconv", "use_embed_norm", "use_gate_bias", "norm_after_topk", "use_global_scale", "shared_expert_sink"})
    require(config, key, true);
  for (const char* key : {"q_bias", "o_bias"})
    require(config, key, false);
  require_word(config, "gate_activation", {"sigmoid"});
}

void read_inkling_windows(const reader& config, model_config& model) {
  const auto* key = config.has("sliding_window_size") ? "sliding_window_size" : "sliding_window";
  const int window = config.integer(key, 1, max_positions, 512);
  if (const auto types = config.child("layer_types")) {
    const auto words = types->items();
    if (words.size() != as_size(model.layers))
      throw failure(errc::bad_file,
                    types->label() + " must hold " + std::to_string(model.layers) + " strings, found " +
                      std::to_string(words.size()));
    for (std::size_t i = 0; i < words.size(); ++i) {
      const auto word = words[i].string();
      if (word != "hybrid" && word != "hybrid_sliding")
        throw failure(errc::unsupported,
                      types->label() + " holds `" + std::string(word) + "`, supported are hybrid and hybrid_sliding");
      model.windows[i] = word == "hybrid_sliding" ? window : 0;
    }
    return;
  }
  const auto slide = config.integers("local_layer_ids", 0, max_layers);
  for (int i = 0; i < model.layers; ++i)
    if (slide ? std::ranges::find(*slide, i) != slide->end() : (i + 1) % inkling_period != 0)
      model.windows[as_size(i)] = window;
}

/// Those of layers with a window.
void read_inkling_heads(const reader& config, model_config& model) {
  const int heads = config.integer("swa_num_attention_heads", 1, max_heads, 64),
            kv_heads = config.integer("swa_num_key_value_heads", 1, max_heads, 16),
            dim = config.integer("swa_head_dim", 1, max_head_dim, 128);
  if (heads % kv_heads != 0)
    throw failure(errc::bad_file,
                  config.label("swa_num_attention_heads") + " must be a multiple of `swa_num_key_value_heads`, found " +
                    std::to_string(heads) + " and " + std::to_string(kv_heads));
  if (dim % 2 != 0 || dim > model.head_dim)
    unsupported_heads(config, "swa_head_dim", dim,
                      "are even numbers up to `head_dim`, " + std::to_string(model.head_dim));
  model.local_heads = heads != model.heads ? heads : 0;
  model.local_head_dim = dim != model.head_dim ? dim : 0;
  if (kv_heads == model.kv_heads)
    return;
  if (model.heads % kv_heads != 0)
    unsupported_heads(config, "swa_num_key_value_heads", kv_heads,
                      "are divisors of `num_attention_heads`, " + std::to_string(model.heads));
  model.full_kv_heads = model.kv_heads;
  model.local_kv_heads = kv_heads;
  model.kv_heads = std::max(kv_heads, model.kv_heads);
}

void read_inkling_positions(const reader& config, model_config& model) {
  model.positions = position_type::distances;
  model.distances = {config.integer("d_rel", 1, max_head_dim, 16),
                     config.integer("rel_extent", 1, max_positions, 1024)};
  model.max_context = config.integer(
    config.has("max_position_embeddings") ? "max_position_embeddings" : "model_max_length", 1, max_positions, 131072);
  if (config.has("log_scaling_n_floor"))
    model.growth = {.rate = static_cast<float>(config.number("log_scaling_alpha", 0, 1e6).value_or(0.1)),
                    .period = config.size("log_scaling_n_floor", max_positions),
                    .first = 1,
                    .unwindowed = true,
                    .smooth = true};
}

/// Where there is `dense_intermediate_size`, `intermediate_size` is that of experts.
void read_inkling_experts(const reader& config, model_config& model) {
  auto& experts = model.experts;
  read_expert_counts(config, model, {"n_routed_experts", "num_local_experts"}, 256, 6);
  experts.always = config.integer("n_shared_experts", 1, max_experts, 2);
  experts.count += experts.always;
  experts.chosen += experts.always;
  if (std::int64_t{experts.count} * model.layers > max_layer_experts)
    unsupported_heads(config, "n_shared_experts", experts.always, "are fewer experts");
  experts.ffn = config.has("dense_intermediate_size") ? config.size("intermediate_size", max_ffn)
                                                      : config.integer("moe_intermediate_size", 1, max_ffn, 3072);
  experts.scale = static_cast<float>(config.number("route_scale", 0, 1e6).value_or(8));
  experts.correction = true;
  if (const auto sparse = read_mlp_types(config, model.layers))
    model.sparse = *sparse;
  else
    for (int i = 0; i < std::min(model.layers, config.integer("dense_mlp_idx", 0, max_layers, 0)); ++i)
      model.sparse[as_size(i)] = false;
}

} // namespace

void read_inkling_text(const reader& config, model_config& model) {
  read_activation(config, model, "hidden_act", "silu", true);
  check_inkling_parts(config);
  read_sizes(config, model,
             {.ffn = config.has("dense_intermediate_size") ? "dense_intermediate_size" : "intermediate_size",
              .default_kv_heads = 8,
              .default_head_dim = 128});
  model.tied = false;
  model.vocab = config.integer("unpadded_vocab_size", 1, model.vocab, model.vocab); // rows behind have no tokens
  read_inkling_windows(config, model);
  read_inkling_heads(config, model);
  read_inkling_positions(config, model);
  read_inkling_experts(config, model);
  model.inverse_scale = model.embedding_norm = true;
  model.logit_scale = static_cast<float>(1 / config.number("logits_mup_width_multiplier", 1e-9, 1e9).value_or(24));
  model.recurrent.type = recurrent_type::branches;
  model.recurrent.taps = config.integer(config.has("conv_kernel_size") ? "conv_kernel_size" : "sconv_kernel_size", 1,
                                        max_taps, 4);
}

namespace {

/// How transformers, or the authors, name what an Inkling's layer has. The latter store gate and up in one matrix, in turn.
class inkling_names {
public:
  inkling_names(const model_config& model, const checkpoint& stored, arrangement& to)
    : model_(model),
      stored_(stored),
      to_(to),
      tensors_(model, to),
      authors_(stored.find("model.layers.0.attn.wq_du.weight") != nullptr) {}

  void arrange() {
    without_padding("model.embed_tokens.weight", authors_ ? "model.embed.weight" : "model.embed_tokens.weight");
    without_padding("lm_head.weight", authors_ ? "model.unembed.weight" : "lm_head.weight");
    to_.names[authors_ ? "model.embed_norm.weight" : "model.embed_tokens.embed_norm.weight"] =
      "model.embedding_norm.weight";
    for (int layer = 0; layer < model_.layers; ++layer) {
      arrange_attention(layer);
      if (model_.is_sparse(layer))
        arrange_mixture(layer);
      else
        arrange_mlp(layer);
    }
  }

private:
  /// Tables may have rows behind those of the tokens.
  void without_padding(const std::string& name, const std::string& from) {
    const auto* info = stored_.find(from);
    stored_part part;
    part.name = from;
    if (const auto rows = as_size(model_.vocab); info != nullptr && !info->shape.empty() && info->shape[0] > rows)
      part.rows = tensors_.rows(0, rows);
    to_.tensors[name] = std::move(part);
  }

  void arrange_attention(int layer) {
    if (authors_)
      tensors_.rename(layer,
                      {{"self_attn.q_proj", "attn.wq_du"},
                       {"self_attn.k_proj", "attn.wk_dv"},
                       {"self_attn.v_proj", "attn.wv_dv"},
                       {"self_attn.o_proj", "attn.wo_ud"},
                       {"self_attn.q_norm", "attn.q_norm"},
                       {"self_attn.k_norm", "attn.k_norm"},
                       {"input_layernorm", "attn_norm"},
                       {"post_attention_layernorm", "mlp_norm"}});
    tensors_.rename(layer, "self_attn.distance_proj", authors_ ? "attn.wr_du" : "self_attn.r_proj");
    const std::string attention = authors_ ? "attn." : "self_attn.", convolution = authors_ ? "" : ".conv1d";
    single(layer, "self_attn.distances", attention + "rel_logits_proj.proj");
    tensors_.rename(layer, "branches.k_conv", attention + "k_sconv" + convolution);
    tensors_.rename(layer, "branches.v_conv", attention + "v_sconv" + convolution);
    tensors_.rename(layer, "branches.attention_conv", "attn_sconv" + convolution);
    tensors_.rename(layer, "branches.mlp_conv", "mlp_sconv" + convolution);
    single(layer, "branches.scale", model_.is_sparse(layer) ? "mlp.gate.global_scale" : "mlp.global_scale");
  }

  void arrange_mlp(int layer) {
    if (!authors_)
      return;
    const auto ffn = as_size(model_.ffn);
    for (const auto& [name, first] : {std::pair("mlp.gate_proj.weight", 0), std::pair("mlp.up_proj.weight", 1)})
      tensors_.take(layer, name, "mlp.w13_dn.weight", tensors_.rows(as_size(first), ffn, 2), 2 * ffn);
    tensors_.rename(layer, "mlp.down_proj", "mlp.w2_md");
  }

  void arrange_mixture(int layer) {
    if (authors_)
      single(layer, "mlp.gate.e_score_correction_bias", "mlp.gate.bias");
    const auto& experts = model_.experts;
    const auto always = as_size(experts.always), chosen = as_size(experts.count) - always, ffn = as_size(experts.ffn);
    const std::string routed = authors_ ? "mlp.experts.w13_weight" : "mlp.experts.gate_up_proj";
    const auto step = authors_ ? 2 : 1;
    for (std::size_t e = 0; e < chosen; ++e) {
      expert(layer, e, "gate_proj", routed, chosen, e, tensors_.rows(0, ffn, step));
      expert(layer, e, "up_proj", routed, chosen, e, tensors_.rows(authors_ ? 1 : ffn, ffn, step));
      expert(layer, e, "down_proj", authors_ ? "mlp.experts.w2_weight" : "mlp.experts.down_proj", chosen, e);
    }
    const std::string shared = "mlp.shared_experts.";
    for (std::size_t e = 0; e < always; ++e) {
      for (const auto& [name, first] : {std::pair("gate_proj", 0), std::pair("up_proj", 1)})
        expert(layer, chosen + e, name, shared + (authors_ ? "shared_w13_weight" : name), always, e,
               authors_ ? tensors_.rows(as_size(first), ffn, 2) : nullptr);
      expert(layer, chosen + e, "down_proj", shared + (authors_ ? "shared_w2_weight" : "down_proj"), always, e);
    }
  }

  /// Of a stored tensor that has those of several experts; `rows`: which of gate and up together.
  void expert(int layer, std::size_t number, const std::string& name, const std::string& from, std::size_t slices,
              std::size_t slice, row_order rows = nullptr) {
    tensors_.add(layer, "mlp.experts." + std::to_string(number) + "." + name + ".weight",
                 {.name = tensors_.stored(layer, from),
                  .slices = slices,
                  .slice = slice,
                  .rows = rows,
                  .of_rows = rows ? 2 * as_size(model_.experts.ffn) : 0});
  }

  void single(int layer, const std::string& name, const std::string& from) { tensors_.take(layer, name, from); }

  const model_config& model_;
  const checkpoint& stored_;
  arrangement& to_;
  tensor_arranger tensors_;
  bool authors_;
};

} // namespace

void arrange_inkling_text(const model_config& model, const checkpoint& stored, arrangement& to) {
  inkling_names(model, stored, to).arrange();
}

const family inkling_text_family{
  "inkling_text", read_inkling_text, arrange_inkling_text, {}, normed_heads | sigmoid | renormalises};

} // namespace troupe::families
