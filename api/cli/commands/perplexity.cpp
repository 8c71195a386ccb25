#include "runtime/model/measuring/perplexity.hpp"
#include "api/cli/command.hpp"
#include "api/cli/common_options.hpp"
#include "api/cli/terminal/progress.hpp"
#include "api/cli/terminal/standard_streams.hpp"
#include "api/cli/values.hpp"
#include "api/embed/gpu.hpp"
#include "runtime/engine/checked_generation.hpp"
#include "runtime/engine/loading/memory_plan.hpp"
#include "runtime/engine/loading/named_precision.hpp"
#include "runtime/engine/loading/weight_loading.hpp"
#include "runtime/execution/device.hpp"
#include "runtime/import/model_source.hpp"
#include "runtime/model/decoder/memory_estimate.hpp"
#include "runtime/support/files/file_reading.hpp"
#include "runtime/support/json/json_text.hpp"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <iostream>

namespace troupe::cli {

namespace {

constexpr int most_tokens = 1 << 20, step_rows = 512;

struct perplexity_options : compute_options {
  std::string model, text;
  int context = 0, stride = 0; // 0: chosen
  bool json = false;
};

/// Bytes of the text that are predicted: all but those of the first token, which is none of the text's where texts
/// begin with a special token.
std::size_t predicted_bytes(const std::string& text, const tokenizer& tokens, const std::vector<token_id>& ids) {
  if (ids.empty() || tokens.encode(text, false).size() < ids.size())
    return text.size();
  return text.size() - std::min(text.size(), tokens.token_bytes(ids.front()).size());
}

int run_perplexity(const perplexity_options& options) {
  require_model(options.model);
  const auto source = open_model(options.model);
  if (!source.config.has_head())
    throw encodes_only();
  if (!source.load_tokenizer)
    throw failure(errc::unsupported, options.model + " has no tokenizer to read a text with");
  const auto limit = source.config.max_context;
  if (options.context > limit)
    throw failure(errc::bad_request,
                  "--context " + std::to_string(options.context) + " exceeds the " + std::to_string(limit) +
                    " tokens that the model allows");
  const int context = options.context > 0 ? std::max(2, options.context) : std::min(512, limit);
  const int stride = options.stride > 0 ? options.stride : context / 2;
  if (stride >= context)
    throw usage_failure("--stride must be less than the context, " + std::to_string(context));
  const auto text = read_file_or_stdin(options.text);
  const auto tokenizer = source.load_tokenizer();
  const auto tokens = tokenizer->encode(text, true);
  const auto bytes = predicted_bytes(text, *tokenizer, tokens);

  const auto device = open_device(options, open_gpu_plugin);
  const auto precision = precision_of(options, *source.tensors, device->capabilities());
  const auto backend = device->open();
  const int rows = std::min(context, step_rows);
  const auto logit_rows = perplexity_logit_rows(source.config.vocab, rows);
  const auto blocks = static_cast<std::size_t>((context + kernels::block_tokens - 1) / kernels::block_tokens);
  auto memory = estimate_memory(*source.tensors, source.config, precision, *backend,
                                {rows, static_cast<int>(logit_rows), context});
  memory.scratch += logit_rows * static_cast<std::size_t>(source.config.vocab) * sizeof(float);
  const auto budget = budget_beside(source, options, precision, *backend, memory, blocks * memory.kv_block,
                                    device->available_memory());
  task_progress task("loading " + source.name);
  decoder graph(load_weights(source, options, precision, *backend, task.show, task.log, {}, budget), *backend, rows,
                context);
  const auto cache = backend->make_kv_cache(kv_shape_of(source.config, precision, blocks));
  task.begin("reading " + options.text);
  const auto result = measure_perplexity(graph, *backend, *cache, tokens, context, stride, task.show);
  task.end();

  const double bits_per_byte = bytes > 0
    ? result.loss * static_cast<double>(result.tokens) / std::log(2.0) / static_cast<double>(bytes)
    : 0;
  const auto weights = weights_kind(*source.tensors, precision.weights);
  if (options.json)
    std::cout << "{\"model\":" << json_text(source.name) << ",\"weights\":" << json_text(weights)
              << ",\"dtype\":" << json_text(kernels::to_string(precision.compute)) << ",\"context\":" << context
              << ",\"stride\":" << stride << ",\"tokens\":" << result.tokens << ",\"weight_bytes\":" << memory.weights
              << ",\"loss\":" << json_number(result.loss) << ",\"loss_error\":" << json_number(result.deviation)
              << ",\"perplexity\":" << json_number(result.perplexity()) << ",\"bytes\":" << bytes
              << ",\"bits_per_byte\":" << json_number(bits_per_byte) << "}\n";
  else
    std::printf("%s, weights %s, computed in %s: perplexity %.4f (loss %.4f +- %.4f nats per token, %zu tokens, "
                "windows of %d by %d), %.4f bits per byte of text\n",
                source.name.c_str(), weights.c_str(), kernels::to_string(precision.compute), result.perplexity(),
                result.loss, result.deviation, result.tokens, context, stride, bits_per_byte);
  return 0;
}

} // namespace

command add_bench_perplexity(CLI::App& bench) {
  const auto options = std::make_shared<perplexity_options>();
  auto* app = bench.add_subcommand("perplexity", "Measure how well a model predicts a text, as it is or quantised");
  add_file(*app, "--text", options->text, "The text, in UTF-8; `-` reads stdin")->required();
  add_integer(*app, "--context", options->context, 0, most_tokens,
              "Tokens of a window, at least 2; 0: 512, or what the model allows");
  add_integer(*app, "--stride", options->stride, 0, most_tokens,
              "Tokens from one window to the next; 0: half a window");
  app->add_flag("--json", options->json, "Print one JSON object rather than a line")->group(output_group);
  add_model_option(*app, options->model);
  add_compute_options(*app, *options);
  add_common_options(*app);
  app->footer("Special tokens written out in the text are read as special tokens.\n"
              "Examples:\n"
              "  troupe bench perplexity --model ~/models/Qwen3-0.6B --text book.txt\n"
              "  troupe bench perplexity --model ~/models/Qwen3-0.6B --text book.txt --quantize int4 --json");
  return {app, [options] { return run_perplexity(*options); }};
}

} // namespace troupe::cli
