#include "runtime/sampling/processors/sampler_order.hpp"

#include "runtime/support/error.hpp"

#include <algorithm>

namespace troupe {

namespace {} // namespace

sampler_order::sampler_order() : count_(sampler_steps) {
  for (std::size_t i = 0; i < sampler_steps; ++i)
    steps_[i] = static_cast<sampler_step>(i);
}

sampler_order::sampler_order(std::span<const std::string> names) {
  for (const auto& given : names) {
    if (given == "penalties" || given == "dry") {
      if (count_ > 0)
        refuse_field("samplers", "must name \"" + given + "\" ahead of all others, as penalties come first");
      continue;
    }
    const auto found = std::ranges::find(sampler_names, given == "typ_p" ? std::string_view("typical_p") : given);
    if (found == sampler_names.end()) {
      std::string known;
      for (const auto name : sampler_names)
        known += (known.empty() ? "" : ", ") + std::string(name);
      refuse_field("samplers", "must consist of " + known + ", not \"" + given.substr(0, 64) + '"');
    }
    const auto step = static_cast<sampler_step>(found - sampler_names.begin());
    if (std::ranges::find(steps(), step) != steps().end())
      refuse_field("samplers", "names \"" + std::string(*found) + "\" more than once");
    steps_[count_++] = step;
  }
}

} // namespace troupe
