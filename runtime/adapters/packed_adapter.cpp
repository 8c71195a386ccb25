#include "runtime/adapters/packed_adapter.hpp"

#include "kernels/low_rank.hpp"

namespace troupe {

namespace {

struct site_range {
  projection first, last;
};
constexpr std::array<site_range, adapter_site_count> site_ranges{{{projection::q, projection::v},
                                                                  {projection::o, projection::o},
                                                                  {projection::gate, projection::up},
                                                                  {projection::down, projection::down}}};

packed_adapter::site pack_site(const std::array<low_rank, projection_count>& layer,
                               const std::array<adapter_target::shape, projection_count>& shapes, site_range range,
                               kernels::low_rank_products& backend, kernels::dtype compute) {
  std::vector<kernels::low_rank_pair> pairs;
  std::size_t outputs = 0, inputs = 0;
  for (auto p = static_cast<std::size_t>(range.first); p <= static_cast<std::size_t>(range.last); ++p) {
    const auto& values = layer[p];
    if (values.rank > 0) {
      pairs.push_back({outputs, shapes[p].outputs, values.rank, values.a.data(), values.b.data()});
      inputs = shapes[p].inputs;
    }
    outputs += shapes[p].outputs;
  }
  const bool gated = range.first == projection::gate && shapes[static_cast<std::size_t>(projection::gate)].outputs > 0;
  return pairs.empty() ? nullptr : backend.pack_low_rank(pairs, inputs, outputs, compute, gated);
}

} // namespace

packed_adapter pack_adapter(const adapter_weights& weights, const adapter_target& target, kernels::backend& backend,
                            kernels::dtype compute, std::uint64_t id) {
  auto& products = dynamic_cast<kernels::low_rank_products&>(backend);
  packed_adapter result;
  result.id = id;
  for (std::size_t i = 0; i < weights.layers.size(); ++i) {
    auto& layer = result.layers.emplace_back();
    for (std::size_t s = 0; s < adapter_site_count; ++s) {
      layer[s] = pack_site(weights.layers[i], target.layers[i], site_ranges[s], products, compute);
      result.bytes += layer[s] ? layer[s]->bytes : 0;
    }
  }
  return result;
}

} // namespace troupe
