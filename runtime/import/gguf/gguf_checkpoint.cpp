#include "runtime/checkpoint/tensor_index.hpp"
#include "runtime/import/gguf/gguf_activations.hpp"
#include "runtime/import/gguf/gguf_architectures.hpp"
#include "runtime/import/gguf/gguf_names.hpp"
#include "runtime/import/gguf/gguf_own.hpp"
#include "runtime/import/gguf/gguf_pooling.hpp"
#include "runtime/import/gguf_model.hpp"
#include "runtime/import/model_source.hpp"

#include <initializer_list>
#include <limits>

namespace troupe {

namespace {

/// Tensors as stored, blocks included, under the names of folders. Tensors without a counterpart, or of which several are
/// made, keep their names.
class gguf_checkpoint final : public checkpoint {
public:
  gguf_checkpoint(std::shared_ptr<const gguf_file> file, const model_config& config)
    : file_(std::move(file)), names_(config) {
    for (const auto& stored : file_->tensors()) {
      const auto& name = stored.first;
      if (name == "rope_freqs.weight" || name == "rope_factors_short.weight" || name == "rope_factors_long.weight")
        continue; // read with the configuration
      if (is_half_again(name))
        continue;
      const auto [place, added] = tensors_.emplace(names_.in_folder(name), &stored);
      if (!added)
        throw failure(errc::bad_file, file_->name() + ": tensor " + shown(name) + " is there under two names");
    }
  }

  std::string name() const override { return file_->name(); }

  std::vector<std::string> tensors() const override { return names_in(tensors_); }

  const tensor_info* find(std::string_view tensor) const override {
    const auto found = tensors_.find(tensor);
    return found == tensors_.end() ? nullptr : &found->second->second.info;
  }

  tensor_data read(std::string_view name) const override {
    const auto& tensor = tensors_.at(std::string(name))->second;
    const auto part = file_->bytes_of(tensor);
    const auto& map = file_->map_of(tensor);
    map.prefetch(part);
    return {part.data(), [file = file_, &map, part](const void*) { map.release(part); }};
  }

  void prefetch(std::string_view name) const override {
    const auto& tensor = tensors_.at(std::string(name))->second;
    file_->map_of(tensor).prefetch(file_->bytes_of(tensor));
  }

  /// With the name in the file, even for missing tensors.
  std::string where(std::string_view tensor) const override {
    const auto known = tensors_.find(tensor);
    const auto own = known == tensors_.end() ? names_.in_file(tensor) : known->second->first;
    const auto found = file_->tensors().find(own);
    const auto& file = found == file_->tensors().end() ? file_->name() : file_->name_of(found->second);
    return own == tensor ? file : file + " (" + shown(own) + ")";
  }

  std::vector<file_state> files() const override { return file_->files(); }

private:
  using entry = std::pair<const std::string, gguf_tensor>;

  /// Some files have the matrix of latent attention whole, as attn_kv_b, and its two halves too.
  bool is_half_again(std::string_view name) const {
    for (const std::string_view half : {"attn_k_b.weight", "attn_v_b.weight"})
      if (name.ends_with(half))
        return file_->tensors().contains(std::string(name.substr(0, name.size() - half.size())) + "attn_kv_b.weight");
    return false;
  }

  std::shared_ptr<const gguf_file> file_;
  gguf_names names_;
  std::map<std::string, const entry*, std::less<>> tensors_; // by their names here
};

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
  std::unique_ptr<const checkpoint> stored = std::make_unique<gguf_checkpoint>(file, config);
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
