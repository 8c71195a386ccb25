#include "api/cli/command.hpp"
#include "api/cli/common_options.hpp"
#include "api/cli/terminal/progress.hpp"
#include "api/cli/terminal/standard_streams.hpp"
#include "api/cli/values.hpp"
#include "runtime/engine/loading/calibration.hpp"
#include "runtime/support/files/file_reading.hpp"
#include "runtime/support/json/json_text.hpp"

#include <CLI/CLI.hpp>

#include <cstdio>
#include <iostream>

namespace troupe::cli {

namespace {

struct imatrix_options {
  std::string model, text, out;
  int context = 512, windows = 0, threads = 0;
  bool json = false;
};

int write_imatrix(const imatrix_options& options) {
  require_model(options.model);
  task_progress task("loading " + options.model);
  calibration model(
    {options.model, read_file_or_stdin(options.text), options.threads, options.context, options.windows}, task.show,
    task.log);
  task.begin("reading " + options.text);
  const auto table = measure_importance(model, options.text, task.show);
  write_importance(options.out, table);
  task.end();
  if (options.json)
    std::cout << "{\"file\":" << json_text(options.out) << ",\"matrices\":" << table.tensors.size()
              << ",\"tokens\":" << model.tokens() << ",\"windows\":" << model.windows() << "}\n";
  else
    std::printf("%s: importances of %zu matrices from %zu tokens in windows of %d\n", options.out.c_str(),
                table.tensors.size(), model.tokens(), model.context());
  return 0;
}

} // namespace

command add_imatrix(CLI::App& troupe) {
  const auto options = std::make_shared<imatrix_options>();
  auto* app = troupe.add_subcommand("imatrix", "Measure which errors matter when a model is quantised");
  add_file(*app, "--text", options->text, "A text of the kind that the model will read, in UTF-8; `-` reads stdin")
    ->required();
  add_file(*app, "--out", options->out,
           "The file to write: a GGUF file if it ends in .gguf, else in llama.cpp's older format (.dat)")
    ->required();
  add_integer(*app, "--context", options->context, 2, 1 << 20,
              "Tokens of a window of the text, at most the model's context");
  add_integer(*app, "--windows", options->windows, 0, 1 << 20, "Windows to read at most; 0: all of the text");
  add_model_option(*app, options->model);
  add_threads_option(*app, options->threads);
  app->add_flag("--json", options->json, "Print one JSON object rather than a line")->group(output_group);
  add_common_options(*app);
  app->footer("The file holds, for each matrix, the mean square of each of its inputs on the text. `troupe quantize` "
              "and llama-quantize read it.\n"
              "Examples:\n"
              "  troupe imatrix --model ~/models/Qwen3-0.6B --text book.txt --out qwen3.imatrix.gguf\n"
              "  troupe quantize --model ~/models/Qwen3-0.6B --to q4_k_m --imatrix qwen3.imatrix.gguf --out q4.gguf");
  return {app, [options] { return write_imatrix(*options); }};
}

} // namespace troupe::cli
