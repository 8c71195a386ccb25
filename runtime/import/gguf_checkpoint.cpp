#include "runtime/checkpoint/tensor_index.hpp"
#include "runtime/import/gguf_architectures.hpp"
#include "runtime/import/gguf_further.hpp"
#include "runtime/import/gguf_model.hpp"
#include "runtime/import/gguf_own.hpp"
#include "runtime/import/gguf_pooling.hpp"
#include "runtime/import/model_source.hpp"

#include <array>
#include <cstring>
#include <initializer_list>
#include <limits>

namespace troupe {

namespace {

struct name_pair {
  std::string_view gguf, hugging_face;
};

constexpr std::array outer_names{
  name_pair{"token_embd.", "model.embed_tokens."},
  name_pair{"output_norm.", "model.norm."},
  name_pair{"output.", "lm_head."},
  name_pair{"position_embd.", "model.position_embeddings."},
  name_pair{"token_embd_norm.", "model.embedding_norm."},
  name_pair{"token_types.", "model.token_type_embeddings."},
  name_pair{"per_layer_token_embd.", "model.embed_tokens_per_layer."},
  name_pair{"per_layer_model_proj.", "model.per_layer_model_projection."},
  name_pair{"per_layer_proj_norm.", "model.per_layer_projection_norm."},
};

/// Tensors of a layer, without the prefixes "blk.N." and "model.layers.N.".
constexpr std::array layer_names{
  name_pair{"attn_norm.", "input_layernorm."},
  name_pair{"attn_q.", "self_attn.q_proj."},
  name_pair{"attn_k.", "self_attn.k_proj."},
  name_pair{"attn_v.", "self_attn.v_proj."},
  name_pair{"attn_output.", "self_attn.o_proj."},
  name_pair{"attn_q_a.", "self_attn.q_a_proj."},
  name_pair{"attn_q_a_norm.", "self_attn.q_a_layernorm."},
  name_pair{"attn_q_b.", "self_attn.q_b_proj."},
  name_pair{"attn_kv_a_mqa.", "self_attn.kv_a_proj_with_mqa."},
  name_pair{"attn_kv_a_norm.", "self_attn.kv_a_layernorm."},
  name_pair{"attn_kv_b.", "self_attn.kv_b_proj."},
  name_pair{"attn_q_norm.", "self_attn.q_norm."},
  name_pair{"attn_k_norm.", "self_attn.k_norm."},
  name_pair{"ffn_norm.", "post_attention_layernorm."},
  name_pair{"ffn_gate.", "mlp.gate_proj."},
  name_pair{"ffn_up.", "mlp.up_proj."},
  name_pair{"ffn_down.", "mlp.down_proj."},
  name_pair{"exp_probs_b.bias", "mlp.gate.e_score_correction_bias"}, // before what it begins with
  name_pair{"ffn_gate_inp.", "mlp.gate."},
  name_pair{"ffn_gate_shexp.", "mlp.shared_expert.gate_proj."},
  name_pair{"ffn_up_shexp.", "mlp.shared_expert.up_proj."},
  name_pair{"ffn_down_shexp.", "mlp.shared_expert.down_proj."},
  name_pair{"post_attention_norm.", "post_attention_layernorm."},
  name_pair{"post_ffw_norm.", "post_feedforward_layernorm."},
  name_pair{"attn_output_norm.", "post_attention_layernorm."}, // of encoders
  name_pair{"layer_output_norm.", "post_feedforward_layernorm."},
  name_pair{"inp_gate.", "per_layer_input_gate."}, // what layers get of each token, and numbers of theirs
  name_pair{"proj.", "per_layer_projection."},
  name_pair{"post_norm.", "post_per_layer_input_norm."},
  name_pair{"layer_output_scale.weight", "layer_scalar"},
  name_pair{"pre_ffw_norm_2.", "mlp.experts_norm."}, // of experts apart
  name_pair{"post_ffw_norm_1.", "mlp.shared_expert_norm."},
  name_pair{"post_ffw_norm_2.", "mlp.experts_result_norm."},
  name_pair{"altup_correct_coef.", "altup.correction_coefs."}, // of alternating updates
  name_pair{"altup_correct_scale.weight", "altup.correct_output_scale"},
  name_pair{"altup_predict_coef.", "altup.prediction_coefs."},
  name_pair{"altup_router.", "altup.modality_router."},
  name_pair{"altup_router_norm.", "altup.router_norm."},
  name_pair{"laurel_l.", "laurel.linear_left."},
  name_pair{"laurel_r.", "laurel.linear_right."},
  name_pair{"laurel_post_norm.", "laurel.post_laurel_norm."},
  name_pair{"nextn.eh_proj.", "eh_proj."}, // of multi-token prediction
  name_pair{"nextn.enorm.", "enorm."},
  name_pair{"nextn.hnorm.", "hnorm."},
  name_pair{"nextn.shared_head_norm.", "shared_head.norm."},
  name_pair{"nextn.shared_head_head.", "shared_head.head."},
  name_pair{"nextn.embed_tokens.", "embed_tokens."},
};

/// The same for layers whose norms are also after attention and MLP.
constexpr name_pair inner_mlp_norm{"ffn_norm.", "pre_feedforward_layernorm."};

using side = std::string_view name_pair::*;

/// The name in the other format, or the name itself if there is none.
std::string translated(std::string_view name, side from, side to) {
  const name_pair layers{"blk.", "model.layers."};
  std::string prefix;
  auto rest = name;
  std::span<const name_pair> names = outer_names;
  if (name.starts_with(layers.*from)) {
    const auto number_end = name.find('.', (layers.*from).size());
    if (number_end == std::string_view::npos)
      return std::string(name);
    prefix = std::string(layers.*to) +
      std::string(name.substr((layers.*from).size(), number_end + 1 - (layers.*from).size()));
    rest = name.substr(number_end + 1);
    names = layer_names;
  }
  for (const auto& pair : names)
    if (rest.starts_with(pair.*from))
      return prefix + std::string(pair.*to) + std::string(rest.substr((pair.*from).size()));
  return std::string(name);
}

class gguf_checkpoint final : public checkpoint {
public:
  gguf_checkpoint(std::shared_ptr<const gguf_file> file, const model_config& config)
    : file_(std::move(file)),
      interleaved_(config.family == "llama" && !is_own_form(*file_)),
      norms_both_(config.norms == norm_place::both),
      head_dim_(static_cast<std::size_t>(config.head_dim)) {
    for (const auto& [name, tensor] : file_->tensors()) {
      if (name == "rope_freqs.weight" || name == "rope_factors_short.weight" || name == "rope_factors_long.weight")
        continue; // read with the configuration
      if (is_half_again(name))
        continue;
      const auto [place, added] = tensors_.emplace(presented(name), &tensor);
      if (!added)
        throw failure(errc::bad_file, file_->name() + ": tensor " + shown(name) + " is there under two names");
    }
  }

