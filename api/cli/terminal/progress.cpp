#include "api/cli/terminal/progress.hpp"

#include "api/cli/common_options.hpp"
#include "api/cli/terminal/escaped_output.hpp"
#include "api/cli/terminal/standard_streams.hpp"

#include <algorithm>
#include <cstdio>

#include <unistd.h>

namespace troupe::cli {

namespace {
constexpr int bar_width = 30;
}

progress::progress(bool quiet, bool stages, writer to)
  : quiet_(quiet),
    stages_(stages),
    terminal_(isatty(STDERR_FILENO)),
    write_(to ? std::move(to) : [](std::string_view text) {
      std::fwrite(text.data(), 1, text.size(), text.ends_with('\n') ? stderr : terminal_errors());
    }) {}

void progress::clear_bar() {
  if (std::exchange(percent_, -1) >= 0)
    write_("\r\033[K");
}

void progress::end_bar() {
  const std::lock_guard lock(guard_);
  clear_bar();
  bar_ended_ = true;
}

void progress::show(const load_status& status) {
  using stage = load_status::stage;
  if (quiet_)
    return;
  const std::lock_guard lock(guard_);
  const bool loading = status.now == stage::loading;
  if (!loading)
    clear_bar();
  if (status.now == stage::failed || status.now == stage::stopped)
    return; // the caller reports failures
  if (!status.line.empty() && status.line != line_) {
    line_ = status.line;
    if (stages_ || !loading) {
      clear_bar();
      write_((terminal_ && is_within_a_line() ? "\n" : "") + line_ + '\n');
    }
  }
  if (!loading || bar_ended_ || !terminal_ || status.total_bytes == 0)
    return;
  const int percent = std::clamp(static_cast<int>(100.0 * double(status.done_bytes) / double(status.total_bytes)), 0,
                                 100);
  if (percent == percent_)
    return;
  percent_ = percent;
  const auto done = static_cast<std::size_t>(percent * bar_width / 100);
  const auto bar = std::string(done, '#') + std::string(bar_width - done, ' ');
  const auto number = std::to_string(percent);
  write_("\r[" + bar + "] " + std::string(3 - number.size(), ' ') + number + " %\033[K");
}

void task_progress::end() {
  status_.now = load_status::stage::ready;
  shown_.show(status_);
}

engine start_engine(const engine_options& options, bool quiet, bool stages, const engine_internals& internals) {
  require_model(options.model);
  const auto shown = std::make_shared<progress>(quiet, stages);
  auto started = start_with(internals, with_bundled_second(options),
                            [shown](const load_status& status) { shown->show(status); });
  try {
    started.wait_until_ready();
  } catch (...) {
    shown->end_bar();
    throw;
  }
  shown->end_bar();
  return started;
}

} // namespace troupe::cli
