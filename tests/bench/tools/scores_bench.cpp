#include "api/cli/common_options.hpp"
#include "api/cli/terminal/progress.hpp"
#include "api/cli/terminal/standard_streams.hpp"
#include "api/cli/values.hpp"
#include "runtime/engine/loading/memory_plan.hpp"
#include "runtime/engine/loading/named_precision.hpp"
#include "runtime/engine/loading/weight_loading.hpp"
#include "runtime/execution/device.hpp"
#include "runtime/import/model_source.hpp"
#include "runtime/model/decoder/memory_estimate.hpp"
#include "runtime/support/files/atomic_file.hpp"
#include "runtime/support/files/file_reading.hpp"
#include "runtime/support/json/json_text.hpp"
#include "runtime/support/text/byte_size.hpp"
#include "tests/bench/tools/score_observer.hpp"
#include "tests/bench/tools/tools.hpp"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <iostream>

namespace troupe::cli {

namespace {

constexpr int scores_step_rows = 256;

/// How far from a unified maximum a score may be: a sum of exponentials from e^-40 to e^40 is not recomputed
/// (kernels/cuda/NOTES.md). Half of it is left for sums and for what the text does not show.
constexpr float scores_reach = 20;

struct scores_options {
  std::string model, text, picture, config;
  int tokens = 1024, queries = 256, threads = 0;
  bool json = false;
};

void write_new_file(const std::string& file, const std::string& content) {
  if (std::filesystem::exists(file))
    throw failure(errc::bad_request, file + ": is there already; give the result another name");
  if (!write_file(file, content))
    throw failure(errc::bad_file, file + ": another process is writing it");
}

/// A row of bars for each layer: darker where more scores are.
std::string picture_of(const std::string& model, const std::vector<layer_scores>& layers, const score_center& center) {
  int low = 0, high = 1;
  for (const auto& layer : layers)
    if (!layer.histogram.empty()) {
      low = std::min(low, layer.histogram.begin()->first);
      high = std::max(high, layer.histogram.rbegin()->first + 1);
    }
  constexpr int row = 14, left = 60, width = 800, top = 40;
  const double unit = double(width) / (high - low);
  const int height = top + row * static_cast<int>(layers.size()) + 40;
  std::string svg = "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"" + std::to_string(left + width + 20) +
    "\" height=\"" + std::to_string(height) + "\" font-family=\"sans-serif\" font-size=\"11\">\n";
  const auto text = [&](double x, double y, const std::string& what, const char* anchor) {
    char line[128];
    std::snprintf(line, sizeof line, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">", x, y, anchor);
    svg += line;
    for (const char c : what)
      svg += c == '<' ? "&lt;" : c == '&' ? "&amp;" : std::string(1, c);
    svg += "</text>\n";
  };
  text(left, 16, "Scores of attention by layer, in nats: " + model, "start");
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const double y = top + row * double(i);
    text(left - 6, y + 11, "layer " + std::to_string(i), "end");
    std::uint64_t most = 1;
    for (const auto& bin : layers[i].histogram)
      most = std::max(most, bin.second);
    for (const auto& [bin, count] : layers[i].histogram) {
      char bar[160];
      std::snprintf(bar, sizeof bar,
                    "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.2f\" height=\"%d\" fill=\"#1f4e9c\" "
                    "fill-opacity=\"%.3f\"/>\n",
                    left + (bin - low) * unit, y, unit, row - 1, std::sqrt(double(count) / double(most)));
      svg += bar;
    }
  }
  const double end = top + row * double(layers.size());
  for (int tick = low / 20 * 20; tick <= high; tick += std::max(20, (high - low) / 200 * 20))
    if (tick >= low)
      text(left + (tick - low) * unit, end + 14, std::to_string(tick), "middle");
  char line[160];
  std::snprintf(line, sizeof line, "<path d=\"M%.1f %dV%.1f\" stroke=\"#c00\"/>\n", left + (center.at - low) * unit,
                top, end);
  svg += line;
  text(left, end + 32, "red: the proposed unified maximum", "start");
  return svg + "</svg>\n";
}

void print_scores(const scores_options& options, const std::string& model, const std::vector<layer_scores>& layers,
                  const score_center& center, std::size_t tokens) {
  const auto share = [](std::uint64_t part, std::uint64_t all) { return all > 0 ? double(part) / double(all) : 0; };
  if (options.json)
    std::cout << "{\"model\":" << json_text(model) << ",\"tokens\":" << tokens << ",\"layers\":[";
  else
    std::printf(
      "%s: scores of attention on %zu tokens, in nats; shares of weights, and of values that no query of their "
      "head needs, below 2^-n\n\n"
      "layer    least     mean   deviation     most   weights < 2^-8   2^-16   2^-24   values < 2^-8   2^-16   "
      "2^-24\n",
      model.c_str(), tokens);
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const auto& l = layers[i];
    const double n = std::max<double>(1, double(l.scores)), mean = l.sum / n,
                 deviation = std::sqrt(std::max(0.0, l.squares / n - mean * mean));
    if (options.json) {
      std::cout << (i > 0 ? "," : "") << "{\"layer\":" << i << ",\"least\":" << json_number(l.least)
                << ",\"mean\":" << json_number(mean) << ",\"deviation\":" << json_number(deviation)
                << ",\"most\":" << json_number(l.most);
      for (std::size_t k = 0; k < small_weights.size(); ++k)
        std::cout << ",\"weights_below_2^-" << small_weights[k] << "\":" << json_number(share(l.below[k], l.scores))
                  << ",\"values_below_2^-" << small_weights[k] << "\":" << json_number(share(l.unneeded[k], l.rows));
      std::cout << ",\"histogram\":{";
      bool first = true;
      for (const auto& [bin, count] : l.histogram) {
        std::cout << (first ? "\"" : ",\"") << bin << "\":" << count;
        first = false;
      }
      std::cout << "}}";
      continue;
    }
    std::printf("%5zu  %7.1f  %7.1f  %10.1f  %7.1f  %14.1f%%  %5.1f%%  %5.1f%%  %13.1f%%  %5.1f%%  %5.1f%%\n", i,
                double(l.least), mean, deviation, double(l.most), 100 * share(l.below[0], l.scores),
                100 * share(l.below[1], l.scores), 100 * share(l.below[2], l.scores),
                100 * share(l.unneeded[0], l.rows), 100 * share(l.unneeded[1], l.rows),
                100 * share(l.unneeded[2], l.rows));
  }
  if (options.json)
    std::cout << "],\"unified_maximum\":" << json_number(center.at) << ",\"outside\":" << json_number(center.outside)
              << ",\"recomputed\":" << json_number(recomputed_share(layers, center.at)) << "}\n";
  else
    std::printf("\n%.2f %% of the scores are more than %.0f nats away from %.1f: --unified-maximum %.1f on a GPU, "
                "where %.2f %% of "
                "sums would be made again. On a CPU softmax takes the largest of 256 scores, which is up to a tenth of "
                "attention's "
                "time.\n",
                100 * center.outside, double(scores_reach), double(center.at), double(center.at),
                100 * recomputed_share(layers, center.at));
  flush_output();
}