  std::string name() const override { return file_->name(); }

  std::vector<std::string> tensors() const override { return names_in(tensors_); }

  const tensor_info* find(std::string_view tensor) const override {
    const auto found = tensors_.find(tensor);
    return found == tensors_.end() ? nullptr : &found->second->info;
  }

  tensor_data read(std::string_view name) const override {
    const auto& tensor = *tensors_.at(std::string(name));
    const auto part = file_->bytes_of(tensor);
    const auto& map = file_->map_of(tensor);
    map.prefetch(part);
    tensor_data mapped(part.data(), [file = file_, &map, part](const void*) { map.release(part); });
    const bool rotated = name.ends_with(".q_proj.weight") || name.ends_with(".k_proj.weight") ||
      name.ends_with(".q_proj.bias") || name.ends_with(".k_proj.bias");
    return interleaved_ && rotated ? halves_from_pairs(name, tensor.info, part) : mapped;
  }

  void prefetch(std::string_view name) const override {
    const auto& tensor = *tensors_.at(std::string(name));
    file_->map_of(tensor).prefetch(file_->bytes_of(tensor));
  }

  /// With the name in the file, even for missing tensors.
  std::string where(std::string_view tensor) const override {
    const auto own = stored(tensor);
    const auto found = file_->tensors().find(own);
    const auto& file = found == file_->tensors().end() ? file_->name() : file_->name_of(found->second);
    return own == tensor ? file : file + " (" + shown(own) + ")";
  }

  std::vector<file_state> files() const override { return file_->files(); }

private:
  /// Files of the llama architecture order q and k for rotating neighbours, (0, 1), (2, 3), ...; here element i pairs
  /// with i + head_dim / 2. So the even rows of each head go first, then the odd ones.
  tensor_data halves_from_pairs(std::string_view name, const tensor_info& info, std::span<const std::byte> from) const {
    const auto rows = info.shape[0];
    if (rows == 0 || rows % head_dim_ != 0)
      throw failure(errc::bad_file,
                    where(name) + ": tensor " + shown(name) + " has " + std::to_string(rows) +
                      " rows, expected a multiple of " + std::to_string(head_dim_));
    const std::size_t row_bytes = info.bytes / rows, half = head_dim_ / 2;
    std::shared_ptr<std::byte[]> to(new std::byte[info.bytes]);
    for (std::size_t row = 0; row < rows; ++row) {
      const auto in_head = row % head_dim_;
      const auto source = row - in_head + in_head % half * 2 + in_head / half;
      std::memcpy(to.get() + row * row_bytes, from.data() + source * row_bytes, row_bytes);
    }
    return to;
  }

