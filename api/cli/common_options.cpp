#include "api/cli/common_options.hpp"

#include "api/cli/bundled_files.hpp"
#include "api/cli/technique_options.hpp"
#include "api/cli/terminal/answer.hpp"
#include "api/cli/values.hpp"
#include "runtime/checkpoint/packed/cache_folder.hpp"
#include "runtime/engine/loading/named_precision.hpp"
#include "runtime/import/model_source.hpp"

#include <CLI/CLI.hpp>

#include <filesystem>
#include <tuple>
#include <utility>

namespace troupe::cli {

namespace {

constexpr int most_counted = 1 << 28;

} // namespace

void add_common_options(CLI::App& command) {
  command
    .add_option("--config",
                "A TOML file with flags, one per line, such as `threads = 2`; flags on the command line win")
    ->type_name("FILE")
    ->expected(1)
    ->configurable(false)
    ->group(output_group);
}

namespace {

constexpr auto model_help =
  "The folder of a Hugging Face checkpoint, a .gguf file, a name that `troupe models` lists, such as ORG/NAME of "
  "a model in Hugging Face's cache, or, for random weights, synthetic:SHAPE with llama-135m, llama-1b, llama-8b, "
  "moe-8x, qwen3-moe, opt-1b, qwen3.5-2b or "
  "lfm2-1b as SHAPE";

} // namespace

void add_model_option(CLI::App& command, std::string& model) {
  model = bundled_model();
  command.add_option("-m,--model", model, model_help)
    ->type_name("PATH")
    ->default_str(model.empty() ? "" : "the bundled storyteller")
    ->group(model_group);
}

void add_threads_option(CLI::App& command, int& threads) {
  add_integer(command, "--threads", threads, 0, 1024, "Threads to compute with; 0: one per core")->group(model_group);
}

void add_chat_template_option(CLI::App& command, engine_options& options) {
  command
    .add_option("--chat-template", options.chat_template,
                "A file with a Jinja chat template to use instead of the model's")
    ->type_name("FILE")
    ->group(model_group);
}

void add_wrap_option(CLI::App& command, bool& wrap) {
  command
    .add_flag_function(
      "--no-wrap", [&wrap](std::int64_t count) { wrap = count <= 0; },
      "Leave long lines to the terminal instead of breaking them between words")
    ->group(output_group);
}

void add_compute_options(CLI::App& command, compute_options& options) {
  command
    .add_option(
      "--dtype", options.dtype,
      "Compute in f32 or bf16; auto: bf16 for bf16 and quantised weights, and on a GPU for f16; f32 otherwise")
    ->check(one_of({"auto", "f32", "bf16"}))
    ->type_name("TYPE")
    ->capture_default_str()
    ->group(model_group);
  command
    .add_option(
      "--quantize", options.quantize,
      "Quantise floating-point weights while loading to int8, int4 or fp8: smaller and faster, but less exact "
      "than none. bf16 is for weights in F16: their 11 bits are rounded to 8, and products are as fast as those of a "
      "BF16 file")
    ->check(one_of({"none", "int8", "int4", "fp8", "bf16"}))
    ->type_name("FORMAT")
    ->capture_default_str()
    ->group(model_group);
  command
    .add_option("--kv-dtype", options.kv_dtype,
                "Type of the KV cache: f32, bf16, int8 or fp8; auto: f32 with --dtype f32, otherwise bf16")
    ->check(one_of({"auto", "f32", "bf16", "int8", "fp8"}))
    ->type_name("TYPE")
    ->capture_default_str()
    ->group(model_group);
  command
    .add_option(
      "--device", options.device,
      "cpu, or cpu:SET for one instruction set (portable, avx2, avx-vnni, avx512, avx512-vnni, avx512-bf16 "
      "or avx512-amx), or a GPU as cuda:0, cuda:1, ...; several, as cuda:0,cuda:1: one for each replica; auto: the "
      "first GPU, or the CPU if there is none")
    ->type_name("DEVICE")
    ->capture_default_str()
    ->group(model_group);
  add_threads_option(command, options.threads);
  add_integer(command, "--tensor-parallel", options.tensor_parallel, 1, 64,
              "Divide each layer by columns and heads among this many ranks: groups of threads of a CPU, which share "
              "--threads equally, or GPUs, from the one that --device names on; a CPU's results are the same")
    ->group(model_group);
  if (const auto caches = user_cache_folder(); !caches.empty()) {
    options.packed_cache = (caches / "packed").string();
    options.packed_cache_asked = false;
  }
  command
    .add_option_function<std::string>(
      "--packed-cache",
      [&](const std::string& text) {
        options.packed_cache_asked = true;
        try {
          std::tie(options.packed_cache, options.packed_cache_bytes) = text == "none"
            ? std::pair<std::string, std::size_t>()
            : parse_folder_and_size(text);
        } catch (const failure& f) {
          throw CLI::ValidationError("--packed-cache", f.what());
        }
      },
      "On a CPU, the folder that keeps weights packed for computing, which makes the next start faster, and the most "
      "that its files may take, such as /var/cache/troupe:50GiB; a tenth of the disk without a size. The files used "
      "longest ago make way; none: keep nothing. By default small models are not kept")
    ->type_name("FOLDER[:SIZE]")
    ->default_str("~/.cache/troupe/packed")
    ->group(model_group);
  command
    .add_option("--weights", options.weights,
                "On a CPU, resident: in memory of the process; mapped: in the file of --packed-cache, of which the "
                "system keeps in memory what fits; auto: whatever starts faster, and what does not fit in memory is "
                "read from the file for each token")
    ->check(one_of({"auto", "mapped", "resident"}))
    ->type_name("HOW")
    ->capture_default_str()
    ->group(model_group);
  command
    .add_option("--sparsity", options.sparsity,
                "On a CPU, approximate: treat this share of each down projection's inputs, the smallest, as zero, "
                "which saves reading weights; with two shares, such as 0.9:0.3, also of the inputs of gate and up; "
                "0: exact. Only for weights in floats or fp8")
    ->check(CLI::Validator(
      [](std::string& text) {
        try {
          parse_sparsity(text);
          return std::string();
        } catch (const failure& f) {
          return std::string(f.what());
        }
      },
      ""))
    ->type_name("SHARE")
    ->capture_default_str()
    ->group(model_group);
  command
    .add_option(
      "--attention-threshold", options.attention_threshold,
      "On a CPU, approximate: treat weights of attention below this share of the largest in their 256 positions, "
      "or in the first 256, as zero, which saves reading values, such as 0.001; 0: exact")
    ->check(number_between(0, 0.99))
    ->type_name("SHARE")
    ->capture_default_str()
    ->group(model_group);
  command
    .add_flag("--deterministic", options.deterministic,
              "Make a GPU's results independent of what else runs, as a CPU's always are; slower")
    ->group(model_group);
  command
    .add_flag_function(
      "--no-graphs", [&](std::int64_t count) { options.graphs = count <= 0; },
      "Do not use CUDA graphs: launch a GPU's kernels one by one")
    ->group(model_group);
  command
    .add_option_function<float>(
      "--unified-maximum", [&](float maximum) { options.unified_maximum = maximum; },
      "On a GPU, compute softmax relative to this score, which should be near the model's scores, instead of the "
      "largest")
    ->check(number_between(-10000, 10000))
    ->type_name("NUMBER")
    ->group(model_group);
}

void add_engine_options(CLI::App& command, engine_options& options, std::vector<std::string>* models) {
  if (models) {
    options.model = bundled_model();
    command
      .add_option("-m,--model", *models,
                  std::string(model_help) + ". Several are served if this is given several times, as NAME=PATH")
      ->take_all()
      ->allow_extra_args(false)
      ->type_name("PATH")
      ->default_str(options.model.empty() ? "" : "the bundled storyteller")
      ->group(model_group);
  } else {
    add_model_option(command, options.model);
  }
  add_compute_options(command, options.compute);
  command.add_option("--model-name", options.model_name, "The model's name for clients [its folder's name]")
    ->type_name("NAME")
    ->group(model_group);
  add_technique_options(command, options.techniques, technique_option::second, model_group);
  add_integer(command, "--replicas", options.replicas, 1, 1024,
              "On a CPU, run so many copies of the model side by side: they share weights, and divide threads and KV "
              "cache. Requests go where they are expected to be answered first")
    ->group(model_group);
  add_integer(command, "--stages", options.stages, 1, 1024,
              "Divide the layers among so many stages, each with threads, weights and KV cache of its own: while one "
              "step is in the second stage, the first computes the next")
    ->group(model_group);
  command
    .add_option("--layers", options.layers,
                "Where each stage computes, and which layers, such as cuda:0=0-23,cpu=24-31 or cpu=0-15,cpu=16-31; "
                "auto: as many on the GPU as fit there, the others on the CPU")
    ->type_name("DEVICE=FIRST-LAST,...|auto")
    ->group(model_group);
  add_integer(
    command, "--microbatches", options.microbatches, 0, 1024,
    "With --stages or --layers: divide running sequences into so many batches, which follow one another through "
    "the stages; 0: as many as steps cost least with")
    ->group(limits_group);
  command
    .add_option("--roles", options.roles,
                "Replicas that compute prompts, and others that go on with the answers, so that a long prompt does not "
                "come between the tokens of others: prefill:1,decode:1, or more of each")
    ->type_name("prefill:N,decode:N")
    ->group(model_group);
  command
    .add_option_function<std::string>(
      "--role-idle",
      [&](const std::string& text) {
        try {
          options.role_idle = text == "off" ? std::chrono::milliseconds(0)
                                            : std::chrono::ceil<std::chrono::milliseconds>(parse_time(text));
        } catch (const failure& f) {
          throw CLI::ValidationError("--role-idle", f.what() + std::string(", or off"));
        }
      },
      "With --roles: a replica that had hardly anything to do for so long, while all that time the other role's "
      "requests "
      "queued, "
      "takes the other role until the load changes; off: roles stay")
    ->type_name("TIME|off")
    ->default_str("10s")
    ->group(model_group);
  add_technique_options(command, options.techniques, technique_option::engine, model_group);
  const auto count = [&](const char* flag, int& value, int low, const char* help) {
    add_integer(command, flag, value, low, most_counted, help)->group(limits_group);
  };
  command
    .add_option("--kv-cache", options.kv_cache_bytes,
                "Memory for the KV cache, such as 2GiB or 500MB; 0: as much as the limits below can use and the "
                "machine can spare")
    ->transform(size_value())
    ->type_name("SIZE")
    ->default_str("0")
    ->group(limits_group);
  command
    .add_option("--swap", options.swap_bytes,
                "Memory to swap KV blocks out to, used where copying back is faster than computing again; 0: none")
    ->transform(size_value())
    ->type_name("SIZE")
    ->default_str("0")
    ->group(limits_group);
  command
    .add_option_function<std::string>(
      "--kv-disk",
      [&](const std::string& text) {
        try {
          std::tie(options.kv_disk, options.kv_disk_bytes) = parse_folder_and_size(text);
        } catch (const failure& f) {
          throw CLI::ValidationError("--kv-disk", f.what());
        }
      },
      "Folder in which cached prefixes outlive the process, and the most that its files may take, such as "
      "/var/cache/troupe:50GiB; 16GiB without a size. Several servers may share it")
    ->type_name("DIR[:SIZE]")
    ->group(limits_group);
  command
    .add_option(
      "--length-model", options.length_model,
      "File that keeps what was learned of how long answers become, by which requests are placed and give way")
    ->type_name("FILE")
    ->group(limits_group);
  count("--max-context", options.max_context, 0,
        "Tokens that a prompt and its answer may have together; 0: the model's limit");
  count("--max-sequences", options.max_sequences, 1, "Sequences that may run at once, in each replica");
  count("--max-queue", options.max_queue, 1,
        "Requests that may wait; further ones are refused. Requests whose clients read too slowly do not count");
  command
    .add_option("--step-tokens", options.step_tokens,
                "Most tokens to compute in one step: more is faster, fewer is smoother; auto: as few as reach 90 % of "
                "the best measured speed")
    ->transform(word_or_integer("auto", 1, most_counted))
    ->type_name("INT")
    ->default_str("auto")
    ->group(limits_group);
  command
    .add_option_function<std::string>(
      "--itl-target",
      [&](const std::string& text) {
        try {
          options.itl_target = parse_time(text);
        } catch (const failure& f) {
          throw CLI::ValidationError("--itl-target", f.what());
        }
      },
      "Target for the time between the tokens of a stream, such as 80ms: steps that would take longer compute fewer "
      "tokens of prompts")
    ->type_name("TIME")
    ->group(limits_group);
  command
    .add_flag_function(
      "--no-prefix-cache", [&](std::int64_t count) { options.prefix_cache = count <= 0; },
      "Compute every prompt in full, even if the beginning is cached")
    ->group(limits_group);
  const auto time = [&](const char* flag, std::chrono::milliseconds& to, const char* what) {
    command
      .add_option_function<std::string>(
        flag,
        [flag, &to](const std::string& text) {
          try {
            to = std::chrono::ceil<std::chrono::milliseconds>(parse_time(text));
          } catch (const failure& f) {
            throw CLI::ValidationError(flag, f.what());
          }
        },
        what)
      ->type_name("TIME")
      ->group(limits_group);
  };
  time("--ttft-timeout", options.ttft_timeout,
       "Most time from a request's arrival to its first token, such as 30s; requests may ask for less");
  time("--max-wait", options.max_wait,
       "Most time that a request may wait for its first tokens to be computed, such as 10s: one that would wait longer "
       "is refused at once, with the expected wait");
  command
    .add_option_function<std::int64_t>(
      "--request-timeout,--timeout",
      [&](std::int64_t seconds) { options.request_timeout = std::chrono::seconds(seconds); },
      "Most seconds from a request's arrival to its last token")
    ->check(integer_between(1, 7 * 24 * 3600))
    ->type_name("SECONDS")
    ->default_str(std::to_string(std::chrono::duration_cast<std::chrono::seconds>(options.request_timeout).count()))
    ->group(limits_group);
}

std::string bundled_model() {
  namespace fs = std::filesystem;
  std::error_code ignored;
  const auto program = fs::read_symlink("/proc/self/exe", ignored);
  const auto in_sources = fs::path("examples") / "storyteller" / "model";
  const auto beside = program.parent_path() / "..";
  for (const auto& folder : {beside / ".." / in_sources, beside / "share" / "troupe" / "storyteller", in_sources})
    if (fs::exists(folder / "config.json", ignored))
      return fs::weakly_canonical(folder, ignored).string();
  try {
    if (const auto files = bundled_files())
      return (*files / "storyteller" / "model").string();
  } catch (const failure&) { // there is nowhere to write to; commands that need the model say that there is none
  }
  return {};
}

std::string example_configuration() {
  namespace fs = std::filesystem;
  std::error_code ignored;
  const auto beside = fs::read_symlink("/proc/self/exe", ignored).parent_path() / "..";
  const auto file = fs::path("configs") / "server.toml";
  if (const auto installed = beside / "share" / "troupe" / file; fs::exists(installed, ignored))
    return fs::weakly_canonical(installed, ignored).string();
  return fs::exists(beside / ".." / file, ignored) ? file.string() : file.filename().string();
}

engine_options with_bundled_second(engine_options options) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  const auto how = text_of(options.techniques, "speculate"), draft = text_of(options.techniques, "draft");
  if (draft == "none")
    options.techniques.erase("draft");
  else if (const auto bundled = bundled_model();
           draft.empty() && how != "off" && how != "mtp" && options.model == bundled)
    for (const auto* beside : {"draft", "storyteller-draft"})
      if (const auto folder = fs::path(bundled).parent_path() / beside; fs::exists(folder / "config.json", ignored))
        options.techniques["draft"] = {folder.string()};
  return options;
}

void require_model(const std::string& model) {
  if (model.empty())
    throw failure(errc::not_found, "there is no bundled model; name one with --model PATH");
}

void require_chat_template(const engine_options& options) {
  require_model(options.model);
  if (!open_chat_template(options.model, options.chat_template))
    throw failure(errc::unsupported, no_chat_template(options.model, open_model(options.model).config.has_head()));
}

} // namespace troupe::cli
