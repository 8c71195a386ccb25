#include "runtime/execution/device.hpp"

#include "kernels/sharded/sharded_cache.hpp"
#include "runtime/execution/cpu/cpu_device.hpp"
#include "runtime/execution/hidden_states.hpp"
#include "runtime/support/error.hpp"
#include "runtime/support/types.hpp"
#include "runtime/techniques/repertoire.hpp"

#include <algorithm>
#include <charconv>

namespace troupe {

namespace {

/// Steps whose rows a stage has passed on and that are not computed yet: one by the next stage, one that it is to
/// compute, and one that is being passed on.
constexpr std::size_t lent_stage_rows = 3;

/// What the rank with the most KV heads has of a cache; or the first one, which has all that cannot be divided.
kernels::kv_shape largest_part(kernels::kv_shape cache, int ranks) {
  if (!kernels::can_be_divided(cache, as_size(ranks)))
    return cache;
  cache.kv_heads = (cache.kv_heads + ranks - 1) / ranks;
  for (auto& layer : cache.own)
    layer.heads = (layer.heads + ranks - 1) / ranks;
  return cache;
}

std::shared_ptr<const device> open_cpu(const compute_options& options,
                                       kernels::isa target = kernels::available_isas().back()) {
  if (options.unified_maximum)
    refuse_field("unified_maximum", "is for NVIDIA GPUs");
  const auto usable = usable_cores();
  if (options.threads == 0 && options.tensor_parallel > usable.threads())
    refuse_field("tensor_parallel",
                 "is " + std::to_string(options.tensor_parallel) + ", but only " + std::to_string(usable.threads()) +
                   " threads can compute at once here; set `threads`, too, to run more of them in turns");
  const core_plan cores(options.threads, usable, {.ranks = options.tensor_parallel});
  std::vector<kernels::cpu_options> ranks;
  for (int i = 0; i < options.tensor_parallel; ++i) {
    const auto& group = cores.group(0, 0, i);
    ranks.push_back(
      {.threads = group.threads, .target = target, .cores = group.cores, .led = options.tensor_parallel > 1});
  }
  return make_cpu_device(std::move(ranks));
}

/// Refuses options for CPUs only.
void check_gpu(const compute_options& options) {
  if (options.weights != "auto")
    refuse_field("weights", "is for CPUs");
  if (!options.packed_cache.empty() && options.packed_cache_asked)
    refuse_field("packed_cache", "is for CPUs");
}

/// The first GPU; null if there is none, or if it does not work, which `why` then explains.
std::shared_ptr<const device> try_gpu(const gpu_opener& open_gpu, const gpu_options& first, std::string& why) {
  try {
    why = "it is the first GPU";
    if (open_gpu)
      return open_gpu(first);
    why.clear();
  } catch (const failure& f) { // there is none: not worth a word, as the user has not asked for one
    if (f.what_failed().param == "tensor_parallel")
      throw; // there are some, but too few
    why.clear();
  } catch (const kernels::device_error& e) {
    why = "the first GPU does not work: " + std::string(e.what());
  }
  return nullptr;
}

} // namespace

memory_estimate estimate_memory(const checkpoint& tensors, const model_config& config, precision precision,
                                const device& device, const kernels::backend& backend, const step_sizes& sizes) {
  const int decodes = device.decode_rows(sizes.sequences);
  auto estimate = estimate_memory(tensors, config, precision, backend,
                                  {.rows = std::max(sizes.rows, decodes),
                                   .logit_rows = std::max(sizes.logit_rows(), decodes),
                                   .context = sizes.context});
  estimate.kv_block =
    largest_part(kv_shape_of(config, precision, 1), device.capabilities().ranks_by_kv_head).block_bytes();
  const bool heads = config.part().heads;
  estimate.scratch += device.step_memory(sizes, heads ? config.vocab : 0, estimate.kv_block);
  if (!heads && !device.capabilities().own_memory) // what a GPU passes on is in host memory
    estimate.scratch += lent_stage_rows * as_size(std::max(sizes.rows, decodes)) * as_size(config.residual_width()) *
      sizeof(float);
  if (heads && device.capabilities().own_memory && device.capabilities().hidden_states)
    estimate.scratch += states_at_once * as_size(config.hidden) * sizeof(float);
  if (sizes.looks_inside)
    for (const auto* each : repertoire())
      if (each->inner_memory)
        estimate.scratch += each->inner_memory(sizes, config, precision.compute);
  return estimate;
}

std::shared_ptr<const device> device::part_of(const core_layout& layout, int, int) const {
  if (layout.replicas > 1)
    refuse_field("replicas",
                 "divide the cores of a CPU (--device cpu), or have a GPU each (--device cuda:0,cuda:1); on " +
                   description() + " alone a model has one",
                 errc::unsupported);
  refuse_field("stages", "divide the cores of a CPU (--device cpu); layers on " + description() + " have one stage",
               errc::unsupported);
}

device_capabilities in_stages(std::span<const std::shared_ptr<const device>> devices) {
  auto all = devices.back()->capabilities(); // which samples
  for (const auto& each : devices.first(devices.size() - 1)) {
    const auto own = each->capabilities();
    all.schedule_invariant = all.schedule_invariant && own.schedule_invariant;
    all.own_memory = all.own_memory || own.own_memory;
    all.changes_rows = all.changes_rows && own.changes_rows;
    all.adds_products = all.adds_products && own.adds_products;
    all.looks_inside = all.looks_inside && own.looks_inside;
    all.step_times = all.step_times && own.step_times;
    all.trees = all.trees && own.trees;
    all.ranks_by_kv_head = std::max(all.ranks_by_kv_head, own.ranks_by_kv_head);
  }
  return all;
}

std::shared_ptr<const device> open_device(const compute_options& options, const gpu_opener& open_gpu,
                                          std::string* why) {
  const auto& name = options.device;
  if (options.tensor_parallel < 1)
    refuse_field("tensor_parallel", "must be at least 1, not " + std::to_string(options.tensor_parallel));
  gpu_options gpu{.deterministic = options.deterministic,
                  .graphs = options.graphs,
                  .unified_maximum = options.unified_maximum,
                  .time_steps = options.time_steps,
                  .ranks = options.tensor_parallel};
  if (name == "cpu")
    return open_cpu(options);
  if (name == "auto") {
    std::string reason;
    auto found = try_gpu(open_gpu, gpu, reason);
    if (why)
      *why = reason;
    if (!found)
      return open_cpu(options);
    check_gpu(options);
    return found;
  }
  std::string known = "auto, cpu";
  for (auto target : kernels::available_isas()) {
    const auto with_target = "cpu:" + std::string(kernels::to_string(target));
    if (name == with_target)
      return open_cpu(options, target);
    known += ", " + with_target;
  }
  constexpr std::string_view cuda = "cuda:";
  if (name.starts_with(cuda)) {
    const auto* end = name.data() + name.size();
    const auto [stop, problem] = std::from_chars(name.data() + cuda.size(), end, gpu.index);
    if (problem == std::errc() && stop == end && gpu.index >= 0) {
      if (!open_gpu)
        throw failure(errc::bad_request, "there is no device `" + name + "`: this program was built without CUDA",
                      "device");
      check_gpu(options);
      return open_gpu(gpu);
    }
  }
  throw failure(errc::bad_request,
                "there is no device `" + name + "` here; there are " + known +
                  (open_gpu ? ", and cuda:N for NVIDIA GPU N" : ""),
                "device");
}

} // namespace troupe
