#include "api/service/service.hpp"

#include "runtime/techniques/model_variants.hpp"

namespace troupe {

namespace {

bool is_named(const served_model& model, std::string_view name) {
  constexpr std::string_view latest = ":latest";
  return name == model.id || (name.ends_with(latest) && name.substr(0, name.size() - latest.size()) == model.id) ||
    variants_with(model.techniques, std::string(name));
}

} // namespace

std::shared_ptr<const served_model> service::find(std::string_view name) const {
  for (auto& one : models())
    if (name.empty() || is_named(*one, name))
      return one;
  return nullptr;
}

} // namespace troupe
