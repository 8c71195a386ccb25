#include "runtime/model/model_config.hpp"
#include "runtime/scheduling/prefix_salt.hpp"
#include "runtime/support/json/field_reader.hpp"
#include "runtime/support/text/integer_text.hpp"
#include "runtime/support/text/visible_text.hpp"
#include "runtime/techniques/steering/steering_library.hpp"

#include <algorithm>
#include <array>
#include <charconv>

namespace troupe {

namespace {

constexpr auto members = std::to_array<std::string_view>({"name", "strength", "first_layer", "last_layer"});
constexpr std::int64_t most_layers = 1 << 20;

const steering_library& library_of(const technique_values* values) {
  static const steering_library none(0, 0);
  const auto* found = values ? values->find<steering_library>(steering_technique) : nullptr;
  return found ? *found : none;
}

/// What a request asks for and, once it is fitted to a model, what that comes to.
class steering_use final : public technique_use {
public:
  explicit steering_use(std::vector<steering_choice> choices, std::shared_ptr<const steering> sum = {})
    : choices_(std::move(choices)), sum_(std::move(sum)) {}

  const technique& of() const override { return steering_technique; }
  const std::vector<steering_choice>& choices() const { return choices_; }
  const std::shared_ptr<const steering>& sum() const { return sum_; }

  technique_use_ptr fitted(technique_use_ptr, const generation&, const technique_limits& limits) const override {
    auto sum = library_of(limits.values).combine(choices_);
    return sum ? std::make_shared<steering_use>(choices_, std::move(sum)) : nullptr;
  }

  std::uint64_t salt() const override { return value_salt("steering", sum_ ? sum_->checksum : 0); }
  bool changes_rows() const override { return sum_ != nullptr; }

private:
  std::vector<steering_choice> choices_;
  std::shared_ptr<const steering> sum_; // null: not fitted yet
};

steering_choice read_choice(const field_reader& entry) {
  json::object object;
  if (!entry.body().get(object))
    for (auto [key, _] : object)
      if (std::ranges::find(members, std::string_view(key)) == members.end())
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

technique_use_ptr read(const field_reader& body, const technique_facts& model) {
  std::vector<steering_choice> choices;
  const auto list = body.list("steering", most_steering_choices);
  if (!list)
    return nullptr;
  for (auto item : *list) {
    const auto name = "steering[" + std::to_string(choices.size()) + "]";
    if (!item.is_object())
      body.refuse(name, "an object", item);
    choices.push_back(read_choice(field_reader(item, name)));
  }
  library_of(&model.values).check(choices);
  return steered_by(std::move(choices));
}

technique_use_ptr of_flags(const flag_values& flags) {
  std::vector<steering_choice> choices;
  for (const auto& text : texts_of(flags, "steering"))
    choices.push_back(parse_steering_choice(text));
  return steered_by(std::move(choices));
}

std::shared_ptr<const void> load(const flag_values& flags, const technique_model& model) {
  const auto given = texts_of(flags, "steer");
  if (given.empty())
    return nullptr;
  if (!model.changes_rows)
    refuse_field("steer", "needs the CPU (--device cpu): " + model.device + " does not support steering vectors",
                 errc::unsupported);
  auto vectors = std::make_shared<steering_library>(model.config.layers, model.config.hidden);
  for (const auto& text : given) {
    const auto [name, file] = parse_named_file(text);
    vectors->add(name, file);
  }
  return vectors;
}

layer_hook change_rows(kernels::backend& backend, std::vector<used_rows> rows, float) {
  std::vector<steered_rows> steered;
  for (const auto& each : rows)
    steered.push_back({static_cast<const steering_use*>(each.by)->sum(), each.first_row, each.rows});
  return steer(backend, steered);
}

using option = technique_option;

constexpr auto table = std::to_array<option>({
  {"steering", option::completion | option::chat},
  {"steering", option::run, option::kind::texts, "NAME[=STRENGTH[@FIRST-LAST]]",
   "Add this vector of --steer to the output of every layer, or of layers FIRST to LAST, counted from 0; may be given "
   "several times",
   [](std::string_view text) { parse_steering_choice(text); }},
  {"steer", option::engine, option::kind::texts, "NAME=FILE",
   "A file of steering vectors, safetensors or a GGUF control vector, for requests to choose by NAME; may be given "
   "several times",
   [](std::string_view text) { parse_named_file(text); }, 0, 0, "", "control-vector"},
});

} // namespace

technique_use_ptr steered_by(std::vector<steering_choice> choices) {
  return choices.empty() ? nullptr : std::make_shared<steering_use>(std::move(choices));
}

std::span<const steering_choice> choices_of(const technique_use* use) {
  if (!use)
    return {};
  return static_cast<const steering_use*>(use)->choices();
}

steering_choice parse_steering_choice(std::string_view text) {
  const auto refuse = [text] {
    throw failure(errc::bad_request,
                  "must be NAME, NAME=STRENGTH or NAME=STRENGTH@FIRST-LAST, not " + visible_name(text));
  };
  const auto sign = text.find('=');
  steering_choice result{std::string(text.substr(0, sign))};
  if (result.name.empty())
    refuse();
  if (sign == text.npos)
    return result;
  auto strength = text.substr(sign + 1);
  if (const auto at = strength.find('@'); at != strength.npos) {
    const auto range = strength.substr(at + 1);
    const auto dash = range.find('-');
    if (dash == range.npos)
      refuse();
    result.first_layer = static_cast<int>(parse_integer(range.substr(0, dash), 0, most_layers));
    result.last_layer = static_cast<int>(parse_integer(range.substr(dash + 1), 0, most_layers));
    strength = strength.substr(0, at);
  }
  const auto end = strength.data() + strength.size();
  if (strength.empty() || std::from_chars(strength.data(), end, result.strength).ptr != end)
    refuse();
  return result;
}

const technique steering_technique{
  .name = "steering", .options = table, .read = read, .of_flags = of_flags, .load = load, .change_rows = change_rows};

} // namespace troupe
