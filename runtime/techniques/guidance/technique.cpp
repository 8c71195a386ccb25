#include "runtime/techniques/guidance/technique.hpp"

#include "runtime/support/json/field_reader.hpp"
#include "runtime/support/text/number_text.hpp"
#include "runtime/techniques/guidance/guided_pair.hpp"

#include <array>
#include <sstream>
#include <string>

namespace troupe {

namespace {

constexpr auto scale_field = "guidance_scale";
constexpr float most_scale = 100;

class guidance_use final : public technique_use {
public:
  explicit guidance_use(float scale) : scale_(scale) {}

  const technique& of() const override { return guidance_technique; }
  float scale() const { return scale_; }

  void check(const sampling_params& p) const override {
    if (!(scale_ >= 0 && scale_ <= most_scale)) {
      classic<std::ostringstream> why;
      why << "must be between 0 and 100, not " << scale_ << '.';
      refuse_field(scale_field, why.str());
    }
    for (const auto& other : p.techniques)
      if (const auto together = other->group(); together && other.get() != this)
        refuse_field(scale_field, "must be 1 with " + together->name());
    const auto several = [](int value) { return "must be 1 with `guidance_scale`, not " + std::to_string(value); };
    if (p.n > 1)
      refuse_field("n", several(p.n));
    if (p.best_of > 1)
      refuse_field("best_of", several(p.best_of));
  }

  std::optional<group_kind> group() const override {
    return group_kind{
      .field = scale_field,
      .width = 2,
      .twin = true,
      .too_large = "prompt, negative prompt and answer need more blocks than the KV cache has: lower `max_tokens`"};
  }
  std::unique_ptr<group_strategy> judge(group_start start) const override {
    return std::make_unique<guided_pair>(scale_, std::move(start));
  }

private:
  float scale_;
};

technique_use_ptr read(const field_reader& body, const technique_facts&) {
  const auto scale = body.number(scale_field, {0, most_scale});
  if (!scale && body.has("negative_prompt"))
    body.refuse("negative_prompt", "needs `guidance_scale`");
  return guided_by(static_cast<float>(scale.value_or(1)));
}

technique_use_ptr of_flags(const flag_values& flags) { return guided_by(number_of(flags, scale_field, 1)); }

using option = technique_option;

constexpr auto table = std::to_array<option>({
  {scale_field, option::completion | option::chat | option::run, option::kind::number, "",
   "Classifier-free guidance: how strongly to lead away from --negative-prompt; 1: off [1]", nullptr, 0, most_scale},
});

} // namespace

technique_use_ptr guided_by(float scale) { return scale == 1 ? nullptr : std::make_shared<guidance_use>(scale); }

float guidance_scale_of(const technique_use* use) { return use ? static_cast<const guidance_use*>(use)->scale() : 1; }

const technique guidance_technique{.name = "guidance", .options = table, .read = read, .of_flags = of_flags};

} // namespace troupe
