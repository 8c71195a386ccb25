#include "runtime/techniques/stochastic_beams/technique.hpp"

#include "runtime/support/json/field_reader.hpp"
#include "runtime/techniques/stochastic_beams/stochastic_beam_search.hpp"

#include <array>
#include <string>

namespace troupe {

namespace {

constexpr auto name_of_option = "stochastic_beams";

class stochastic_use final : public technique_use {
public:
  const technique& of() const override { return stochastic_beams_technique; }

  void check(const sampling_params& p) const override {
    constexpr auto why = "cannot be used with `stochastic_beams`, which are ranked by their perturbed log-probability";
    refuse_if(p.num_beams == 0, name_of_option, "needs `use_beam_search`");
    refuse_if(p.greedy(), "temperature", "must be above 0 with `stochastic_beams`, which are samples");
    refuse_if(p.length_penalty != 1, "length_penalty", why);
    refuse_if(p.stopping != early_stopping::off, "early_stopping", why);
    refuse_if(p.num_beam_groups != 1, "num_beam_groups", why);
  }

  std::optional<group_kind> group() const override { return group_kind{.field = name_of_option, .ranked = true}; }
  std::unique_ptr<group_strategy> judge(group_start start) const override {
    return std::make_unique<stochastic_beam_search>(std::move(start.params), std::move(start.eos_ids), start.prompt,
                                                    std::move(start.text));
  }

private:
  static void refuse_if(bool wrong, const std::string& field, const char* why) {
    if (wrong)
      throw failure(errc::bad_request, "`" + field + "` " + why, field);
  }
};

technique_use_ptr read(const field_reader& body, const technique_facts&) {
  return body.boolean(name_of_option).value_or(false) ? stochastic_beams() : nullptr;
}

technique_use_ptr of_flags(const flag_values& flags) {
  return flags.contains(name_of_option) ? stochastic_beams() : nullptr;
}

using option = technique_option;

constexpr auto table = std::to_array<option>({
  {name_of_option, option::completion | option::chat | option::run, option::kind::on, "",
   "Beams are distinct samples rather than the likeliest answers"},
});

} // namespace

technique_use_ptr stochastic_beams() { return std::make_shared<stochastic_use>(); }

const technique stochastic_beams_technique{
  .name = name_of_option, .options = table, .read = read, .of_flags = of_flags};

} // namespace troupe
