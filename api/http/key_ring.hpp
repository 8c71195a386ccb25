// The API keys that a server accepts and whose they are: keys given at the start, and those of a file, which is read
// again when it has changed. Any thread.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

class key_ring {
public:
  using clock = std::chrono::steady_clock;

  struct named_key {
    std::string name, key;
  };

  struct owner {
    std::size_t number = 0; // the same for all keys of a name, also behind a change of the file
    std::string name;       // for the log and the metrics; empty: nobody needs a key
  };

  /// Tells the outcome of reading the file again: the number of keys, or why the old ones stay.
  using listener = std::function<void(std::size_t keys, const std::string& why_not)>;

  /// The names of `unnamed` are key-1, key-2, ... `file` may be empty: none. Throws failure as read_keys.
  key_ring(const std::vector<std::string>& unnamed, std::filesystem::path file, listener tell = {});

  /// Replaces the keys by those of a ring that is made of these arguments. Calls `then` before anybody is let in by the
  /// new keys, and tells it whether everybody is let in. Throws as the constructor does, or what `then` throws; nothing
  /// has changed then.
  void replace(const std::vector<std::string>& unnamed, std::filesystem::path file,
               const std::function<void(bool open)>& then = {});

  /// Whether everybody is let in.
  bool is_open() const;

  /// The owner of this name, who had a key when a request of theirs was let in.
  owner named(const std::string& name);

  /// The owner of the key that an `Authorization` header carries. With no keys at all, everybody is one owner.
  std::optional<owner> find(std::string_view authorization, clock::time_point now = clock::now());

private:
  struct version { // of the file
    std::uint64_t bytes = 0;
    std::int64_t modified_ns = 0, changed_ns = 0;
    bool operator==(const version&) const = default;
  };

  static std::optional<version> version_of(const std::filesystem::path& file);
  void read_again(clock::time_point now);
  std::size_t number_of(const std::string& name);

  bool nobody_needs_one() const { return unnamed_.empty() && file_.empty(); }

  const listener tell_;
  mutable std::mutex mutex_; // guards what follows
  std::vector<named_key> unnamed_;
  std::filesystem::path file_;
  std::vector<named_key> of_file_;
  std::optional<version> version_; // of what was read, or could not be
  clock::time_point checked_{};
  std::map<std::string, std::size_t> numbers_;
};

/// Reads `name=key` lines; empty ones and those that begin with # are skipped. A name may have several keys, so that
/// they can be replaced without a gap. Throws failure(not_found | bad_file) naming file and line, never a key.
std::vector<key_ring::named_key> read_keys(const std::filesystem::path& file);

/// The key that is all of a file but its line break. Throws failure(not_found | bad_file).
std::string read_key(const std::filesystem::path& file);

} // namespace troupe
