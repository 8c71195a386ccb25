#include "runtime/import/gguf/gguf_layout.hpp"

#include "runtime/import/gguf/gguf_architectures.hpp"
#include "runtime/import/gguf/gguf_names.hpp"
#include "runtime/import/gguf/gguf_recurrent_layout.hpp"
#include "runtime/model/rope.hpp"
#include "runtime/model/tensor_names.hpp"
#include "runtime/support/types.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <numeric>
#include <optional>

namespace troupe {

namespace {

row_order range_of(std::size_t first, std::size_t count) {
  std::vector<std::uint32_t> rows(count);
  std::iota(rows.begin(), rows.end(), static_cast<std::uint32_t>(first));
  return std::make_shared<const std::vector<std::uint32_t>>(std::move(rows));
}

/// For rows of heads in the order of kernels: which one stands where in the file, whose order is `there`.
row_order restored(std::size_t rows, const std::vector<std::uint32_t>& there) {
  if (there.empty())
    return nullptr;
  std::vector<std::uint32_t> order(rows);
  for (std::size_t row = 0; row < rows; ++row)
    order[row / there.size() * there.size() + there[row % there.size()]] = static_cast<std::uint32_t>(row);
  return std::make_shared<const std::vector<std::uint32_t>>(std::move(order));
}

/// The order of a head of latent attention that is presented with pairs of its last `rotated` rows as halves.
std::vector<std::uint32_t> latent_order(int plain, int rotated, bool pairs) {
  std::vector<std::uint32_t> order;
  for (int i = 0; i < plain + rotated; ++i) {
    const int r = i - plain;
    order.push_back(
      static_cast<std::uint32_t>(r < 0 || !pairs ? i : plain + (r < rotated / 2 ? 2 * r : 2 * r - rotated + 1)));
  }
  return order;
}

class layout {
public:
  layout(const model_config& model, const gguf_architecture& form, bool of_gguf)
    : model_(model), form_(form), names_(model), of_gguf_(of_gguf) {
    auto rope = model.rope;
    rope.interleaved = of_gguf && model.family != "llama" ? model.rope.interleaved : form.is(gguf_architecture::pairs);
    if (model.positions == position_type::rotary)
      there_ = rotated_order(rope, model.head_dim);
  }

