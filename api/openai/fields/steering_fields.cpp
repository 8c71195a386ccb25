#include "api/openai/fields/steering_fields.hpp"

#include "runtime/steering/steering_library.hpp"

#include <algorithm>
#include <array>

namespace troupe {

namespace {

constexpr auto choice_members = std::to_array<std::string_view>({"name", "strength", "first_layer", "last_layer"});
constexpr std::int64_t most_layers = 1 << 20;

steering_choice read_steering_choice(const field_reader& entry) {
  json::object object;
  if (!entry.body().get(object))
    for (auto [key, _] : object)
      if (std::ranges::find(choice_members, std::string_view(key)) == choice_members.end())
        entry.refuse(std::string_view(key).substr(0, 64),
                     "is unknown: name, strength, first_layer and last_layer are possible");
  const auto name = entry.text("name");
  if (!name)
    entry.refuse("name", "is required");
  steering_choice result{std::string(*name)};
  if (const auto strength = entry.number("strength", {-most_steering_strength, most_steering_strength}))
    result.strength = static_cast<float>(*strength);
  if (const auto first = entry.integer("first_layer", 0, most_layers))
    result.first_layer = static_cast<int>(*first);
  if (const auto last = entry.integer("last_layer", 0, most_layers))
    result.last_layer = static_cast<int>(*last);
  return result;
}

} // namespace

std::vector<steering_choice> read_steering_choices(const field_reader& body, const served_model& model) {
  std::vector<steering_choice> result;
  const auto list = body.list("steering", most_steering_choices);
  if (!list)
    return result;
  for (auto item : *list) {
    const auto name = "steering[" + std::to_string(result.size()) + "]";
    if (!item.is_object())
      body.refuse(name, "an object", item);
    result.push_back(read_steering_choice(field_reader(item, name)));
  }
  if (result.empty())
    return result;
  static const steering_library none(0, 0);
  (model.steering ? model.steering.get() : &none)->check(result);
  return result;
}

} // namespace troupe
