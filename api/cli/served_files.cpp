#include "api/cli/served_files.hpp"

#include "runtime/import/local_models.hpp"
#include "runtime/support/files/checksum.hpp"
#include "runtime/support/text/hex.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <optional>
#include <span>
#include <system_error>
#include <vector>

namespace troupe::cli {

namespace {

namespace fs = std::filesystem;

/// A file, with the other parts of a model that is divided ("x-00001-of-00003.gguf"); or all files of a folder.
std::vector<fs::path> files_of(const fs::path& place) {
  std::error_code error;
  std::vector<fs::path> files;
  const auto name = place.filename().string();
  const auto part = name.find("-00001-of-");
  if (!fs::is_directory(place, error) && part == name.npos)
    return {place};
  const auto folder = fs::is_directory(place, error) ? place : place.parent_path();
  const auto begins = folder == place ? std::string() : name.substr(0, part + 1);
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error))
    if (std::error_code ignored; at->is_regular_file(ignored) && at->path().filename().string().starts_with(begins))
      files.push_back(at->path());
  std::ranges::sort(files);
  return files;
}

bool add(const fs::path& file, checksum& to) {
  std::ifstream in(file, std::ios::binary);
  std::vector<char> piece(checksum::chunk);
  while (in.read(piece.data(), static_cast<std::streamsize>(piece.size())) || in.gcount() > 0)
    to.add(std::as_bytes(std::span(piece).first(static_cast<std::size_t>(in.gcount()))));
  return in.eof();
}

std::optional<fs::path> place_of(const std::string& model) {
  std::error_code ignored;
  if (fs::exists(model, ignored))
    return model;
  try {
    if (const auto found = find_local_model(model))
      return found->path;
  } catch (const failure&) { // the load will say why
  }
  return std::nullopt;
}

} // namespace

std::string checksum_of_files(const engine_options& options) {
  const auto model = place_of(options.model);
  if (!model)
    return {};
  checksum sum;
  for (const auto& file : files_of(*model))
    if (!add(file, sum))
      return {};
  std::string text;
  for (int shift = 56; shift >= 0; shift -= 8)
    append_hex(text, static_cast<unsigned char>(sum.value() >> shift & 0xFF));
  return text;
}

} // namespace troupe::cli
