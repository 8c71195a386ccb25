#include "runtime/techniques/model_variants.hpp"

#include "runtime/techniques/repertoire.hpp"

#include <algorithm>

namespace troupe {

std::vector<model_variants*> variants_of(const technique_values& values) {
  std::vector<model_variants*> all;
  for (const auto* each : repertoire())
    if (auto* found = each->variants ? each->variants(values) : nullptr)
      all.push_back(found);
  return all;
}

const model_variants* variants_with(const technique_values& values, const std::string& name) {
  const auto all = variants_of(values);
  const auto found = std::ranges::find_if(all, [&](const model_variants* each) { return each->has(name); });
  return found == all.end() ? nullptr : *found;
}

} // namespace troupe
