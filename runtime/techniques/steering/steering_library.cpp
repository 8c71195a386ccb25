#include "runtime/techniques/steering/steering_library.hpp"

#include "runtime/scheduling/prefix_salt.hpp"
#include "runtime/support/error.hpp"
#include "runtime/support/types.hpp"
#include "runtime/techniques/steering/steering_file.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

namespace troupe {

namespace {

constexpr std::size_t most_sums = 1024, most_name_bytes = 64;

} // namespace

void steering_library::add(const std::string& name, const std::filesystem::path& file) {
  if (name.empty() || name.size() > most_name_bytes)
    throw failure(errc::bad_request,
                  "the name of a steering vector must have 1 to " + std::to_string(most_name_bytes) + " bytes, not " +
                    std::to_string(name.size()),
                  "steer");
  if (vectors_.contains(name))
    throw failure(errc::bad_request, "there are two steering vectors named `" + name + "`", "steer");
  vectors_.emplace(name, read_steering(file, layers_, hidden_));
}

std::vector<std::string> steering_library::names() const {
  std::vector<std::string> all;
  for (const auto& [name, _] : vectors_)
    all.push_back(name);
  return all;
}

void steering_library::check(std::span<const steering_choice> choices) const {
  if (choices.size() > most_steering_choices)
    refuse_field("steering",
                 "may have at most " + std::to_string(most_steering_choices) + " entries, not " +
                   std::to_string(choices.size()));
  for (std::size_t i = 0; i < choices.size(); ++i) {
    const auto& c = choices[i];
    const auto field = "steering[" + std::to_string(i) + "].";
    if (!vectors_.contains(c.name)) {
      std::string all;
      for (const auto& [name, _] : vectors_)
        all += (all.empty() ? "\"" : ", \"") + name + '"';
      refuse_field(field + "name",
                   all.empty() ? "names a steering vector, but there are none; --steer NAME=FILE adds one"
                               : "must be one of " + all + ", not \"" + c.name.substr(0, most_name_bytes) + '"');
    }
    if (!(std::abs(c.strength) <= most_steering_strength))
      refuse_field(field + "strength", "must be between -1000 and 1000");
    const auto check_layer = [&](const char* which, const std::optional<int>& layer) {
      if (layer && (*layer < 0 || *layer >= layers_))
        refuse_field(field + which,
                     "must be a layer of the model, 0 to " + std::to_string(layers_ - 1) + ", not " +
                       std::to_string(*layer));
    };
    check_layer("first_layer", c.first_layer);
    check_layer("last_layer", c.last_layer);
    if (c.first_layer && c.last_layer && *c.first_layer > *c.last_layer)
      refuse_field(field + "first_layer",
                   "must be at most `last_layer`, which is " + std::to_string(*c.last_layer) + ", not " +
                     std::to_string(*c.first_layer));
  }
}

// Without those that add nothing, and with the layers that a vector has, so that what is added alike is found to be.
// The order stays: another one may round differently.
steering_library::sum steering_library::normalised(std::span<const steering_choice> choices) const {
  sum parts;
  for (const auto& c : choices) {
    int first = c.first_layer.value_or(0), last = c.last_layer.value_or(layers_ - 1);
    const auto& vector = vectors_.at(c.name);
    while (first <= last && vector[as_size(first)].empty())
      ++first;
    while (first <= last && vector[as_size(last)].empty())
      --last;
    if (c.strength != 0 && first <= last)
      parts.emplace_back(c.name, c.strength, first, last);
  }
  return parts;
}

layer_directions steering_library::add_up(const sum& parts) const {
  layer_directions total(as_size(layers_));
  for (const auto& [name, strength, first, last] : parts)
    for (auto layer = as_size(first); layer <= as_size(last); ++layer) {
      const auto& from = vectors_.at(name)[layer];
      auto& to = total[layer];
      if (from.empty())
        continue;
      to.resize(from.size());
      for (std::size_t i = 0; i < to.size(); ++i)
        to[i] += strength * from[i];
      if (!std::ranges::all_of(to, [](float v) { return std::isfinite(v); }))
        refuse_field("steering", "adds values to layer " + std::to_string(layer) + " that are not finite");
    }
  return total;
}

std::shared_ptr<const steering> steering_library::combine(std::span<const steering_choice> choices) const {
  check(choices);
  const auto parts = normalised(choices);
  if (parts.empty())
    return nullptr;
  {
    const std::lock_guard lock(mutex_);
    if (const auto found = sums_.find(parts); found != sums_.end())
      if (auto value = found->second.lock())
        return value;
  }
  auto made = std::make_shared<steering>();
  made->layers = add_up(parts);
  value_sum values;
  for (const auto& layer : made->layers)
    values.add(layer);
  made->checksum = values.value();
  const std::lock_guard lock(mutex_);
  if (sums_.size() >= most_sums && !sums_.contains(parts)) {
    std::erase_if(sums_, [](const auto& entry) { return entry.second.expired(); });
    if (sums_.size() >= most_sums)
      sums_.clear();
  }
  auto& known = sums_[parts];
  if (auto value = known.lock()) // another thread was faster
    return value;
  known = made;
  return made;
}

} // namespace troupe
