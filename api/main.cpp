// The program `troupe`.
#include "api/cli/bus_errors.hpp"
#include "api/cli/command_line.hpp"
#include "api/cli/memory_errors.hpp"
#include "api/cli/standard_streams.hpp"

int main(int count, char** arguments) {
  troupe::cli::occupy_standard_streams();
  troupe::cli::explain_bus_errors();
  troupe::cli::explain_lack_of_memory();
  return troupe::cli::run_command_line({arguments + (count > 0 ? 1 : 0), arguments + count});
}
