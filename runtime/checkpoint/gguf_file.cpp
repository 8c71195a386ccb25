#include "runtime/checkpoint/gguf_file.hpp"

#include "runtime/support/error.hpp"
#include "runtime/support/files/file_state.hpp"

#include <algorithm>
#include <charconv>
#include <string_view>

namespace troupe {

namespace {

namespace fs = std::filesystem;

constexpr std::int64_t most_parts = 65535;

/// "00001-of-00003" of a name that ends so; zeros are written before shorter numbers.
constexpr std::size_t digits = 5;
constexpr std::string_view between = "-of-", extension = ".gguf";

std::optional<int> number_of(std::string_view text) {
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() && number > 0 ? std::optional(number) : std::nullopt;
}

std::string padded(int number) {
  const auto text = std::to_string(number);
  return std::string(digits - std::min(digits, text.size()), '0') + text;
}

std::string ending(int number, int count) {
  return "-" + padded(number) + std::string(between) + padded(count) + std::string(extension);
}

} // namespace

std::optional<gguf_part_name> gguf_part_name::of(const fs::path& file) {
  const auto name = file.string();
  constexpr auto length = 1 + digits + between.size() + digits + extension.size();
  if (name.size() <= length)
    return std::nullopt;
  const auto end = std::string_view(name).substr(name.size() - length);
  const auto number = number_of(end.substr(1, digits)),
             count = number_of(end.substr(1 + digits + between.size(), digits));
  if (!number || !count || end != ending(*number, *count))
    return std::nullopt;
  return gguf_part_name{name.substr(0, name.size() - length), *number, *count};
}

fs::path gguf_part_name::part(int other) const { return stem + ending(other, count); }

gguf_file::gguf_file(const fs::path& file, gguf_part part) {
  parts_.push_back(std::make_unique<part_file>(file, part));
  const auto count = static_cast<int>(metadata().integer("split.count", 0, most_parts).value_or(0));
  if (count <= 1)
    return;
  const auto number = static_cast<int>(metadata().integer("split.no", 0, most_parts).value_or(0)) + 1;
  if (number != 1) {
    const auto own = gguf_part_name::of(file);
    throw failure(errc::unsupported,
                  name() + ": is part " + std::to_string(number) + " of " + std::to_string(count) +
                    " of a model, name the first" + (own ? ", " + own->part(1).string() : ""));
  }
  if (part == gguf_part::all)
    add_parts(file, count);
}

void gguf_file::add_parts(const fs::path& first, int count) {
  const auto names = gguf_part_name::of(first);
  if (!names || names->number != 1 || names->count != count)
    throw failure(errc::bad_file,
                  metadata().label("split.count") + " is " + std::to_string(count) +
                    ", but the name does not end in `" + ending(1, count) + "`, as other parts are found by it");
  auto& all = parts_.front()->content.tensors;
  for (int number = 2; number <= count; ++number) {
    const auto path = names->part(number);
    if (!is_there(path))
      throw failure(errc::not_found,
                    path.string() + ": no such file, but " + name() + " is the first part of " + std::to_string(count));
    parts_.push_back(std::make_unique<part_file>(path, gguf_part::all));
    auto& part = *parts_.back();
    check_part(part, number, count);
    for (auto& [tensor, where] : part.content.tensors) {
      where.part = parts_.size() - 1;
      const auto [found, added] = all.emplace(tensor, std::move(where));
      if (!added)
        throw failure(errc::bad_file,
                      part.name + ": tensor " + shown(tensor) + " is there, but also in " + name_of(found->second));
    }
    part.content.tensors.clear();
  }
  const auto tensors = static_cast<std::int64_t>(all.size());
  if (const auto stated = metadata().integer("split.tensors.count", 0, INT64_MAX); stated && *stated != tensors)
    throw failure(errc::bad_file,
                  metadata().label("split.tensors.count") + " is " + std::to_string(*stated) + ", but all parts have " +
                    std::to_string(tensors));
}

void gguf_file::check_part(const part_file& part, int number, int count) const {
  const auto& about = part.content.metadata;
  const auto refuse = [&](const char* key, const std::string& found, const std::string& expected) {
    throw failure(errc::bad_file,
                  about.label(key) + " is " + found + ", expected " + expected + ", as this is part " +
                    std::to_string(number) + " of " + name());
  };
  const auto same = [&](const char* key, std::optional<std::int64_t> expected) {
    const auto found = about.integer(key, 0, INT64_MAX);
    if (expected && found != expected)
      refuse(key, found ? std::to_string(*found) : "missing", std::to_string(*expected));
  };
  same("split.no", number - 1);
  same("split.count", count);
  same("split.tensors.count", metadata().integer("split.tensors.count", 0, INT64_MAX));
  constexpr const char* architecture = "general.architecture"; // which most programs write into the first part only
  const auto found = about.string(architecture), expected = metadata().string(architecture);
  if (found && found != expected)
    refuse(architecture, shown(*found), expected ? shown(*expected) : "none");
}

std::vector<file_state> gguf_file::files() const {
  std::vector<file_state> states;
  for (const auto& part : parts_)
    states.push_back(part->map.state());
  return states;
}

} // namespace troupe
