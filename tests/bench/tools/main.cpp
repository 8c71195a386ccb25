#include "api/cli/command_line.hpp"
#include "tests/bench/tools/tools.hpp"

int main(int count, char** arguments) {
  using namespace troupe::cli;
  return run_command_line({arguments + (count > 0 ? 1 : 0), arguments + count}, [](CLI::App& bench) {
    return std::vector{add_bench_kv_move(bench), add_bench_scores(bench), add_bench_speculate(bench)};
  });
}
