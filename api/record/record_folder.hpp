// A folder of records, written by a thread of its own: lines go into files of bounded size, of which the oldest are
// removed as new ones come. Those who write lines never wait: what is not written in time is lost, and counted.
#pragma once

#include "api/record/record_line.hpp"
#include "runtime/support/files/own_folder.hpp"

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <functional>
#include <mutex>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

namespace troupe {

struct record_bounds {
  std::uint64_t all = std::uint64_t(1) << 30; // bytes of all files; eight of them fit
  std::size_t waiting = 32 << 20;             // bytes that wait to be written
};

class record_folder {
public:
  /// Goes on in a folder of the user's own, which is made if need be. `on_trouble` hears, once, why nothing is written
  /// any more; on the writing thread. Throws failure(bad_request | bad_file).
  record_folder(const std::filesystem::path& folder, const recorded_head& head, record_bounds bounds,
                std::function<void(const std::string&)> on_trouble);
  /// Writes what waits.
  ~record_folder();

  /// False: it is lost, for there is too much already, or nothing can be written. Any thread.
  bool add(const recorded_line& what) noexcept;

  /// Files in the order in which they were written.
  static std::vector<std::filesystem::path> files_in(const std::filesystem::path& folder);

private:
  void run(const std::stop_token& stop);
  void write(const std::string& text);
  void begin_file();

  own_folder folder_;
  const record_bounds bounds_;
  std::function<void(const std::string&)> on_trouble_;
  std::string every_file_begins_; // the head and the models
  descriptor file_;
  std::uint64_t number_ = 0, bytes_ = 0;                      // of the file that is written
  std::deque<std::pair<std::string, std::uint64_t>> written_; // names of files and their sizes, the oldest first

  std::mutex mutex_; // guards what follows
  std::condition_variable_any wake_;
  std::string lines_, models_;
  bool broken_ = false;

  std::jthread writer_; // last: it uses all the others
};

} // namespace troupe
