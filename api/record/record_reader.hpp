// Reads the files of a record: knows where each request begins and ends, and reads the lines when they are asked for,
// so that a record may be larger than memory. Single-threaded.
#pragma once

#include "api/record/record_line.hpp"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace troupe {

class record_reader {
public:
  /// Reads all runs of a server in this folder, the oldest first. Passes over lines that are not whole, as the last one
  /// of a server that was killed. Throws failure(not_found | bad_file), also if there is no request.
  explicit record_reader(const std::filesystem::path& folder);

  std::size_t size() const { return requests_.size(); }

  /// When it came, since the first run began; those of a further run come behind all of the one before.
  record_time arrival(std::size_t request) const { return requests_[request].arrival; }
  recorded_begin begin(std::size_t request);
  /// Nothing: it had not ended when the server did.
  std::optional<recorded_end> end(std::size_t request);

  const std::vector<recorded_head>& runs() const { return runs_; }
  /// The models by their names, as last seen.
  const std::map<std::string, std::string>& models() const { return models_; } // name: checksum of its files

private:
  struct place {
    std::size_t file = 0;
    std::uint64_t at = 0;
  };
  struct found {
    record_time arrival{};
    place begin;
    std::optional<place> end = {};
  };

  void index(std::size_t file);
  std::string line_at(const place& where);

  std::vector<std::filesystem::path> files_;
  std::vector<recorded_head> runs_;
  std::map<std::string, std::string> models_;
  std::vector<found> requests_;
  struct run {
    record_time begins{};
    std::map<std::uint64_t, std::size_t> by_number; // its requests
  };
  std::map<std::pair<std::string, std::int64_t>, run> by_head_; // while files are read
  record_time last_{};
  std::ifstream open_;
  std::optional<std::size_t> opened_;
};

} // namespace troupe
