#include "runtime/support/json/not_a_model.hpp"

#include "runtime/support/files/file_reading.hpp"
#include "runtime/support/json/json.hpp"

#include <algorithm>
#include <array>
#include <string_view>
#include <system_error>
#include <vector>

namespace troupe {

namespace {

namespace fs = std::filesystem;

constexpr std::size_t most_names = 10'000;

std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (auto entry = fs::directory_iterator(folder, error);
       !error && entry != fs::directory_iterator() && names.size() < most_names; entry.increment(error))
    names.push_back(entry->path().filename().string());
  return names;
}

/// The adapter's base model, in backquotes.
std::string base_of(const fs::path& adapter) {
  try {
    const auto document = json::document::load(adapter);
    std::string_view base;
    const auto found = json::find(document.root(), "base_model_name_or_path");
    if (found && !found->get(base) && !base.empty() && base.size() < 200)
      return "`" + std::string(base) + "`";
  } catch (const failure&) { // the name of the file says enough
  }
  return "its base model";
}

} // namespace

void refuse_folder(const fs::path& folder, missing what) {
  const auto names = names_in(folder);
  const auto has = [&](std::string_view name) { return std::ranges::find(names, name) != names.end(); };
  const auto has_any = [&](const auto& suits) { return std::ranges::any_of(names, suits); };
  const auto refuse = [&](const std::string& why, errc code = errc::unsupported) {
    throw failure(code, folder.string() + ": " + why);
  };
  if (names.empty() && what == missing::configuration)
    refuse("the folder is empty; a model is a folder with config.json, model.safetensors and tokenizer.json, or a "
           ".gguf file",
           errc::not_found);
  if (what == missing::tokenizer) {
    if (has("vocab.json") || has("vocab.txt") || has("spiece.model"))
      refuse("has no tokenizer.json, only the tokenizer of an older format; in Python, "
             "transformers.AutoTokenizer.from_pretrained(FOLDER).save_pretrained(FOLDER) writes one");
    throw failure(errc::not_found, (folder / "tokenizer.json").string() + ": no such file");
  }
  if (has("adapter_config.json"))
    refuse("is a LoRA adapter (PEFT), not a model; merge it into " + base_of(folder / "adapter_config.json") +
           " first, in Python with peft's merge_and_unload() and save_pretrained()");
  if (has("params.json") && has_any([](const std::string& name) { return name.ends_with(".pth"); }))
    refuse("holds weights in their original training format (params.json, .pth); take the model in Hugging Face's "
           "format, with "
           "config.json and model.safetensors");
  if (has_any([](const std::string& name) {
        return name.ends_with(".pth") || name.ends_with(".pt") || name.ends_with(".ckpt") ||
          (name.ends_with(".bin") && name.starts_with("pytorch_model"));
      }))
    refuse("holds weights in PyTorch's format, and reading that can run code; in Python, "
           "transformers.AutoModelForCausalLM.from_pretrained(FOLDER).save_pretrained(FOLDER) writes safetensors");
  if (what == missing::weights)
    throw failure(errc::not_found,
                  folder.string() + ": holds neither model.safetensors nor model.safetensors.index.json");
  if (has_any([](const std::string& name) { return name.ends_with(".onnx"); }))
    refuse("holds a model in ONNX's format; take it as safetensors or GGUF");
  if (has("tokenizer.model") || has("tokenizer.json"))
    refuse("holds a tokenizer and no model: config.json and model.safetensors are missing", errc::not_found);
  throw failure(errc::not_found, (folder / "config.json").string() + ": no such file");
}

void refuse_file(const fs::path& file) {
  const auto start = read_start(file, 128);
  check_fetched(start, file.string());
  const std::string_view text(start);
  const auto named = [&](const std::string& what) { return failure(errc::unsupported, file.string() + ": " + what); };
  constexpr std::array<std::string_view, 4> before_gguf{"lmgg", "fmgg", "tjgg", "algg"};
  if (text.empty())
    throw named("the file is empty; a model is a folder or a .gguf file");
  if (text.size() > 8 && text[8] == '{' && file.extension() == ".safetensors")
    throw named("is one file of a model; name the folder, which has config.json and tokenizer.json beside it");
  if (text.starts_with(std::string_view("PK\3\4", 4)) || text.starts_with(std::string_view("\x80\2", 2)))
    throw named(
      "is a file of PyTorch (or a ZIP archive), and reading that can run code; a model is a folder with safetensors or "
      "a .gguf file");
  if (std::ranges::any_of(before_gguf, [&](std::string_view magic) { return text.starts_with(magic); }))
    throw named("is in a GGML format older than GGUF; get or make a .gguf file of the model");
  throw named("a model is a folder or a .gguf file, not a file of another kind");
}

} // namespace troupe