  /// Some files have the matrix of latent attention whole, as attn_kv_b, and its two halves too.
  bool is_half_again(std::string_view name) const {
    for (const std::string_view half : {"attn_k_b.weight", "attn_v_b.weight"})
      if (name.ends_with(half))
        return file_->tensors().contains(std::string(name.substr(0, name.size() - half.size())) + "attn_kv_b.weight");
    return false;
  }

  /// Between the names in the file and those of Hugging Face.
  std::string presented(std::string_view name) const {
    if (const auto at = name.find(inner_mlp_norm.gguf); norms_both_ && at != name.npos)
      return "model.layers." + std::string(name.substr(4, at - 4)) + std::string(inner_mlp_norm.hugging_face) +
        std::string(name.substr(at + inner_mlp_norm.gguf.size()));
    return translated(name, &name_pair::gguf, &name_pair::hugging_face);
  }
  std::string stored(std::string_view name) const {
    for (const auto& [own, _] : file_->tensors())
      if (presented(own) == name)
        return own;
    return translated(name, &name_pair::hugging_face, &name_pair::gguf);
  }

  std::shared_ptr<const gguf_file> file_;
  bool interleaved_;
  bool norms_both_;
  std::size_t head_dim_;
  std::map<std::string, const gguf_tensor*, std::less<>> tensors_;
};

} // namespace

std::string gguf_tensor_name(std::string_view hugging_face) {
  return translated(hugging_face, &name_pair::hugging_face, &name_pair::gguf);
}

std::unique_ptr<const checkpoint> make_gguf_checkpoint(std::shared_ptr<const gguf_file> file,
                                                       const model_config& config) {
  return std::make_unique<gguf_checkpoint>(std::move(file), config);
}

namespace {

named_infill parse_gguf_infill(const gguf_metadata& metadata, int vocab) {
  const auto id = [&](std::initializer_list<std::string_view> keys) -> std::optional<token_id> {
    for (const auto key : keys) {
      const auto found = metadata.integer(key, 0, std::numeric_limits<std::uint32_t>::max());
      if (found && *found < vocab) // the highest u32 means none
        return static_cast<token_id>(*found);
    }
    return {};
  };
  return {.prefix = id({"tokenizer.ggml.fim_pre_token_id", "tokenizer.ggml.prefix_token_id"}),
          .suffix = id({"tokenizer.ggml.fim_suf_token_id", "tokenizer.ggml.suffix_token_id"}),
          .middle = id({"tokenizer.ggml.fim_mid_token_id", "tokenizer.ggml.middle_token_id"}),
          .pad = id({"tokenizer.ggml.fim_pad_token_id"}),
          .repository = id({"tokenizer.ggml.fim_rep_token_id"}),
          .file = id({"tokenizer.ggml.fim_sep_token_id"})};
}

} // namespace

model_source open_gguf(const std::filesystem::path& path) {
  const auto file = std::make_shared<const gguf_file>(path);
  auto config = parse_gguf_config(*file);
  auto stored = make_gguf_checkpoint(file, config);
  const bool own = is_own_form(*file);
  auto mtp = find_mtp_layers(*stored, config, !own);
  if (mtp)
    mtp->norm_offset = 0; // norms are stored as they are multiplied with
  auto tensors = own ? std::move(stored) : arrange_gguf(std::move(stored), with_mtp_layers(config, mtp));
  tensors = with_activations(std::move(tensors), *file, config);
  if (mtp && !has_all(*tensors, *mtp)) // as those who cut files down leave them
    mtp.reset();
  const auto infill = parse_gguf_infill(file->metadata(), config.vocab);
  auto pooled = read_gguf_pooling(file, config, *tensors);
  const auto of_several = gguf_part_name::of(path);
  return {of_several ? std::filesystem::path(of_several->stem).filename().string()
                     : (has_gguf_extension(path) ? path.stem() : path.filename()).string(),
          std::move(config),
          parse_gguf_generation(*file),
          std::move(tensors),
          [file] { return make_gguf_tokenizer(*file); },
          [file](const std::string& instead) { return make_gguf_chat_template(*file, instead); },
          file->files(),
          std::move(pooled.embeddings),
          std::move(pooled.load_ranker),
          std::move(pooled.dense),
          {},
          infill,
          std::move(mtp)};
}

} // namespace troupe
