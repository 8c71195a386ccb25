#include "api/cli/terminal/memory_errors.hpp"

#include "api/cli/command.hpp"

#include <cstdlib>
#include <exception>
#include <new>
#include <string_view>
#include <system_error>

#include <unistd.h>

namespace troupe::cli {

namespace {

void say(std::string_view text) {
  [[maybe_unused]] const auto written = write(STDERR_FILENO, text.data(), text.size());
}

[[noreturn]] void leave(std::string_view why) {
  say("troupe: ");
  say(why);
  say("\n");
  _exit(failed);
}

/// What it calls needs no memory.
[[noreturn]] void explain() {
  try {
    if (const auto thrown = std::current_exception())
      std::rethrow_exception(thrown);
    // A thread that nobody has joined yet, in what an exception leaves behind: CAF does that where not all of its threads
    // can be started.
    if (std::uncaught_exceptions() > 0)
      leave("it could not start, most likely for want of memory or threads");
  } catch (const std::bad_alloc&) {
    leave(out_of_memory);
  } catch (const std::system_error& e) {
    if (e.code() == std::errc::resource_unavailable_try_again)
      leave(no_thread);
    if (e.code() == std::errc::not_enough_memory)
      leave(out_of_memory);
    say(e.what());
  } catch (const std::exception& e) {
    say(e.what());
  } catch (...) {
  }
  std::abort();
}

} // namespace

void explain_lack_of_memory() { std::set_terminate(explain); }

} // namespace troupe::cli
