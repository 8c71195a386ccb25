#include "api/cli/command.hpp"
#include "api/cli/common_options.hpp"
#include "api/cli/terminal/progress.hpp"
#include "api/cli/terminal/standard_streams.hpp"
#include "api/cli/values.hpp"
#include "runtime/engine/loading/calibration.hpp"
#include "runtime/import/export/folder_export.hpp"
#include "runtime/import/export/fp8_export.hpp"
#include "runtime/import/export/gptq_export.hpp"
#include "runtime/import/export/pruned_export.hpp"
#include "runtime/support/files/file_reading.hpp"
#include "runtime/support/json/json_text.hpp"
#include "runtime/support/machine/available_memory.hpp"
#include "runtime/support/text/byte_size.hpp"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <cstdio>
#include <iostream>
#include <optional>

namespace troupe::cli {

namespace {

struct quantize_options {
  std::string model, to, out, importance, text, sparsity, prune_by;
  int threads = 0, bits = 4, group = 128, context = 512, windows = 128;
  bool by_importance = false, asymmetric = false;
  bool requantise = false, pure = false;
  bool json = false;
};

std::vector<std::string> format_names() {
  std::vector<std::string> names;
  for (const auto& format : export_formats())
    names.emplace_back(format.name);
  for (const char* other : {"q3_k", "q4_k", "q5_k", "fp8", "gptq"})
    names.emplace_back(other);
  return names;
}

/// GGUF's format with so many bits, for `--to gptq` into a file.
const export_format& format_of_bits(int bits) {
  return *find_export_format(bits == 2 ? "q2_k" : bits == 3 ? "q3_k_s" : bits == 4 ? "q4_k_s" : "q8_0");
}

/// Whether the result is a folder of Hugging Face's files.
bool makes_folder(const quantize_options& options) { return options.to == "gptq" && !has_gguf_extension(options.out); }

/// What says which of the weights stay, of --sparsity.
std::string pruning_law(const quantize_options& options) {
  return !options.prune_by.empty() ? options.prune_by
    : !options.text.empty()        ? "sparsegpt"
    : !options.importance.empty()  ? "wanda"
                                   : "magnitude";
}

void check_sparsity_options(const quantize_options& options) {
  if (options.sparsity.empty()) {
    if (options.to.empty())
      throw usage_failure("say what to make: --to FORMAT or --sparsity 2:4");
    return;
  }
  if (!options.to.empty())
    throw usage_failure("--sparsity and --to exclude each other: weights that stay keep their type");
  const auto law = pruning_law(options);
  const bool text = !options.text.empty(), matrix = !options.importance.empty();
  if (law == "magnitude" && (text || matrix))
    throw usage_failure("--prune-by magnitude looks at no text and no importance matrix");
  if (law == "wanda" && !text && !matrix)
    throw usage_failure("--prune-by wanda needs a calibration text or an importance matrix: --text or --imatrix FILE");
  if (law == "sparsegpt" && !text)
    throw usage_failure("--prune-by sparsegpt needs a calibration text: --text FILE");
}

void check_quantize(const quantize_options& options) {
  check_sparsity_options(options);
  if (options.to == "fp8" && !(options.text.empty() && options.importance.empty()))
    throw usage_failure("--to fp8 looks at no text and no importance matrix");
  if (options.to == "gptq" && options.text.empty())
    throw usage_failure("--to gptq needs a calibration text: --text FILE");
  if (!options.text.empty() && !options.importance.empty())
    throw usage_failure("--text and --imatrix exclude each other: errors are weighed by one or the other");
}

/// Refuses flags that would have no effect on what is made.
void check_flags(const CLI::App& given, const quantize_options& options) {
  const bool sparse = !options.sparsity.empty(), gptq = options.to == "gptq", folder = makes_folder(options);
  const bool text = !options.text.empty();
  const bool plain = options.to == "f32" || options.to == "f16" || options.to == "bf16";
  const bool file = !sparse && !folder && options.to != "fp8";
  const struct {
    const char* flag;
    bool has_effect;
    const char* needs;
  } rules[] = {
    {"--bits", gptq, "is for --to gptq; other formats say how many bits they have"},
    {"--group-size", folder, "is for folders (--to gptq --out FOLDER)"},
    {"--act-order", folder, "is for folders (--to gptq --out FOLDER): blocks of GGUF files keep inputs in order"},
    {"--asymmetric", folder, "is for folders (--to gptq --out FOLDER)"},
    {"--windows", text, "is for the text of --text"},
    {"--context", text, "is for the text of --text"},
    {"--text", !(file && plain), "is for formats that round to blocks, not for floats"},
    {"--imatrix", !(file && plain), "is for formats that round to blocks, not for floats"},
    {"--pure", file && !plain, "is for GGUF files in formats with blocks"},
    {"--requantize", file, "is for GGUF files: folders are made of models that are not quantised"},
  };
  for (const auto& rule : rules)
    if (given.count(rule.flag) > 0 && !rule.has_effect)
      throw usage_failure(std::string(rule.flag) + ' ' + rule.needs);
}

/// `made`: the format, or what chose the weights that stay.
void print_result(const quantize_options& options, const std::string& made, const export_result& result) {
  if (options.json)
    std::cout << "{\"file\":" << json_text(options.out) << ",\"format\":" << json_text(made)
              << ",\"stored_bytes\":" << result.stored_bytes << ",\"written_bytes\":" << result.written_bytes
              << ",\"bits_per_weight\":" << json_number(result.bits_per_weight())
              << ",\"relative_error\":" << json_number(result.relative_error) << "}\n";
  else
    std::printf("%s: %s of weights from %s, %.2f bits per weight, changed by %.2f %% (root mean square)\n",
                options.out.c_str(), to_size(result.written_bytes).c_str(), to_size(result.stored_bytes).c_str(),
                result.bits_per_weight(), 100 * result.relative_error);
}

int quantize(const CLI::App& given, const quantize_options& options) {
  check_quantize(options);
  check_flags(given, options);
  require_model(options.model);
  kernels::thread_pool pool(options.threads);
  task_progress task("loading " + options.model);
  importance_table importance;
  if (!options.importance.empty())
    importance = read_importance(options.importance);
  std::optional<calibration> model;
  std::optional<hessian_source> hessians;
  feedback_fn feedback;
  const auto read_text = [&] {
    task.begin("reading " + options.text);
    model.emplace(calibration_options{options.model, read_file_or_stdin(options.text), options.threads, options.context,
                                      options.windows},
                  task.show, [](std::string) {}); // what there is to say of the model, exports say, too
  };
  const auto law = options.sparsity.empty() ? "" : pruning_law(options);
  if (law == "wanda" && !options.text.empty()) {
    read_text();
    importance = measure_importance(*model, options.text, task.show);
  } else if (!options.text.empty())
    feedback = [&](const std::string& matrix) { // what is wrong with the rest is told before the text is read
      if (!model) {
        read_text();
        hessians.emplace(*model, layer_matrices(model->config()), available_memory() / 2, options.by_importance, pool,
                         task.show);
      }
      return hessians->of(matrix);
    };
  task.log("quantising " + options.model);
  if (!options.sparsity.empty()) {
    const pruning how{law == "wanda" ? &importance : nullptr, feedback};
    const auto result = export_pruned(options.model, options.out, pool, how, task.show, task.log);
    task.end();
    print_result(options, law, result);
    return 0;
  }
  const auto& format = options.to == "gptq" ? format_of_bits(options.bits)
                                            : *find_export_format(options.to == "fp8" ? "f16" : options.to);
  const auto result = options.to == "fp8" ? export_fp8(options.model, options.out, pool, task.show, task.log)
    : makes_folder(options)
    ? export_gptq(options.model,
                  {{options.bits, as_size(std::max(0, options.group)), !options.asymmetric}, options.by_importance},
                  options.out, pool, feedback, task.show, task.log)
    : export_gguf(options.model, format, options.out, pool,
                  {options.requantise, options.pure, options.importance.empty() ? nullptr : &importance, feedback},
                  task.show, task.log);
  task.end();
  print_result(options, options.to, result);
  return 0;
}

} // namespace

command add_quantize(CLI::App& troupe) {
  const auto options = std::make_shared<quantize_options>();
  auto* app = troupe.add_subcommand(
    "quantize",
    "Write a model with quantised weights, as a GGUF file or a folder, or with half of its weights set to zero");
  app
    ->add_option(
      "--to", options->to,
      "Format: q8_0 (8.5 bits per weight), q6_k (6.6), q5_0, q5_1, q4_0, q4_1, iq4_nl or iq4_xs (4.3); a mix "
      "with more bits where errors matter most, q5_k_m, q5_k_s, q4_k_m, q4_k_s, q3_k_l, q3_k_m, q3_k_s, q2_k "
      "or q2_k_s, as llama-quantize makes them; f16, bf16, f32; fp8, a folder that vLLM reads; or gptq, with --bits "
      "and --text, a folder that transformers reads, or a GGUF file")
    ->check(one_of(format_names()))
    ->type_name("FORMAT");
  app
    ->add_option(
      "--sparsity", options->sparsity,
      "Instead of --to: set 2 of every 4 weights of the layers' matrices to zero, and write a folder that stores the "
      "others only (compressed-tensors' sparse-24-bitmask)")
    ->check(one_of({"2:4"}))
    ->type_name("2:4");
  app
    ->add_option(
      "--prune-by", options->prune_by,
      "With --sparsity: how the weights that stay are chosen. magnitude: by their size; wanda: by their size times "
      "that of their inputs, which needs --text or --imatrix; sparsegpt: by what it would cost to lose them, with the "
      "others adjusted to make up for it, which needs --text. By default the last of these that can be used")
    ->check(one_of({"magnitude", "wanda", "sparsegpt"}))
    ->type_name("LAW");
  add_file(*app, "--out", options->out,
           "The file to write; with --sparsity, --to fp8, and --to gptq unless it ends in .gguf, a new folder")
    ->required();
  add_file(*app, "--text", options->text,
           "Read this text first, and adjust weights to make up for the rounding of others (GPTQ); for any format with "
           "blocks. A text of the kind that the model will read, in UTF-8; `-` reads stdin");
  add_integer(*app, "--windows", options->windows, 0, 1 << 20, "Windows of the text to read at most; 0: all of it");
  add_integer(*app, "--context", options->context, 2, 1 << 20,
              "Tokens of a window of the text, at most the model's context");
  app
    ->add_option("--bits", options->bits,
                 "With --to gptq: 2, 3, 4 or 8 bits per weight; in a GGUF file q2_k, q3_k_s, q4_k_s or q8_0")
    ->check(one_of({"2", "3", "4", "8"}))
    ->type_name("INT")
    ->capture_default_str();
  app
    ->add_option("--group-size", options->group, "With --to gptq into a folder: how many inputs share a scale; -1: all")
    ->check(one_of({"-1", "32", "64", "128", "256", "512", "1024"}))
    ->type_name("INT")
    ->capture_default_str();
  app->add_flag("--act-order", options->by_importance,
                "With --to gptq into a folder: quantise the largest inputs first (desc_act)");
  app->add_flag("--asymmetric", options->asymmetric,
                "With --to gptq into a folder: give each group a zero point of its own");
  add_file(*app, "--imatrix", options->importance,
           "A file that says how much an error of each input counts, written by `troupe imatrix` or llama-imatrix");
  app->add_flag("--pure", options->pure, "No mix: every matrix, embeddings included, in the format itself");
  app->add_flag("--requantize", options->requantise,
                "Accept a model that is quantised already, which adds to its error");
  add_model_option(*app, options->model);
  add_threads_option(*app, options->threads);
  app->add_flag("--json", options->json, "Print one JSON object rather than a line")->group(output_group);
  add_common_options(*app);
  app->footer(
    "Embeddings and the output matrix get more bits than the others. Rows that do not fill a format's blocks of "
    "256 weights get a format with blocks of 32. The file includes the tokenizer and the chat "
    "template, so other programs that read GGUF can use it too; a line says so if llama.cpp's form cannot hold the "
    "model, which then is written in a form that only Troupe reads.\n"
    "Examples:\n"
    "  troupe quantize --model ~/models/Qwen3-0.6B --to q8_0 --out qwen3-q8_0.gguf\n"
    "  troupe quantize --model ~/models/Qwen3-0.6B --to q4_k_m --imatrix qwen3.imatrix.gguf --out "
    "qwen3-q4_k_m.gguf\n"
    "  troupe quantize --model ~/models/Qwen3-0.6B --sparsity 2:4 --text book.txt --out qwen3-2of4\n"
    "  troupe run --model qwen3-q8_0.gguf \"Tell me a story\"");
  return {app, [app, options] { return quantize(*app, *options); }};
}

} // namespace troupe::cli
