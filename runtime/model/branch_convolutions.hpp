// Short convolutions beside attention and MLPs (recurrent_type::branches): of a layer's keys, of its values, and of what its
// attention and its MLP give. Each is added to what it reads. Names and shapes of their tensors, as the decoder wants them
// ("model.layers.N.branches.", then as below), and where their states are.
#pragma once

#include "runtime/model/tensor_names.hpp"

#include <array>
#include <cstdint>
#include <vector>

namespace troupe {

enum class branch_site : std::uint8_t { keys, values, attention, mlp };

inline constexpr std::array branch_sites{branch_site::keys, branch_site::values, branch_site::attention,
                                         branch_site::mlp};

/// Channels of a layer's convolution.
int branch_channels(const model_config& config, int layer, branch_site site);

/// Which of state_shape::spread it is.
int branch_state(const model_config& config, int layer, branch_site site);

class branch_tensors {
public:
  branch_tensors(const model_config& config, int layer) : config_(config), layer_(layer) {}

  wanted_tensor convolution(branch_site site) const; // [channels, taps]
  wanted_tensor scale() const;                       // [1], of what the MLP gives

  std::vector<wanted_tensor> all() const;

private:
  wanted_tensor named(const char* name, std::vector<std::size_t> shape) const;

  const model_config& config_;
  int layer_;
};

} // namespace troupe
