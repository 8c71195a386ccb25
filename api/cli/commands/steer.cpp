#include "api/cli/command.hpp"
#include "api/cli/common_options.hpp"
#include "api/cli/terminal/progress.hpp"
#include "api/cli/terminal/standard_streams.hpp"
#include "api/cli/values.hpp"
#include "api/embed/gpu.hpp"
#include "runtime/engine/loading/memory_plan.hpp"
#include "runtime/engine/loading/named_precision.hpp"
#include "runtime/engine/loading/weight_loading.hpp"
#include "runtime/execution/device.hpp"
#include "runtime/import/model_source.hpp"
#include "runtime/model/decoder/memory_estimate.hpp"
#include "runtime/model/measuring/last_states.hpp"
#include "runtime/support/files/file_reading.hpp"
#include "runtime/support/json/json_text.hpp"
#include "runtime/techniques/steering/contrast.hpp"
#include "runtime/techniques/steering/steering_file.hpp"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <iostream>
#include <sstream>

namespace troupe::cli {

namespace {

constexpr int pass_rows = 512;
constexpr std::size_t most_prompts = 65536, most_state_bytes = std::size_t(4) << 30;

struct steer_options : compute_options {
  std::string model, positive, negative, out, method = "mean";
  bool json = false;
};

/// A file of one prompt per line, as tokens. Empty lines are none.
struct prompt_list {
  std::string file;
  std::vector<std::vector<token_id>> prompts;
};

prompt_list read_prompt_list(const std::string& file, const tokenizer& tokens, int max_context) {
  prompt_list result{file, {}};
  std::istringstream text(read_file(file, files::text));
  std::size_t number = 0;
  for (std::string line; std::getline(text, line);) {
    ++number;
    if (line.ends_with('\r'))
      line.pop_back();
    if (line.empty())
      continue;
    result.prompts.push_back(tokens.encode(line, true));
    const auto length = result.prompts.back().size();
    if (length == 0 || length > as_size(max_context))
      throw failure(errc::bad_request,
                    file + ": line " + std::to_string(number) + " has " + std::to_string(length) +
                      " tokens, but the model takes 1 to " + std::to_string(max_context));
    if (result.prompts.size() > most_prompts)
      throw failure(errc::bad_request, file + ": has more than " + std::to_string(most_prompts) + " prompts");
  }
  return result;
}

std::size_t longest_of(const prompt_list& list) {
  std::size_t most = 0;
  for (const auto& p : list.prompts)
    most = std::max(most, p.size());
  return most;
}

double length_of(const std::vector<float>& v) {
  double sum = 0;
  for (const auto x : v)
    sum += double(x) * x;
  return std::sqrt(sum);
}

int make_steering(const steer_options& options) {
  require_model(options.model);
  const auto source = open_model(options.model);
  if (!source.load_tokenizer)
    throw failure(errc::unsupported, options.model + " has no tokenizer to read prompts with");
  const auto tokens = source.load_tokenizer();
  const auto positive = read_prompt_list(options.positive, *tokens, source.config.max_context);
  const auto negative = read_prompt_list(options.negative, *tokens, source.config.max_context);
  const auto method = options.method == "pca" ? contrast_method::pca : contrast_method::mean;
  const auto prompts = positive.prompts.size() + negative.prompts.size();
  check_contrast(method, positive.prompts.size(), negative.prompts.size());
  const auto state_bytes = prompts * as_size(source.config.layers) * as_size(source.config.hidden) * sizeof(float);
  if (state_bytes > most_state_bytes)
    throw failure(errc::bad_request,
                  "the states of " + std::to_string(prompts) + " prompts take " + std::to_string(state_bytes >> 20) +
                    " MiB, more than the limit of 4096");

  const auto device = open_device(options, open_gpu_plugin);
  if (!device->capabilities().changes_rows)
    throw failure(errc::unsupported,
                  "steering vectors are made on the CPU (--device cpu), not on " + device->description());
  const auto precision = precision_of(options, *source.tensors, device->capabilities());
  const auto backend = device->open();
  const auto context = static_cast<int>(std::max(longest_of(positive), longest_of(negative)));
  const auto blocks = static_cast<std::size_t>((context + kernels::block_tokens - 1) / kernels::block_tokens);
  const int rows = std::min(context, pass_rows);
  const auto memory = estimate_memory(*source.tensors, source.config, precision, *backend, {rows, 1, context});
  const auto budget = budget_beside(source, options, precision, *backend, memory,
                                    blocks * memory.kv_block + state_bytes, device->available_memory());
  task_progress task("loading " + source.name);
  decoder graph(load_weights(source, options, precision, *backend, task.show, task.log, {}, budget), *backend, rows,
                context);
  const auto cache = backend->make_kv_cache(kv_shape_of(source.config, precision, blocks));

  std::size_t done = 0;
  const auto states_of = [&](const prompt_list& list) {
    task.begin("reading " + list.file);
    std::vector<layer_states> by_layer(as_size(source.config.layers));
    for (const auto& prompt : list.prompts) {
      auto states = last_states(graph, *backend, *cache, prompt);
      for (std::size_t layer = 0; layer < states.size(); ++layer)
        by_layer[layer].push_back(std::move(states[layer]));
      task.show(++done, prompts);
    }
    return by_layer;
  };
  const auto wanted = states_of(positive), unwanted = states_of(negative);
  layer_directions directions;
  for (std::size_t layer = 0; layer < wanted.size(); ++layer)
    directions.push_back(contrast(method, wanted[layer], unwanted[layer]));
  task.end();
  if (std::ranges::all_of(directions, [](const auto& d) { return d.empty(); }))
    throw failure(errc::bad_request, "the two lists of prompts have the same hidden states");
  write_steering(options.out, directions, source.config.family);

  std::string lengths;
  for (const auto& d : directions)
    lengths += (lengths.empty() ? "" : ",") + json_number(length_of(d));
  const auto longest = *std::ranges::max_element(directions, {}, length_of);
  if (options.json)
    std::cout << "{\"file\":" << json_text(options.out) << ",\"method\":" << json_text(options.method)
              << ",\"positive\":" << positive.prompts.size() << ",\"negative\":" << negative.prompts.size()
              << ",\"layers\":" << directions.size() << ",\"lengths\":[" << lengths << "]}\n";
  else
    std::printf("%s: directions of %zu layers from %zu positive and %zu negative prompts, of length %.3g at most\n",
                options.out.c_str(), directions.size(), positive.prompts.size(), negative.prompts.size(),
                length_of(longest));
  return 0;
}

} // namespace

command add_steer(CLI::App& troupe) {
  const auto options = std::make_shared<steer_options>();
  auto* app = troupe.add_subcommand("steer", "Make a steering vector from two lists of prompts");
  add_file(*app, "--positive", options->positive, "Prompts that show the wanted behaviour, one per line")->required();
  add_file(*app, "--negative", options->negative, "Prompts that show the opposite, one per line")->required();
  add_file(*app, "--out", options->out,
           "The file to write: a GGUF control vector if it ends in .gguf, else safetensors")
    ->required();
  app
    ->add_option("--method", options->method,
                 "mean: the difference of the lists' means, at full length; pca: the first principal component of the "
                 "differences of pairs, at length 1")
    ->check(one_of({"mean", "pca"}))
    ->type_name("METHOD")
    ->capture_default_str();
  add_model_option(*app, options->model);
  add_compute_options(*app, *options);
  app->add_flag("--json", options->json, "Print one JSON object rather than a line")->group(output_group);
  add_common_options(*app);
  app->footer("Compares the hidden states of each prompt's last token after every layer.\n"
              "Examples:\n"
              "  troupe steer --positive happy.txt --negative sad.txt --out happy.safetensors\n"
              "  troupe run --steer happy=happy.safetensors --steering happy=0.8@2-5 \"Tell me a story\"");
  return {app, [options] { return make_steering(*options); }};
}

} // namespace troupe::cli
