#include "api/record/record_folder.hpp"

#include "runtime/support/error.hpp"
#include "runtime/support/files/descriptor.hpp"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <system_error>
#include <utility>

#include <sys/stat.h>

namespace troupe {

namespace {

constexpr std::string_view name_begins = "record-", name_ends = ".jsonl";
constexpr std::uint64_t files_at_most = 8;

std::string name_of(std::uint64_t number) {
  char digits[32];
  std::snprintf(digits, sizeof digits, "%08llu", static_cast<unsigned long long>(number));
  return std::string(name_begins) + digits + std::string(name_ends);
}

/// 0: it is none of ours.
std::uint64_t number_of(std::string_view name) {
  if (!name.starts_with(name_begins) || !name.ends_with(name_ends))
    return 0;
  name.remove_prefix(name_begins.size());
  name.remove_suffix(name_ends.size());
  if (name.empty() || name.size() > 18 || name.find_first_not_of("0123456789") != name.npos)
    return 0;
  return std::stoull(std::string(name));
}

} // namespace

record_folder::record_folder(const std::filesystem::path& folder, const recorded_head& head, record_bounds bounds,
                             std::function<void(const std::string&)> on_trouble)
  : folder_(folder), bounds_(bounds), on_trouble_(std::move(on_trouble)), every_file_begins_(line_of(head)) {
  std::vector<std::uint64_t> there;
  for (const auto& name : folder_.names())
    if (const auto number = number_of(name); number > 0)
      there.push_back(number);
  std::ranges::sort(there);
  for (const auto number : there) {
    std::error_code ignored;
    const auto size = std::filesystem::file_size(folder_.path() / name_of(number), ignored);
    written_.emplace_back(name_of(number), ignored ? 0 : size);
    number_ = number;
  }
  begin_file();
  writer_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
}

record_folder::~record_folder() {
  writer_.request_stop();
  writer_.join();
}

bool record_folder::add(const recorded_line& what) noexcept {
  try {
    const auto text = line_of(what);
    const std::lock_guard lock(mutex_);
    if (broken_ || lines_.size() + text.size() > bounds_.waiting)
      return false;
    if (std::holds_alternative<recorded_model>(what))
      models_ += text;
    else
      lines_ += text;
    wake_.notify_one();
    return true;
  } catch (...) { // out of memory
    return false;
  }
}

// Lines of a request may stand in two files. A failure leaves what is written so far.
void record_folder::run(const std::stop_token& stop) {
  try {
    for (bool last = false; !last;) {
      std::string lines, models;
      {
        std::unique_lock lock(mutex_);
        last = !wake_.wait(lock, stop, [this] { return !lines_.empty() || !models_.empty(); });
        lines.swap(lines_);
        models.swap(models_);
      }
      every_file_begins_ += models;
      write(models);
      write(lines);
      if (!last) // a write for many lines
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  } catch (const std::exception& e) {
    {
      const std::lock_guard lock(mutex_);
      broken_ = true;
      lines_ = models_ = {};
    }
    on_trouble_(e.what());
  }
}

void record_folder::write(const std::string& text) {
  if (text.empty())
    return;
  if (bytes_ > 0 && bytes_ + text.size() > std::max<std::uint64_t>(bounds_.all / files_at_most, 1))
    begin_file();
  if (!write_whole(file_, text.data(), text.size()))
    throw failure(errc::bad_file,
                  (folder_.path() / name_of(number_)).string() +
                    " cannot be written: " + std::generic_category().message(errno));
  bytes_ += text.size();
}

void record_folder::begin_file() {
  if (bytes_ > 0)
    written_.emplace_back(name_of(number_), bytes_);
  auto all = every_file_begins_.size();
  for (const auto& [_, size] : written_)
    all += size;
  for (; !written_.empty() && (all > bounds_.all / files_at_most * (files_at_most - 1)); written_.pop_front()) {
    folder_.remove(written_.front().first);
    all -= written_.front().second;
  }
  std::string name;
  do { // another process may write here
    name = name_of(++number_);
    file_ = folder_.create(name);
  } while (!file_ && errno == EEXIST);
  if (!file_)
    throw failure(errc::bad_file,
                  (folder_.path() / name).string() + " cannot be made: " + std::generic_category().message(errno));
  bytes_ = 0;
  write(every_file_begins_);
}

std::vector<std::filesystem::path> record_folder::files_in(const std::filesystem::path& folder) {
  std::vector<std::pair<std::uint64_t, std::filesystem::path>> found;
  std::error_code error;
  for (std::filesystem::directory_iterator at(folder, error), end; !error && at != end; at.increment(error))
    if (const auto number = number_of(at->path().filename().string()); number > 0)
      found.emplace_back(number, at->path());
  if (error)
    throw failure(errc::not_found, folder.string() + " cannot be read: " + error.message());
  std::ranges::sort(found);
  std::vector<std::filesystem::path> files;
  for (auto& [_, path] : found)
    files.push_back(std::move(path));
  return files;
}

} // namespace troupe
