#include "runtime/engine/weight_loading.hpp"

#include "kernels/cpu/cpu_backend.hpp"
#include "runtime/model/packing.hpp"
#include "runtime/model/tensor_names.hpp"

namespace troupe {

std::shared_ptr<const model_weights> load_weights(const model_source& source, const compute_options& options,
                                                  precision precision, kernels::backend& backend,
                                                  const progress_fn& progress, const log_sink& log,
                                                  std::optional<layer_span> part) {
  auto config = source.config;
  config.span = part;
  if (config.part().embeds) { // what is to be said of the whole is said once
    for (const auto& line : source.remarks)
      log(line);
    for (auto& line : check_tensors(*source.tensors, source.config))
      log(std::move(line));
    if (auto line = unquantised_matrices(*source.tensors, source.config, precision); !line.empty())
      log(std::move(line));
    if (precision.sparsity)
      log("sparsity " + options.sparsity + ": results are approximate, the smallest inputs of MLPs count as zero");
  }
  if (options.packed_cache.empty())
    return load_weights(*source.tensors, config, backend, precision, progress);
  if (source.files.empty())
    throw failure(errc::bad_request, "`packed_cache` is for models in files, which " + source.name + " is not",
                  "packed_cache");
  auto contents = packed_contents_of(*source.tensors, config, precision, backend);
  contents.model = source.name;
  contents.files = source.files;
  packed_cache cache(options.packed_cache, contents, backend.storable()->pool(), log);
  return load_weights(*source.tensors, config, backend, precision, progress, &cache);
}

} // namespace troupe
