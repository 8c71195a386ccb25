#include "runtime/model/model_config.hpp"

#include "runtime/model/default_sampling.hpp"
#include "runtime/model/families/family.hpp"
#include "runtime/model/families/text_part.hpp"
#include "runtime/sampling/sampling_table.hpp"
#include "runtime/support/json/json_reader.hpp"
#include "runtime/support/text/number_text.hpp"

#include <algorithm>
#include <sstream>

namespace troupe {

namespace {

model_config parse_text(const json::document& document) {
  const json::reader config(document);
  const auto& family = family_of(config);
  parse_quantised_storage(document); // refuses unsupported quantisation
  model_config model;
  model.family = family.name;
  apply_traits(family, model);
  family.read(config, model);
  return model;
}

/// `given`, or the nearest value that a request may ask for, with a remark.
template <class T>
T within(const std::string& label, T given, T least, T most, std::vector<std::string>& remarks) {
  const T taken = std::clamp(given, least, most);
  if (taken != given) {
    classic<std::ostringstream> line;
    line << label << " is " << given << ", taken as " << taken << ": it must be from " << least << " to " << most;
    remarks.push_back(line.str());
  }
  return taken;
}

void read_sampling_defaults(const json::reader& from, generation_defaults& to) {
  sampling_fields::for_each([&]<class T>(const sampling_field<T>& field) {
    if (!field.sources.checkpoint)
      return;
    using limits = std::numeric_limits<typename sampling_field<T>::bound>;
    const auto given = [&] {
      if constexpr (std::is_integral_v<T>)
        return from.integer(field.name, limits::min(), limits::max());
      else
        return from.number(field.name, limits::lowest(), limits::max());
    }();
    if (!given)
      return;
    to.sampling.*
      field.member = static_cast<T>(within(from.label(field.name), *given, field.least, field.most, to.remarks));
    if (decides_draws(field.name))
      to.sampling_source = "generation_config.json";
  });
}

} // namespace

generation_defaults parse_generation_config(const json::document* generation, const json::document& config) {
  constexpr auto max_id = std::numeric_limits<token_id>::max();
  generation_defaults result;
  std::optional<std::vector<token_id>> stops;
  if (generation) {
    const json::reader given(*generation);
    stops = given.integers("eos_token_id", 0, max_id);
    given.boolean("do_sample", false); // only checked: requests decide by the temperature
    read_sampling_defaults(given, result);
  }
  if (!stops)
    stops = json::reader(config).integers("eos_token_id", 0, max_id);
  result.stops = stops.value_or(std::vector<token_id>{});
  return result;
}

model_config parse_model_config(const json::document& document) {
  const auto text = find_text(document);
  if (!text)
    return parse_text(document);
  auto model = parse_text(text->config);
  model.multimodal = text->whole;
  return model;
}

int indexer_config::top_within(int context) const {
  const auto whole = [&](int size) { return (std::int64_t{context} + size - 1) / size * size; };
  if (block > 0)
    return static_cast<int>(std::min<std::int64_t>(top, whole(block)));
  // With groups, a row attends to whole ones and to all of the last but one position, at least to a whole one.
  const auto all = group > 1 ? std::max(whole(group) + group, std::int64_t{2} * group) - 1 : std::int64_t{context};
  return static_cast<int>(std::min<std::int64_t>(top, all));
}

checkpoint_config read_config(const std::filesystem::path& folder) {
  auto config = json::document::load(folder / "config.json");
  auto text = find_text(config);
  if (text)
    config = std::move(text->config);
  std::optional<json::document> generation;
  if (const auto file = folder / "generation_config.json"; is_there(file))
    generation = json::document::load(file);
  checkpoint_config result{parse_text(config), parse_generation_config(generation ? &*generation : nullptr, config),
                           parse_quantised_storage(config)};
  if (const auto file = folder / "hf_quant_config.json"; !result.quantised && is_there(file))
    result.quantised = parse_modelopt_storage(json::document::load(file));
  if (text)
    result.model.multimodal = text->whole;
  return result;
}

} // namespace troupe
