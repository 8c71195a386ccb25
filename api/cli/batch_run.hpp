// Answers the requests of a batch file with an engine, many at a time, and writes the answers in the file's order, so
// that a run that was interrupted goes on where its output ends.
#pragma once

#include "api/cli/batch_lines.hpp"
#include "api/service/service.hpp"

#include <cstddef>
#include <filesystem>
#include <functional>
#include <string>

namespace troupe::cli {

class console;

struct batch_files {
  std::filesystem::path in, out;
};

/// What a run begins with.
struct batch_state {
  std::size_t requests = 0; // lines of the input
  std::size_t answered = 0; // of these, lines that the output has
};

/// Counts both files' lines, and cuts off the last line of the output if it is not whole. Throws failure(not_found |
/// bad_file | bad_request), the last if the output answers other requests.
batch_state prepare_batch(const batch_files& files);

struct batch_outcome {
  std::size_t answered = 0, failed = 0;
  bool interrupted = false;
};

/// `most`: sequences that run at a time. `tell`: lines that are in the output by now.
batch_outcome run_batch(const batch_files& files, const batch_state& from, service& models, std::size_t most,
                        console& terminal, const std::function<void(std::size_t)>& tell);

} // namespace troupe::cli
