#include "api/hub/repository.hpp"

#include "runtime/checkpoint/gguf_file.hpp"
#include "runtime/import/folder_files.hpp"
#include "runtime/import/hub_cache.hpp"
#include "runtime/import/model_names.hpp"
#include "runtime/support/json/json_reader.hpp"
#include "runtime/support/text/visible_text.hpp"

#include <algorithm>
#include <set>

namespace troupe::hub {

namespace {

constexpr std::size_t most_files = 20'000, longest_path = 512;
constexpr std::int64_t largest_file = std::int64_t(1) << 42;

bool is_letter(unsigned char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

bool is_hexadecimal(std::string_view text) { return text.find_first_not_of("0123456789abcdef") == text.npos; }

/// Relative, within its folder, and nothing that terminals or file systems take amiss.
bool is_safe_path(std::string_view path) {
  if (path.empty() || path.size() > longest_path)
    return false;
  for (const unsigned char c : path)
    if (c < ' ' || c == 0x7f || c == '\\')
      return false;
  for (std::size_t at = 0; at <= path.size();) {
    const auto end = std::min(path.find('/', at), path.size());
    const auto part = path.substr(at, end - at);
    if (part.empty() || part == "." || part == ".." || part.size() > 255)
      return false;
    at = end + 1;
  }
  return true;
}

remote_file file_of(const json::reader& entry, const std::string& name) {
  remote_file file;
  file.path = entry.at("rfilename").string();
  if (!is_safe_path(file.path))
    throw failure(errc::bad_file, name + ": lists a file with an impossible name");
  if (entry.has("size"))
    file.size = static_cast<std::uint64_t>(entry.at("size").integer(0, largest_file));
  const bool large = entry.has("lfs");
  if (large) {
    const auto pointed = entry.at("lfs");
    file.size = static_cast<std::uint64_t>(pointed.at("size").integer(0, largest_file));
    file.checksum = pointed.at("sha256").string();
  } else if (entry.has("blobId"))
    file.checksum = entry.at("blobId").string();
  if (!file.checksum.empty() &&
      (!is_hexadecimal(file.checksum) || file.checksum.size() != (large ? std::size_t(64) : std::size_t(40))))
    throw failure(errc::bad_file, name + ": `" + file.path + "` has an impossible checksum");
  return file;
}

std::vector<remote_file> select_folder(const repository& from) {
  const auto has = [&](std::string_view path) {
    return std::ranges::find(from.files, path, &remote_file::path) != from.files.end();
  };
  const bool several = has("model.safetensors.index.json"), one = has("model.safetensors");
  if (!has("config.json") || (!several && !one))
    return {};
  std::vector<remote_file> files;
  for (const auto& file : from.files)
    if (is_folder_file(file.path) || is_folder_weights(file.path, several))
      files.push_back(file);
  return files;
}

std::string list_of(const std::vector<std::string>& names) {
  constexpr std::size_t most_named = 40;
  std::string text;
  for (std::size_t i = 0; i < names.size() && i < most_named; ++i)
    text += (i == 0 ? "" : ", ") + names[i];
  return text + (names.size() > most_named ? ", ..." : "");
}

/// All parts of the model that begins with `first`.
std::vector<remote_file> with_parts(const repository& from, const remote_file& first) {
  const auto part = gguf_part_name::of(first.path);
  if (!part)
    return {first};
  std::vector<remote_file> files;
  for (int number = 1; number <= part->count; ++number) {
    const auto path = part->part(number).string();
    const auto found = std::ranges::find(from.files, path, &remote_file::path);
    if (found == from.files.end())
      throw failure(errc::not_found,
                    first.path + " is the first of " + std::to_string(part->count) + " parts, but there is no " + path);
    files.push_back(*found);
  }
  return files;
}

} // namespace

bool is_cache_name(std::string_view text) {
  return !text.empty() && text.size() <= 128 && text.front() != '.' && text.front() != '-' &&
    std::ranges::all_of(text, [](unsigned char c) { return is_letter(c) || c == '-' || c == '_' || c == '.'; });
}

bool is_revision(std::string_view text) {
  return text.size() <= 255 && is_safe_path(text) && text.front() != '-' &&
    std::ranges::all_of(text,
                        [](unsigned char c) { return is_letter(c) || c == '-' || c == '_' || c == '.' || c == '/'; });
}

repository parse_repository(std::string_view answer, const std::string& name) {
  const auto document = json::document::parse(answer, name);
  const json::reader root(document);
  repository result;
  result.commit = root.at("sha").string();
  if (!is_cache_name(result.commit))
    throw failure(errc::bad_file, name + ": `sha` is not the name of a version");
  const auto entries = root.at("siblings");
  if (entries.array().size() > most_files)
    throw failure(errc::bad_file, name + ": lists more than " + std::to_string(most_files) + " files");
  std::set<std::string> paths;
  for (const auto entry : entries.array()) {
    result.files.push_back(file_of(json::reader(entry, name, "siblings", json::config_wording), name));
    if (!paths.insert(result.files.back().path).second)
      throw failure(errc::bad_file, name + ": lists `" + result.files.back().path + "` twice");
  }
  return result;
}

model_request parse_model_request(std::string_view text, std::string_view endpoint) {
  auto rest = text;
  for (const auto& prefix : {std::string(endpoint) + "/", std::string("https://huggingface.co/"),
                             std::string("huggingface.co/"), std::string("https://hf.co/"), std::string("hf.co/")})
    if (rest.starts_with(prefix)) {
      rest.remove_prefix(prefix.size());
      break;
    }
  while (rest.ends_with('/'))
    rest.remove_suffix(1);
  const auto colon = rest.find(':');
  model_request result{std::string(rest.substr(0, colon)), {}, "main"};
  if (colon != rest.npos)
    result.format = rest.substr(colon + 1);
  if (!is_hub_id(result.id) || (colon != rest.npos && !is_safe_path(result.format)))
    throw failure(errc::bad_request,
                  "`" + visible_name(text) +
                    "` is not a model of the hub; that is ORG/NAME, or ORG/NAME:FORMAT for one of several GGUF files");
  return result;
}

std::vector<remote_file> select_files(const repository& from, const std::string& id, const std::string& format) {
  if (format.empty())
    if (auto folder = select_folder(from); !folder.empty())
      return folder;
  std::vector<remote_file> ggufs;
  std::vector<std::string> formats; // as they may be asked for
  for (const auto& file : from.files)
    if (may_be_model_name(file.path)) {
      ggufs.push_back(file);
      formats.push_back(format_in_name(file.path).value_or(stem_of_gguf(file.path)));
    }
  if (ggufs.empty()) {
    const bool pytorch = std::ranges::any_of(
      from.files, [](const remote_file& f) { return f.path.ends_with(".bin") || f.path.ends_with(".pth"); });
    throw failure(errc::unsupported,
                  id + " has " + (format.empty() ? "neither a checkpoint of safetensors nor " : "no ") + "GGUF files" +
                    (pytorch ? ", only weights in PyTorch's format, which can run code" : ""));
  }
  const auto asked = [&](const remote_file& file, const std::string& wanted) {
    return same_name(format_in_name(file.path).value_or(""), wanted) || same_name(stem_of_gguf(file.path), wanted) ||
      same_name(file.path, wanted);
  };
  const auto matching = [&](const std::string& wanted) {
    std::vector<remote_file> found;
    std::ranges::copy_if(ggufs, std::back_inserter(found), [&](const auto& file) { return asked(file, wanted); });
    return found;
  };
  auto found = ggufs.size() == 1 && format.empty() ? ggufs : matching(format);
  if (format.empty())
    for (const char* usual : {"Q4_K_M", "Q4_0", "Q8_0"}) // small and good enough, as llama.cpp's programs choose
      if (found.empty())
        found = matching(usual);
  if (found.empty() && format.empty())
    found = ggufs;
  if (found.empty())
    throw failure(errc::not_found, id + " has no `" + format + "`; there are " + list_of(formats));
  if (found.size() > 1) {
    std::vector<std::string> names;
    for (const auto& file : found)
      names.push_back(id + ":" + stem_of_gguf(file.path));
    throw failure(errc::not_found, id + " has several such models; name one of " + list_of(names));
  }
  return with_parts(from, found.front());
}

} // namespace troupe::hub
