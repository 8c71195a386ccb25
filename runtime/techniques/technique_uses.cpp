#include "runtime/techniques/technique_uses.hpp"

#include <algorithm>

namespace troupe {

const technique_uses::list& technique_uses::all() const {
  static const list none;
  return all_ ? *all_ : none;
}

void technique_uses::set(technique_use_ptr one) {
  if (!one)
    return;
  auto changed = all();
  const auto& name = one->of().name;
  auto at = std::ranges::lower_bound(changed, name, {}, [](const auto& use) { return use->of().name; });
  if (at != changed.end() && &(*at)->of() == &one->of())
    *at = std::move(one);
  else
    changed.insert(at, std::move(one));
  all_ = std::make_shared<const list>(std::move(changed));
}

const technique_use* technique_uses::find(const technique& of) const {
  const auto found = std::ranges::find_if(all(), [&](const auto& use) { return &use->of() == &of; });
  return found == end() ? nullptr : found->get();
}

bool technique_uses::edits() const {
  return std::ranges::any_of(all(), [](const auto& use) { return use->edits(); });
}

const technique_use* technique_uses::group() const {
  const auto found = std::ranges::find_if(all(), [](const auto& use) { return use->group().has_value(); });
  return found == end() ? nullptr : found->get();
}

const technique_use* technique_uses::contrast() const {
  const auto found = std::ranges::find_if(all(), [](const auto& use) { return !use->contrasts().empty(); });
  return found == end() ? nullptr : found->get();
}

const constraint_source* technique_uses::constraint() const {
  const auto found = std::ranges::find_if(all(), [](const auto& use) { return use->constraint() != nullptr; });
  return found == end() ? nullptr : (*found)->constraint();
}

technique_uses technique_uses::settled(sampling_params& params, const given_fields& given) const {
  technique_uses result;
  for (const auto& use : all())
    result.set(use->settled(use, params, given));
  return result;
}

technique_uses technique_uses::fitted(const generation& asked, const technique_limits& limits) const {
  technique_uses result;
  for (const auto& use : all())
    result.set(use->fitted(use, asked, limits));
  return result;
}

void technique_uses::keep(const std::shared_ptr<const void>& what) {
  auto changed = all();
  for (auto& use : changed) {
    const auto both = std::make_shared<std::pair<technique_use_ptr, std::shared_ptr<const void>>>(use, what);
    use = {both, use.get()};
  }
  all_ = std::make_shared<const list>(std::move(changed));
}

std::size_t technique_uses::bytes() const {
  std::size_t sum = 0;
  for (const auto& use : all())
    sum += use->bytes();
  return sum;
}

} // namespace troupe
