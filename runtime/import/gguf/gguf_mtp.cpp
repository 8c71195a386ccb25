// How layers of multi-token prediction stand in a GGUF file. Part of gguf_layout.
#include "runtime/import/gguf/gguf_layout.hpp"
#include "runtime/import/gguf/gguf_names.hpp"
#include "runtime/support/types.hpp"

namespace troupe {

bool folds_mtp_layers(const mtp_layers& layers) {
  const auto part = layers.config.part();
  const auto is = [&](int layer, bool attention) {
    const auto parts = layers.config.parts_of(layer);
    return parts.attention == attention && parts.mlp != attention && !parts.recurrence;
  };
  return part.count() == 2 && is(part.first, true) && is(part.first + 1, false);
}

model_config folded_mtp_layers(model_config all) {
  const auto last = as_size(all.layers - 1);
  const auto fold = [&](auto& of_layers) {
    if (of_layers.size() > last)
      of_layers.resize(last);
  };
  if (all.is_sparse(all.layers - 1))
    all.sparse[last - 1] = true;
  all.parts[last - 1] = {.attention = true, .recurrence = false, .mlp = true};
  fold(all.windows);
  fold(all.chunks);
  fold(all.unrotated);
  fold(all.ffns);
  fold(all.parts);
  fold(all.sparse);
  --all.layers;
  return all;
}

void fold_mtp_layout(std::vector<laid_out_tensor>& layout, int first) {
  const auto to = "blk." + std::to_string(first) + ".", from = "blk." + std::to_string(first + 1) + ".";
  for (auto& tensor : layout)
    if (tensor.name.starts_with(from)) {
      const auto rest = tensor.name.substr(from.size());
      tensor.name = to + (rest == "attn_norm.weight" ? "post_attention_norm.weight" : rest);
    }
}

std::vector<laid_out_tensor> gguf_mtp_layout(const mtp_layers& layers) {
  std::vector<laid_out_tensor> result;
  for (const auto& wanted : tensors_around(layers)) {
    const bool norm = wanted.shape.size() == 1;
    result.push_back({gguf_tensor_name(wanted.name),
                      wanted.shape,
                      {{.name = wanted.name, .offset = norm ? layers.norm_offset : 0.0f}}});
  }
  return result;
}

} // namespace troupe
