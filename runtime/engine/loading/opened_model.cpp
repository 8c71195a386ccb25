#include "runtime/engine/loading/opened_model.hpp"

#include "runtime/chat/output/find_chat_format.hpp"
#include "runtime/engine/loading/layer_layout.hpp"
#include "runtime/engine/loading/memory_ledger.hpp"
#include "runtime/engine/loading/named_precision.hpp"
#include "runtime/engine/loading/replica_roles.hpp"
#include "runtime/import/answer_ends.hpp"
#include "runtime/model/decoder/backend_check.hpp"
#include "runtime/support/kv_blocks.hpp"
#include "runtime/support/types.hpp"
#include "runtime/techniques/repertoire.hpp"

#include <algorithm>
#include <span>

namespace troupe {

namespace {

std::size_t elements_of(const tensor_info& tensor) {
  std::size_t result = 1;
  for (const auto size : tensor.shape)
    result *= size;
  return result;
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
  info.generates = source.config.has_head();
  info.dense = source.dense;
  if (source.load_ranker)
    info.ranker = source.load_ranker(*source.tensors);
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
    if (!info.ranker && (info.ranked_pair = pair_prompt_of(source.name, source.config, *info.tokenizer)))
      info.ranker = load_yes_no(*source.tensors, source.config, *info.tokenizer);
    info.infill = find_infill(*info.tokenizer, source.infill);
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

namespace {

bool on_gpu(const std::string& device) { return device.starts_with("cuda:"); }

/// The options as they concern one of several devices: what is for another kind is left out where there are both.
compute_options options_for(const std::string& name, const std::vector<std::string>& all, compute_options options) {
  options.device = name;
  const bool gpus = std::ranges::any_of(all, on_gpu), both = gpus && !std::ranges::all_of(all, on_gpu);
  if (both && on_gpu(name)) {
    options.packed_cache.clear();
    options.weights = "auto";
  } else if (both) {
    options.unified_maximum.reset();
  }
  if (gpus && all.size() > 1 && options.tensor_parallel > 1)
    refuse_field("tensor_parallel",
                 "divides the layers of one device, so it cannot be combined with `layers` on "
                 "several ones",
                 errc::unsupported);
  return options;
}

std::shared_ptr<const device> open_named(const engine_options& options, const compute_options& own, std::string* why) {
  try {
    return open_device(own, options.open_gpu, why);
  } catch (const failure& f) {
    if (f.what_failed().param != "device" || options.layers.empty())
      throw;
    throw failure(f.what_failed().code, f.what_failed().message, "layers"); // where the name stands
  }
}

struct named_device {
  compute_options compute;
  std::shared_ptr<const troupe::device> device = {};
  std::shared_ptr<kernels::backend> backend = {};
};

/// Each once.
std::vector<named_device> open_devices(const engine_options& options, std::string* why) {
  std::vector<named_device> devices;
  const auto names = devices_of(options);
  for (const auto& name : names)
    if (std::ranges::find(devices, name, [](const named_device& d) { return d.compute.device; }) == devices.end()) {
      named_device made{.compute = options_for(name, names, options.compute)};
      made.device = open_named(options, made.compute, why);
      devices.push_back(std::move(made));
    }
  return devices;
}

/// Opens the GPU that layers are to fill, if there is one, else all that they are on.
std::vector<named_device> open_for_automatic(const engine_options& options, std::string* why) {
  auto on_either = options.compute;
  on_either.packed_cache.clear();
  on_either.weights = "auto";
  named_device first{.compute = std::move(on_either)};
  first.device = open_named(options, first.compute, why);
  if (!first.device->capabilities().own_memory) {
    first.compute.packed_cache = options.compute.packed_cache;
    first.compute.weights = options.compute.weights;
    return {std::move(first)};
  }
  named_device rest{.compute = options.compute};
  rest.compute.device = "cpu";
  rest.compute.unified_maximum.reset();
  rest.device = open_named(options, rest.compute, nullptr);
  return {std::move(first), std::move(rest)};
}

/// Fills the GPU with layers and their K and V: of options.kv_cache_bytes, else of one sequence or, if that is more, in
/// a fifth of what is available.
std::vector<placed_layers> place_automatically(const engine_options& options, const std::vector<named_device>& devices,
                                               const model_source& source) {
  const auto& name = devices.front().compute.device;
  if (devices.size() == 1)
    return {{name, {0, source.config.layers}}};
  constexpr int usual_context = 16 << 10;
  const auto& gpu = *devices.front().device;
  const auto backend = gpu.open();
  check_backend(source.config, *backend);
  const auto precision = precision_of(devices.front().compute, *source.tensors, gpu.capabilities());
  const auto left = plan_memory_of(gpu).left();
  const auto limit = options.max_context > 0 ? options.max_context : usual_context;
  const auto context = std::min(limit, source.config.max_context);
  // With others on the CPU, steps have as many rows as are efficient there.
  constexpr int enough_rows = 1024;
  const auto rows_of = [&](bool all) {
    return options.step_tokens > 0 ? options.step_tokens
      : all                        ? enough_rows + options.max_sequences
                                   : devices.back().device->most_step_tokens(options.max_sequences);
  };
  const auto whole_block = kv_shape_of(source.config, precision, 1).block_bytes();
  return place_what_fits(name, source.config.layers, [&](const layer_span& span) {
    auto config = source.config;
    config.span = layer_span{span.end, config.layers, false, true}; // the rest
    if (!span.heads && !why_undivided(config).empty())
      return false;
    config.span = span;
    const auto need = estimate_memory(
      *source.tensors, config, precision, gpu, *backend,
      {.rows = rows_of(span.heads), .sequences = options.max_sequences, .context = context});
    const auto one = as_size(blocks_for(context));
    const auto blocks = options.kv_cache_bytes > 0
      ? options.kv_cache_bytes / whole_block
      : std::min(one * as_size(options.max_sequences), std::max(one, left / 5 / need.kv_block));
    return need.fixed() + blocks * need.kv_block / 4 * 5 < left; // for a cache may have four fifths of the rest
  });
}

std::vector<opened_stage> open_stages(const std::vector<placed_layers>& layout, std::vector<named_device>& devices,
                                      const model_source& source) {
  std::vector<opened_stage> stages;
  for (const auto& [name, span] : layout) {
    auto& on = *std::ranges::find(devices, name, [](const named_device& d) { return d.compute.device; });
    opened_stage stage{.device = on.device, .compute = on.compute, .config = source.config};
    if (layout.size() > 1)
      stage.config.span = span;
    stage.precision = precision_of(on.compute, *source.tensors, on.device->capabilities());
    if (!on.backend)
      on.backend = on.device->open();
    stage.backend = on.backend;
    check_backend(source.config, *stage.backend);
    stages.push_back(std::move(stage));
  }
  return stages;
}

/// Behind the first comma of a GPU's description: what its results depend on.
std::string kind_of(const device& gpu) {
  const auto text = gpu.description();
  return text.substr(std::min(text.find(','), text.size()));
}

/// The whole model on GPUs of further replicas.
void open_copies(const engine_options& options, std::span<const std::string> names, opened_model& opened) {
  for (const auto& name : names) {
    auto copy = opened.first();
    copy.compute.device = name;
    copy.device = open_named(options, copy.compute, nullptr);
    copy.backend = copy.device->open();
    if (kind_of(*copy.device) != kind_of(*opened.first().device))
      refuse_field("device",
                   "must name GPUs of one kind, so that replicas compute alike, not " +
                     opened.first().device->description() + " and " + copy.device->description(),
                   errc::unsupported);
    opened.copies.push_back(std::move(copy));
  }
}

/// "layers 0-15 on cpu, avx2, 2 threads; 16-31 on ...".
std::string described_stages(const std::vector<opened_stage>& stages) {
  std::string line;
  for (const auto& each : stages) {
    const auto part = each.config.part();
    line += (line.empty() ? "layers " : "; ") + std::to_string(part.first) + "-" + std::to_string(part.end - 1) +
      " on " + each.device->description();
  }
  return line;
}

/// What techniques keep for the model.
void load_techniques(const engine_options& options, opened_model& opened, const log_sink& log) {
  auto& info = opened.info;
  const auto& last = opened.last();
  const technique_model model{
    .config = opened.source.config,
    .name = info.id,
    .device = info.device,
    .changes_rows = opened.capabilities.changes_rows,
    .adds_products = opened.capabilities.adds_products,
    .own_memory = opened.capabilities.own_memory,
    .one_device = std::ranges::all_of(opened.stages, [&](const opened_stage& s) { return s.device == last.device; }),
    .compute = last.precision.compute,
    .open = [device = last.device] { return device->open(); },
    .log = log};
  for (const auto* each : repertoire())
    if (each->load)
      info.techniques.set(*each, each->load(options.techniques, model));
}

} // namespace

opened_model open_for(const engine_options& asked, const log_sink& log) {
  auto options = asked;
  const auto of_replicas = devices_of_replicas(asked);
  if (!of_replicas.empty())
    options.compute.device = of_replicas.front();
  opened_model opened;
  std::string why;
  const bool automatic = wants_automatic_layers(options);
  auto devices = automatic ? open_for_automatic(options, &why) : open_devices(options, &why);
  if (devices.size() == 1)
    log("computing on " + devices.front().device->description() + (why.empty() ? "" : ": " + why));
  opened.source = open_model(options.model);
  const auto& source = opened.source;
  opened.stages = open_stages(automatic ? place_automatically(options, devices, source)
                                        : place_layers(options, source.config.layers),
                              devices, source);
  if (!of_replicas.empty())
    open_copies(options, std::span(of_replicas).subspan(1), opened);
  const auto& device = *opened.last().device;
  if (opened.stages.size() > 1)
    log(described_stages(opened.stages));
  auto& info = opened.info;
  info.id = options.model_name.empty() ? source.name : options.model_name;
  describe_model(source, info);
  open_texts(options, source, info, log);

  std::vector<std::shared_ptr<const troupe::device>> of_stages;
  for (const auto& each : opened.stages)
    of_stages.push_back(each.device);
  const auto capabilities = opened.capabilities = in_stages(of_stages);
  info.device = device.description();
  if (opened.first().device != opened.last().device)
    info.device = described_stages(opened.stages);
  else if (opened.stages.size() > 1)
    info.device += ", divided among " + std::to_string(opened.stages.size()) + " stages";
  for (const auto& each : opened.copies)
    info.device += "; " + each.device->description();
  if (!opened.copies.empty())
    info.device += "; a replica on each" + (options.roles.empty() ? "" : " (" + options.roles + ")");
  else if (const int replicas = replica_count(options); replicas > 1)
    info.device += (opened.stages.size() > 1 ? " of each of " : ", divided among ") + std::to_string(replicas) +
      " replicas" + (options.roles.empty() ? "" : " (" + options.roles + ")");
  info.schedule_invariant = capabilities.schedule_invariant;
  load_techniques(options, opened, log);
  const auto& precision = opened.first().precision;
  info.dtype = kernels::to_string(precision.compute);
  info.weights = weights_kind(*source.tensors, precision.weights);
  // Who can change the rows between layers can put others in their place.
  info.takes_embeddings = capabilities.changes_rows && source.config.positions != position_type::learned &&
    !source.config.grams && source.config.hashed.empty();
  for (const auto* each : repertoire())
    if (each->guess)
      opened.guesses = each->guess(options, opened, log);
  for (const auto* each : repertoire())
    if (each->run_beside)
      if (auto second = open_second(text_of(options.techniques, each->name), each, std::string(each->name), source,
                                    info.tokenizer.get()))
        opened.seconds.push_back(std::move(*second));
  return opened;
}

} // namespace troupe
