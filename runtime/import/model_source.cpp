#include "runtime/import/model_source.hpp"

#include "runtime/checkpoint/arranged_checkpoint.hpp"
#include "runtime/checkpoint/quantised/quantised_checkpoint.hpp"
#include "runtime/checkpoint/safetensors.hpp"
#include "runtime/checkpoint/text_tensors.hpp"
#include "runtime/checkpoint/weight_values.hpp"
#include "runtime/import/gguf_model.hpp"
#include "runtime/import/hub_cache.hpp"
#include "runtime/import/local_models.hpp"
#include "runtime/import/model_names.hpp"
#include "runtime/import/pooling_config.hpp"
#include "runtime/model/families/family.hpp"
#include "runtime/support/error.hpp"
#include "runtime/support/files/file_reading.hpp"
#include "runtime/support/json/not_a_model.hpp"

#include <algorithm>
#include <cstring>
#include <system_error>

namespace troupe {

namespace {

namespace fs = std::filesystem;

constexpr std::string_view synthetic_prefix = "synthetic:";

/// Recognised by content, as blobs in download caches have no extension.
bool begins_as_gguf(const fs::path& file) { return read_start(file, 4) == "GGUF"; }

/// Whether a head is stored that is not the embeddings. Equal ones cost a look at all of both, once.
bool has_other_head(const checkpoint& tensors) {
  constexpr std::string_view head = "lm_head.weight", embeddings = "model.embed_tokens.weight";
  const auto* one = tensors.find(head);
  const auto* other = tensors.find(embeddings);
  if (!one || !other)
    return false; // what is missing is refused by name later
  if (one->shape != other->shape)
    return true;
  if (one->type == other->type)
    return std::memcmp(tensors.read(head).get(), tensors.read(embeddings).get(), one->bytes) != 0;
  const auto format = weight_format_of(one->type), other_format = weight_format_of(other->type);
  if (!format || !other_format || one->shape.size() != 2)
    return true;
  const auto rows = one->shape[0], cols = one->shape[1];
  const auto values = tensors.read(head), other_values = tensors.read(embeddings);
  std::vector<float> row(cols), other_row(cols);
  for (std::size_t r = 0; r < rows; ++r) {
    const auto* from = static_cast<const std::byte*>(static_cast<const void*>(values.get()));
    const auto* other_from = static_cast<const std::byte*>(static_cast<const void*>(other_values.get()));
    to_floats(*format, from + one->bytes / rows * r, cols, row.data());
    to_floats(*other_format, other_from + other->bytes / rows * r, cols, other_row.data());
    if (row != other_row)
      return true;
  }
  return false;
}

/// Checkpoints of a model without its head have no "model." ahead of names.
std::unique_ptr<const checkpoint> with_model_prefix(std::unique_ptr<const checkpoint> tensors) {
  if (tensors->find("model.embed_tokens.weight") || !tensors->find("embed_tokens.weight"))
    return tensors;
  arrangement how;
  for (const auto& name : tensors->tensors())
    if (name.starts_with("layers.") || name.starts_with("embed_tokens.") || name.starts_with("norm."))
      how.names.emplace(name, "model." + name);
  return arrange(std::move(tensors), how);
}

/// Jina's third embeddings have low-rank matrices for tasks beside the matrices that they change: presented as what
/// belongs to no layer, so that it can be left out. Returns how many there are.
std::size_t set_task_adapters_apart(std::unique_ptr<const checkpoint>& tensors) {
  constexpr std::string_view whole = ".parametrizations.weight.original", part = ".parametrizations.weight.0.lora_";
  arrangement how;
  std::size_t adapters = 0;
  for (const auto& name : tensors->tensors()) {
    if (name.ends_with(whole))
      how.names.emplace(name, name.substr(0, name.size() - whole.size()) + ".weight");
    if (name.find(part) == name.npos)
      continue;
    how.names.emplace(name, "adapters." + name);
    ++adapters;
  }
  if (!how.empty())
    tensors = arrange(std::move(tensors), how);
  return adapters;
}

/// Also for "folder/" and ".".
std::string name_of(const fs::path& folder) {
  if (auto id = hub_id_of(folder))
    return *id;
  std::error_code ignored;
  const auto full = fs::weakly_canonical(folder, ignored);
  return (full.filename() == "model" ? full.parent_path() : full).filename().string();
}

} // namespace

bool has_gguf_extension(const fs::path& file) { return is_gguf_name(file.string()); }

namespace {

struct model_place_and_name {
  std::string path, name; // the name: as it was given, or as `troupe models` has it
};

bool is_path(const std::string& model) { return model.find_first_of("./~") == 0; }

/// Why there is no such model, and what to do.
[[noreturn]] void refuse_unknown(const std::string& model) {
  const auto similar = similar_models(is_path(model) ? fs::path(model).filename().string() : model);
  if (is_path(model) || is_gguf_name(model))
    throw failure(errc::not_found, model + (is_gguf_name(model) ? ": no such file" : ": no such folder") + similar);
  throw failure(errc::not_found,
                "there is no model `" + model + "` on this machine" +
                  (!similar.empty()     ? similar
                     : is_hub_id(model) ? "; `troupe pull " + model + "` fetches it"
                                        : "; `troupe models` lists those there are"));
}

model_place_and_name find_model(const std::string& model) {
  if (is_synthetic(model) || is_there(model))
    return {model, model};
  if (!is_gguf_name(model) && is_there(model + ".gguf"))
    return {model + ".gguf", model};
  if (is_hub_id(model))
    if (const auto version = find_in_hub_cache(model)) {
      const auto several = gguf_models_in(*version, model);
      if (several.size() <= 1)
        return {(several.empty() ? *version : several.front().path).string(), model};
      std::string names;
      for (const auto& one : several)
        names += (names.empty() ? "" : ", ") + one.name;
      throw failure(errc::not_found, model + ": there are several models, name one of " + names);
    }
  if (const auto found = find_local_model(model))
    return {found->path.string(), found->name};
  refuse_unknown(model);
}

/// Whether a file says what the model is called: neither a blob nor a file of a repository, whose name is another.
bool is_named_by_file(const fs::path& file) {
  const auto cache = hub_cache();
  return has_gguf_extension(file) &&
    std::mismatch(cache.begin(), cache.end(), file.begin(), file.end()).first != cache.end();
}

} // namespace

std::string path_of_model(const std::string& model) { return find_model(model).path; }

std::optional<fs::path> gguf_file_of(const std::string& model) {
  const fs::path path(model);
  std::error_code error;
  const auto there = fs::status(path, error);
  if (error)
    throw failure(errc::not_found, model + ": cannot be read: " + error.message());
  if (fs::is_regular_file(there) && (has_gguf_extension(path) || begins_as_gguf(path)))
    return path;
  if (fs::is_regular_file(there))
    refuse_file(path);
  if (!fs::is_directory(there))
    throw failure(errc::unsupported, model + ": a model is a folder or a .gguf file, not a file of another kind");
  if (is_there(path / "config.json"))
    return std::nullopt;
  std::optional<fs::path> only;
  auto entry = fs::directory_iterator(path, error);
  for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
    std::error_code ignored;
    const auto& file = entry->path();
    if (!may_be_model_name(file.filename().string()) || !entry->is_regular_file(ignored))
      continue;
    if (only)
      throw failure(errc::bad_file, model + ": holds several .gguf files; name one of them");
    only = file;
  }
  if (error)
    throw failure(errc::bad_file, model + ": cannot be read: " + error.message());
  return only;
}

