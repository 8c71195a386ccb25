// MPT: biases by distance in place of positions (ALiBi), layer norm and matrices without biases, q, k and v in one
// matrix, perhaps cut to a magnitude.
#include "runtime/model/families/config_reading.hpp"
#include "runtime/model/families/lineages.hpp"
#include "runtime/support/json/json_brief.hpp"

namespace troupe::families {

namespace {

/// What `attn_config` says; transformers' defaults where it does not.
void read_attention(const reader& config, model_config& model) {
  const auto given = config.object("attn_config");
  if (!given)
    return;
  require(*given, "alibi", true);
  require(*given, "prefix_lm", false);
  require(*given, "qk_ln", false);
  require_number(*given, "alibi_bias_max", 8);
  require_word(*given, "attn_type", {"multihead_attention"});
  model.qkv_clip = static_cast<float>(given->number("clip_qkv", 0, 1e9).value_or(0));
  model.attention_scale = static_cast<float>(given->number("softmax_scale", 0, 1e6).value_or(0));
}

} // namespace

void read_mpt(const reader& config, model_config& model) {
  read_sizes(config, model,
             {.hidden = "d_model",
              .layers = "n_layers",
              .heads = "n_heads",
              .kv_heads = nullptr,
              .ffn = nullptr,
              .norm_eps = "layer_norm_epsilon",
              .default_norm_eps = 1e-5,
              .tied = true});
  require(config, "no_bias", true);
  require_number(config, "expansion_ratio", 4); // as transformers' class has it, whatever the key says
  require_word(config, "norm_type", {"low_precision_layernorm", "layernorm"});
  model.ffn = 4 * model.hidden;
  model.act = {kernels::activation_type::gelu};
  model.norm_bias = false;
  read_positions(config, model, {.context = "max_seq_len"});
  model.positions = position_type::alibi;
  read_attention(config, model);
  if (const auto scale = config.find("logit_scale")) // of which the authors' code makes something, but not transformers
    throw failure(errc::unsupported, config.label("logit_scale") + " is " + json_brief(*scale) + ", supported is null");
}

void arrange_mpt(const model_config& model, const checkpoint&, arrangement& to) {
  tensor_arranger tensors(model, to, "transformer.blocks.");
  tensors.rename("model.embed_tokens", "transformer.wte");
  tensors.rename("model.norm", "transformer.norm_f");
  for (int layer = 0; layer < model.layers; ++layer) {
    tensors.rename(layer,
                   {{"input_layernorm", "norm_1"},
                    {"post_attention_layernorm", "norm_2"},
                    {"self_attn.o_proj", "attn.out_proj"},
                    {"mlp.up_proj", "ffn.up_proj"},
                    {"mlp.down_proj", "ffn.down_proj"}});
    tensors.split_qkv(layer, "attn.Wqkv", tensor_arranger::fusion::stacked);
  }
}

const family mpt_family{"mpt", read_mpt, arrange_mpt, {}, layer_norm | ungated};

} // namespace troupe::families
