#include "runtime/engine/kept_prefixes.hpp"

#include "kernels/cpu/cpu_backend.hpp"
#include "kernels/cpu/thread_pool.hpp"
#include "runtime/scheduling/prefix_salt.hpp"
#include "runtime/support/error.hpp"

namespace troupe {

namespace {

std::string numbers_of(const precision& p) {
  auto text = std::string(kernels::to_string(p.compute)) + " " + to_string(p.weights);
  if (p.sparsity)
    text += " sparse " + std::to_string(p.sparsity.down) + ":" + std::to_string(p.sparsity.up);
  return text;
}

std::string cache_of(const kept_model& model) {
  const auto shape = kv_shape_of(model.source.config, model.precision, 1);
  return std::string(kernels::to_string(shape.type)) + " " + std::to_string(shape.kv_heads) + "x" +
    std::to_string(shape.head_dim);
}

/// Synthetic models are the same wherever their names are.
std::string identity_of(const kept_model& model, kernels::thread_pool& pool) {
  return model.source.files.empty() ? model.source.name : identity_of(model.source.files, pool);
}

} // namespace

numerics_id numerics_of(const kept_model& model, const std::optional<kept_model>& amateur,
                        const kernels::backend& backend, std::span<const std::int32_t> rope_borders,
                        kernels::thread_pool& pool) {
  numerics_id id;
  id.end_layer = model.source.config.layers;
  const auto described = backend.description();
  const auto comma = described.find(", ");
  if (const auto* storable = backend.storable()) {
    id.backend = "cpu";
    id.instructions = kernels::to_string(storable->instruction_set());
  } else { // "cuda:0, NAME, compute capability 9.0, ...": the number says nothing
    id.backend = described.substr(0, std::min(described.find(':'), comma));
    id.instructions = comma == described.npos ? described : described.substr(comma + 2);
  }
  id.precision = numbers_of(model.precision);
  id.kv = cache_of(model);
  id.model = identity_of(model, pool);
  for (const auto border : rope_borders)
    id.model += ", rotated otherwise beyond " + std::to_string(border);
  if (amateur)
    id.model += ", amateur " + identity_of(*amateur, pool) + " in " + numbers_of(amateur->precision) + " " +
      cache_of(*amateur);
  return id;
}

std::shared_ptr<const kv_disk> open_kv_disk(const engine_options& options, const kept_model& model,
                                            const std::optional<kept_model>& amateur, const kernels::backend& backend,
                                            std::span<const std::int32_t> rope_borders, const kv_store::log_sink& log) {
  if (options.kv_disk.empty())
    return nullptr;
  if (!options.prefix_cache)
    throw failure(errc::bad_request, "`kv_disk` keeps what is in the prefix cache, but the prefix cache is off",
                  "kv_disk");
  kernels::thread_pool pool(options.compute.threads);
  const auto id = numerics_of(model, amateur, backend, rope_borders, pool);
  auto bytes = kv_shape_of(model.source.config, model.precision, 1).block_bytes();
  if (amateur)
    bytes += kv_shape_of(amateur->source.config, amateur->precision, 1).block_bytes();
  kv_store_options where{options.kv_disk};
  if (options.kv_disk_bytes > 0)
    where.most_bytes = options.kv_disk_bytes;
  std::shared_ptr<kv_store> store = kv_store::open(std::move(where), id, bytes, log);
  if (!store)
    return nullptr;
  set_client_salt_secret(store->keys().salt_secret());
  return std::make_shared<const kv_disk>(kv_disk{std::move(store)});
}

} // namespace troupe
