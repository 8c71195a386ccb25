#include "runtime/engine/opened_model.hpp"

#include "runtime/adapters/adapter_library.hpp"
#include "runtime/engine/named_precision.hpp"
#include "runtime/import/answer_ends.hpp"
#include "runtime/model/adapter_target.hpp"
#include "runtime/steering/steering_library.hpp"

#include <algorithm>

namespace troupe {

namespace {

std::size_t elements_of(const tensor_info& tensor) {
  std::size_t result = 1;
  for (const auto size : tensor.shape)
    result *= size;
  return result;
}

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

/// The facts in the configuration and the headers of weights.
void describe_model(const model_source& source, model_info& info) {
  info.vocab_size = source.config.vocab;
  info.defaults = source.generation;
  info.family = source.config.family;
  info.hidden = source.config.hidden;
  info.layers = source.config.layers;
  info.tied = source.config.tied;
  info.embeddings = source.embeddings;
  for (const auto& name : source.tensors->tensors())
    info.parameters += elements_of(*source.tensors->find(name));
}

/// Tokenizer, template, and what answers are made of and end with.
void open_texts(const engine_options& options, const model_source& source, model_info& info, const log_sink& log) {
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
}

} // namespace

int opened_model::context(const engine_options& options) const {
  return options.max_context > 0 ? std::min(options.max_context, source.config.max_context) : source.config.max_context;
}

opened_model open_for(const engine_options& options, const log_sink& log) {
  opened_model opened;
  std::string why;
  opened.device = open_device(options.compute, options.open_gpu, &why);
  const auto& device = *opened.device;
  log("computing on " + device.description() + (why.empty() ? "" : ": " + why));
  opened.source = open_model(options.model);
  const auto& source = opened.source;
  auto& info = opened.info;
  info.id = options.model_name.empty() ? source.name : options.model_name;
  describe_model(source, info);
  open_texts(options, source, info, log);

  const auto capabilities = device.capabilities();
  info.device = device.description();
  if (options.replicas > 1)
    info.device += ", divided among " + std::to_string(options.replicas) + " replicas";
  info.schedule_invariant = capabilities.schedule_invariant;
  info.steering = load_steering(options, source.config, device);
  opened.precision = precision_of(options.compute, *source.tensors, capabilities);
  info.dtype = kernels::to_string(opened.precision.compute);
  info.weights = weights_kind(*source.tensors, opened.precision.weights);
  info.adapters = load_adapters(options, info.id, source.config, opened.device, opened.precision.compute, log);
  info.lora_endpoints = options.lora_endpoints;
  opened.backend = device.open();
  check_backend(source.config, *opened.backend);
  opened.draft = open_second(options.draft, "draft", source, info.tokenizer.get());
  if (opened.draft)
    info.draft = opened.draft->name();
  opened.amateur = open_second(options.amateur, "amateur", source, info.tokenizer.get());
  if (opened.amateur && capabilities.own_memory)
    throw failure(errc::unsupported, "an amateur model runs on the CPU (--device cpu), not on " + info.device,
                  "amateur");
  return opened;
}

} // namespace troupe
