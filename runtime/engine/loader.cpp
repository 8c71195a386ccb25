#include "runtime/engine/loader.hpp"

#include "kernels/cpu/thread_pool.hpp"
#include "runtime/adapters/adapter_library.hpp"
#include "runtime/engine/memory_plan.hpp"
#include "runtime/engine/second_model.hpp"
#include "runtime/execution/contrasting_runner.hpp"
#include "runtime/execution/device.hpp"
#include "runtime/guide/guide_cache.hpp"
#include "runtime/import/answer_ends.hpp"
#include "runtime/model/adapter_target.hpp"
#include "runtime/model/packing.hpp"
#include "runtime/model/tensor_names.hpp"
#include "runtime/steering/steering_library.hpp"
#include "runtime/support/available_memory.hpp"

#include <algorithm>
#include <charconv>

namespace troupe {

namespace {

void check_at_least(int value, int least, const char* name) {
  if (value < least)
    throw failure(
      errc::bad_request,
      std::string("`") + name + "` must be at least " + std::to_string(least) + ", not " + std::to_string(value), name);
}

std::size_t elements_of(const tensor_info& tensor) {
  std::size_t result = 1;
  for (const auto size : tensor.shape)
    result *= size;
  return result;
}

constexpr int most_guesses = 16; // of a sequence in one step
constexpr int mask_threads = 3;  // for guides; they sleep unless there are any
constexpr float most_sparsity = 0.99f;

/// Null without any.
std::shared_ptr<const steering_library> load_steering(const engine_options& options, const model_config& config,
                                                      const device& device) {
  if (options.steer.empty())
    return nullptr;
  if (!device.capabilities().steering)
    throw failure(
      errc::unsupported,
      "`steer` needs the CPU (--device cpu): " + device.description() + " does not support steering vectors", "steer");
  auto vectors = std::make_shared<steering_library>(config.layers, config.hidden);
  for (const auto& [name, file] : options.steer)
    vectors->add(name, file);
  return vectors;
}

/// Null without any, unless clients may load some.
std::shared_ptr<adapter_library> load_adapters(const engine_options& options, const std::string& base,
                                               const model_config& config, std::shared_ptr<const device> device,
                                               kernels::dtype compute, const log_sink& log) {
  if (options.lora.empty() && !options.lora_endpoints)
    return nullptr;
  if (!device->capabilities().adapters)
    throw failure(errc::unsupported,
                  "`lora` needs the CPU (--device cpu): " + device->description() + " does not support adapters",
                  "lora");
  auto adapters = std::make_shared<adapter_library>(base, adapter_target_of(config), compute,
                                                    [device] { return device->open(); });
  for (const auto& [name, path] : options.lora)
    for (auto& line : adapters->load(name, path))
      log(std::move(line));
  return adapters;
}

/// "0.9" or "0.9:0.3".
mlp_sparsity parse_sparsity(std::string_view text) {
  const auto colon = text.find(':');
  const auto share = [&](std::string_view part) {
    float value = -1;
    const auto [end, failed] = std::from_chars(part.data(), part.data() + part.size(), value);
    if (failed != std::errc() || end != part.data() + part.size() || !(value >= 0 && value <= most_sparsity))
      throw failure(errc::bad_request,
                    "`sparsity` must be a share from 0 to 0.99 of the inputs of down projections, or two, as 0.9:0.3, "
                    "the second of those of gate and up, not `" +
                      std::string(text) + "`",
                    "sparsity");
    return value;
  };
  mlp_sparsity result{share(text.substr(0, colon))};
  if (colon != text.npos)
    result.up = share(text.substr(colon + 1));
  return result;
}

/// fp8 needs a GPU.
void check_fp8(const char* field, bool fp8, const char* instead) {
  if (!fp8)
    throw failure(errc::bad_request, "`" + std::string(field) + "` fp8 needs an NVIDIA GPU; on a CPU " + instead,
                  field);
}

} // namespace

precision precision_of(const compute_options& names, const checkpoint& tensors, const device_capabilities& device) {
  using kernels::kv_type;
  using kernels::quantization;
  const auto refuse = [](const char* field, const char* known, const std::string& found) {
    return failure(errc::bad_request, "`" + std::string(field) + "` must be " + known + ", not `" + found + "`", field);
  };
  const auto weights = names.quantize == "none" ? quantization::none
    : names.quantize == "int8"                  ? quantization::int8
    : names.quantize == "int4"                  ? quantization::int4
    : names.quantize == "fp8"                   ? quantization::fp8
                                                : throw refuse("quantize", "none, int8, int4 or fp8", names.quantize);
  if (weights == quantization::fp8)
    check_fp8("quantize", device.fp8, "weights are quantised to int8 or int4");
  if (names.kv_dtype == "fp8")
    check_fp8("kv_dtype", device.fp8, "K and V are kept in f32, bf16 or int8");
  const auto compute = names.dtype == "auto" ? natural_compute(tensors, weights, device.f16_as_bf16)
    : names.dtype == "f32"                   ? kernels::dtype::f32
    : names.dtype == "bf16"                  ? kernels::dtype::bf16
                                             : throw refuse("dtype", "auto, f32 or bf16", names.dtype);
  precision result{compute, weights};
  result.sparsity = parse_sparsity(names.sparsity);
  if (names.kv_dtype == "auto")
    return result;
  for (const auto kv : {kv_type::f32, kv_type::bf16, kv_type::int8, kv_type::fp8})
    if (names.kv_dtype == kernels::to_string(kv)) {
      result.kv = kv;
      return result;
    }
  throw refuse("kv_dtype", "auto, f32, bf16, int8 or fp8", names.kv_dtype);
}

runner_spec loaded_model::runner() const {
  return {weights, precision, {limits.step_tokens, limits.max_sequences, info.max_context}, blocks, host_blocks};
}

sampler_spec loaded_model::sampler() const {
  return {info.defaults.stops, info.vocab_size, limits.max_sequences, {mask_threads, {}}};
}

std::unique_ptr<step_runner> loaded_model::make_runner() const {
  auto own = device->make_runner(runner());
  if (!amateur)
    return own;
  auto other = device->make_runner({amateur->weights, amateur->precision, amateur->sizes, blocks, 0});
  return std::make_unique<contrasting_runner>(std::move(own), std::move(other), amateur->vocab);
}

draft_spec loaded_model::drafting() const {
  return {{draft->weights, draft->precision, draft->sizes, blocks, 0},
          {info.defaults.stops, draft->vocab, limits.max_sequences},
          info.vocab_size};
}

std::shared_ptr<const model_weights> load_weights(const model_source& source, const compute_options& options,
                                                  precision precision, kernels::backend& backend,
                                                  const progress_fn& progress, const log_sink& log) {
  for (const auto& line : source.remarks)
    log(line);
  for (auto& line : check_tensors(*source.tensors, source.config))
    log(std::move(line));
  if (auto line = unquantised_matrices(*source.tensors, source.config, precision); !line.empty())
    log(std::move(line));
  if (precision.sparsity)
    log("sparsity " + options.sparsity + ": results are approximate, the smallest inputs of MLPs count as zero");
  if (options.packed_cache.empty())
    return load_weights(*source.tensors, source.config, backend, precision, progress);
  if (source.files.empty())
    throw failure(errc::bad_request, "`packed_cache` is for models in files, which " + source.name + " is not",
                  "packed_cache");
  auto contents = packed_contents_of(*source.tensors, source.config, precision, backend);
  contents.model = source.name;
  contents.files = source.files;
  kernels::thread_pool pool(options.threads); // the backend's own pool sleeps meanwhile
  packed_cache cache(options.packed_cache, contents, pool, log);
  return load_weights(*source.tensors, source.config, backend, precision, progress, &cache);
}

std::shared_ptr<const loaded_model> load_model(const engine_options& options, const progress_sink& progress) {
  check_at_least(options.max_context, 0, "max_context");
  check_at_least(options.max_sequences, 1, "max_sequences");
  if (options.max_sequences > 65536)
    throw failure(errc::bad_request,
                  "`max_sequences` must be at most 65536, not " + std::to_string(options.max_sequences),
                  "max_sequences");
  check_at_least(options.max_queue, 1, "max_queue");
  check_at_least(options.step_tokens, 0, "step_tokens");
  if (options.itl_target.count() < 0)
    throw failure(errc::bad_request, "`itl_target` must not be negative", "itl_target");
  check_at_least(options.compute.threads, 0, "threads");
  load_status status;
  const auto log = [&](std::string line) { // once: the line of `status` is that of the bar
    auto said = status;
    said.line = std::move(line);
    if (progress)
      progress(said);
  };
  log("reading " + options.model);
  auto model = std::make_shared<loaded_model>();
  std::string why;
  model->device = open_device(options.compute, options.open_gpu, &why);
  log("computing on " + model->device->description() + (why.empty() ? "" : ": " + why));
  auto source = open_model(options.model);
  auto& info = model->info;
  info.id = options.model_name.empty() ? source.name : options.model_name;
  info.vocab_size = source.config.vocab;
  info.defaults = source.generation;
  info.family = source.config.family;
  info.hidden = source.config.hidden;
  info.layers = source.config.layers;
  info.tied = source.config.tied;
  info.embeddings = source.embeddings;
  for (const auto& name : source.tensors->tensors())
    info.parameters += elements_of(*source.tensors->find(name));
  if (source.load_tokenizer)
    info.tokenizer = source.load_tokenizer();
  if (auto chat = source.load_chat_template ? source.load_chat_template(options.chat_template) : std::nullopt)
    info.chat = std::make_shared<const chat_template>(std::move(*chat));
  info.format = find_chat_format(info.chat ? info.chat->text() : std::string_view(), options.formats);
  if (info.tokenizer) {
    info.markers = special_markers(info.format, *info.tokenizer);
    if (auto line = info.tokenizer->remark(); !line.empty())
      log(std::move(line));
    auto& ends = info.defaults;
    ends.stops = answer_ends(std::move(ends.stops), *info.tokenizer, info.chat.get(), ends.remarks);
  }
  for (const auto& line : info.defaults.remarks)
    log(line);

  const auto& device = *model->device;
  const auto capabilities = device.capabilities();
  info.steering = load_steering(options, source.config, device);
  const auto precision = precision_of(options.compute, *source.tensors, capabilities);
  info.dtype = kernels::to_string(precision.compute);
  info.adapters = load_adapters(options, info.id, source.config, model->device, precision.compute, log);
  info.lora_endpoints = options.lora_endpoints;
  model->precision = precision;
  info.weights = weights_kind(*source.tensors, precision.weights);
  const auto backend = device.open();
  check_backend(source.config, *backend);
  info.device = device.description();
  info.schedule_invariant = capabilities.schedule_invariant;
  const auto context = options.max_context > 0 ? std::min(options.max_context, source.config.max_context)
                                               : source.config.max_context;
  const auto need_of = [&](int rows) {
    return estimate_memory(*source.tensors, source.config, precision, device, *backend,
                           {rows, options.max_sequences, context, capabilities.dola});
  };
  const int step_tokens = options.step_tokens > 0
    ? options.step_tokens
    : plan_step_rows(device.most_step_tokens(options.max_sequences), options, need_of, device.available_memory());
  auto need = need_of(step_tokens);
  const auto kv_block = need.kv_block;
  info.weight_bytes = need.weights;
  auto draft = open_second(options.draft, "draft", source, info.tokenizer.get());
  if (draft) {
    draft->prepare(options, device, *backend, draft_rows(options), context);
    info.draft = draft->name();
    need = draft->with(need);
  }
  auto amateur = open_second(options.amateur, "amateur", source, info.tokenizer.get());
  if (amateur) {
    if (capabilities.own_memory)
      throw failure(errc::unsupported, "an amateur model runs on the CPU (--device cpu), not on " + info.device,
                    "amateur");
    amateur->prepare(options, device, *backend, step_tokens, context);
    need = amateur->with(need);
  }
  const auto share = capabilities.own_memory ? cache_share::of_a_device : cache_share::of_a_machine;
  const auto plan = plan_memory(options, need, source.config.max_context, device.available_memory(), share);
  log(info.weights + " " + plan.line + (draft ? "; with the draft model " + info.draft : "") +
      (amateur ? "; with the amateur model " + amateur->name() : ""));
  if (source.config.rope.type == rope_type::dynamic)
    log("`rope_type` is dynamic: no more than the " + std::to_string(source.config.max_context) +
        " tokens before scaling, as every further token would change the rotation of all others");
  info.max_context = plan.max_context;
  info.kv_cache_bytes = static_cast<std::size_t>(plan.blocks) * kv_block;
  model->blocks = plan.blocks;
  model->host_blocks = plan_swap(options, kv_block, capabilities.own_memory, available_memory());
  if (model->host_blocks > 0)
    model->swap = device.measure_moves(kv_shape_of(source.config, precision, 8));
  model->limits = {step_tokens, options.max_sequences, options.max_queue};
  model->limits.measured_budget = options.step_tokens == 0;
  const auto add_border = [&](const model_config& config) {
    if (const int border = rope_border(config.rope, info.max_context); border > 0)
      model->limits.rope_borders.push_back(border);
  };
  add_border(source.config);
  if (amateur)
    add_border(amateur->config());
  std::ranges::sort(model->limits.rope_borders);
  model->limits.step_target_ms = std::chrono::duration<double, std::milli>(options.itl_target).count();
  model->prefix_cache = options.prefix_cache;
  model->request_timeout = options.request_timeout;

  status.line = "loading " + info.id;
  const auto show = [&](std::size_t done, std::size_t total) {
    status.done_bytes = done;
    status.total_bytes = total;
    if (progress)
      progress(status);
  };
  model->weights = load_weights(source, options.compute, precision, *backend, show, log);
  if (draft) {
    status.line = "loading " + info.draft;
    model->draft = draft->load(options, *backend, show, log);
  }
  if (amateur) {
    status.line = "loading " + amateur->name();
    model->amateur = amateur->load(options, *backend, show, log);
  }
  model->guides = std::make_shared<guides::guide_cache>(info.tokenizer, info.defaults.stops,
                                                        guides::guide_cache::limits(), info.markers);
  model->speculation = {options.speculate, model->draft != nullptr, most_guesses, options.drafter_for_bench,
                        options.guesses_for_tests};
  return model;
}

} // namespace troupe
