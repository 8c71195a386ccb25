#include "api/server/served_models.hpp"

#include <algorithm>

namespace troupe {

std::shared_ptr<const served_model> served_models::with_settings(model one) const {
  if (options_.techniques.empty() && options_.unknown == unknown_fields::warn)
    return one;
  const std::lock_guard lock(mutex_);
  auto& marked = marked_[one.get()];
  if (marked.of.lock().get() != one.get()) { // new, or in the place of one that is no more
    auto made = std::make_shared<served_model>(*one);
    made->techniques.merge(options_.techniques);
    made->unknown = options_.unknown;
    marked = {one->weak_from_this(), std::move(made)};
  }
  auto result = marked.with_settings;
  std::erase_if(marked_, [](const auto& each) { return each.second.of.expired(); });
  // Whoever holds the result holds the service's own, too, which may be what keeps the model loaded.
  struct both {
    model own, with_settings;
  };
  const auto held = std::make_shared<const both>(both{std::move(one), std::move(result)});
  return {held, held->with_settings.get()};
}

std::vector<std::shared_ptr<const served_model>> served_models::all() const {
  auto result = of_.models();
  for (auto& one : result)
    one = with_settings(std::move(one));
  if (!result.empty())
    return result;
  const auto status = of_.status();
  throw failure(errc::unavailable,
                "the model is not ready (" + status.state + (status.line.empty() ? "" : ": " + status.line) +
                  "); /health shows the progress");
}

std::vector<known_model> served_models::known() const {
  require_any();
  auto result = of_.known();
  for (auto& one : result)
    if (one.model)
      one.model = with_settings(std::move(one.model));
  return result;
}

void served_models::require_any() const {
  if (!of_.is_plural())
    static_cast<void>(all());
}

served_models::model served_models::of_several(std::string_view name) const {
  if (auto found = of_.use(name))
    return with_settings(std::move(found));
  throw must_wait{of_.load(name, false)};
}

namespace {

/// What a body names; empty: none.
std::string_view name_in(const field_reader& body) {
  for (const auto* key : {"model", "name"})
    if (const auto given = json::find(body.body(), key);
        given && given->is_string() && !std::string_view(*given).empty())
      return std::string_view(*given);
  return {};
}

} // namespace

bool served_models::names_one_away(const field_reader& body) const {
  const auto name = name_in(body);
  return std::ranges::any_of(of_.known(), [&](const auto& one) { return one.is_away() && is_name_of(one, name); });
}

std::shared_ptr<const served_model> served_models::first() const {
  return of_.is_plural() ? of_several({}) : all().front();
}

std::shared_ptr<const served_model> served_models::named_in(const field_reader& body) const {
  if (of_.is_plural())
    return of_several(name_in(body));
  for (const auto* key : {"model", "name"})
    if (const auto given = json::find(body.body(), key); given && given->is_string())
      if (auto found = of_.find(std::string_view(*given)))
        return with_settings(std::move(found));
  return first();
}

} // namespace troupe
