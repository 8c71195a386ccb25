#include "api/cli/serve_sandbox.hpp"

#include "api/cli/serve_options.hpp"
#include "runtime/import/local_models.hpp"
#include "runtime/support/files/own_folder.hpp"
#include "runtime/techniques/repertoire.hpp"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <filesystem>
#include <span>

namespace troupe::cli {

namespace {

namespace fs = std::filesystem;

class paths {
public:
  const std::vector<fs::path>& all() const { return all_; }

  void add(const fs::path& path) {
    if (std::ranges::find(all_, path) == all_.end())
      all_.push_back(path);
  }

  /// The folder that has the file, under its own name and where links lead.
  void add_folder_of(const fs::path& file) {
    std::error_code ignored;
    add(fs::absolute(file, ignored).parent_path());
    if (const auto target = fs::canonical(file, ignored); !ignored)
      add(target.parent_path());
  }

  /// A file's folder, or a folder with what the links in it lead to.
  void add_place(const fs::path& place) {
    std::error_code ignored;
    if (!fs::is_directory(place, ignored))
      return add_folder_of(place);
    add(fs::canonical(place, ignored));
    constexpr int most = 10'000;
    int seen = 0;
    for (fs::directory_iterator at(place, ignored), end; !ignored && at != end && seen < most;
         at.increment(ignored), ++seen)
      if (std::error_code none; at->is_symlink(none))
        if (const auto target = fs::canonical(at->path(), none); !none)
          add(fs::is_directory(target, none) ? target : target.parent_path());
  }

  /// A setting's value, or what is behind NAME=, if there is such a file or folder.
  void add_named(const std::string& value) {
    for (const auto& text : {value, value.substr(value.find('=') + 1)})
      if (std::error_code ignored; !text.empty() && fs::exists(text, ignored))
        return add_place(text);
  }

private:
  std::vector<fs::path> all_;
};

void add_model(const std::string& name, paths& to) {
  std::error_code ignored;
  if (name.empty() || name.starts_with("synthetic:") || fs::exists(name, ignored))
    return to.add_named(name);
  for (const auto& place : model_places())
    to.add(place.folder);
  try {
    if (const auto found = find_local_model(name))
      to.add_place(found->path);
  } catch (const failure&) { // the load will say why
  }
}

/// What SIGHUP has read again are settings of this type: keys, the policy, the configuration. Others name what the engines
/// load, which is asked of their options, or no file at all.
bool names_a_file(const CLI::Option& option) {
  const auto type = option.get_type_name();
  return type == "FILE" || type.starts_with("FILE:"); // a check may stand behind it
}

} // namespace

confinement sandbox_of(const serve_options& options, const CLI::App& given,
                       const std::vector<catalogue_model>& models) {
  paths readable, writable;
  std::error_code ignored;
  readable.add(fs::canonical("/proc/self/exe", ignored));
  readable.add_named(options.models_folder);
  for (const CLI::App* app = &given; app; app = app->get_parent())
    for (const auto* option : app->get_options())
      if (names_a_file(*option))
        for (const auto& value : option->results())
          readable.add_named(value);
  for (const auto& each : models) {
    const auto& its = each.options;
    add_model(its.model, readable);
    readable.add_named(its.chat_template);
    if (its.techniques.contains("lora_endpoints"))
      readable.add("/");
    for (const auto& [_, values] : its.techniques)
      for (const auto& value : values) {
        readable.add_named(value); // NAME=PATH
        add_model(value, readable);
      }
    if (const fs::path cache = its.compute.packed_cache; !cache.empty())
      writable.add(its.compute.packed_cache_asked ? cache : cache.parent_path()); // it may never be made
    if (!its.kv_disk.empty())
      writable.add(its.kv_disk);
    if (!its.length_model.empty())
      writable.add_folder_of(its.length_model);
  }
  if (const auto control = control_path(options); !control.empty())
    writable.add_folder_of(control);
  if (!options.record_folder.empty())
    writable.add(options.record_folder);
  const auto ours = writable.all().size();
  if (constexpr std::string_view unix = "unix:"; options.server.host.starts_with(unix))
    writable.add_folder_of(options.server.host.substr(unix.size()));
  for (const auto& folder : std::span(writable.all()).first(ours)) // whoever runs the server makes its socket's
    if (!fs::exists(folder, ignored))
      try {
        own_folder made(folder);
      } catch (const failure&) { // who needs it says why
      }
  return {readable.all(), writable.all()};
}

namespace {

/// Also of models beside it.
bool on_cpu(const engine_options& its) {
  const auto names_one = [](const std::string& device) { return device.empty() || device.starts_with("cpu"); };
  if (its.compute.device.empty() || !names_one(its.compute.device))
    return false;
  for (const auto* each : repertoire())
    for (const auto& option : each->options)
      if (std::string_view(option.type) == "DEVICE" &&
          !std::ranges::all_of(texts_of(its.techniques, option.name), names_one))
        return false;
  return true;
}

} // namespace

std::string sandbox_hindrance(const std::vector<catalogue_model>& models) {
  std::error_code ignored;
  if (fs::exists("/dev/nvidiactl", ignored) &&
      !std::ranges::all_of(models, [](const auto& each) { return on_cpu(each.options); }))
    return "a GPU may be used, whose driver opens files that are not known";
  return {};
}

} // namespace troupe::cli
