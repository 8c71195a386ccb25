#include "runtime/techniques/stochastic_beams/technique.hpp"

#include "runtime/sampling/sampling_ranges.hpp"
#include "runtime/support/json/field_reader.hpp"
#include "runtime/techniques/beams/technique.hpp"
#include "runtime/techniques/stochastic_beams/stochastic_beam_search.hpp"

#include <array>
#include <string>

namespace troupe {

namespace {

constexpr auto name_of_option = "stochastic_beams";

class stochastic_use final : public technique_use {
public:
  explicit stochastic_use(int width) : width_(width) {}

  const technique& of() const override { return stochastic_beams_technique; }

  technique_use_ptr settled(technique_use_ptr, sampling_params& params, const given_fields& given) const override {
    const auto how = settled_beams(asked_of(params.techniques), params, given, name_of_option);
    constexpr auto why = "cannot be used with `stochastic_beams`, which are ranked by their perturbed log-probability";
    refuse_if(how.width == 0, name_of_option, "needs `use_beam_search`");
    refuse_if(how.length_penalty != 1, "length_penalty", why);
    refuse_if(how.stopping != early_stopping::off, "early_stopping", why);
    refuse_if(how.groups != 1, "num_beam_groups", why);
    refuse_if(how.diversity_penalty != 0, "diversity_penalty", why);
    return stochastic_beams(how.width);
  }

  void check(const sampling_params& p) const override {
    refuse_if(width_ < 1 || width_ > sampling_fields::most_sequences, "num_beams",
              "must be between 1 and 128 with `stochastic_beams`");
    refuse_if(p.greedy(), "temperature", "must be above 0 with `stochastic_beams`, which are samples");
    check_beside_beams(p, width_);
  }

  std::optional<group_kind> group() const override {
    return group_kind{.field = name_of_option,
                      .called = "beams, which are chosen by the model's own probabilities",
                      .width = width_,
                      .counted_by = "num_beams",
                      .ranked = true,
                      .too_large = beams_too_large};
  }
  std::unique_ptr<group_strategy> judge(group_start start) const override {
    return std::make_unique<stochastic_beam_search>(width_, std::move(start.params), std::move(start.eos_ids),
                                                    start.prompt, std::move(start.text));
  }

private:
  static void refuse_if(bool wrong, const std::string& field, const char* why) {
    if (wrong)
      refuse_field(field, why);
  }

  int width_; // 0: not settled yet
};

technique_use_ptr read(const field_reader& body, const technique_facts&) {
  return body.boolean(name_of_option).value_or(false) ? stochastic_beams(0) : nullptr;
}

technique_use_ptr of_flags(const flag_values& flags) {
  return flags.contains(name_of_option) ? stochastic_beams(0) : nullptr;
}

using option = technique_option;

constexpr auto table = std::to_array<option>({
  {name_of_option, option::completion | option::chat | option::run, option::kind::on, "",
   "Beams are distinct samples rather than the likeliest answers"},
});

} // namespace

technique_use_ptr stochastic_beams(int width) { return std::make_shared<stochastic_use>(width); }

const technique stochastic_beams_technique{
  .name = name_of_option, .options = table, .read = read, .of_flags = of_flags};

} // namespace troupe
