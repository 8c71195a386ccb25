#include "api/cli/terminal/fatal_errors.hpp"

#include "api/cli/command.hpp"
#include "api/cli/terminal/quiet_typing.hpp"

#include <csignal>
#include <cstdlib>
#include <exception>
#include <new>
#include <string_view>
#include <system_error>

#include <unistd.h>

namespace troupe::cli {

namespace {

void write_error(std::string_view text) {
  [[maybe_unused]] const auto written = write(STDERR_FILENO, text.data(), text.size());
}

[[noreturn]] void leave(std::string_view why) {
  quiet_typing::end();
  write_error("troupe: ");
  write_error(why);
  write_error("\n");
  _exit(failed);
}

/// Calls nothing that allocates.
[[noreturn]] void explain() {
  try {
    if (const auto thrown = std::current_exception())
      std::rethrow_exception(thrown);
    // An unjoined thread during unwinding: CAF does that if it cannot start all of its threads.
    if (std::uncaught_exceptions() > 0)
      leave("it could not start, most likely for lack of memory or threads");
  } catch (const std::bad_alloc&) {
    leave(out_of_memory);
  } catch (const std::system_error& e) {
    if (e.code() == std::errc::resource_unavailable_try_again)
      leave(no_thread);
    if (e.code() == std::errc::not_enough_memory)
      leave(out_of_memory);
    write_error(e.what());
  } catch (const std::exception& e) {
    write_error(e.what());
  } catch (...) {
  }
  quiet_typing::end();
  std::abort();
}

/// Calls only async-signal-safe functions.
void explain_bus_error(int number, siginfo_t* what, void*) {
  if (what->si_code != BUS_ADRERR) { // not a missing page
    std::signal(number, SIG_DFL);
    return; // the faulting instruction raises it again
  }
  leave("a model file was truncated or became unreadable while in use");
}

} // namespace

void explain_lack_of_memory() { std::set_terminate(explain); }

void explain_bus_errors() {
  struct sigaction action {};
  action.sa_sigaction = explain_bus_error;
  action.sa_flags = SA_SIGINFO;
  sigaction(SIGBUS, &action, nullptr);
}

} // namespace troupe::cli
