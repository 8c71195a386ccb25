#include "api/cli/command.hpp"
#include "api/cli/common_options.hpp"
#include "api/cli/terminal/standard_streams.hpp"
#include "api/cli/values.hpp"
#include "kernels/cpu/machine.hpp"
#include "runtime/support/json/json_text.hpp"

#include <CLI/CLI.hpp>

#include <cstdio>
#include <iostream>
#include <memory>

namespace troupe::cli {

namespace {

struct machine_bench_options {
  int threads = 0;
  std::size_t memory = std::size_t(768) << 20; // bytes
  bool json = false;
};

void print_json(const kernels::machine_peaks& peaks) {
  std::cout << "{\"threads\":" << peaks.threads << ",\"f32_fma_gflops\":" << json_number(peaks.f32_fma / 1e9)
            << ",\"bf16_dot_gflops\":" << json_number(peaks.bf16_dot / 1e9)
            << ",\"bf16_amx_gflops\":" << json_number(peaks.bf16_amx / 1e9)
            << ",\"int8_dot_gops\":" << json_number(peaks.int8_dot / 1e9)
            << ",\"int8_amx_gops\":" << json_number(peaks.int8_amx / 1e9)
            << ",\"read_gbps\":" << json_number(peaks.read / 1e9)
            << ",\"read_median_gbps\":" << json_number(peaks.read_median / 1e9) << "}\n";
  flush_output();
}

/// Gop/s, or a dash if the processor has no such instruction.
std::string rate(double per_second) {
  char text[32] = "-";
  if (per_second > 0)
    std::snprintf(text, sizeof text, "%.0f", per_second / 1e9);
  return text;
}

void print_row(const kernels::machine_peaks& p) {
  std::printf("%7d  %15s  %16s  %16s  %14s  %14s  %9.1f  %8.1f\n", p.threads, rate(p.f32_fma).c_str(),
              rate(p.bf16_dot).c_str(), rate(p.bf16_amx).c_str(), rate(p.int8_dot).c_str(), rate(p.int8_amx).c_str(),
              p.read / 1e9, p.read_median / 1e9);
  flush_output();
}

/// Measures one thread, then the number asked for.
int run_machine_bench(const machine_bench_options& options) {
  if (!options.json)
    std::printf("threads  f32 FMA Gflop/s  bf16 dot Gflop/s  bf16 AMX Gflop/s  int8 dot Gop/s  int8 AMX Gop/s  read "
                "GB/s    median\n");
  for (const int threads : {1, options.threads}) {
    const auto peaks = kernels::measure_machine(threads, options.memory);
    if (options.json)
      print_json(peaks);
    else
      print_row(peaks);
    if (options.threads == 1)
      break;
  }
  return 0;
}

} // namespace

command add_bench_machine(CLI::App& bench) {
  const auto options = std::make_shared<machine_bench_options>();
  auto* app = bench.add_subcommand("machine", "Measure the peak rates of this machine's processor and memory");
  add_integer(*app, "--threads", options->threads, 0, 1024, "Measure one thread, then this many; 0: one per core");
  app->add_option("--memory", options->memory, "Memory to read in one pass, which should exceed the caches")
    ->transform(size_value())
    ->type_name("SIZE")
    ->default_str("768MiB");
  app->add_flag("--json", options->json, "Print one JSON object per number of threads, not a table")
    ->group(output_group);
  add_common_options(*app);
  app->footer("Measures upper bounds for kernels: instructions that work on registers, and one pass of reading memory. "
              "With one thread, CPU time is measured. Nothing else should run meanwhile.\n"
              "Examples:\n"
              "  troupe bench machine\n"
              "  troupe bench machine --threads 2 --json");
  return {app, [options] { return run_machine_bench(*options); }};
}

} // namespace troupe::cli
