#include "api/cli/outputs.hpp"

#include "api/cli/command.hpp"
#include "api/cli/common_options.hpp"
#include "runtime/import/model_source.hpp"
#include "runtime/support/error.hpp"

#include <CLI/CLI.hpp>

#include <filesystem>
#include <vector>

namespace troupe::cli {

namespace {

namespace fs = std::filesystem;

/// What a value of a flag may name: a file, a folder, a model, NAME=PATH, or stdin, which may be a file, too.
std::vector<std::string> paths_in(const std::string& value) {
  if (value == "-")
    return {"/dev/stdin"};
  std::vector<std::string> paths{value};
  if (const auto equals = value.find('='); equals != value.npos)
    paths.push_back(value.substr(equals + 1));
  for (auto& path : paths)
    try {
      path = path_of_model(path);
    } catch (const failure&) { // it is a file, or the command says what is wrong
    }
  return paths;
}

/// The files that are read where `path` is named.
std::vector<fs::path> files_of(const std::string& path) {
  std::vector<fs::path> files{path};
  std::error_code failed;
  try {
    if (const auto gguf = gguf_file_of(path); gguf && has_gguf_extension(*gguf))
      for (const auto& part : open_gguf(*gguf).files)
        files.push_back(part.path);
  } catch (const failure&) { // as above
  }
  for (fs::recursive_directory_iterator i(path, fs::directory_options::skip_permission_denied, failed), end;
       !failed && i != end; i.increment(failed))
    files.push_back(i->path());
  return files;
}

bool is_same(const fs::path& one, const fs::path& other) {
  std::error_code failed;
  return fs::equivalent(one, other, failed) && !failed && !fs::is_directory(one, failed);
}

} // namespace

void check_output(const CLI::App& command, const std::string& out) {
  std::error_code failed;
  if (!fs::exists(out, failed) || fs::is_directory(out, failed))
    return;
  for (const auto* option : command.get_options()) {
    const auto type = option->get_type_name();
    const bool names_files = type.find("FILE") != type.npos || type.find("PATH") != type.npos ||
      type.find("FOLDER") != type.npos;
    auto values = option->check_lname("out") || !names_files ? std::vector<std::string>() : option->results();
    if (option->check_lname("model") && values.empty())
      values.push_back(bundled_model());
    for (const auto& value : values)
      for (const auto& path : paths_in(value))
        for (const auto& file : files_of(path))
          if (is_same(out, file))
            throw usage_failure("--out: " + out + " is a file that the command reads (" + option->get_name() + " " +
                                value + "); name another");
  }
}

void check_output(const CLI::App& command) {
  const auto* out = command.get_option_no_throw("--out");
  if (out && out->count() > 0)
    check_output(command, out->as<std::string>());
}

} // namespace troupe::cli
