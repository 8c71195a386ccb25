#include "runtime/techniques/beams/technique.hpp"

#include "runtime/sampling/sampling_ranges.hpp"
#include "runtime/sampling/sampling_table.hpp"
#include "runtime/support/json/field_reader.hpp"
#include "runtime/support/text/integer_text.hpp"
#include "runtime/support/text/number_text.hpp"
#include "runtime/techniques/beams/beam_search.hpp"

#include <algorithm>
#include <array>
#include <string>

namespace troupe {

namespace {

using sampling_fields::most_sequences;

constexpr double most_diversity = 100, most_length_penalty = 10;

void refuse_if(bool wrong, const char* field, const char* why) {
  if (wrong)
    refuse_field(field, why);
}

std::string in_brackets(int value) { return " (" + std::to_string(value) + ")"; }

/// Written so that a NaN is refused.
void expect_within(const char* field, double value, double least, double most) {
  if (!(value >= least && value <= most))
    refuse_field(field,
                 "must be between " + shortest_digits(least) + " and " + shortest_digits(most) + ", not " +
                   shortest_digits(value) + '.');
}

void check_ranges(const beam_options& how) {
  expect_within("num_beams", how.width, 0, most_sequences);
  expect_within("num_beam_groups", how.groups, 1, most_sequences);
  expect_within("diversity_penalty", static_cast<double>(how.diversity_penalty), 0, most_diversity);
  expect_within("length_penalty", static_cast<double>(how.length_penalty), -most_length_penalty, most_length_penalty);
}

void check_groups(const beam_options& how) {
  if (how.width % how.groups != 0)
    refuse_field("num_beam_groups",
                 "must divide `num_beams`" + in_brackets(how.width) + ", " + std::to_string(how.groups) + " does not");
  if (how.groups > 1)
    refuse_if(how.diversity_penalty == 0, "diversity_penalty",
              "must be above 0 with several `num_beam_groups`, which else all find the same");
  else
    refuse_if(how.diversity_penalty != 0, "diversity_penalty", "needs `num_beam_groups` to be at least 2");
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

/// Options that mean nothing without beams.
void refuse_without_beams(const asked_beams& asked) {
  constexpr auto why = "needs `use_beam_search`";
  const auto& how = asked.how;
  refuse_if(how.sampled, "do_sample", why);
  refuse_if(how.groups != 1, "num_beam_groups", why);
  refuse_if(how.diversity_penalty != 0, "diversity_penalty", why);
  refuse_if(how.length_penalty != 1, "length_penalty", why);
  refuse_if(how.stopping != early_stopping::off, "early_stopping", why);
}

/// The field of another technique that searches with as many sequences as beams.
std::string_view own_of(const technique_uses& uses) {
  for (const auto& use : uses)
    if (const auto together = use->group();
        &use->of() != &beams_technique && together && together->counted_by == "num_beams")
      return together->field;
  return {};
}

class beams_use final : public technique_use {
public:
  explicit beams_use(asked_beams asked) : asked_(asked) {}

  const technique& of() const override { return beams_technique; }
  const asked_beams& asked() const { return asked_; }

  technique_use_ptr settled(technique_use_ptr, sampling_params& params, const given_fields& given) const override {
    if (!own_of(params.techniques).empty())
      return nullptr; // the other one has read this one
    return beams(settled_beams(asked_, params, given, {}));
  }

  void check(const sampling_params& p) const override {
    const auto& how = asked_.how;
    check_ranges(how);
    check_beside_beams(p, how.width);
    check_groups(how);
    if (!how.sampled)
      return refuse_filters(p);
    refuse_if(p.greedy(), "temperature", "must be above 0 with `do_sample`");
    refuse_if(how.groups != 1, "num_beam_groups", "cannot be used with `do_sample`");
  }

  std::optional<group_kind> group() const override {
    return group_kind{.field = "num_beams",
                      .called = "beams, which are chosen by the model's own probabilities",
                      .width = asked_.how.width,
                      .counted_by = "num_beams",
                      .ranked = true,
                      .drawn = asked_.how.sampled,
                      .too_large = beams_too_large};
  }
  std::unique_ptr<group_strategy> judge(group_start start) const override {
    return std::make_unique<beam_search>(asked_.how, std::move(start.params), std::move(start.eos_ids), start.prompt,
                                         std::move(start.text));
  }

private:
  asked_beams asked_;
};

technique_use_ptr of_asked(const asked_beams& asked, bool anything) {
  return anything ? std::make_shared<beams_use>(asked) : nullptr;
}

constexpr auto fields = std::to_array<std::string_view>({"num_beams", "num_beam_groups", "diversity_penalty",
                                                         "length_penalty", "early_stopping", "use_beam_search",
                                                         "do_sample"});

technique_use_ptr read(const field_reader& body, const technique_facts&) {
  asked_beams asked;
  auto& how = asked.how;
  how.width = static_cast<int>(body.integer("num_beams", 0, most_sequences).value_or(0));
  how.groups = static_cast<int>(body.integer("num_beam_groups", 1, most_sequences).value_or(1));
  how.diversity_penalty = static_cast<float>(body.number("diversity_penalty", {0, most_diversity}).value_or(0));
  how.length_penalty = static_cast<float>(
    body.number("length_penalty", {-most_length_penalty, most_length_penalty}).value_or(1));
  if (const auto stopping = body.find("early_stopping")) {
    if (!stopping->is_bool() && !stopping->is_string())
      body.refuse("early_stopping", "true, false or \"never\"", *stopping);
    how.stopping = parse_early_stopping(!stopping->is_bool() ? std::string_view(*stopping)
                                          : bool(*stopping)  ? "true"
                                                             : "false");
  }
  asked.search = body.boolean("use_beam_search");
  asked.drawn = body.boolean("do_sample");
  return of_asked(asked, std::ranges::any_of(fields, [&](auto field) { return body.has(field); }));
}

technique_use_ptr of_flags(const flag_values& flags) {
  asked_beams asked;
  auto& how = asked.how;
  const auto text = [&](const char* name, auto take) {
    if (const auto given = text_of(flags, name); !given.empty())
      take(given);
  };
  text("num_beams", [&](auto& given) { how.width = static_cast<int>(parse_integer(given, 0, most_sequences)); });
  text("num_beam_groups", [&](auto& given) { how.groups = static_cast<int>(parse_integer(given, 1, most_sequences)); });
  how.diversity_penalty = number_of(flags, "diversity_penalty", how.diversity_penalty);
  how.length_penalty = number_of(flags, "length_penalty", how.length_penalty);
  text("early_stopping", [&](auto& given) { how.stopping = parse_early_stopping(given); });
  if (flags.contains("use_beam_search"))
    asked.search = true;
  if (flags.contains("do_sample"))
    asked.drawn = true;
  return of_asked(asked, std::ranges::any_of(fields, [&](auto field) { return flags.contains(field); }));
}

using option = technique_option;

constexpr int anywhere = option::completion | option::chat | option::run;
constexpr int setting = option::completion | option::chat | option::setting;

constexpr auto table = std::to_array<option>({
  {"num_beams", setting | option::several, option::kind::integer, "",
   "Search for the likeliest answers with this many beams; 0: sample instead", nullptr, 0, most_sequences, "0"},
  {"num_beam_groups", setting, option::kind::integer, "",
   "Divide the beams into this many groups that avoid each other's tokens", nullptr, 1, most_sequences, "1"},
  {"diversity_penalty", setting, option::kind::number, "",
   "With --num-beam-groups: lower a token's score by this much for each beam of an earlier group that chose it",
   nullptr, 0, most_diversity, "0"},
  {"length_penalty", setting, option::kind::number, "",
   "Divide a beam's log-probability by its length to this power; above 0 favours longer answers", nullptr,
   -most_length_penalty, most_length_penalty, "1"},
  {"use_beam_search", anywhere | option::several, option::kind::on, "",
   "Search for the likeliest answers, with as many beams as answers unless --num-beams is given"},
  {"do_sample", anywhere, option::kind::on, "",
   "With --num-beams or --use-beam-search: draw how beams go on, as --temperature and filters ask for anyway"},
  {"early_stopping", anywhere, option::kind::choice, "true|false|never",
   "End a beam search when there are enough answers (true), when the running beams are no better (false), or when "
   "no better answer is possible (never) [false]"},
});

} // namespace

technique_use_ptr beams(const beam_options& how) { return of_asked({.how = how}, how.width != 0); }

const beam_options* beams_of(const sampling_params& params) {
  const auto* use = params.techniques.find<beams_use>(beams_technique);
  return use ? &use->asked().how : nullptr;
}

asked_beams asked_of(const technique_uses& uses) {
  const auto* use = uses.find<beams_use>(beams_technique);
  return use ? use->asked() : asked_beams{};
}

beam_options settled_beams(const asked_beams& asked, sampling_params& params, const given_fields& given,
                           std::string_view own) {
  auto how = asked.how;
  const bool wanted = how.width > 1 || !own.empty(); // 1 is no search
  if (asked.search == false && wanted)
    refuse_field(how.width > 1 ? "num_beams" : std::string(own), "needs `use_beam_search`, which is false");
  if (!asked.search.value_or(wanted)) {
    refuse_without_beams(asked);
    if (asked.drawn == false)
      params.temperature = 0;
    return {};
  }
  if (how.width == 0)
    how.width = params.best_of > 0 ? params.best_of : params.n;
  if (params.best_of > 0 && params.best_of != how.width)
    refuse_field("best_of",
                 "must be `num_beams`" + in_brackets(how.width) + " if both are given, not " +
                   std::to_string(params.best_of));
  params.best_of = 0;
  sampling_fields::for_each([&](const auto& field) {
    if (field.sources.checkpoint && !given(field.name))
      params.*field.member = sampling_params{}.*field.member;
  });
  how.sampled = own.empty() && asked.drawn.value_or(params.filtered());
  return how;
}

void check_beside_beams(const sampling_params& p, int width) {
  if (p.n > width)
    refuse_field("n", "must be at most `num_beams`" + in_brackets(width) + ", not " + std::to_string(p.n));
  refuse_if(p.best_of != 0, "best_of", "cannot be used with beams, whose number is `num_beams`");
  refuse_if(p.rank != best_of_rank::cumulative, "best_of_rank", "cannot be used with beams");
  refuse_if(p.xtc_probability != 0, "xtc_probability", "cannot be used with beams");
  refuse_if(p.mirostat != 0, "mirostat", "cannot be used with beams");
}

early_stopping parse_early_stopping(std::string_view text) {
  if (text == "true")
    return early_stopping::on;
  if (text == "false")
    return early_stopping::off;
  if (text == "never")
    return early_stopping::never;
  refuse_field("early_stopping", "must be true, false or \"never\"");
}

const technique beams_technique{.name = "beams", .options = table, .read = read, .of_flags = of_flags};

} // namespace troupe
