#include "runtime/adapters/packed_adapter.hpp"

#include <algorithm>

namespace troupe {

namespace {

/// Ranks are multiples of it, so that the inputs of second products are whole lines of kernels.
constexpr std::size_t rank_step = 16;

struct site_range {
  projection first, last;
};
constexpr std::array<site_range, adapter_site_count> site_ranges{{{projection::q, projection::v},
                                                                  {projection::o, projection::o},
                                                                  {projection::gate, projection::up},
                                                                  {projection::down, projection::down}}};

packed_site pack_site(const std::array<low_rank, projection_count>& layer,
                      const std::array<adapter_target::shape, projection_count>& shapes, site_range range,
                      kernels::backend& backend, kernels::dtype compute) {
  packed_site site;
  std::vector<float> stacked;
  std::size_t low = 0, output = 0, inputs = 0;
  for (auto p = static_cast<std::size_t>(range.first); p <= static_cast<std::size_t>(range.last); ++p) {
    const auto& [outputs, part_inputs] = shapes[p];
    const auto& values = layer[p];
    if (values.rank > 0) {
      const auto rank = (values.rank + rank_step - 1) / rank_step * rank_step;
      inputs = part_inputs;
      stacked.insert(stacked.end(), values.a.begin(), values.a.end());
      stacked.resize((low + rank) * inputs);
      std::vector<float> b(outputs * rank);
      for (std::size_t o = 0; o < outputs; ++o)
        std::copy_n(&values.b[o * values.rank], values.rank, &b[o * rank]);
      const kernels::stored_matrix second(b.data(), kernels::dtype::f32, outputs, rank);
      site.b.push_back(backend.pack({&second, 1}, compute));
      site.parts.push_back({low, rank, output, outputs});
      low += rank;
    }
    output += outputs;
  }
  if (low > 0) {
    const kernels::stored_matrix first(stacked.data(), kernels::dtype::f32, low, inputs);
    site.a = backend.pack({&first, 1}, compute);
  }
  return site;
}

} // namespace

packed_adapter pack_adapter(const adapter_weights& weights, const adapter_target& target, kernels::backend& backend,
                            kernels::dtype compute, std::uint64_t id) {
  packed_adapter result;
  result.id = id;
  for (std::size_t i = 0; i < weights.layers.size(); ++i) {
    auto& layer = result.layers.emplace_back();
    for (std::size_t s = 0; s < adapter_site_count; ++s) {
      layer[s] = pack_site(weights.layers[i], target.layers[i], site_ranges[s], backend, compute);
      result.bytes += layer[s].a ? layer[s].a->bytes : 0;
      for (const auto& b : layer[s].b)
        result.bytes += b->bytes;
    }
  }
  return result;
}

} // namespace troupe