bool is_synthetic(std::string_view model) { return model.starts_with(synthetic_prefix); }

model_source open_model(const std::string& name) {
  if (is_synthetic(name))
    return make_synthetic(std::string_view(name).substr(synthetic_prefix.size()));
  const auto [model, listed] = find_model(name);
  if (const auto file = gguf_file_of(model)) {
    auto source = open_gguf(*file);
    if (model != name && !is_named_by_file(*file))
      source.name = listed;
    return source;
  }
  const fs::path folder(model);
  if (!is_there(folder / "config.json"))
    refuse_folder(folder, missing::configuration);
  auto config_file = state_of(folder / "config.json");
  auto [config, generation, quantised] = read_config(folder);
  auto sentences = read_sentence_style(folder);
  auto load_ranker = read_classifier(json::document::load(folder / "config.json"), config, sentences.activation);
  if ((config.encoder || is_there(folder / "modules.json")) && sentences.max_tokens > 0)
    config.max_context = std::min(config.max_context, sentences.max_tokens);
  if (load_ranker)
    sentences.embeddings = {
      .how = pooling::none, .normalise = false, .refusal = "it is for classification, and scores texts"};
  else if (config.encoder && !is_there(folder / "modules.json") && !is_there(folder / "1_Pooling" / "config.json"))
    sentences.embeddings.how = pooling::cls; // as vLLM takes encoders that say nothing
  std::unique_ptr<const checkpoint> tensors = with_model_prefix(open_safetensors(folder));
  if (!config.multimodal.empty()) {
    tensors = open_text_tensors(std::move(tensors));
    // Versions of transformers disagree on which level says that the head is tied, and on what holds if none does.
    config.tied = config.tied && !tensors->find("lm_head.weight");
  }
  if (quantised)
    tensors = open_quantised(std::move(tensors), *quantised);
  std::vector<std::string> remarks;
  if (config.encoder && set_task_adapters_apart(tensors) > 0)
    remarks.push_back(tensors->name() +
                      ": embeddings are those of the model itself: its adapters for tasks are not used");
  tensors = rename_mtp_layers(std::move(tensors), config);
  auto mtp = find_mtp_layers(*tensors, config);
  tensors = arrange_tensors(std::move(tensors), with_mtp_layers(config, mtp));
  if (config.tied && has_other_head(*tensors)) {
    config.tied = false;
    remarks.push_back(tensors->name() +
                      ": `tie_word_embeddings` is true, but `lm_head.weight` is there and differs from the "
                      "embeddings; it is used");
  }
  auto files = tensors->files();
  files.push_back(std::move(config_file));
  const int hidden = config.hidden;
  return {name_of(folder),
          std::move(config),
          std::move(generation),
          std::move(tensors),
          [folder] { return tokenizer::load(folder); },
          [folder](const std::string& instead) { return chat_template::load(folder, instead); },
          std::move(files),
          std::move(sentences.embeddings),
          std::move(load_ranker),
          load_dense(sentences.dense, sentences.embeddings.how, hidden),
          std::move(remarks),
          {},
          std::move(mtp)};
}

std::shared_ptr<const tokenizer> open_tokenizer(const std::string& model) {
  if (is_synthetic(model))
    throw failure(errc::unsupported, model + " has no tokenizer");
  const auto path = path_of_model(model);
  const auto file = gguf_file_of(path);
  return file ? make_gguf_tokenizer(gguf_file(*file, gguf_part::metadata)) : tokenizer::load(path);
}

std::optional<chat_template> open_chat_template(const std::string& model, const std::string& instead) {
  if (is_synthetic(model))
    return std::nullopt;
  const auto path = path_of_model(model);
  const auto file = gguf_file_of(path);
  return file ? make_gguf_chat_template(gguf_file(*file, gguf_part::metadata), instead)
              : chat_template::load(path, instead);
}

} // namespace troupe
