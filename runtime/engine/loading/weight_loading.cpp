#include "runtime/engine/loading/weight_loading.hpp"

#include "kernels/cpu/core_account.hpp"
#include "kernels/cpu/cpu_backend.hpp"
#include "runtime/engine/loading/memory_plan.hpp"
#include "runtime/import/head_tensors.hpp"
#include "runtime/model/packing.hpp"
#include "runtime/model/tensor_names.hpp"
#include "runtime/support/text/byte_size.hpp"
#include "runtime/support/text/number_text.hpp"
#include "runtime/support/types.hpp"

#include <algorithm>
#include <map>

namespace troupe {

namespace {

std::vector<unit_bytes> unit_bytes_of(const checkpoint& tensors, const model_config& config, precision precision,
                                      const kernels::backend& backend) {
  const auto part = config.part();
  std::vector<unit_bytes> units(as_size(part.end - part.first) + 1);
  for (const auto& group : packed_groups(config, precision)) {
    auto& unit = units[as_size(group.unit)];
    const auto bytes = packed_bytes(tensors, group, precision, backend);
    if (!group.expert) {
      unit.dense += bytes;
      continue;
    }
    unit.experts.resize(std::max(unit.experts.size(), as_size(group.number) + 1));
    unit.experts[as_size(group.number)] += bytes;
  }
  return units;
}

/// Where each matrix is to be.
std::map<std::string, weight_home, std::less<>> homes_of(const model_config& config, precision precision,
                                                         const std::string& weights,
                                                         const weight_placement& placement) {
  std::map<std::string, weight_home, std::less<>> homes;
  for (const auto& group : packed_groups(config, precision)) {
    const bool stays = placement.fits() || (!group.expert && placement.kept[as_size(group.unit)]);
    homes[group.name()] = weights == "resident" ? weight_home::memory
      : weights == "mapped" || !stays           ? weight_home::file
      : placement.fits()                        ? weight_home::found
                                                : weight_home::memory;
  }
  return homes;
}

} // namespace

std::string not_mappable(const model_source& source, const compute_options& options, const kernels::backend& backend) {
  if (options.weights == "resident")
    return "`weights` is resident";
  if (backend.storable() == nullptr)
    return "they are on " + backend.description();
  if (source.files.empty())
    return source.name + " is not in files";
  if (options.packed_cache.empty())
    return "there is no folder to keep them in (--packed-cache)";
  return {};
}

weight_placement place_packed(const model_source& source, const model_config& config, precision precision,
                              const kernels::backend& backend, std::size_t budget) {
  return place_weights(unit_bytes_of(*source.tensors, config, precision, backend), config.experts.chosen, budget);
}

std::size_t budget_beside(const model_source& source, const compute_options& options, precision precision,
                          const kernels::backend& backend, const memory_estimate& need, std::size_t beside,
                          std::size_t available) {
  const auto all = need.fixed() + beside;
  if (all <= available || !not_mappable(source, options, backend).empty()) {
    require_memory(source.name, all, available);
    return all_weights;
  }
  const auto others = all - need.packed;
  const auto least = place_packed(source, source.config, precision, backend, 0).memory();
  require_memory(source.name, others + least, available);
  return std::max(least, available - others - available / 32); // less what the rest of the process may take
}

std::shared_ptr<const model_weights> load_weights(const model_source& source, const compute_options& options,
                                                  precision precision, kernels::backend& backend,
                                                  const progress_fn& progress, const log_sink& log,
                                                  std::optional<layer_span> part, std::size_t budget) {
  const auto cores = kernels::claim_cores(backend);
  auto config = source.config;
  config.span = part;
  if (config.part().embeds) { // what is to be said of the whole is said once
    for (const auto& line : source.remarks)
      log(line);
    for (auto& line : check_tensors(*source.tensors, source.config, head_tensors(source)))
      log(warning(std::move(line)));
    if (auto line = unquantised_matrices(*source.tensors, source.config, precision); !line.empty())
      log(std::move(line));
    if (precision.sparsity)
      log("sparsity " + options.sparsity + ": results are approximate, the smallest inputs of MLPs count as zero");
    if (precision.attention_threshold > 0)
      log("attention_threshold " + to_general(precision.attention_threshold) +
          ": results are approximate, small weights of attention count as zero");
  }
  if (options.packed_cache.empty() && options.weights == "mapped")
    refuse_field("weights", "can be mapped only where they are kept: " + not_mappable(source, options, backend));
  if (options.packed_cache.empty() || backend.storable() == nullptr)
    return load_weights(*source.tensors, config, backend, precision, progress);
  if (source.files.empty()) {
    if (options.weights == "mapped")
      refuse_field("weights", "mapped is for models in files, which " + source.name + " is not");
    if (!options.packed_cache_asked)
      return load_weights(*source.tensors, config, backend, precision, progress);
    refuse_field("packed_cache", "is for models in files, which " + source.name + " is not");
  }
  auto contents = packed_contents_of(*source.tensors, config, precision, backend);
  contents.model = source.name;
  contents.files = source.files;
  const auto placement = place_packed(source, config, precision, backend, budget);
  const auto homes = homes_of(config, precision, options.weights, placement);
  packed_cache cache({.folder = options.packed_cache,
                      .most_bytes = options.packed_cache_bytes,
                      .asked = options.packed_cache_asked,
                      .home = [&](std::string_view matrix) { return homes.find(matrix)->second; },
                      .needed = options.weights == "mapped" || !placement.fits()},
                     contents, backend.storable()->pool(), log);
  if (!placement.fits())
    log("weights " + to_size(placement.all) + ", " + described(placement) +
        (config.experts.count > 0 ? ", if experts are chosen equally often" : ""));
  return load_weights(*source.tensors, config, backend, precision, progress, {&cache, &placement});
}

} // namespace troupe
