// Opens the files in which a model's cached prefixes outlive the process (--kv-disk), under the id of its numerics.
#pragma once

#include "runtime/engine/engine_options.hpp"
#include "runtime/engine/loading/opened_model.hpp"
#include "runtime/kv/kv_disk.hpp"

#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace troupe {

/// The id of what is in a block of the KV cache, for those who have the same model in memory: it does not name it.
numerics_id numerics_within(const opened_model& opened, std::span<const std::int32_t> rope_borders);

/// What tokens depend on, as text: equal in another process of this machine as long as no file is written to.
std::string identity_here(const opened_model& opened, std::span<const std::int32_t> rope_borders);

/// The id of what is in a block of the KV cache: K and V of the model, in whatever stages, and those of models
/// of techniques. Reads all their files. Throws as identity_of.
numerics_id numerics_of(const opened_model& opened, std::span<const std::int32_t> rope_borders,
                        kernels::thread_pool& pool);

/// Null without options.kv_disk, or if its folder cannot be used, after `log` received why. Also makes the salts of
/// clients those of the folder. Throws failure(bad_request) if it is not a folder or the prefix cache is off, and as
/// numerics_of.
std::shared_ptr<const kv_disk> open_kv_disk(const engine_options& options, const opened_model& opened,
                                            std::span<const std::int32_t> rope_borders, const log_sink& log);

} // namespace troupe
