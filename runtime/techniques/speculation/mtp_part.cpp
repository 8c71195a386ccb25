#include "runtime/techniques/speculation/mtp_part.hpp"

#include "runtime/execution/device.hpp"
#include "runtime/techniques/speculation/mtp_runner.hpp"
#include "runtime/techniques/speculation/technique.hpp"

#include <algorithm>

namespace troupe {

std::unique_ptr<mtp_part> open_mtp(const engine_options& options, const model_source& source,
                                   const device_capabilities& capabilities, const std::string& device,
                                   const log_sink& log) {
  const auto mode = speculation_of(options.techniques);
  const bool wanted = mode == speculation::mtp, drafted = !text_of(options.techniques, draft_flag).empty();
  if (!wanted && (mode != speculation::automatic || drafted))
    return nullptr;
  if (wanted && drafted)
    refuse_field("speculate",
                 "is mtp, so that the model's own layers guess, but `draft` names a model that is to guess");
  if (!source.mtp) {
    if (wanted)
      refuse_field("speculate",
                   "is mtp, but " + source.name + " has no layers of multi-token prediction that are known");
    return nullptr;
  }
  if (capabilities.own_memory || !capabilities.hidden_states) {
    if (wanted)
      refuse_field("speculate",
                   "is mtp, but layers of multi-token prediction guess on a CPU (--device cpu) only, not on " + device,
                   errc::unsupported);
    return nullptr;
  }
  const auto part = source.mtp->config.part();
  log("guesses: layers of multi-token prediction (" + std::to_string(part.count()) + " behind the " +
      std::to_string(source.config.layers) + " of the model)");
  return std::make_unique<mtp_part>(source);
}

memory_estimate mtp_part::prepare(const device& device, const kernels::backend& backend, precision precision, int rows,
                                  int sequences, int context) {
  const auto& layers = *source_->mtp;
  precision.sparsity = {}; // guesses are made as well as the model can
  loaded_.precision = precision;
  loaded_.sizes = {.rows = rows, .sequences = sequences, .context = context};
  auto need = estimate_memory(*source_->tensors, layers.config, precision, device, backend, loaded_.sizes);
  need.weights += mtp_weight_bytes(*source_->tensors, layers, precision, backend);
  need.activations += mtp_runner::row_bytes(layers.config, precision.compute, rows) +
    static_cast<std::size_t>(std::min(rows, sequences)) * static_cast<std::size_t>(layers.config.vocab) * sizeof(float);
  return need;
}

std::shared_ptr<const loaded_mtp> mtp_part::load(kernels::backend& backend, const progress_fn& progress) {
  loaded_.weights = load_mtp_weights(*source_->tensors, *source_->mtp, backend, loaded_.precision, progress);
  return std::make_shared<const loaded_mtp>(loaded_);
}

} // namespace troupe
