// The steering vectors that an engine has, by name, and the sums that requests make of them. Requests that ask for the
// same share one sum, and with it the prefix cache. Any thread, once all vectors are added.
#pragma once

#include "runtime/techniques/steering/steering.hpp"

#include <filesystem>
#include <map>
#include <mutex>
#include <tuple>

namespace troupe {

class steering_library {
public:
  /// Makes a library for a model with so many layers, and values in each row.
  steering_library(int layers, int hidden) : layers_(layers), hidden_(hidden) {}

  /// Throws failure(bad_request) if the name is empty, too long or taken, and as read_steering.
  void add(const std::string& name, const std::filesystem::path& file);

  /// In alphabetical order.
  std::vector<std::string> names() const;

  /// Throws failure(bad_request) that names the field of `steering` at fault: too many choices, an unknown name, a
  /// strength or a layer out of range.
  void check(std::span<const steering_choice> choices) const;

  /// The sum of valid choices; null if nothing is added. Throws as `check`, and if the sum is not finite.
  std::shared_ptr<const steering> combine(std::span<const steering_choice> choices) const;

private:
  using part = std::tuple<std::string, float, int, int>; // name, strength, first layer, last layer
  using sum = std::vector<part>;

  sum normalised(std::span<const steering_choice> choices) const;
  layer_directions add_up(const sum& parts) const;

  int layers_, hidden_;
  std::map<std::string, layer_directions> vectors_;
  mutable std::mutex mutex_;
  mutable std::map<sum, std::weak_ptr<const steering>> sums_; // bounded
};

} // namespace troupe
