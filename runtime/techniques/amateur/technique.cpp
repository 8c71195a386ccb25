#include "runtime/techniques/amateur/technique.hpp"

#include "runtime/sampling/row_contrast.hpp"
#include "runtime/scheduling/request.hpp"
#include "runtime/support/json/field_reader.hpp"
#include "runtime/support/text/number_text.hpp"
#include "runtime/techniques/amateur/contrasting_runner.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <sstream>
#include <string>

namespace troupe {

namespace {

constexpr auto flag = "amateur";
constexpr auto beta_field = "contrastive_beta", alpha_field = "contrastive_alpha";
constexpr float most_beta = 100, most_alpha = 1;

[[noreturn]] void refuse(const std::string& field, const std::string& rule, float found) {
  classic<std::ostringstream> why;
  why << '`' << field << "` must be " << rule << ", not " << found << '.';
  throw failure(errc::bad_request, why.str(), field);
}

/// Where it cannot be with the model, or the prompt with it.
[[noreturn]] void refuse(const std::string& why, const char* field) { throw failure(errc::bad_request, why, field); }

class amateur_use final : public technique_use {
public:
  explicit amateur_use(const contrast_options& how, int context = 0) : how_(how), context_(context) {}

  const technique& of() const override { return amateur_technique; }
  const contrast_options& how() const { return how_; }

  // Written so that a NaN is refused.
  void check(const sampling_params& p) const override {
    if (!(how_.beta >= 0 && how_.beta <= most_beta))
      refuse(beta_field, "between 0 and 100", how_.beta);
    if (!(how_.alpha >= 0 && how_.alpha <= most_alpha))
      refuse(alpha_field, "between 0 and 1", how_.alpha);
    if (how_.beta == 0)
      refuse(beta_field, "above 0 with `contrastive_alpha`", how_.beta);
    if (const auto together = p.group())
      refuse(beta_field, "0 with " + together->name(), how_.beta);
  }

  technique_use_ptr fitted(technique_use_ptr, const generation& asked, const technique_limits& limits) const override {
    if (asked.embed != pooling::none || asked.sampling.scores_only())
      return nullptr; // nothing is chosen
    const auto* amateur = limits.values ? limits.values->find<second_facts>(amateur_technique) : nullptr;
    if (!amateur)
      refuse("`contrastive_beta` needs an amateur model, given with --amateur", beta_field);
    const auto tokens = asked.prompt.size();
    if (tokens >= static_cast<std::size_t>(amateur->context))
      refuse("the prompt has " + std::to_string(tokens) + " tokens; with `contrastive_beta` at most " +
               std::to_string(amateur->context - 1) + " fit into the amateur model's context of " +
               std::to_string(amateur->context),
             "prompt");
    for (const auto t : asked.prompt)
      if (t >= amateur->vocab)
        refuse("the prompt names token " + std::to_string(t) + ", but the amateur model's vocabulary has " +
                 std::to_string(amateur->vocab),
               "prompt");
    return std::make_shared<amateur_use>(how_, amateur->context);
  }

  int context() const override { return context_; }
  std::string_view needs_tokens() const override {
    return "cannot be contrasted with an amateur, which has embeddings of its own";
  }
  std::uint64_t salt() const override { return second_salt; }
  std::string_view contrasts() const override { return beta_field; }
  void contrast(std::span<const float> expert, std::span<const float> amateur, std::span<float> scores) const override {
    constexpr auto never = -std::numeric_limits<float>::infinity();
    const auto shared = std::min(amateur.size(), scores.size());
    const double least = static_cast<double>(largest_score(scores.first(shared))) +
      std::log(static_cast<double>(how_.alpha));
    for (std::size_t i = 0; i < shared; ++i) {
      const double score = scores[i], e = expert[i], a = amateur[i];
      const bool plausible = score >= least && std::isfinite(score);
      if (!plausible)
        scores[i] = never;
      else if (std::isfinite(a))
        scores[i] = static_cast<float>(score + how_.beta * (e - a));
    }
    std::ranges::fill(scores.subspan(shared), never);
  }

private:
  contrast_options how_;
  int context_; // of the amateur; 0: not fitted yet
};

technique_use_ptr read(const field_reader& body, const technique_facts&) {
  contrast_options to;
  to.beta = static_cast<float>(body.number(beta_field, {0, most_beta}).value_or(to.beta));
  to.alpha = static_cast<float>(body.number(alpha_field, {0, most_alpha}).value_or(to.alpha));
  return contrasted_by(to);
}

technique_use_ptr of_flags(const flag_values& flags) {
  const contrast_options usual;
  return contrasted_by({number_of(flags, beta_field, usual.beta), number_of(flags, alpha_field, usual.alpha)});
}

std::shared_ptr<const void> load(const flag_values& flags, const technique_model& model) {
  if (model.own_memory && !text_of(flags, flag).empty())
    throw failure(errc::unsupported, "an amateur model runs on the CPU (--device cpu), not on " + model.device, flag);
  return nullptr; // it is loaded as a second model
}

std::unique_ptr<step_runner> run_beside(std::unique_ptr<step_runner> own, std::unique_ptr<step_runner> second,
                                        int vocab_of_second) {
  return std::make_unique<contrasting_runner>(std::move(own), std::move(second), vocab_of_second);
}

using option = technique_option;

constexpr auto table = std::to_array<option>({
  {beta_field, option::completion | option::chat | option::setting, option::kind::number, "",
   "Contrastive decoding: how strongly to lead away from what --amateur would say; 0: off", nullptr, 0, most_beta, "0"},
  {alpha_field, option::completion | option::chat | option::setting, option::kind::number, "",
   "With --contrastive-beta: drop tokens less likely than this fraction of the likeliest", nullptr, 0, most_alpha,
   "0.1"},
  {flag, option::second, option::kind::text, "PATH",
   "A weaker model with the same vocabulary, for --contrastive-beta to lead answers away from"},
});

} // namespace

technique_use_ptr contrasted_by(const contrast_options& how) {
  const bool silent = how.beta == 0 && how.alpha == contrast_options().alpha;
  return silent ? nullptr : std::make_shared<amateur_use>(how);
}

const contrast_options* contrast_of(const technique_use* use) {
  return use ? &static_cast<const amateur_use*>(use)->how() : nullptr;
}

const technique amateur_technique{
  .name = flag, .options = table, .read = read, .of_flags = of_flags, .load = load, .run_beside = run_beside};

} // namespace troupe
