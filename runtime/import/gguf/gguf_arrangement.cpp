// Where the tensors of a GGUF file are that the decoder wants.
#include "runtime/import/gguf/gguf_architectures.hpp"
#include "runtime/import/gguf/gguf_further.hpp"
#include "runtime/import/gguf/gguf_recurrent.hpp"
#include "runtime/model/families/family.hpp"
#include "runtime/model/families/lineages.hpp"
#include "runtime/support/types.hpp"

namespace troupe {

namespace {

using families::tensor_arranger;

/// Experts in one tensor, [experts, rows, cols]; gate and up may be one.
void arrange_experts(const checkpoint& stored, const model_config& model, int layer, tensor_arranger& tensors) {
  const auto blk = "blk." + std::to_string(layer) + ".";
  const auto count = as_size(model.experts.count), ffn = as_size(model.experts.ffn);
  constexpr std::string_view gate = "ffn_gate_exps", down = "ffn_down_exps";
  const bool fused = stored.find(blk + "ffn_gate_up_exps.weight") != nullptr;
  for (std::size_t e = 0; e < count; ++e)
    for (const auto& [name, from] :
         {std::pair("gate_proj", gate), std::pair("up_proj", std::string_view("ffn_up_exps")),
          std::pair("down_proj", down)}) {
      const auto stem = "mlp.experts." + std::to_string(e) + "." + name;
      stored_part part{.name = blk + std::string(from), .slices = count, .slice = e};
      if (fused && from != down) {
        part.name = blk + "ffn_gate_up_exps";
        part.rows = tensors.rows(from == gate ? 0 : ffn, ffn);
        part.of_rows = 2 * ffn;
      }
      auto bias = part;
      part.name += ".weight";
      bias.name += ".bias";
      tensors.add(layer, stem + ".weight", part);
      if (model.experts.bias)
        tensors.add(layer, stem + ".bias", bias);
    }
}

/// The matrix that makes keys and values of latents, whole or as two, [heads, latent, key] and [heads, value, latent].
void arrange_latent(const checkpoint& stored, const model_config& model, arrangement& how, tensor_arranger& tensors) {
  families::arrange_latent_attention(model, how);
  const auto heads = as_size(model.heads);
  for (int layer = 0; layer < model.layers; ++layer) {
    const auto blk = "blk." + std::to_string(layer) + ".";
    if (stored.find("model.layers." + std::to_string(layer) + ".self_attn.kv_b_proj.weight"))
      continue;
    for (std::size_t h = 0; h < heads; ++h) {
      const auto head = std::to_string(h) + ".weight";
      tensors.add(layer, "self_attn.latent_key." + head,
                  {.name = blk + "attn_k_b.weight", .slices = heads, .slice = h});
      tensors.add(layer, "self_attn.latent_value." + head,
                  {.name = blk + "attn_v_b.weight", .slices = heads, .slice = h});
    }
  }
}

} // namespace

std::unique_ptr<const checkpoint> arrange_gguf(std::unique_ptr<const checkpoint> stored, const model_config& model) {
  arrangement how;
  tensor_arranger tensors(model, how, "blk.");
  how.prefixes.clear(); // the checkpoint has translated its names
  const bool fused_qkv = !model.recurrent && stored->find("blk.0.attn_qkv.weight") != nullptr;
  const auto* up = stored->find("model.layers.0.mlp.up_proj.weight");
  const bool fused_up = model.gated && !stored->find("model.layers.0.mlp.gate_proj.weight") && up &&
    up->shape.size() == 2 && up->shape[0] == 2 * as_size(model.ffn);
  for (int layer = 0; layer < model.layers; ++layer) {
    const auto hf = "model.layers." + std::to_string(layer) + ".";
    if (fused_qkv)
      tensors.split_qkv(layer, "attn_qkv", tensor_arranger::fusion::stacked);
    if (fused_up) {
      const auto ffn = as_size(model.ffn);
      tensors.add(layer, "mlp.gate_proj.weight",
                  {.name = hf + "mlp.up_proj.weight", .rows = tensors.rows(0, ffn), .of_rows = 2 * ffn});
      tensors.add(layer, "mlp.up_proj.weight",
                  {.name = hf + "mlp.up_proj.weight", .rows = tensors.rows(ffn, ffn), .of_rows = 2 * ffn});
    }
    if (model.qk_norm_layer)
      for (const std::string name : {"self_attn.q_norm.weight", "self_attn.k_norm.weight"})
        tensors.add(layer, name, {.name = hf + name, .as_vector = true});
    if (model.is_sparse(layer)) {
      arrange_experts(*stored, model, layer, tensors);
      if (model.experts.shared_gate)
        tensors.add(layer, "mlp.shared_expert_gate.weight",
                    {.name = hf + "mlp.shared_expert_gate.weight", .as_row = true});
    }
  }
  if (model.latent)
    arrange_latent(*stored, model, how, tensors);
  arrange_gguf_recurrence(*stored, model, how);
  arrange_gguf_further(*stored, model, how);
  arrange_rotation(model, how);
  return arrange(std::move(stored), how);
}

} // namespace troupe
