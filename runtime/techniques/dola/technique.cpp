#include "runtime/techniques/dola/technique.hpp"

#include "runtime/sampling/row_contrast.hpp"
#include "runtime/scheduling/request.hpp"
#include "runtime/support/json/field_reader.hpp"
#include "runtime/support/text/integer_text.hpp"
#include "runtime/techniques/dola/dola_rows.hpp"

#include <array>
#include <limits>
#include <string>

namespace troupe {

namespace {

constexpr auto dola_field = "dola_layers";
constexpr int most_int = std::numeric_limits<int>::max();

class dola_use final : public technique_use {
public:
  explicit dola_use(dola_layers layers) : layers_(std::move(layers)) {}

  const technique& of() const override { return dola_technique; }
  const dola_layers& layers() const { return layers_; }

  void check(const sampling_params& p) const override {
    const auto refuse = [](const std::string& other) {
      throw failure(errc::bad_request, "`dola_layers` cannot be used with " + other, dola_field);
    };
    if (const auto together = p.group())
      refuse(together->name());
    for (const auto& other : p.techniques)
      if (const auto field = other->contrasts(); !field.empty() && other.get() != this)
        refuse("`" + std::string(field) + "`");
  }

  technique_use_ptr fitted(technique_use_ptr, const generation& asked, const technique_limits& limits) const override {
    if (!limits.looks_inside)
      throw failure(errc::unsupported, "`dola_layers` is not supported on this device, only on the CPU (--device cpu)",
                    dola_field);
    auto layers = layers_.of_model(limits.layers, limits.tied);
    const bool chooses = asked.embed == pooling::none && !asked.sampling.scores_only();
    return chooses ? contrasted_with(std::move(layers)) : nullptr;
  }

  std::string_view contrasts() const override { return dola_field; }
  void contrast(std::span<const float>, std::span<const float> inner, std::span<float> scores) const override {
    contrast_with_layer(inner, scores);
  }

private:
  dola_layers layers_;
};

technique_use_ptr read(const field_reader& body, const technique_facts&) {
  const auto found = body.find(dola_field);
  if (!found)
    return nullptr;
  std::string_view word;
  if (!found->get(word))
    return contrasted_with(dola_layers(word));
  json::array list;
  if (found->get(list))
    body.refuse(dola_field, "\"low\", \"high\" or a list of layers", *found);
  check_entries(body, dola_field, list.size(), most_dola_layers); // before copying it
  return contrasted_with(dola_layers(read_ids(body, dola_field, list, 0, most_int)));
}

/// "low", "high" or layers between commas.
dola_layers parsed(std::string_view text) {
  if (text.find_first_not_of("0123456789, ") != text.npos)
    return dola_layers(text);
  std::vector<int> layers;
  for (const auto layer : parse_integers(text, 0, most_int))
    layers.push_back(static_cast<int>(layer));
  return dola_layers(std::move(layers));
}

technique_use_ptr of_flags(const flag_values& flags) {
  return flags.contains(dola_field) ? contrasted_with(parsed(text_of(flags, dola_field))) : nullptr;
}

std::unique_ptr<inner_rows> look_inside(decoder& graph, kernels::backend& backend) {
  return std::make_unique<dola_rows>(graph, backend);
}

using option = technique_option;

constexpr auto table = std::to_array<option>({
  {dola_field, option::completion | option::chat},
  {dola_field, option::run, option::kind::text, "LAYERS",
   "DoLa: lead answers away from what inner layers would say: low, high, or layers separated by commas, where 0 is the "
   "embedding"},
});

} // namespace

technique_use_ptr contrasted_with(dola_layers layers) {
  return layers ? std::make_shared<dola_use>(std::move(layers)) : nullptr;
}

const dola_layers* layers_of(const technique_use* use) {
  return use ? &static_cast<const dola_use*>(use)->layers() : nullptr;
}

const technique dola_technique{.name = "dola",
                               .options = table,
                               .read = read,
                               .of_flags = of_flags,
                               .look_inside = look_inside,
                               .inner_memory = dola_rows::memory};

} // namespace troupe
