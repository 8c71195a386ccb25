#include "runtime/model/model_products.hpp"

#include "runtime/model/families/family.hpp"
#include "runtime/model/tensor_names.hpp"
#include "runtime/support/types.hpp"

namespace troupe {

model_products products_of(const model_config& config) {
  const tensor_names names(config);
  model_products result;
  result.layers.resize(as_size(config.layers));
  if (config.positions == position_type::rotary && !config.latent && !config.compressed) {
    auto rope = config.rope; // in whose order the base is stored, which other files need not share
    rope.interleaved = false;
    result.half_order = rotated_order(rope, config.head_dim);
    rope.interleaved = true;
    result.pair_order = rotated_order(rope, config.head_dim);
    result.family_pairs = has_trait(config, family::paired_heads);
    for (int i = 0; has_trait(config, family::exchanged_heads) && i < config.head_dim; ++i)
      result.half_order.push_back(static_cast<std::uint32_t>((i + config.head_dim / 2) % config.head_dim));
  }
  for (int i = 0; i < config.layers; ++i) {
    const auto parts = config.parts_of(i);
    auto& layer = result.layers[as_size(i)];
    const auto put = [&](projection which, const wanted_tensor& w) {
      layer[static_cast<std::size_t>(which)] = {w.shape[0], w.shape[1]};
    };
    // What makes latents has other names; and there is one order of rows for all layers.
    const bool alike = config.rope_of(i) == config.rope ||
      rotated_order(config.rope_of(i), config.head_dim_of(i)) == rotated_order(config.rope, config.head_dim_of(i));
    if (!config.latent && !config.compressed && parts.attention && alike) {
      const auto qkv = names.qkv(i);
      put(projection::q, qkv[0]);
      if (qkv.size() > 1) { // else the layer reads the K and V of another one
        put(projection::k, qkv[1]);
        put(projection::v, qkv[2]);
      }
      if (config.attention_gate && qkv.size() > 3) {
        result.gates.resize(result.layers.size());
        result.gates[as_size(i)] = qkv[3].shape[0];
      }
    }
    if (parts.attention && !config.compressed)
      put(projection::o, names.o(i).front());
    if (config.is_sparse(i) || !parts.mlp)
      continue;
    const auto gate_up = names.gate_up(i);
    if (config.gated)
      put(projection::gate, gate_up.front());
    put(projection::up, gate_up.back());
    put(projection::down, names.down(i).front());
  }
  return result;
}

} // namespace troupe
