// An adapter in the layout of a backend's kernels. Projections that read the same input share one product with their
// stacked first matrices. Immutable, and lent to any number of executors.
#pragma once

#include "kernels/ops.hpp"
#include "runtime/adapters/adapter.hpp"

namespace troupe {

/// A product of a layer: of q, k and v; o; gate and up; down.
enum class adapter_site : std::uint8_t { qkv, o, gate_up, down };
inline constexpr std::size_t adapter_site_count = 4;

struct packed_adapter {
  using site = std::unique_ptr<const kernels::matrix>; // null: nothing is added

  std::vector<std::array<site, adapter_site_count>> layers;
  std::uint64_t id = 0;  // not 0, and of no other adapter in this engine: K and V of one are of no use to another
  std::size_t bytes = 0; // of device memory
};

/// Packs an adapter for activations of type `compute`, to which its values are rounded. `backend`: of the kind that
/// will use it, with low_rank_products.
packed_adapter pack_adapter(const adapter_weights& weights, const adapter_target& target, kernels::backend& backend,
                            kernels::dtype compute, std::uint64_t id);

} // namespace troupe
