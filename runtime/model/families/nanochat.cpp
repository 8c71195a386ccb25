// nanochat: norms without weights, of the embeddings too, and of q and k behind the rotation, which turns the other way;
// a squared ReLU without a gate; capped logits.
#include "runtime/model/families/config_reading.hpp"
#include "runtime/model/families/lineages.hpp"

#include "runtime/support/types.hpp"

namespace troupe::families {

void read_nanochat(const reader& config, model_config& model) {
  read_activation(config, model, "hidden_act", "relu2");
  read_sizes(config, model);
  model.qkv_bias = model.o_bias = config.boolean("attention_bias", false);
  model.plain_norm = model.embedding_norm = true;
  model.qk_norm = model.qk_norm_plain = model.qk_norm_behind = true;
  if (!config.contains("final_logit_softcapping") || config.has("final_logit_softcapping"))
    model.logit_cap = static_cast<float>(config.number("final_logit_softcapping", 1e-3, 1e9).value_or(15));
  read_positions(config, model);
}

/// With the halves of each head's rows exchanged, a rotation the usual way gives the same products of q and k.
void arrange_nanochat(const model_config& model, const checkpoint&, arrangement& to) {
  tensor_arranger tensors(model, to);
  const auto dim = as_size(model.head_dim);
  const auto exchanged = [&](int heads) {
    std::vector<std::uint32_t> rows;
    for (std::size_t i = 0; i < as_size(heads) * dim; ++i)
      rows.push_back(static_cast<std::uint32_t>(i % dim < dim / 2 ? i + dim / 2 : i - dim / 2));
    return std::make_shared<const std::vector<std::uint32_t>>(std::move(rows));
  };
  const auto q = exchanged(model.heads), k = exchanged(model.kv_heads);
  for (int layer = 0; layer < model.layers; ++layer) {
    tensors.rename(layer, {{"mlp.up_proj", "mlp.fc1"}, {"mlp.down_proj", "mlp.fc2"}});
    for (const auto& [name, rows] : {std::pair("self_attn.q_proj", q), std::pair("self_attn.k_proj", k)})
      for (const std::string part : {".weight", ".bias"})
        if (part == ".weight" || model.qkv_bias)
          tensors.take(layer, name + part, name + part, rows);
  }
}

const family nanochat_family{"nanochat", read_nanochat, arrange_nanochat, {}, ungated | exchanged_heads};

} // namespace troupe::families
