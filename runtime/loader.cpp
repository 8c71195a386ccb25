#include "runtime/loader.hpp"

#include "runtime/memory_plan.hpp"
#include "runtime/model_source.hpp"

#include <algorithm>

namespace troupe {

namespace {

void check_at_least(int value, int least, const char* name) {
  if (value < least)
    throw failure(errc::bad_request, std::string("`") + name + "` must be at least " + std::to_string(least) + ", not " +
                  std::to_string(value), name);
}

} // namespace

precision precision_of(const precision_names& names, const checkpoint& tensors) {
  using kernels::quantization;
  using kernels::kv_type;
  const auto refuse = [](const char* field, const char* known, const std::string& found) {
    return failure(errc::bad_request,
                   "`" + std::string(field) + "` must be " + known + ", not `" + found + "`", field);
  };
  const auto weights = names.quantize == "none"   ? quantization::none
                       : names.quantize == "int8" ? quantization::int8
                       : names.quantize == "int4"
                         ? quantization::int4
                         : throw refuse("quantize", "none, int8 or int4", names.quantize);
  const auto compute = names.dtype == "auto"   ? natural_compute(tensors, weights)
                       : names.dtype == "f32"  ? kernels::dtype::f32
                       : names.dtype == "bf16" ? kernels::dtype::bf16
                                               : throw refuse("dtype", "auto, f32 or bf16", names.dtype);
  if (names.kv_dtype == "auto")
    return {compute, weights};
  for (const auto kv : {kv_type::f32, kv_type::bf16, kv_type::int8})
    if (names.kv_dtype == kernels::to_string(kv))
      return {compute, weights, kv};
  throw refuse("kv_dtype", "auto, f32, bf16 or int8", names.kv_dtype);
}

kernels::cpu_options cpu_of(const std::string& device, int threads) {
  kernels::cpu_options cpu;
  cpu.threads = threads;
  if (device == "auto" || device == "cpu")
    return cpu;
  std::string known;
  for (auto target : kernels::available_isas()) {
    const auto name = "cpu:" + std::string(kernels::to_string(target));
    if (device == name) {
      cpu.target = target;
      return cpu;
    }
    known += ", " + name;
  }
  throw failure(errc::bad_request, "there is no device `" + device + "` here; there are auto, cpu" + known, "device");
}

std::shared_ptr<const loaded_model> load_model(const engine_options& options, const progress_sink& progress) {
  check_at_least(options.max_context, 0, "max_context");
  check_at_least(options.max_sequences, 1, "max_sequences");
  if (options.max_sequences > 65536)
    throw failure(errc::bad_request, "`max_sequences` must be at most 65536, not " + std::to_string(options.max_sequences),
                  "max_sequences");
  check_at_least(options.max_queue, 1, "max_queue");
  check_at_least(options.step_tokens, 1, "step_tokens");
  check_at_least(options.threads, 0, "threads");
  load_status status;
  const auto say = [&](std::string line) {
    status.line = std::move(line);
    if (progress)
      progress(status);
  };
  say("reading " + options.model);
  auto model = std::make_shared<loaded_model>();
  model->device = cpu_of(options.device, options.threads);
  auto source = open_model(options.model);
  auto& info = model->info;
  info.id = options.model_name.empty() ? source.name : options.model_name;
  info.vocab_size = source.config.vocab;
  info.defaults = source.generation;
  if (source.load_tokenizer)
    info.tokenizer = source.load_tokenizer();
  if (auto chat = source.load_chat_template ? source.load_chat_template() : std::nullopt)
    info.chat = std::make_shared<const chat_template>(std::move(*chat));

  const auto numbers = precision_of({options.dtype, options.quantize, options.kv_dtype}, *source.tensors);
  info.dtype = kernels::to_string(numbers.compute);
  model->numbers = numbers;
  info.weights = weights_kind(*source.tensors, numbers.weights);
  auto backend = kernels::make_cpu_backend(model->device);
  info.device = backend->description();
  const auto context = options.max_context > 0 ? std::min(options.max_context, source.config.max_context)
                                               : source.config.max_context;
  const auto need = memory_needed(*source.tensors, source.config, numbers, *backend, options.step_tokens, context);
  const auto plan = plan_memory(options, need, source.config.max_context, available_memory());
  say(info.weights + " " + plan.line);
  info.max_context = plan.max_context;
  info.weight_bytes = need.weights;
  info.kv_cache_bytes = static_cast<std::size_t>(plan.blocks) * need.kv_block;
  model->blocks = plan.blocks;
  model->limits = {options.step_tokens, options.max_sequences, options.max_queue};
  model->prefix_cache = options.prefix_cache;
  model->request_timeout = options.request_timeout;

  status.line = "loading " + info.id;
  model->weights = load_weights(*source.tensors, source.config, *backend, numbers, [&](std::size_t done, std::size_t total) {
    status.done_bytes = done;
    status.total_bytes = total;
    if (progress)
      progress(status);
  });
  return model;
}

} // namespace troupe