int run_scores(const scores_options& options) {
  require_model(options.model);
  const auto source = open_model(options.model);
  if (!source.load_tokenizer)
    throw failure(errc::unsupported, options.model + " has no tokenizer to read a text with");
  const auto limit = source.config.max_context;
  if (options.tokens > limit)
    throw failure(errc::bad_request,
                  "--tokens " + std::to_string(options.tokens) + " exceeds the " + std::to_string(limit) +
                    " tokens that the model allows");
  const auto text = read_file_or_stdin(options.text);
  auto tokens = source.load_tokenizer()->encode(text, true);
  if (tokens.size() < static_cast<std::size_t>(options.tokens))
    throw failure(errc::bad_request,
                  "the text has " + std::to_string(tokens.size()) + " tokens, and --tokens asks for " +
                    std::to_string(options.tokens));
  tokens.resize(static_cast<std::size_t>(options.tokens));

  compute_options compute;
  compute.device = "cpu";
  compute.threads = options.threads;
  const auto device = open_device(compute, {});
  const auto precision = precision_of(compute, *source.tensors, device->capabilities());
  const auto backend = device->open();
  const int rows = std::min(options.tokens, scores_step_rows);
  const auto blocks = static_cast<std::size_t>((options.tokens + kernels::block_tokens - 1) / kernels::block_tokens);
  const auto memory = estimate_memory(*source.tensors, source.config, precision, *backend, {rows, 1, options.tokens});
  const auto keys = tokens.size() * static_cast<std::size_t>(source.config.layers) *
    static_cast<std::size_t>(source.config.kv_heads * source.config.head_dim) * sizeof(float);
  require_memory(source.name, memory.fixed() + blocks * memory.kv_block + keys, device->available_memory());
  task_progress task("loading " + source.name);
  const auto weights = load_weights(source, compute, precision, *backend, task.show, task.log);
  task.begin("reading " + options.text);
  const auto layers = observe_scores(weights, *backend, tokens, rows, options.queries, task.show);
  task.end();
  const auto center = center_of(layers, scores_reach);
  if (!options.picture.empty())
    write_new_file(options.picture, picture_of(source.name, layers, center));
  if (!options.config.empty())
    write_new_file(options.config,
                   "# Of `troupe_bench_tools bench scores` on " + std::to_string(tokens.size()) +
                     " tokens.\nunified-maximum = " + json_number(center.at) + "\n");
  print_scores(options, source.name, layers, center, tokens.size());
  return 0;
}

} // namespace

command add_bench_scores(CLI::App& bench) {
  const auto options = std::make_shared<scores_options>();
  auto* app = bench.add_subcommand("scores", "Look at attention's scores, and at how small its weights are, on a text");
  app->add_option("--text,--file", options->text, "The text, in UTF-8; `-` reads stdin")->type_name("FILE")->required();
  const auto count = [&](const char* flag, int& value, int low, const char* help) {
    app->add_option(flag, value, help)->check(integer_between(low, 1 << 20))->type_name("INT")->capture_default_str();
  };
  count("--tokens", options->tokens, 2, "Tokens of the text to read, as one context");
  count("--queries", options->queries, 1, "Queries of each layer and head to look at, spaced evenly");
  app->add_option("--picture", options->picture, "Write the histograms of all layers to this file, as SVG")
    ->type_name("FILE");
  app
    ->add_option("--write-config", options->config,
                 "Write the proposed --unified-maximum to this file, for `troupe serve --config` on a GPU")
    ->type_name("FILE");
  app->add_flag("--json", options->json, "Print one JSON object rather than a table")->group(output_group);
  add_model_option(*app, options->model);
  add_threads_option(*app, options->threads);
  add_common_options(*app);
  app->footer(
    "`weights` are those of softmax over the whole context; `values` are rows of V whose weights, relative to the "
    "largest of their 256 positions or of the first 256, are that small for all queries of their head: "
    "--attention-threshold leaves them unread.\n"
    "Examples:\n"
    "  troupe_bench_tools bench scores --model ~/models/Qwen3-0.6B --text book.txt --tokens 8192\n"
    "  troupe_bench_tools bench scores --model ~/models/Qwen3-0.6B --text book.txt --picture scores.svg --write-config "
    "gpu.toml");
  return {app, [options] { return run_scores(*options); }};
}

} // namespace troupe::cli
