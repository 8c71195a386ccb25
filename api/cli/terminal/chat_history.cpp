#include "api/cli/terminal/chat_history.hpp"

#include "runtime/support/error.hpp"
#include "runtime/support/files/file_reading.hpp"
#include "runtime/support/json/json.hpp"
#include "runtime/support/json/json_text.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <string_view>
#include <system_error>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace troupe::cli {

namespace {

namespace fs = std::filesystem;

constexpr std::size_t most_turns = 1000, longest_turn = std::size_t(16) << 10, long_file = std::size_t(1) << 20;
constexpr file_kind history_file{"a history", std::size_t(64) << 20};

[[noreturn]] void fail(const fs::path& file, int error) {
  throw failure(errc::bad_file, file.string() + ": cannot be written: " + std::generic_category().message(error));
}

/// Opens `file` with the flags `how` for its owner only and writes `text` in one call, so that writers do not
/// interleave.
void write_privately(const fs::path& file, int how, std::string_view text) {
  const int opened = ::open(file.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | how, 0600);
  if (opened < 0)
    fail(file, errno);
  struct stat info = {};
  const bool regular = fstat(opened, &info) == 0 && S_ISREG(info.st_mode);
  const bool written = regular && fchmod(opened, 0600) == 0 &&
    ::write(opened, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  const int error = regular ? errno : EINVAL;
  ::close(opened);
  if (!written)
    fail(file, error);
}

std::string line_of(const std::string& turn) { return json_text(turn) + "\n"; }

} // namespace

fs::path chat_history_file() {
  const auto variable = [](const char* name) -> fs::path {
    const char* value = std::getenv(name);
    return value ? value : "";
  };
  if (const auto state = variable("XDG_STATE_HOME"); state.is_absolute())
    return state / "troupe" / "chat-history";
  const auto home = variable("HOME");
  return home.empty() ? fs::path() : home / ".local" / "state" / "troupe" / "chat-history";
}

std::vector<std::string> read_chat_history(const fs::path& file) {
  if (!is_there(file))
    return {};
  const auto content = read_file(file, history_file);
  std::vector<std::string> turns;
  for (std::string_view rest = content; !rest.empty();) {
    const auto line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(line.size() + 1, rest.size()));
    try {
      const auto document = json::document::parse(line, file.string());
      if (std::string_view turn; !document.root().get(turn))
        turns.emplace_back(turn);
    } catch (const failure&) { // an incomplete line
    }
  }
  turns.erase(turns.begin(), turns.end() - static_cast<std::ptrdiff_t>(std::min(turns.size(), most_turns)));
  if (content.size() > long_file) {
    while (!turns.empty()) { // keep half of the limit
      std::size_t bytes = 0;
      for (const auto& turn : turns)
        bytes += turn.size();
      if (bytes <= long_file / 2)
        break;
      turns.erase(turns.begin(), turns.begin() + static_cast<std::ptrdiff_t>((turns.size() + 1) / 2));
    }
    std::string text;
    for (const auto& turn : turns)
      text += line_of(turn);
    const auto beside = fs::path(file.string() + ".new");
    write_privately(beside, O_TRUNC, text);
    fs::rename(beside, file);
  }
  return turns;
}

void add_to_chat_history(const fs::path& file, const std::string& turn) {
  if (turn.size() > longest_turn)
    return;
  std::error_code error;
  fs::create_directories(file.parent_path(), error);
  if (error)
    fail(file, error.value());
  write_privately(file, O_APPEND, line_of(turn));
}

} // namespace troupe::cli
