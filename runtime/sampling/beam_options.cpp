#include "runtime/sampling/beam_options.hpp"

#include "runtime/support/error.hpp"

#include <string>

namespace troupe {

namespace {

[[noreturn]] void refuse(const std::string& field, const std::string& why) {
  throw failure(errc::bad_request, "`" + field + "` " + why, field);
}

void refuse_if(bool wrong, const char* field, const char* why) {
  if (wrong)
    refuse(field, why);
}

std::string in_brackets(int value) { return " (" + std::to_string(value) + ")"; }

void check_without_beams(const sampling_params& p) {
  constexpr auto why = "needs `use_beam_search`";
  refuse_if(p.beam_sampling, "do_sample", why);
  refuse_if(p.num_beam_groups != 1, "num_beam_groups", why);
  refuse_if(p.diversity_penalty != 0, "diversity_penalty", why);
  refuse_if(p.length_penalty != 1, "length_penalty", why);
  refuse_if(p.stopping != early_stopping::off, "early_stopping", why);
  if (p.best_of != 0 && p.best_of < p.n)
    refuse("best_of", "must be at least `n`" + in_brackets(p.n) + ", not " + std::to_string(p.best_of));
  refuse_if(p.rank != best_of_rank::cumulative && p.best_of <= p.n, "best_of_rank", "needs `best_of` to be above `n`");
}

void check_groups(const sampling_params& p) {
  if (p.num_beams % p.num_beam_groups != 0)
    refuse("num_beam_groups",
           "must divide `num_beams`" + in_brackets(p.num_beams) + ", " + std::to_string(p.num_beam_groups) +
             " does not");
  if (p.num_beam_groups > 1)
    refuse_if(p.diversity_penalty == 0, "diversity_penalty",
              "must be above 0 with several `num_beam_groups`, which else all find the same");
  else
    refuse_if(p.diversity_penalty != 0, "diversity_penalty", "needs `num_beam_groups` to be at least 2");
}

/// Without draws, temperature and filters have no effect.
void refuse_filters(const sampling_params& p) {
  constexpr auto why = "needs `do_sample` with beams, which else are not drawn";
  refuse_if(!p.greedy() && p.temperature != 1, "temperature", why);
  refuse_if(p.top_k > 0, "top_k", why);
  refuse_if(p.top_p != 1, "top_p", why);
  refuse_if(p.min_p != 0, "min_p", why);
  refuse_if(p.dynatemp_range != 0, "dynatemp_range", why);
  refuse_if(p.smoothing_factor != 0, "smoothing_factor", why);
  refuse_if(p.top_n_sigma > 0, "top_n_sigma", why);
  refuse_if(p.typical_p != 1, "typical_p", why);
  refuse_if(p.epsilon_cutoff != 0, "epsilon_cutoff", why);
  refuse_if(p.eta_cutoff != 0, "eta_cutoff", why);
  refuse_if(p.top_a != 0, "top_a", why);
  refuse_if(!p.samplers.is_default(), "samplers", why);
}

void check_law_of_choice(const sampling_params& p) {
  constexpr auto why = "cannot be used with beams";
  refuse_if(p.xtc_probability != 0, "xtc_probability", why);
  refuse_if(p.mirostat != 0, "mirostat", why);
  if (p.own_beams())
    return;
  if (p.beam_sampling) {
    refuse_if(p.greedy(), "temperature", "must be above 0 with `do_sample`");
    refuse_if(p.num_beam_groups != 1, "num_beam_groups", "cannot be used with `do_sample`");
  } else {
    refuse_filters(p);
  }
}

void check_with_beams(const sampling_params& p) {
  if (p.n > p.num_beams)
    refuse("n", "must be at most `num_beams`" + in_brackets(p.num_beams) + ", not " + std::to_string(p.n));
  refuse_if(p.best_of != 0, "best_of", "cannot be used with beams, whose number is `num_beams`");
  refuse_if(p.rank != best_of_rank::cumulative, "best_of_rank", "cannot be used with beams");
  check_groups(p);
  check_law_of_choice(p);
}

} // namespace

void settle_beams(sampling_params& params, std::optional<bool> use_beam_search) {
  const auto together = params.group();
  const bool own = together && together->width == 0;
  const bool asked = params.num_beams > 1 || own;
  if (use_beam_search == false && asked)
    refuse(params.num_beams > 1 ? "num_beams" : std::string(together->field),
           "needs `use_beam_search`, which is false");
  if (!use_beam_search.value_or(asked)) {
    params.num_beams = 0; // 1 is no search
    return;
  }
  if (params.num_beams == 0)
    params.num_beams = params.best_of > 0 ? params.best_of : params.n;
  if (params.best_of > 0 && params.best_of != params.num_beams)
    refuse("best_of",
           "must be `num_beams`" + in_brackets(params.num_beams) + " if both are given, not " +
             std::to_string(params.best_of));
  params.best_of = 0;
}

void settle_draws(sampling_params& params, std::optional<bool> do_sample) {
  if (params.num_beams > 0 && !params.own_beams())
    params.beam_sampling = do_sample.value_or(params.filtered());
  else if (params.num_beams == 0 && do_sample == false)
    params.temperature = 0;
}

void check_beams(const sampling_params& params) {
  if (params.num_beams > 0)
    check_with_beams(params);
  else
    check_without_beams(params);
}

early_stopping parse_early_stopping(std::string_view text) {
  if (text == "true")
    return early_stopping::on;
  if (text == "false")
    return early_stopping::off;
  if (text == "never")
    return early_stopping::never;
  refuse("early_stopping", "must be true, false or \"never\"");
}

best_of_rank parse_best_of_rank(std::string_view text) {
  if (text == "cumulative")
    return best_of_rank::cumulative;
  if (text == "mean")
    return best_of_rank::mean;
  refuse("best_of_rank", "must be \"cumulative\" or \"mean\"");
}

} // namespace troupe
