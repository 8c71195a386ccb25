#include "api/record/record_reader.hpp"

#include "api/record/record_folder.hpp"
#include "runtime/support/error.hpp"

#include <algorithm>

namespace troupe {

namespace {

constexpr std::size_t longest_line = std::size_t(256) << 20;

/// Whether there was a whole one.
bool read_line(std::istream& from, std::string& line, const std::filesystem::path& file) {
  line.clear();
  for (int c; (c = from.get()) != std::istream::traits_type::eof();) {
    if (c == '\n')
      return true;
    if (line.size() >= longest_line)
      throw failure(errc::bad_file, file.string() + ": a line has more than 256 MiB");
    line.push_back(static_cast<char>(c));
  }
  return false;
}

} // namespace

record_reader::record_reader(const std::filesystem::path& folder) : files_(record_folder::files_in(folder)) {
  if (files_.empty())
    throw failure(errc::not_found,
                  folder.string() + " has no record: `troupe serve --record " + folder.string() + "` makes one");
  for (std::size_t i = 0; i < files_.size(); ++i)
    index(i);
  by_head_ = {};
  if (requests_.empty())
    throw failure(errc::bad_file, folder.string() + ": nobody asked anything while this was recorded");
}

void record_reader::index(std::size_t file) {
  std::ifstream in(files_[file], std::ios::binary);
  if (!in)
    throw failure(errc::not_found, files_[file].string() + " cannot be read");
  run* its = nullptr;
  std::string line;
  for (std::uint64_t at = 0; read_line(in, line, files_[file]); at += line.size() + 1) {
    auto what = parse_record_line(line, files_[file].filename().string());
    if (auto* head = std::get_if<recorded_head>(&what)) {
      const auto [known, is_new] = by_head_.try_emplace({head->begun, head->process}, run{last_, {}});
      its = &known->second;
      if (is_new)
        runs_.push_back(std::move(*head));
    } else if (!its) {
      throw failure(errc::bad_file, files_[file].string() + " does not begin as a record does");
    } else if (auto* model = std::get_if<recorded_model>(&what)) {
      models_[model->name] = model->files;
    } else if (const auto* begin = std::get_if<recorded_begin>(&what)) {
      its->by_number[begin->number] = requests_.size();
      requests_.push_back({its->begins + begin->at, {file, at}});
      last_ = std::max(last_, its->begins + begin->at);
    } else if (const auto* end = std::get_if<recorded_end>(&what)) {
      if (const auto known = its->by_number.find(end->number);
          known != its->by_number.end()) // else it began in a removed file
        requests_[known->second].end = {file, at};
    }
  }
}

recorded_begin record_reader::begin(std::size_t request) {
  return std::get<recorded_begin>(parse_record_line(line_at(requests_.at(request).begin), "the record"));
}

std::optional<recorded_end> record_reader::end(std::size_t request) {
  const auto& its = requests_.at(request);
  if (!its.end)
    return std::nullopt;
  return std::get<recorded_end>(parse_record_line(line_at(*its.end), "the record"));
}

std::string record_reader::line_at(const place& where) {
  if (opened_ != where.file) {
    open_ = std::ifstream(files_[where.file], std::ios::binary);
    opened_ = where.file;
  }
  open_.clear();
  open_.seekg(static_cast<std::streamoff>(where.at));
  std::string line;
  if (!read_line(open_, line, files_[where.file]))
    throw failure(errc::bad_file, files_[where.file].string() + " has changed meanwhile");
  return line;
}

} // namespace troupe
