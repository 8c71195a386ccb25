#include "runtime/import/export/folder_export.hpp"

#include "runtime/model/tensor_names.hpp"
#include "runtime/support/error.hpp"
#include "runtime/support/files/atomic_file.hpp"
#include "runtime/support/files/file_reading.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <fcntl.h>
#include <sys/stat.h>
#include <system_error>

namespace troupe {

namespace {

namespace fs = std::filesystem;

} // namespace

new_folder::new_folder(fs::path folder) : folder_(std::move(folder)) {
  if (folder_.filename().empty())
    folder_ = folder_.parent_path();
  std::error_code ignored;
  if (fs::exists(fs::symlink_status(folder_, ignored)) && !(fs::is_directory(folder_) && fs::is_empty(folder_)))
    throw failure(errc::bad_request, folder_.string() + ": is there already; give the result another name");
  beside_ = folder_.parent_path() / ("." + folder_.filename().string() + ".troupe-partial");
  const auto fail = [&](const std::string& why) {
    throw failure(errc::bad_file, folder_.string() + ": cannot be written: " + why);
  };
  for (;;) {
    if (mkdir(beside_.c_str(), 0777) != 0 && errno != EEXIST)
      fail(std::generic_category().message(errno));
    struct stat s {};
    opened_ = descriptor(open(beside_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW));
    if (!opened_ || fstat(opened_.get(), &s) != 0 || s.st_uid != geteuid())
      fail(beside_.string() + " is in the way: it is not a folder of this user's; remove it");
    if (!try_lock(opened_))
      fail("another process is writing it");
    if (is_called(opened_.get(), beside_)) // else the previous holder has renamed or removed it
      break;
  }
  owned_ = true;
  std::error_code failed;
  for (const auto& left : fs::directory_iterator(beside_, failed)) // by a process that died
    fs::remove_all(left.path(), failed);
}

new_folder::~new_folder() {
  std::error_code ignored;
  if (owned_)
    fs::remove_all(beside_, ignored);
}

void new_folder::commit() {
  std::error_code failed;
  fs::remove(folder_, failed); // an empty one
  fs::rename(beside_, folder_, failed);
  if (failed)
    throw failure(errc::bad_file, folder_.string() + ": cannot be written: " + failed.message());
  owned_ = false;
}

model_source open_folder(const std::string& name, const log_sink& log) {
  const auto model = path_of_model(name);
  auto source = open_model(model);
  if (!fs::is_directory(model) || gguf_file_of(model))
    throw failure(errc::unsupported,
                  model + " is not a folder of Hugging Face's files, from which alone such a folder can be made");
  constexpr std::array<std::string_view, 4> written{"llama", "mistral", "qwen2", "qwen3"};
  if (std::ranges::find(written, source.config.family) == written.end())
    throw failure(errc::unsupported,
                  model + ": models of the family `" + source.config.family +
                    "` are not written to folders, supported are llama, mistral, qwen2 and qwen3");
  for (auto& line : check_tensors(*source.tensors, source.config))
    if (log)
      log(std::move(line));
  if (read_config(model).quantised)
    throw failure(errc::bad_request, model + ": its matrices are quantised already; take the original");
  return source;
}

std::vector<std::string> layer_matrices(const model_config& config) {
  std::vector<std::string> result;
  for (const auto& name : tensors_used(config))
    if (name.starts_with("model.layers.") && name.ends_with("_proj.weight"))
      result.push_back(name);
  return result;
}

void describe_folder(const fs::path& from, const fs::path& to, const std::string& quantization) {
  constexpr std::array<std::string_view, 5> kinds{".json", ".jinja", ".model", ".txt", ".tiktoken"};
  for (const auto& entry : fs::directory_iterator(from)) {
    const auto name = entry.path().filename().string();
    if (!entry.is_regular_file() || name == "config.json" || name.ends_with(".safetensors.index.json") ||
        name.ends_with(".bin.index.json") ||
        std::ranges::none_of(kinds, [&](std::string_view kind) { return name.ends_with(kind); }))
      continue;
    write_file(to / name, read_file(entry.path(), files::tokenizer));
  }
  const auto text = read_file(from / "config.json", files::configuration);
  const auto end = text.rfind('}');
  if (end == text.npos)
    throw failure(errc::bad_file, (from / "config.json").string() + ": is no JSON object");
  write_file(to / "config.json",
             text.substr(0, text.find_last_not_of(" \t\r\n", end - 1) + 1) +
               ",\n  \"quantization_config\": " + quantization + "\n}\n");
}

} // namespace troupe
