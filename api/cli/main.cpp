// The program `troupe`.
#include "api/cli/command_line.hpp"
#include "api/cli/terminal/escaped_output.hpp"
#include "api/cli/terminal/fatal_errors.hpp"
#include "api/cli/terminal/standard_streams.hpp"

#include <clocale>
#include <csignal>

#include <malloc.h>

namespace {
/// Each malloc arena keeps the memory of load peaks, and few threads allocate much at once.
constexpr int most_arenas = 4;
} // namespace

int main(int count, char** arguments) {
  ::mallopt(M_ARENA_MAX, most_arenas);
  std::setlocale(LC_NUMERIC, "C"); // tables and values of flags have decimal points, whatever a preloaded library chose
  std::signal(SIGXFSZ, SIG_IGN);   // a file that may not grow is an error like others
  troupe::cli::occupy_standard_streams();
  troupe::cli::escape_terminal_output();
  troupe::cli::explain_bus_errors();
  troupe::cli::explain_lack_of_memory();
  return troupe::cli::run_command_line({arguments + (count > 0 ? 1 : 0), arguments + count});
}
