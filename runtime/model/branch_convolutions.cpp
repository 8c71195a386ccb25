#include "runtime/model/branch_convolutions.hpp"

#include "runtime/support/types.hpp"

#include <string>
#include <utility>

namespace troupe {

int branch_channels(const model_config& config, int layer, branch_site site) {
  const bool cached = site == branch_site::keys || site == branch_site::values;
  return cached ? config.kv_heads_of(layer) * config.head_dim_of(layer) : config.hidden;
}

int branch_state(const model_config& config, int layer, branch_site site) {
  return (layer - config.part().first) * static_cast<int>(branch_sites.size()) + static_cast<int>(site);
}

wanted_tensor branch_tensors::named(const char* name, std::vector<std::size_t> shape) const {
  return {"model.layers." + std::to_string(layer_) + ".branches." + name, std::move(shape)};
}

wanted_tensor branch_tensors::convolution(branch_site site) const {
  constexpr const char* names[] = {"k_conv.weight", "v_conv.weight", "attention_conv.weight", "mlp_conv.weight"};
  return named(names[static_cast<std::size_t>(site)],
               {as_size(branch_channels(config_, layer_, site)), as_size(config_.recurrent.taps)});
}

wanted_tensor branch_tensors::scale() const { return named("scale", {1}); }

std::vector<wanted_tensor> branch_tensors::all() const {
  std::vector<wanted_tensor> result;
  for (const auto site : branch_sites)
    result.push_back(convolution(site));
  result.push_back(scale());
  return result;
}

} // namespace troupe
