#include "runtime/techniques/watermark/marker.hpp"

#include <cmath>
#include <limits>

namespace troupe::watermarks {

std::optional<place> marker::next() const {
  if (recent_.size() < static_cast<std::size_t>(options_->width))
    return std::nullopt;
  return place(*options_, recent_);
}

void marker::append(token_id id) {
  if (options_->what == kind::gumbel)
    if (const auto chosen_by = next())
      used_.insert(chosen_by->seed());
  recent_.push_back(id);
  if (recent_.size() > static_cast<std::size_t>(options_->width))
    recent_.erase(recent_.begin());
}

void marker::edit(std::span<float> logits) const {
  if (options_->what == kind::green)
    if (const auto here = next())
      here->favour_green(logits);
}

std::optional<token_id> marker::choose(candidates& tokens) const {
  if (options_->what != kind::gumbel)
    return std::nullopt;
  const auto here = next();
  if (!here || used_.contains(here->seed()))
    return std::nullopt;
  tokens.narrow(std::numeric_limits<float>::lowest());
  const auto weights = tokens.weights();
  const auto ids = tokens.ids();
  double best = std::numeric_limits<double>::infinity();
  token_id chosen = -1;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const auto weight = static_cast<double>(weights[i]);
    // -log(u) is at least 1 - u, which rules most tokens out.
    if (weights[i] == 0 || 1 - (static_cast<double>(here->value(ids[i])) + 1) * 0x1p-32 >= best * weight)
      continue;
    const auto wait = -std::log(here->uniform(ids[i])) / weight;
    if (wait < best) {
      best = wait;
      chosen = ids[i];
    }
  }
  return chosen;
}

} // namespace troupe::watermarks
