#include "runtime/engine/loading/kept_prefixes.hpp"

#include "kernels/cpu/cpu_backend.hpp"
#include "kernels/cpu/thread_pool.hpp"
#include "runtime/model/recurrent_layers.hpp"
#include "runtime/model/size_estimate.hpp"
#include "runtime/scheduling/prefix_salt.hpp"
#include "runtime/support/error.hpp"
#include "runtime/support/text/number_text.hpp"

#include <algorithm>
#include <limits>
#include <vector>

namespace troupe {

namespace {

constexpr int all_digits = std::numeric_limits<float>::max_digits10;

std::string numbers_of(const precision& p) {
  auto text = std::string(kernels::to_string(p.compute)) + " " + to_string(p.weights);
  if (p.sparsity)
    text += " sparse " + to_general(p.sparsity.down, all_digits) + ":" + to_general(p.sparsity.up, all_digits);
  if (p.attention_threshold > 0)
    text += " attention " + to_general(p.attention_threshold, all_digits);
  return text;
}

std::string cache_of(const model_config& config, const precision& p) {
  const auto shape = kv_shape_of(config, p, 1);
  auto text = std::string(kernels::to_string(shape.type)) + " " + std::to_string(shape.kv_heads) + "x" +
    std::to_string(shape.head_dim);
  if (config.recurrent) {
    const auto state = state_shape_of(config, 0, 0, 0);
    text += ", states " + std::to_string(state.taps) + "x" + std::to_string(state.channels) + " " +
      std::to_string(state.heads) + "x" + std::to_string(state.key_dim) + "x" + std::to_string(state.value_dim);
  }
  return text;
}

/// Synthetic models are the same wherever their names are.
std::string identity_of(const model_source& source, kernels::thread_pool& pool) {
  return source.files.empty() ? source.name : identity_of(source.files, pool);
}

/// What the bits of a stage's K and V depend on, beside the model.
numerics_id numerics_of(const opened_stage& stage) {
  numerics_id id;
  const auto part = stage.config.part();
  id.first_layer = part.first;
  id.end_layer = part.end;
  const auto described = stage.backend->description();
  const auto comma = described.find(", ");
  if (const auto* storable = stage.backend->storable()) {
    id.backend = "cpu";
    id.instructions = kernels::to_string(storable->instruction_set());
  } else { // "cuda:0, NAME, compute capability 9.0, ...": the number says nothing
    id.backend = described.substr(0, std::min(described.find(':'), comma));
    id.instructions = comma == described.npos ? described : described.substr(comma + 2);
  }
  id.precision = numbers_of(stage.precision);
  id.kv = cache_of(stage.config, stage.precision);
  return id;
}

/// The bytes that a block takes in all stages, and in models beside this one.
std::size_t block_bytes_of(const opened_model& opened) {
  std::size_t bytes = 0;
  for (const auto& stage : opened.stages)
    bytes += kv_shape_of(stage.config, stage.precision, 1).block_bytes();
  for (const auto& each : opened.seconds)
    bytes += each.block_bytes();
  return bytes;
}

/// Stages that compute alike count as one.
bool extends(numerics_id& before, const numerics_id& next) {
  auto joined = before;
  joined.first_layer = next.first_layer;
  joined.end_layer = next.end_layer;
  if (joined != next)
    return false;
  before.end_layer = next.end_layer;
  return true;
}

} // namespace

numerics_id numerics_within(const opened_model& opened, std::span<const std::int32_t> rope_borders) {
  auto id = numerics_of(opened.first());
  std::vector<numerics_id> others;
  for (const auto& stage : std::span(opened.stages).subspan(1)) {
    const auto next = numerics_of(stage);
    if (!extends(others.empty() ? id : others.back(), next))
      others.push_back(next);
  }
  if (opened.source.config.recurrent) // a stage without attention has a part of each block, too
    id.kv += ", " + std::to_string(block_bytes_of(opened)) + " bytes of a block";
  for (const auto& each : others)
    id.model += ", layers " + std::to_string(each.first_layer) + "-" + std::to_string(each.end_layer - 1) + " by " +
      each.backend + " " + each.instructions + " in " + each.precision + ", " + each.kv;
  for (const auto border : rope_borders)
    id.model += ", rotated otherwise beyond " + std::to_string(border);
  for (const auto& each : opened.seconds)
    id.model += ", " + std::string(each.of()->name) + " in " + numbers_of(each.precision()) + " " +
      cache_of(each.config(), each.precision());
  return id;
}

std::string identity_here(const opened_model& opened, std::span<const std::int32_t> rope_borders) {
  auto id = numerics_within(opened, rope_borders);
  const auto add = [&id](const model_source& source) {
    id.model += ", " + source.name;
    for (const auto& file : source.files)
      id.model += ' ' + file.path.string() + ' ' + std::to_string(file.bytes) + ' ' + std::to_string(file.modified_ns) +
        ' ' + std::to_string(file.changed_ns);
  };
  add(opened.source);
  for (const auto& each : opened.seconds)
    add(each.source());
  return to_hex(id.hash());
}

numerics_id numerics_of(const opened_model& opened, std::span<const std::int32_t> rope_borders,
                        kernels::thread_pool& pool) {
  auto id = numerics_within(opened, rope_borders);
  id.model = identity_of(opened.source, pool) + id.model;
  for (const auto& each : opened.seconds)
    id.model += " " + identity_of(each.source(), pool);
  return id;
}

std::shared_ptr<const kv_disk> open_kv_disk(const engine_options& options, const opened_model& opened,
                                            std::span<const std::int32_t> rope_borders, const log_sink& log) {
  if (options.kv_disk.empty())
    return nullptr;
  if (!options.prefix_cache)
    refuse_field("kv_disk", "keeps what is in the prefix cache, but the prefix cache is off");
  kernels::thread_pool pool(options.compute.threads);
  const auto id = numerics_of(opened, rope_borders, pool);
  const auto bytes = block_bytes_of(opened);
  std::size_t state_bytes = 0;
  for (const auto& stage : opened.stages)
    state_bytes += state_bytes_per_sequence(stage.config);
  kv_store_options where{options.kv_disk};
  if (options.kv_disk_bytes > 0)
    where.most_bytes = options.kv_disk_bytes;
  std::shared_ptr<kv_store> store = kv_store::open(std::move(where), id, bytes, log);
  if (!store)
    return nullptr;
  set_client_salt_secret(store->keys().salt_secret());
  return std::make_shared<const kv_disk>(kv_disk{std::move(store), state_bytes});
}

} // namespace troupe
