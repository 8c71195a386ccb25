#include "api/service/service.hpp"

#include "runtime/techniques/model_variants.hpp"

#include <algorithm>

namespace troupe {

namespace {

bool is_called(std::string_view id, const std::vector<std::string>& aliases, std::string_view name) {
  constexpr std::string_view latest = ":latest";
  const auto is = [&](std::string_view one) { return one == id || std::ranges::find(aliases, one) != aliases.end(); };
  return is(name) || (name.ends_with(latest) && is(name.substr(0, name.size() - latest.size())));
}

} // namespace

bool is_name_of(const served_model& model, std::string_view name) { return is_called(model.id, model.aliases, name); }

bool is_name_of(const known_model& model, std::string_view name) { return is_called(model.name, model.aliases, name); }

std::string listed_names(const std::vector<known_model>& models) {
  constexpr std::size_t most = 16;
  const auto shown = std::min(models.size(), most);
  std::string text;
  for (std::size_t i = 0; i < shown; ++i)
    text += (i == 0 ? "" : i + 1 == shown && shown == models.size() ? " and " : ", ") + ('`' + models[i].name + '`');
  return shown < models.size() ? text + " and " + std::to_string(models.size() - shown) + " more" : text;
}

std::shared_ptr<const served_model> service::find(std::string_view name) const {
  for (auto& one : models())
    if (name.empty() || is_name_of(*one, name) || variants_with(one->techniques, std::string(name)))
      return one;
  return nullptr;
}

std::vector<known_model> service::known() const {
  std::vector<known_model> all;
  for (auto& one : models()) {
    known_model each;
    each.name = one->id;
    each.aliases = one->aliases;
    each.model = one;
    all.push_back(std::move(each));
  }
  return all;
}

std::shared_ptr<model_wait> service::load(std::string_view, bool) {
  throw failure(errc::unsupported, "this server loads and unloads no models");
}

std::shared_ptr<model_wait> service::unload(std::string_view) {
  throw failure(errc::unsupported, "this server loads and unloads no models");
}

} // namespace troupe
