// The watermark flags of run, chat, serve and detect. The key comes from a file or the environment, never from the
// command line, which other users of the machine can read.
#pragma once

#include "runtime/sampling/watermark/watermark.hpp"

#include <memory>
#include <optional>
#include <string>

namespace CLI {
class App;
}

namespace troupe::cli {

struct watermark_options {
  std::string mark;     // "green", "gumbel", or an object as in requests; empty: none
  std::string key_file; // empty: the environment's TROUPE_WATERMARK_KEY

  /// Throws failure if the file cannot be read, is empty or too long.
  std::optional<watermarks::hash_key> key() const;

  /// What the flags ask for; null: nothing. Throws failure(bad_request) naming the field, also without a key.
  std::shared_ptr<const watermarks::options> parsed() const;
};

/// `--watermark` with this line of help, and `--watermark-key-file`, whose help begins with `key_file`.
void add_watermark_options(CLI::App& command, watermark_options& options, const char* group, const char* help,
                           const std::string& key_file = "A file");

} // namespace troupe::cli
