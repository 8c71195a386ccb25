#include "runtime/import/local_models.hpp"

#include "runtime/checkpoint/gguf_file.hpp"
#include "runtime/import/folder_walk.hpp"
#include "runtime/import/hub_cache.hpp"
#include "runtime/import/model_names.hpp"
#include "runtime/support/json/json.hpp"
#include "runtime/support/text/nearest_name.hpp"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <set>

namespace troupe {

namespace {

namespace fs = std::filesystem;

constexpr int deepest = 6; // folders below a place

fs::path folder_variable(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

std::uint64_t bytes_of_file(const fs::path& file) {
  std::error_code error;
  const auto bytes = fs::file_size(file, error);
  return error ? 0 : bytes;
}

/// The bytes of a model that may have several parts.
std::uint64_t bytes_of_gguf(const fs::path& file) {
  const auto part = gguf_part_name::of(file);
  if (!part)
    return bytes_of_file(file);
  std::uint64_t bytes = 0;
  for (int number = 1; number <= part->count && number <= 1000; ++number)
    bytes += bytes_of_file(part->part(number));
  return bytes;
}

/// What a folder holds, judged by names.
struct folder_content {
  bool configuration = false, weights = false;
  std::uint64_t weight_bytes = 0;
  std::vector<fs::path> ggufs, folders;

  /// Some repositories of GGUF files have a config.json, too.
  bool is_checkpoint() const { return configuration && (weights || ggufs.empty()); }
};

folder_content content_of(const std::vector<folder_entry>& entries) {
  folder_content content;
  for (const auto& entry : entries) {
    const auto name = entry.path.filename().string();
    const auto extension = entry.path.extension();
    if (entry.is_folder)
      content.folders.push_back(entry.path);
    else if (name == "config.json")
      content.configuration = true;
    else if (may_be_model_name(name))
      content.ggufs.push_back(entry.path);
    else if (extension == ".safetensors" || name == "model.safetensors.index.json" ||
             name.starts_with("pytorch_model")) {
      content.weights = true;
      content.weight_bytes += bytes_of_file(entry.path);
    }
  }
  return content;
}

void add_ggufs(const folder_content& content, int depth, folder_walk& walk, std::vector<fs::path>& to) {
  to.insert(to.end(), content.ggufs.begin(), content.ggufs.end());
  if (depth > 0)
    for (const auto& folder : content.folders)
      add_ggufs(content_of(walk.entries(folder)), depth - 1, walk, to);
}

/// `files` are of the repository `folder`. Those that state the same format, or none, are told apart by their paths.
std::vector<local_model> named_by_format(const std::vector<fs::path>& files, const fs::path& folder,
                                         const std::string& name) {
  std::map<std::string, int> times;
  for (const auto& file : files)
    ++times[format_in_name(file.string()).value_or("")];
  std::vector<local_model> models;
  for (const auto& file : files) {
    const auto format = format_in_name(file.string());
    const auto within = file.lexically_relative(folder).parent_path() / stem_of_gguf(file.string());
    models.push_back(
      {name + ":" + (format && times[*format] == 1 ? *format : within.string()), file, {}, bytes_of_gguf(file)});
  }
  return models;
}

class finder {
public:
  finder(std::vector<std::string>& remarks, std::size_t most) : remarks_(remarks), most_(most) {}

  std::vector<local_model> find() {
    for (const auto& [source, folder] : model_places()) {
      source_ = source;
      folder_walk walk(remarks_, most_);
      const auto first = models_.size();
      if (source == "~/models")
        add_folder(folder, folder, deepest, walk);
      else if (source == "Hugging Face")
        add_hub_cache(folder, walk);
      else if (source == "Ollama")
        add_ollama(folder, walk);
      else
        add_llama_cpp(folder, walk);
      std::ranges::stable_sort(models_.begin() + static_cast<std::ptrdiff_t>(first), models_.end(), {},
                               &local_model::name);
    }
    std::set<std::string> names;
    for (auto& model : models_)
      if (!names.insert(model.name).second)
        model.name = model.path.string();
    return std::move(models_);
  }

  std::vector<local_model> find_below(const fs::path& folder) {
    folder_walk walk(remarks_, most_);
    add_folder(folder, folder, deepest, walk);
    std::ranges::stable_sort(models_, {}, &local_model::name);
    return std::move(models_);
  }

private:
  void add(std::string name, const fs::path& path, std::uint64_t bytes) {
    models_.push_back({std::move(name), path, source_, bytes});
  }

  void add_all(std::vector<local_model> models) {
    for (auto& model : models) {
      model.source = source_;
      models_.push_back(std::move(model));
    }
  }

  void add_folder(const fs::path& folder, const fs::path& place, int depth, folder_walk& walk) {
    const auto content = content_of(walk.entries(folder));
    const auto name_of = [&](const fs::path& path) { return path.lexically_relative(place).string(); };
    if (content.is_checkpoint()) {
      add(folder == place ? folder.string() : name_of(folder), folder, content.weight_bytes);
      return;
    }
    for (const auto& file : content.ggufs)
      add(name_of(file), file, bytes_of_gguf(file));
    if (depth > 0)
      for (const auto& below : content.folders)
        add_folder(below, place, depth - 1, walk);
  }

  void add_hub_cache(const fs::path& cache, folder_walk& walk) {
    for (const auto& [repository, is_folder] : walk.entries(cache)) {
      const auto id = is_folder ? hub_id_of_repository(repository.filename().string()) : std::nullopt;
      if (!id)
        continue;
      try {
        if (const auto version = version_in_hub_cache(repository))
          add_version(*version, *id, walk);
        else // fetched by the names of versions only
          for (const auto& [snapshot, is_version] : walk.entries(repository / "snapshots"))
            if (is_version)
              add_version(snapshot, snapshot.string(), walk);
      } catch (const failure& e) {
        remarks_.emplace_back(e.what());
      }
    }
  }

  void add_version(const fs::path& version, const std::string& name, folder_walk& walk) {
    const auto content = content_of(walk.entries(version));
    if (content.is_checkpoint()) {
      add(name, version, content.weight_bytes);
      return;
    }
    std::vector<fs::path> files;
    add_ggufs(content, 2, walk, files);
    add_all(named_by_format(files, version, name));
  }

  /// manifests/HOST/NAMESPACE/MODEL/TAG names blobs/sha256-DIGEST.
  void add_ollama(const fs::path& folder, folder_walk& walk) {
    const auto manifests = folder / "manifests";
    const auto below = [&](const fs::path& at) {
      auto entries = walk.entries(at);
      std::erase_if(entries, [](const folder_entry& entry) { return !entry.is_folder; });
      return entries;
    };
    for (const auto& host : below(manifests))
      for (const auto& space : below(host.path))
        for (const auto& model : below(space.path))
          for (const auto& tag : walk.entries(model.path)) {
            if (tag.is_folder)
              continue;
            auto name = model.path.filename().string() + ":" + tag.path.filename().string();
            if (const auto of = space.path.filename().string(); of != "library")
              name.insert(0, of + "/");
            if (const auto at = host.path.filename().string(); at != "registry.ollama.ai")
              name.insert(0, at + "/");
            add_manifest(name, tag.path, folder / "blobs");
          }
  }

  void add_manifest(const std::string& name, const fs::path& file, const fs::path& blobs) {
    constexpr std::string_view algorithm = "sha256:";
    try {
      const auto manifest = json::document::load(file);
      json::array layers;
      if (!manifest.root().is_object() || manifest.root()["layers"].get(layers) != simdjson::SUCCESS)
        return; // of a model that runs elsewhere
      for (const auto layer : layers) {
        std::string_view kind, digest;
        if (!layer.is_object() || layer["mediaType"].get(kind) != simdjson::SUCCESS ||
            layer["digest"].get(digest) != simdjson::SUCCESS || kind != "application/vnd.ollama.image.model")
          continue;
        if (!digest.starts_with(algorithm) ||
            digest.find_first_not_of("0123456789abcdef", algorithm.size()) != digest.npos)
          continue;
        const auto blob = blobs / ("sha256-" + std::string(digest.substr(algorithm.size())));
        add(name, blob, bytes_of_file(blob));
        return;
      }
    } catch (const failure& e) {
      remarks_.emplace_back(e.what());
    }
  }

  /// Files are called ORG_NAME_FILE.gguf, and "manifest=ORG=NAME=TAG.json" says which ones were asked for by id. (Later
  /// versions of llama.cpp use the hub's cache.)
  void add_llama_cpp(const fs::path& folder, folder_walk& walk) {
    const auto entries = walk.entries(folder);
    std::map<std::string, std::string> ids; // by the beginning of files' names
    for (const auto& [path, is_folder] : entries) {
      constexpr std::string_view start = "manifest=";
      const auto name = path.filename().string();
      const auto end = name.rfind('=');
      if (is_folder || !name.starts_with(start) || end <= start.size())
        continue;
      auto id = name.substr(start.size(), end - start.size());
      std::ranges::replace(id, '=', '/');
      if (!is_hub_id(id))
        continue;
      auto beginning = id + "_";
      std::ranges::replace(beginning, '/', '_');
      ids[beginning] = id;
    }
    for (const auto& path : content_of(entries).ggufs) {
      const auto name = path.filename().string();
      const auto known = std::ranges::find_if(ids, [&](const auto& id) { return name.starts_with(id.first); });
      const auto format = format_in_name(name);
      add(known != ids.end() && format ? known->second + ":" + *format : stem_of_gguf(name), path, bytes_of_gguf(path));
    }
  }

  std::vector<std::string>& remarks_;
  std::size_t most_;
  std::string source_;
  std::vector<local_model> models_;
};

std::string small_letters(std::string_view text) {
  std::string result(text);
  for (char& c : result)
    c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return result;
}

std::string_view without_gguf(std::string_view name) {
  constexpr std::string_view extension = ".gguf";
  return is_gguf_name(name) ? name.substr(0, name.size() - extension.size()) : name;
}

/// In small letters: its whole name first, then what it is called without folders or an owner.
std::vector<std::string> names_of(const local_model& model) {
  const auto whole = without_gguf(model.name);
  std::vector<std::string> names{small_letters(whole), small_letters(whole.substr(whole.rfind('/') + 1))};
  if (is_gguf_name(model.path.string()))
    names.push_back(small_letters(stem_of_gguf(model.path.string())));
  return names;
}

/// How a name that a user typed is a model's: not at all; as its first whole words; as all of it but the format of the
/// weights, or Ollama's tag; as all of it.
enum class name_match : std::uint8_t { none, words, but_format, whole };

name_match match(const std::string& name, const std::string& typed) {
  if (typed.empty() || !name.starts_with(typed))
    return name_match::none;
  const auto rest = std::string_view(name).substr(typed.size());
  if (rest.empty())
    return name_match::whole;
  if (std::string_view("abcdefghijklmnopqrstuvwxyz0123456789").find(rest.front()) != std::string_view::npos)
    return name_match::none;
  return rest.front() == ':' || small_letters(format_in_name(name).value_or("")) == rest.substr(1)
    ? name_match::but_format
    : name_match::words;
}

name_match match(const local_model& model, std::string_view typed) {
  if (typed.find_first_of("./~") == 0)
    return name_match::none; // a path
  auto best = name_match::none;
  for (const auto& name : names_of(model))
    best = std::max(best, match(name, small_letters(without_gguf(typed))));
  return best;
}

/// "`a`, `b` or `c`", the first few.
std::string listed_names(const std::vector<local_model>& models) {
  constexpr std::size_t most = 4;
  const auto count = std::min(models.size(), most);
  std::string text;
  for (std::size_t i = 0; i < count; ++i)
    text += (i == 0             ? std::string()
               : i + 1 == count ? std::string(" or ")
                                : std::string(", ")) +
      '`' + models[i].name + '`';
  return text;
}

} // namespace

std::vector<model_place> model_places() {
  const auto home = folder_variable("HOME");
  std::vector<model_place> places;
  if (!home.empty())
    places.push_back({"~/models", home / "models"});
  places.push_back({"Hugging Face", hub_cache()});
  if (const auto given = folder_variable("OLLAMA_MODELS"); !given.empty())
    places.push_back({"Ollama", given});
  else {
    if (!home.empty())
      places.push_back({"Ollama", home / ".ollama" / "models"});
    places.push_back({"Ollama", "/usr/share/ollama/.ollama/models"});
  }
  if (const auto given = folder_variable("LLAMA_CACHE"); !given.empty())
    places.push_back({"llama.cpp", given});
  else if (const auto caches = folder_variable("XDG_CACHE_HOME"); !caches.empty() || !home.empty())
    places.push_back({"llama.cpp", (caches.empty() ? home / ".cache" : caches) / "llama.cpp"});
  return places;
}

std::vector<local_model> models_below(const fs::path& folder, std::vector<std::string>& remarks) {
  return finder(remarks, most_entries).find_below(folder);
}

std::vector<local_model> list_local_models(std::vector<std::string>& remarks, std::size_t most) {
  return finder(remarks, most).find();
}

std::optional<local_model> find_local_model(std::string_view name) {
  std::vector<std::string> ignored;
  const auto models = list_local_models(ignored);
  const auto latest = std::string(name) + ":latest";
  auto found = std::ranges::find(models, name, &local_model::name);
  if (found == models.end())
    found = std::ranges::find(models, latest, &local_model::name);
  if (found == models.end())
    found = std::ranges::find_if(models, [&](const auto& m) { return same_name(m.name, name); });
  if (found != models.end())
    return *found;
  std::vector<local_model> meant;
  auto best = name_match::none;
  for (const auto& model : models)
    if (const auto how = match(model, name); how != name_match::none && how >= best) {
      if (how > best)
        meant.clear();
      best = how;
      meant.push_back(model);
    }
  if (meant.size() > 1)
    throw failure(errc::not_found, "several models could be `" + std::string(name) + "`: " + listed_names(meant));
  return meant.empty() ? std::nullopt : std::optional(meant.front());
}

std::string similar_models(std::string_view name) {
  std::vector<std::string> ignored, short_names;
  const auto typed = small_letters(without_gguf(name));
  const auto models = list_local_models(ignored);
  std::vector<local_model> similar;
  for (const auto& model : models) {
    const auto all = names_of(model);
    if (typed.size() > 2 && all.front().find(typed) != std::string::npos)
      similar.push_back(model);
    short_names.insert(short_names.end(), all.begin(), all.end());
  }
  if (const auto near = nearest(typed, short_names); similar.empty() && !near.empty())
    std::ranges::copy_if(models, std::back_inserter(similar), [&](const auto& model) {
      const auto all = names_of(model);
      return std::ranges::find(all, near) != all.end();
    });
  return similar.empty() ? std::string() : "; did you mean " + listed_names(similar) + "?";
}

model_files files_of_model(const fs::path& model) {
  auto file = model;
  if (std::error_code ignored; fs::is_directory(model, ignored)) {
    std::vector<std::string> remarks;
    const auto content = content_of(folder_walk(remarks, most_entries).entries(model));
    if (content.is_checkpoint())
      return {content.weight_bytes};
    if (!content.ggufs.empty())
      file = content.ggufs.front();
  }
  return {bytes_of_gguf(file), format_in_name(file.string()).value_or("")};
}

std::vector<local_model> gguf_models_in(const fs::path& folder, const std::string& name) {
  std::vector<std::string> ignored;
  folder_walk walk(ignored, most_entries);
  const auto content = content_of(walk.entries(folder));
  if (content.is_checkpoint())
    return {};
  std::vector<fs::path> files;
  add_ggufs(content, 2, walk, files);
  return named_by_format(files, folder, name);
}

} // namespace troupe
