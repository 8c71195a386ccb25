#include "api/server/served_models.hpp"

namespace troupe {

std::shared_ptr<const served_model> served_models::with_settings(model one) const {
  if (options_.techniques.empty() && options_.unknown == unknown_fields::warn)
    return one;
  const std::lock_guard lock(mutex_);
  auto& marked = marked_[one];
  if (!marked) {
    auto made = std::make_shared<served_model>(*one);
    made->techniques.merge(options_.techniques);
    made->unknown = options_.unknown;
    marked = std::move(made);
  }
  return marked;
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

std::shared_ptr<const served_model> served_models::named_in(const field_reader& body) const {
  for (const auto* key : {"model", "name"})
    if (const auto given = json::find(body.body(), key); given && given->is_string())
      if (auto found = of_.find(std::string_view(*given)))
        return with_settings(std::move(found));
  return first();
}

} // namespace troupe
