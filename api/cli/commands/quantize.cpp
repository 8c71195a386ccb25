#include "api/cli/command.hpp"
#include "api/cli/common_options.hpp"
#include "api/cli/terminal/progress.hpp"
#include "api/cli/values.hpp"
#include "runtime/import/gguf_export.hpp"
#include "runtime/support/byte_size.hpp"
#include "runtime/support/json_text.hpp"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <cstdio>
#include <iostream>

namespace troupe::cli {

namespace {

struct quantize_options {
  std::string model, to, out;
  int threads = 0;
  bool requantise = false;
  bool json = false;
};

std::vector<std::string> format_names() {
  std::vector<std::string> names;
  for (const auto& format : export_formats())
    names.emplace_back(format.name);
  return names;
}

int quantize(const quantize_options& options) {
  require_model(options.model);
  const auto format = *std::ranges::find(export_formats(), options.to, &export_format::name);
  kernels::thread_pool pool(options.threads);
  progress shown;
  load_status status;
  status.line = "quantising " + options.model;
  const auto show = [&](std::size_t done, std::size_t all) {
    status.done_bytes = done;
    status.total_bytes = all;
    shown.show(status);
  };
  const auto log = [&](std::string line) {
    status.line = std::move(line);
    shown.show(status);
  };
  shown.show(status);
  const auto result = export_gguf(options.model, format.type, options.out, pool, show, log, options.requantise);
  status.now = load_status::stage::ready;
  shown.show(status);
  if (options.json)
    std::cout << "{\"file\":" << json_text(options.out) << ",\"format\":" << json_text(options.to)
              << ",\"stored_bytes\":" << result.stored_bytes << ",\"written_bytes\":" << result.written_bytes
              << ",\"relative_error\":" << json_number(result.relative_error) << "}\n";
  else
    std::printf("%s: %s of weights from %s, changed by %.2f %% (root mean square)\n", options.out.c_str(),
                to_size(result.written_bytes).c_str(), to_size(result.stored_bytes).c_str(),
                100 * result.relative_error);
  return 0;
}

} // namespace

command add_quantize(CLI::App& troupe) {
  const auto options = std::make_shared<quantize_options>();
  auto* app = troupe.add_subcommand("quantize", "Write a model as one GGUF file with quantised weights");
  app->add_option("--to", options->to, "Format of the matrices: q8_0 (8.5 bits per weight), q4_0 (4.5) or q4_1 (5)")
    ->check(one_of(format_names()))
    ->type_name("FORMAT")
    ->required();
  app->add_option("--out", options->out, "The file to write")->type_name("FILE")->required();
  app->add_flag("--requantize", options->requantise,
                "Accept a model that is quantised already, which adds to its error");
  add_model_option(*app, options->model);
  app->add_option("--threads", options->threads, "Threads to compute with; 0: one per core")
    ->check(integer_between(0, 1024))
    ->type_name("INT")
    ->capture_default_str()
    ->group(model_group);
  app->add_flag("--json", options->json, "Print one JSON object rather than a line")->group(output_group);
  add_common_options(*app);
  app->footer("Embeddings and the output matrix get at least q8_0. The file includes the tokenizer and the chat "
              "template, so other programs that read GGUF can use it too.\n"
              "Examples:\n"
              "  troupe quantize --model ~/models/Qwen3-0.6B --to q8_0 --out qwen3-q8_0.gguf\n"
              "  troupe run --model qwen3-q8_0.gguf \"Tell me a story\"");
  return {app, [options] { return quantize(*options); }};
}

} // namespace troupe::cli
