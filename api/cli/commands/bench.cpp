#include "api/cli/command.hpp"
#include "api/cli/commands/model_bench.hpp"
#include "api/cli/common_options.hpp"
#include "api/cli/technique_options.hpp"
#include "api/cli/terminal/progress.hpp"
#include "api/cli/terminal/standard_streams.hpp"
#include "api/cli/values.hpp"
#include "api/embed/gpu.hpp"
#include "runtime/support/error.hpp"
#include "runtime/support/json/json_text.hpp"
#include "runtime/support/text/byte_size.hpp"

#include <CLI/CLI.hpp>

#include <cstdio>
#include <iostream>

namespace troupe::cli {

namespace {

constexpr int most_rows = 1 << 20;

struct bench_options : model_bench_options {
  std::string batches = "1,4,16,32";
  bool json = false;
};

/// Lists contain commas, which CLI11 and configuration files may split: the validator accepts one text or several.
CLI::Validator batch_list() {
  return CLI::Validator(
    [](std::string& text) -> std::string {
      try {
        return parse_integers(text, 1, most_rows).empty() ? "must name at least one batch size" : "";
      } catch (const failure& e) {
        return e.what();
      }
    },
    "");
}

void print_json(const model_bench& bench, const bench_options& options, const model_bench_result& r) {
  const auto work = bench.work_per_token();
  std::cout << "{\"model\":" << json_text(bench.name()) << ",\"weights\":" << json_text(bench.weights())
            << ",\"dtype\":" << json_text(bench.dtype()) << ",\"kv_dtype\":" << json_text(bench.kv_dtype())
            << ",\"device\":" << json_text(bench.device()) << ",\"threads\":" << bench.threads()
            << ",\"step_tokens\":" << options.step_tokens << ",\"repeat\":" << options.repeat
            << ",\"batch\":" << r.batch << ",\"prompt\":" << options.prompt << ",\"generate\":" << options.generate
            << ",\"prefill_tps\":" << json_number(r.prefill_tps) << ",\"decode_tps\":" << json_number(r.decode_tps)
            << ",\"prefill_ms\":" << json_number(r.prefill_ms)
            << ",\"decode_ms_per_step\":" << json_number(r.decode_ms_per_step)
            << ",\"load_s\":" << json_number(bench.load_seconds()) << ",\"peak_rss_bytes\":" << r.peak_rss_bytes
            << ",\"weight_bytes\":" << work.bytes << ",\"multiply_adds_per_token\":" << work.multiply_adds
            << ",\"sparsity\":" << json_text(options.sparsity)
            << ",\"decode_bytes_per_step\":" << json_number(r.decode_bytes_per_step)
            << ",\"decode_skipped_bytes_per_step\":" << json_number(r.decode_skipped_bytes_per_step)
            << ",\"decode_unread_values_per_step\":" << json_number(r.decode_unread_values_per_step)
            << ",\"prefill_operations\":" << json_number(r.prefill_operations);
  if (options.peaks)
    std::cout << ",\"bandwidth_gbps\":" << json_number(bench.peaks().bandwidth / 1e9)
              << ",\"bandwidth_of\":" << json_text(bench.peaks().bandwidth_of)
              << ",\"peak_gops\":" << json_number(bench.peaks().operations / 1e9)
              << ",\"peak_of\":" << json_text(bench.peaks().operations_of)
              << ",\"decode_bandwidth_share\":" << json_number(r.decode_bandwidth_share)
              << ",\"prefill_peak_share\":" << json_number(r.prefill_peak_share);
  if (bench.times_steps())
    std::cout << ",\"device_ms_per_step\":" << json_number(r.device_ms_per_step)
              << ",\"step_overhead_share\":" << json_number(r.step_overhead_share);
  std::cout << "}\n";
  flush_output();
}

void print_heading(const model_bench& bench, const bench_options& options) {
  std::printf("%s, weights %s, computed in %s on %s; loaded in %.2f s\n"
              "prompt %d tokens, generate %d, steps of up to %d rows; medians of %d\n",
              bench.name().c_str(), bench.weights().c_str(), bench.dtype().c_str(), bench.device().c_str(),
              bench.load_seconds(), options.prompt, options.generate, options.step_tokens, options.repeat);
  if (bench.sparsity())
    std::printf("sparsity %s: the smallest inputs of MLPs count as zero, which is an approximation\n",
                options.sparsity.c_str());
  if (const auto& c = bench.peaks(); options.peaks)
    std::printf("%s %.1f GB/s, %s\n", c.bandwidth_of.c_str(), c.bandwidth / 1e9,
                c.operations > 0
                  ? (c.operations_of + " " + std::to_string(std::llround(c.operations / 1e9)) + " Gop/s").c_str()
                  : "no product rate to compare with");
  std::printf("\nbatch  prefill tokens/s  decode tokens/s  decode ms/step  read per step  skipped  peak memory%s%s\n",
              options.peaks ? "  prefill of peak  decode of bandwidth" : "",
              bench.times_steps() ? "  between steps" : "");
  flush_output();
}

/// "12.3 %", or a dash if there is nothing to measure or to compare with.
std::string percent(double share) {
  char text[32] = "-";
  if (share != 0)
    std::snprintf(text, sizeof text, "%.1f %%", 100 * share);
  return text;
}

void print_row(const model_bench& bench, const bench_options& options, const model_bench_result& r) {
  const auto of_all = r.decode_skipped_bytes_per_step + r.decode_bytes_per_step;
  std::printf("%5d  %16.1f  %15.1f  %14.2f  %13s  %7s  %11s", r.batch, r.prefill_tps, r.decode_tps,
              r.decode_ms_per_step, to_size(static_cast<std::size_t>(r.decode_bytes_per_step)).c_str(),
              percent(of_all > 0 ? r.decode_skipped_bytes_per_step / of_all : 0).c_str(),
              to_size(r.peak_rss_bytes).c_str());
  if (options.peaks)
    std::printf("  %15s  %19s", percent(r.prefill_peak_share).c_str(), percent(r.decode_bandwidth_share).c_str());
  if (bench.times_steps())
    std::printf("  %13s", percent(r.step_overhead_share).c_str());
  std::printf("\n");
  flush_output();
}

int run_model_bench(const bench_options& options) {
  require_model(options.model);
  if (options.prompt + options.generate == 0)
    throw usage_failure("--prompt and --generate are both 0, which leaves nothing to measure");
  task_progress task("loading " + options.model);
  model_bench bench(options, open_gpu_plugin, task.show, task.log);
  task.end();
  if (!options.json)
    print_heading(bench, options);
  for (const auto batch : parse_integers(options.batches, 1, most_rows)) {
    const auto result = bench.measure(static_cast<int>(batch));
    if (options.json)
      print_json(bench, options, result);
    else
      print_row(bench, options, result);
  }
  return 0;
}

} // namespace

command add_bench_model(CLI::App& bench) {
  const auto options = std::make_shared<bench_options>();
  auto* app = bench.add_subcommand("model",
                                   "Measure prefill and decode speed of a model, without tokenising and sampling");
  const auto count = [&](const char* flag, int& value, int low, const char* help) {
    add_integer(*app, flag, value, low, most_rows, help);
  };
  count("--prompt", options->prompt, 0, "Tokens of each prompt");
  count("--generate", options->generate, 0, "Tokens generated per sequence");
  app
    ->add_option("--batch", options->batches,
                 "Sequences at once; several sizes, separated by commas, are measured in turn")
    ->check(batch_list())
    ->multi_option_policy(CLI::MultiOptionPolicy::Join)
    ->allow_extra_args(false)
    ->type_name("LIST")
    ->capture_default_str();
  count("--repeat", options->repeat, 1, "Runs to take medians of");
  add_technique_options(*app, options->techniques, technique_option::bench, "Options");
  count("--step-tokens", options->step_tokens, 1, "Most rows of a prefill step");
  app->add_flag("--json", options->json, "Print one JSON object per batch size, not a table")->group(output_group);
  app
    ->add_flag("--peaks", options->peaks,
               "First measure the device's peak rates, which takes seconds, and show the share that is reached")
    ->group(output_group);
  app->add_flag("--ceilings", options->peaks)->group(""); // the former name
  add_model_option(*app, options->model);
  add_compute_options(*app, *options);
  add_common_options(*app);
  app->footer(
    "A prefill rate counts the tokens of all prompts, a decode rate those of all sequences. `read per step` counts "
    "what a decode step must read: the weights once, except those `skipped` because only zeros would multiply them, "
    "and "
    "the keys and values of every sequence.\n"
    "With --peaks: `of peak` compares the operations that the prompts need with the fastest product for such weights "
    "(on "
    "a GPU cuBLASLt's in bf16); `of bandwidth` compares the bytes that a decode step must read with the speed of "
    "reading "
    "memory (on a GPU of copying it, counting both directions); `between steps` is the share of decoding time in which "
    "a "
    "GPU worked on no step.\n"
    "Examples:\n"
    "  troupe bench model --model synthetic:llama-1b --threads 2\n"
    "  troupe bench model --model synthetic:opt-1b:90 --batch 1,8  # 90 % zeros behind ReLU\n"
    "  troupe bench model --model ~/models/Qwen3-0.6B --prompt 2048 --generate 64 --batch 1,8 --json");
  return {app, [options] { return run_model_bench(*options); }};
}

} // namespace troupe::cli