  std::vector<laid_out_tensor> tensors() {
    const tensor_names names(model_);
    for (const auto& wanted : names.all())
      add(wanted);
    add_unread_keys();
    if (scaled() && model_.tied && model_.embedding_scale != model_.logit_scale)
      place({"output.weight", names.embedding().shape, {.name = names.embedding().name, .factor = model_.logit_scale}});
    return std::move(result_);
  }

private:
  void add(const wanted_tensor& wanted) {
    constexpr std::string_view layers = "model.layers.";
    if (model_.recurrent.type == recurrent_type::short_convolution && wanted.name == "model.norm.weight")
      return push("token_embd_norm.weight", wanted);
    if (scaled() && wanted.name == "model.embed_tokens.weight")
      return place({"token_embd.weight", wanted.shape, {.name = wanted.name, .factor = model_.embedding_scale}});
    if (scaled() && wanted.name == "lm_head.weight")
      return place({"output.weight", wanted.shape, {.name = wanted.name, .factor = model_.logit_scale}});
    if (model_.encoder && wanted.name == "model.position_embeddings.weight") // those that are used
      return place({"position_embd.weight",
                    {},
                    {.name = wanted.name, .rows = range_of(model_.position_offset, as_size(model_.max_context))}});
    if (wanted.name.starts_with("model.altup_"))
      return push_slice(
        wanted.name.find("_unembed_") == wanted.name.npos ? "altup_proj.weight" : "altup_unembd_proj.weight", wanted);
    if (wanted.name == "model.embed_tokens_per_layer.weight" && model_.layer_input_rows > 0)
      return place_layer_inputs(wanted);
    if (!wanted.name.starts_with(layers))
      return push(names_.in_file(wanted.name), wanted);
    const auto end = wanted.name.find('.', layers.size());
    const auto blk = "blk." + wanted.name.substr(layers.size(), end - layers.size()) + ".";
    const auto rest = wanted.name.substr(end + 1);
    const auto dot = rest.rfind('.');
    const auto stem = rest.substr(0, dot), suffix = dot == rest.npos ? std::string() : rest.substr(dot);
    if (model_.recurrent)
      if (const auto placed = place_recurrent(model_, blk, rest, wanted, order_of(stem, wanted), of_gguf_)) {
        for (const auto& part : *placed)
          place(part);
        return;
      }
    if (rest.starts_with("mlp.act_fn.")) // these are keys
      return;
    if (rest == "mlp.gate_norm.weight")
      return place({blk + "ffn_gate_inp.scale",
                    wanted.shape,
                    {.name = wanted.name, .factor = std::sqrt(static_cast<float>(model_.hidden))}});
    if (rest.starts_with("mlp.experts."))
      return push_slice(blk + expert_name(stem) + suffix, wanted);
    if (rest.starts_with("self_attn.latent_"))
      return push_slice(blk + (stem.find("latent_key") != stem.npos ? "attn_k_b" : "attn_v_b") + suffix, wanted);
    const bool of_qkv = stem.ends_with(".q_proj") || stem.ends_with(".k_proj") || stem.ends_with(".v_proj");
    if (of_qkv && form_.is(gguf_architecture::fused_qkv))
      return push_rows(blk + "attn_qkv" + suffix, wanted, order_of(stem, wanted));
    if (form_.is(gguf_architecture::fused_up) && (stem == "mlp.gate_proj" || stem == "mlp.up_proj"))
      return push_rows(blk + "ffn_up" + suffix, wanted, nullptr);
    push(file_name(wanted.name), wanted, order_of(stem, wanted));
  }

  /// A row for every token: those beyond the table have its first.
  void place_layer_inputs(const wanted_tensor& wanted) {
    auto rows = std::make_shared<std::vector<std::uint32_t>>(as_size(model_.vocab));
    for (std::size_t i = 0; i < rows->size(); ++i)
      (*rows)[i] = i < wanted.shape[0] ? static_cast<std::uint32_t>(i) : 0;
    place({"per_layer_token_embd.weight", {}, {.name = wanted.name, .rows = std::move(rows)}});
  }

  /// K and V of layers that read those of others, which llama.cpp asks for and does not use.
  void add_unread_keys() {
    for (int i = 0; model_.family == "gemma3n_text" && i < model_.layers; ++i) {
      if (model_.has_kv(i))
        continue;
      const auto from = "model.layers." + std::to_string(model_.kv_layer_of(i)) + ".self_attn.",
                 blk = "blk." + std::to_string(i) + ".";
      for (const auto& [name, stem] :
           {std::pair("attn_k.weight", "k_proj.weight"), std::pair("attn_v.weight", "v_proj.weight"),
            std::pair("attn_k_norm.weight", "k_norm.weight")})
        result_.push_back({blk + name, shape_of(from + stem), {{.name = from + stem}}});
    }
  }

  /// Whether multipliers become part of the weights.
  bool scaled() const { return model_.family == "falcon_h1" && !of_gguf_; }

  void place(const placed_part& placed) {
    auto& all = *known(placed.name);
    if (!placed.shape.empty()) {
      all.shape = placed.shape;
    } else {
      const auto& shape = shape_of(placed.part.name);
      if (all.shape.empty()) {
        all.shape = shape;
        all.shape.front() = 0;
      }
      all.shape.front() += placed.part.rows ? placed.part.rows->size() : shape.front();
    }
    all.parts.push_back(placed.part);
  }

  const std::vector<std::size_t>& shape_of(const std::string& name) {
    if (shapes_.empty())
      for (auto& wanted : tensor_names(model_).all())
        shapes_.emplace(wanted.name, wanted.shape);
    return shapes_.at(name);
  }

