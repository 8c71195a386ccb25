// Measurements that only those who change Troupe need. troupe_bench_tools is the program `troupe` with these commands
// below `bench`.
#pragma once

#include "api/cli/command.hpp"

namespace troupe::cli {

command add_bench_kv_move(CLI::App& bench);
command add_bench_scores(CLI::App& bench);
command add_bench_speculate(CLI::App& bench);

} // namespace troupe::cli
