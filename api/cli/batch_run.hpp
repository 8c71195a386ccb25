// Answers the requests of a batch file with an engine, many at a time, and writes the answers in the file's order, so
// that a run that was interrupted goes on where its output ends.
#pragma once

#include "api/cli/batch_lines.hpp"
#include "api/service/service.hpp"
#include "runtime/support/files/descriptor.hpp"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace troupe::cli {

class console;

struct batch_files {
  std::filesystem::path in, out;
  bool overwrite = false; // begin anew, whatever the output has
};

/// The output, open and locked, which is removed at the end if nothing was written to it.
class batch_output {
public:
  explicit batch_output(const std::filesystem::path& file);
  ~batch_output();
  batch_output(const batch_output&) = delete;
  batch_output& operator=(const batch_output&) = delete;

  /// Cuts off what is behind `bytes`.
  void keep(std::uintmax_t bytes) const;
  void write(std::string_view text) const;

private:
  [[noreturn]] void fail(int error) const;

  std::filesystem::path file_;
  descriptor opened_;
};

/// What a run begins with.
struct batch_state {
  std::unique_ptr<const batch_output> out;
  std::size_t requests = 0; // lines of the input
  std::size_t answered = 0; // of these, lines that the output has
};

/// Counts both files' lines, and cuts off the last line of the output if it is not whole. Throws failure(not_found |
/// bad_file | bad_request), the last if the output has other lines than this program's, answers other requests or is
/// another process's. Of such a file no byte is changed.
batch_state prepare_batch(const batch_files& files);

struct batch_outcome {
  std::size_t answered = 0, failed = 0;
  bool interrupted = false;
};

/// `most`: sequences that run at a time. `tell`: lines that are in the output by now.
batch_outcome run_batch(const batch_files& files, const batch_state& from, service& models, std::size_t most,
                        console& terminal, const std::function<void(std::size_t)>& tell);

} // namespace troupe::cli
