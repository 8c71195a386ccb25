#include "api/cli/terminal/bus_errors.hpp"

#include "api/cli/command.hpp"

#include <csignal>
#include <string_view>

#include <unistd.h>

namespace troupe::cli {

namespace {

/// Calls only async-signal-safe functions.
void explain(int number, siginfo_t* what, void*) {
  if (what->si_code != BUS_ADRERR) { // not a missing page
    std::signal(number, SIG_DFL);
    return; // the faulting instruction raises it again
  }
  constexpr std::string_view sentence = "troupe: a model file was truncated or became unreadable while in use\n";
  [[maybe_unused]] const auto written = write(STDERR_FILENO, sentence.data(), sentence.size());
  _exit(failed);
}

} // namespace

void explain_bus_errors() {
  struct sigaction action {};
  action.sa_sigaction = explain;
  action.sa_flags = SA_SIGINFO;
  sigaction(SIGBUS, &action, nullptr);
}

} // namespace troupe::cli