  static std::string expert_name(const std::string& stem) {
    return "ffn_" + stem.substr(stem.rfind('.') + 1, stem.rfind('_') - stem.rfind('.') - 1) + "_exps";
  }

  std::string file_name(const std::string& name) const {
    constexpr std::string_view shared = ".mlp.shared_expert.";
    const auto at = model_.experts.apart ? name.find(shared) : name.npos; // it is the layer's MLP
    return names_.in_file(at == name.npos ? name : name.substr(0, at) + ".mlp." + name.substr(at + shared.size()));
  }

  row_order order_of(const std::string& stem, const wanted_tensor& wanted) const {
    const auto rows = wanted.shape[0];
    const auto& latent = model_.latent;
    if (latent) {
      const bool queries = stem == (latent.q_rank > 0 ? "self_attn.q_b_proj" : "self_attn.q_proj");
      if (queries)
        return restored(rows, latent_order(latent.plain, latent.rotated, model_.rope.interleaved));
      if (stem == "self_attn.kv_a_proj_with_mqa")
        return restored(rows, latent_order(latent.kv_rank, latent.rotated, model_.rope.interleaved));
      return nullptr;
    }
    const bool turned = stem.starts_with("self_attn.q_") || stem.starts_with("self_attn.k_");
    return turned ? restored(rows, there_) : nullptr;
  }

  void push(std::string name, const wanted_tensor& wanted, row_order rows = nullptr) {
    auto shape = wanted.shape;
    if (name.find("ffn_gate_inp_shexp") != name.npos)
      shape = {shape.back()};
    if (model_.qk_norm_layer && (name.ends_with("attn_q_norm.weight") || name.ends_with("attn_k_norm.weight")))
      shape = {shape.front() / as_size(model_.head_dim), as_size(model_.head_dim)};
    result_.push_back({std::move(name), std::move(shape), {{wanted.name, std::move(rows)}}});
  }

  laid_out_tensor* known(const std::string& name) {
    const auto [place, added] = places_.try_emplace(name, result_.size());
    if (added)
      result_.push_back({name, {}, {}});
    return &result_[place->second];
  }

  /// One of several matrices, in order.
  void push_slice(const std::string& name, const wanted_tensor& wanted) {
    auto& all = *known(name);
    if (all.shape.empty()) {
      all.shape = wanted.shape;
      all.shape.insert(all.shape.begin(), 0);
    }
    ++all.shape.front();
    all.parts.push_back({wanted.name, nullptr});
  }

  /// Further rows of a matrix, or elements of a vector.
  void push_rows(const std::string& name, const wanted_tensor& wanted, row_order rows) {
    auto& all = *known(name);
    if (all.shape.empty()) {
      all.shape = wanted.shape;
      all.shape.front() = 0;
    }
    all.shape.front() += wanted.shape.front();
    all.parts.push_back({wanted.name, std::move(rows)});
  }

  const model_config& model_;
  const gguf_architecture& form_;
  gguf_names names_;
  bool of_gguf_;
  std::map<std::string, std::vector<std::size_t>> shapes_;
  std::vector<std::uint32_t> there_;
  std::vector<laid_out_tensor> result_;
  std::map<std::string, std::size_t, std::less<>> places_; // of those with several parts
};

} // namespace

std::string_view gguf_architecture_for(const model_config& model) {
  const auto* form = gguf_architecture_of_family(model.family);
  if (model.family == "nemotron_h" && model.experts.count > 0)
    return "nemotron_h_moe";
  if (model.family == "gemma3_text" && model.encoder)
    return "gemma-embedding";
  return form ? form->name : std::string_view();
}

std::vector<laid_out_tensor> gguf_layout(const model_config& model, bool of_gguf) {
  return layout(model, *gguf_architecture_of_family(model.family), of_gguf).tensors();
}

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
