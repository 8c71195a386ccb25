#include "api/cli/terminal/progress.hpp"

#include "api/cli/common_options.hpp"

#include <algorithm>
#include <cstdio>

#include <unistd.h>

namespace troupe::cli {

namespace {
constexpr int bar_width = 30;
}

progress::progress(bool quiet) : quiet_(quiet), terminal_(isatty(STDERR_FILENO)) {}

void progress::show(const load_status& status) {
  using stage = load_status::stage;
  if (quiet_ || status.now == stage::failed || status.now == stage::stopped)
    return; // the caller reports failures
  if (status.line != line_ && !status.line.empty()) {
    std::fprintf(stderr, "%s%s\n", terminal_ ? "\r\033[K" : "", status.line.c_str());
    line_ = status.line;
    percent_ = -1;
  }
  if (!terminal_)
    return;
  if (status.now == stage::ready) {
    std::fputs("\r\033[K", stderr);
    return;
  }
  if (status.total_bytes == 0)
    return;
  const int percent = static_cast<int>(100.0 * double(status.done_bytes) / double(status.total_bytes));
  if (percent == percent_)
    return;
  percent_ = percent;
  const auto done = static_cast<std::size_t>(std::clamp(percent, 0, 100) * bar_width / 100);
  const auto bar = std::string(done, '#') + std::string(bar_width - done, ' ');
  std::fprintf(stderr, "\r[%s] %3d %%\033[K", bar.c_str(), percent);
}

engine start_engine(const engine_options& options, bool quiet) {
  require_model(options.model);
  const auto shown = std::make_shared<progress>(quiet);
  auto started = engine::start(with_bundled_draft(options),
                               [shown](const load_status& status) { shown->show(status); });
  started.wait_until_ready();
  return started;
}

} // namespace troupe::cli
