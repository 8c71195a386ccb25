// Encoders: BERT and (XLM-)RoBERTa, whose sums with the residual are normalised, Nomic's BERT with rotation and a gated
// MLP, and ModernBERT, which normalises before and alternates windows. Every token sees the whole text; there is no
// output head.
#include "runtime/model/families/config_reading.hpp"
#include "runtime/model/families/gguf_reading.hpp"
#include "runtime/model/families/lineages.hpp"

#include "runtime/model/config_limits.hpp"
#include "runtime/support/types.hpp"

namespace troupe::families {

using namespace config_limits;

namespace {

constexpr size_rules encoder_sizes{.kv_heads = nullptr, .norm_eps = "layer_norm_eps", .default_norm_eps = 1e-12};

void read_sums(const reader& config, model_config& model) {
  model.encoder = model.embedding_norm = true;
  model.final_norm = false;
  model.tied = true; // nothing is stored for a head
  model.token_types = config.integer("type_vocab_size", 0, 1 << 10, 2);
}

void read_learned_positions(const reader& config, model_config& model, int offset) {
  const int rows = config.integer("max_position_embeddings", 1, max_positions, 512);
  if (rows <= offset)
    throw failure(errc::bad_file,
                  config.label("max_position_embeddings") + " is " + std::to_string(rows) + ", expected more than " +
                    std::to_string(offset));
  model.positions = position_type::learned;
  model.position_rows = as_size(rows);
  model.position_offset = as_size(offset);
  model.max_context = rows - offset;
}

/// The prefix of the encoder's tensors: those of the encoder alone have none.
std::string prefix_of(const checkpoint& stored, std::initializer_list<const char*> prefixes, const char* table) {
  for (const char* prefix : prefixes)
    if (stored.find(prefix + std::string(table)))
      return prefix;
  return *prefixes.begin();
}

void rename_embeddings(tensor_arranger& tensors, const std::string& prefix) {
  tensors.rename("model.embed_tokens", prefix + "embeddings.word_embeddings");
  tensors.rename("model.position_embeddings", prefix + "embeddings.position_embeddings");
  tensors.rename("model.token_type_embeddings", prefix + "embeddings.token_type_embeddings");
}

} // namespace

void read_bert(const reader& config, model_config& model) {
  read_activation(config, model, "hidden_act", "gelu");
  read_sizes(config, model, encoder_sizes);
  require(config, "is_decoder", false);
  if (const auto type = config.string("position_embedding_type"); type && *type != "absolute")
    throw failure(errc::unsupported,
                  config.label("position_embedding_type") + " is `" + *type + "`, supported is absolute");
  read_sums(config, model);
  model.qkv_bias = model.o_bias = model.mlp_bias = true;
  read_learned_positions(config, model, 0);
}

void arrange_bert(const model_config& model, const checkpoint& stored, arrangement& to) {
  const auto prefix = prefix_of(stored, {"", "bert.", "roberta."}, "embeddings.word_embeddings.weight");
  tensor_arranger tensors(model, to, prefix + "encoder.layer.");
  rename_embeddings(tensors, prefix);
  tensors.rename("model.embedding_norm", prefix + "embeddings.LayerNorm");
  for (int layer = 0; layer < model.layers; ++layer)
    tensors.rename(layer,
                   {{"self_attn.q_proj", "attention.self.query"},
                    {"self_attn.k_proj", "attention.self.key"},
                    {"self_attn.v_proj", "attention.self.value"},
                    {"self_attn.o_proj", "attention.output.dense"},
                    {"post_attention_layernorm", "attention.output.LayerNorm"},
                    {"mlp.up_proj", "intermediate.dense"},
                    {"mlp.down_proj", "output.dense"},
                    {"post_feedforward_layernorm", "output.LayerNorm"}});
}

/// Keys as transformers writes them, or as Nomic's own code does.
void read_nomic(const reader& config, model_config& model) {
  const bool own = config.has("n_embd");
  const auto pick = [own](const char* theirs, const char* ours) { return own ? theirs : ours; };
  const auto act = own ? config.string("activation_function").value_or("swiglu") : "";
  if (own && act != "swiglu")
    throw failure(errc::unsupported, config.label("activation_function") + " is `" + act + "`, supported is swiglu");
  if (own)
    for (const char* key : {"prenorm", "parallel_block", "qkv_proj_bias", "mlp_fc1_bias", "mlp_fc2_bias", "causal",
                            "rotary_emb_interleaved", "use_rms_norm"})
      require(config, key, false);
  else
    read_activation(config, model, "hidden_act", "silu");
  read_sizes(config, model,
             {.hidden = pick("n_embd", "hidden_size"),
              .layers = pick("n_layer", "num_hidden_layers"),
              .heads = pick("n_head", "num_attention_heads"),
              .kv_heads = nullptr,
              .ffn = pick("n_inner", "intermediate_size"),
              .norm_eps = pick("layer_norm_epsilon", "layer_norm_eps"),
              .default_norm_eps = own ? 1e-5 : 1e-12});
  read_sums(config, model);
  const auto base = config.number("rotary_emb_base", 1.000001, 1e30).value_or(1000);
  if (const auto part = config.number("rotary_emb_fraction", 0, 1); part && *part != 1)
    throw failure(errc::unsupported, config.label("rotary_emb_fraction") + " other than 1 is not supported");
  read_positions(config, model,
                 {.context = pick("n_positions", "max_position_embeddings"), .default_context = 2048, .theta = base});
}

void arrange_nomic(const model_config& model, const checkpoint& stored, arrangement& to) {
  const auto prefix = prefix_of(stored, {"", "nomic_bert.", "bert."}, "embeddings.word_embeddings.weight");
  const bool own = stored.find(prefix + "encoder.layers.0.attn.Wqkv.weight") != nullptr;
  tensor_arranger tensors(model, to, prefix + (own ? "encoder.layers." : "layers."));
  rename_embeddings(tensors, prefix);
  tensors.rename("model.embedding_norm", prefix + (own ? "emb_ln" : "embeddings.LayerNorm"));
  for (int layer = 0; layer < model.layers; ++layer) {
    if (own) {
      tensors.split_qkv(layer, "attn.Wqkv", tensor_arranger::fusion::stacked);
      tensors.rename(layer,
                     {{"self_attn.o_proj", "attn.out_proj"},
                      {"mlp.up_proj", "mlp.fc11"},
                      {"mlp.gate_proj", "mlp.fc12"},
                      {"mlp.down_proj", "mlp.fc2"},
                      {"post_attention_layernorm", "norm1"}});
    }
    tensors.rename(layer, "post_feedforward_layernorm", own ? "norm2" : "post_mlp_layernorm");
  }
}

/// Jina's third embeddings: a RoBERTa with rotation. Its adapters for tasks are not used.
void read_jina_v3(const reader& config, model_config& model) {
  read_activation(config, model, "hidden_act", "gelu");
  auto sizes = encoder_sizes;
  sizes.default_norm_eps = 1e-5;
  read_sizes(config, model, sizes);
  read_sums(config, model);
  model.token_types = config.integer("type_vocab_size", 0, 1 << 10, 1);
  model.qkv_bias = model.o_bias = model.mlp_bias = true;
  const auto base = config.number("rotary_emb_base", 1.000001, 1e30).value_or(20000); // of the original files
  read_positions(config, model, {.default_context = 8194, .theta = base});
}

/// Positions count from behind the padding token's id. Jina's third embeddings call themselves so, too.
void read_roberta(const reader& config, model_config& model) {
  if (config.string("position_embedding_type").value_or("absolute") == "rotary") {
    model.family = "jina_embeddings_v3";
    return read_jina_v3(config, model);
  }
  read_bert(config, model);
  read_learned_positions(config, model, config.integer("pad_token_id", 0, 1 << 20, 1) + 1);
}

void arrange_jina_v3(const model_config& model, const checkpoint& stored, arrangement& to) {
  const auto prefix = prefix_of(stored, {"", "model.", "roberta."}, "embeddings.word_embeddings.weight");
  const bool own = stored.find(prefix + "encoder.layers.0.mixer.Wqkv.weight") != nullptr; // else transformers' names
  tensor_arranger tensors(model, to, prefix + (own ? "encoder.layers." : "layers."));
  rename_embeddings(tensors, prefix);
  tensors.rename("model.embedding_norm", prefix + (own ? "emb_ln" : "embeddings.LayerNorm"));
  for (int layer = 0; layer < model.layers; ++layer) {
    tensors.rename(layer, {{"mlp.up_proj", "mlp.fc1"}, {"mlp.down_proj", "mlp.fc2"}});
    if (own) {
      tensors.split_qkv(layer, "mixer.Wqkv", tensor_arranger::fusion::stacked);
      tensors.rename(layer, {{"self_attn.o_proj", "mixer.out_proj"}, {"post_attention_layernorm", "norm1"}});
    }
    tensors.rename(layer, "post_feedforward_layernorm", own ? "norm2" : "post_mlp_layernorm");
  }
}

/// `local_attention` positions are seen, half of them on each side.
void read_modernbert(const reader& config, model_config& model) {
  read_activation(config, model, "hidden_activation", "gelu");
  read_sizes(config, model, {.kv_heads = nullptr, .norm_eps = "norm_eps", .default_norm_eps = 1e-5});
  model.encoder = model.embedding_norm = model.skips_first_norm = model.tied = true;
  model.norm_bias = config.boolean("norm_bias", false);
  model.qkv_bias = model.o_bias = config.boolean("attention_bias", false);
  model.mlp_bias = config.boolean("mlp_bias", false);
  const int side = config.integer("local_attention", 2, max_positions, 128) / 2;
  const int period = config.integer("global_attn_every_n_layers", 1, max_layers, 3);
  const auto types = read_layer_types(config, model.layers);
  for (int i = 0; i < model.layers; ++i)
    model.windows[as_size(i)] = (types ? (*types)[as_size(i)] : i % period != 0) ? side + 1 : 0;
  read_layer_positions(
    config, model,
    {.default_context = 8192, .theta = config.number("global_rope_theta", 1.000001, 1e30).value_or(160000)},
    config.number("local_rope_theta", 1.000001, 1e30).value_or(10000));
}

void arrange_modernbert(const model_config& model, const checkpoint& stored, arrangement& to) {
  const auto prefix = prefix_of(stored, {"", "model."}, "embeddings.tok_embeddings.weight");
  tensor_arranger tensors(model, to, prefix + "layers.");
  tensors.rename("model.embed_tokens", prefix + "embeddings.tok_embeddings");
  tensors.rename("model.embedding_norm", prefix + "embeddings.norm");
  tensors.rename("model.norm", prefix + "final_norm");
  for (int layer = 0; layer < model.layers; ++layer) {
    tensors.split_qkv(layer, "attn.Wqkv", tensor_arranger::fusion::stacked);
    tensors.split_gate_up(layer, "mlp.Wi");
    tensors.rename(layer,
                   {{"self_attn.o_proj", "attn.Wo"},
                    {"mlp.down_proj", "mlp.Wo"},
                    {"input_layernorm", "attn_norm"},
                    {"post_attention_layernorm", "mlp_norm"}});
  }
}

namespace {

void describe_nomic_bert(const architecture_keys& keys, model_config&) {
  if (has_experts(keys))
    throw failure(errc::unsupported, keys.label("expert_count") + ": encoders with experts are not supported");
}

/// Files count the positions of both sides in a window.
void describe_modern_bert(const architecture_keys& keys, model_config& model) {
  describe_encoder(keys, model);
  model.skips_first_norm = true;
  slide(keys, model, model.windows.front() / 2 + 1, 3);
  model.local_rope = rope_of_windows(keys);
}

} // namespace

const family bert_family{"bert",
                         read_bert,
                         arrange_bert,
                         {{"bert", learned_positions | gelu}},
                         layer_norm | norms_sums | ungated,
                         {{"bert.pooler.dense", "pooler.dense"}}};
const family jina_embeddings_v3_family{"jina_embeddings_v3",
                                       read_jina_v3,
                                       arrange_jina_v3,
                                       {{"jina-bert-v3", fused_qkv | gelu}},
                                       layer_norm | norms_sums | ungated};
const family modernbert_family{"modernbert",       read_modernbert,
                               arrange_modernbert, {{"modern-bert", fused_qkv | fused_up | gelu, describe_modern_bert}},
                               layer_norm,         {{"head.dense"}, "classifier", "head.norm"}};
const family nomic_bert_family{
  "nomic_bert", read_nomic, arrange_nomic, {{"nomic-bert", fused_qkv, describe_nomic_bert}}, layer_norm | norms_sums};
const family roberta_family{"roberta",
                            read_roberta,
                            arrange_bert,
                            {{"bert", only_written}},
                            layer_norm | norms_sums | ungated,
                            {{"classifier.dense"}, "classifier.out_proj"}};
const family xlm_roberta_family{"xlm-roberta",
                                read_roberta,
                                arrange_bert,
                                {{"bert", only_written}},
                                layer_norm | norms_sums | ungated,
                                {{"classifier.dense"}, "classifier.out_proj"}};

} // namespace troupe::families
