// Opens the files in which a model's cached prefixes outlive the process (--kv-disk), under the id of its numerics.
#pragma once

#include "runtime/engine/engine_options.hpp"
#include "runtime/import/model_source.hpp"
#include "runtime/kv/kv_disk.hpp"
#include "runtime/model/precision.hpp"

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>

namespace troupe {

/// What is in a block of the KV cache: K and V of the model, and those of an amateur.
struct kept_model {
  const model_source& source;
  troupe::precision precision;
};

/// The id of what a backend computes of these. Reads all their files. Throws as identity_of.
numerics_id numerics_of(const kept_model& model, const std::optional<kept_model>& amateur,
                        const kernels::backend& backend, std::span<const std::int32_t> rope_borders,
                        kernels::thread_pool& pool);

/// Null without options.kv_disk, or if its folder cannot be used, after `log` received why. Also makes the salts of
/// clients those of the folder. Throws failure(bad_request) if it is not a folder or the prefix cache is off, and as
/// numerics_of.
std::shared_ptr<const kv_disk> open_kv_disk(const engine_options& options, const kept_model& model,
                                            const std::optional<kept_model>& amateur, const kernels::backend& backend,
                                            std::span<const std::int32_t> rope_borders, const kv_store::log_sink& log);

} // namespace troupe
