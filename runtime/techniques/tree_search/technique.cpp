#include "runtime/techniques/tree_search/technique.hpp"
#include "runtime/sampling/sampling_ranges.hpp"
#include "runtime/support/json/field_reader.hpp"
#include "runtime/support/text/integer_text.hpp"
#include "runtime/support/text/number_text.hpp"
#include "runtime/techniques/tree_search/tree_search.hpp"

#include <algorithm>
#include <array>
#include <sstream>
#include <string>

namespace troupe {

namespace {

constexpr int usual_simulations = 64;
constexpr auto members = std::to_array<std::string_view>(
  {"method", "simulations", "branching", "parallel", "exploration", "length_penalty", "value"});

template <class T>
void expect(const char* member, T value, T least, T most) {
  if (value >= least && value <= most)
    return;
  classic<std::ostringstream> why;
  why << "must have `" << member << "` between " << least << " and " << most << ", not " << value;
  refuse_field("search", why.str());
}

class search_use final : public technique_use {
public:
  explicit search_use(const search_options& how) : how_(how) {}

  const technique& of() const override { return tree_search_technique; }
  const search_options& how() const { return how_; }

  void check(const sampling_params& p) const override {
    expect("simulations", how_.simulations, 1, most_simulations);
    expect("branching", how_.branching, 1, most_branching);
    expect("parallel", how_.parallel, 1, sampling_fields::most_sequences);
    expect("exploration", how_.exploration, 0.f, 100.f);
    expect("length_penalty", how_.length_penalty, -10.f, 10.f);
    if (how_.value == search_value::model && how_.length_penalty != 0)
      refuse_field("search", "cannot have a `length_penalty` when a reward model gives the `value`");
    const auto simulations = " (" + std::to_string(how_.simulations) + ")";
    if (static_cast<long>(how_.simulations) * p.max_tokens > most_search_tokens)
      refuse_field("search",
                   "may generate at most " + std::to_string(most_search_tokens) + " tokens: lower `simulations`" +
                     simulations + " or `max_tokens` (" + std::to_string(p.max_tokens) + ")");
    if (static_cast<long>(how_.simulations) * how_.branching > most_search_nodes)
      refuse_field("search",
                   "may tell at most " + std::to_string(most_search_nodes) + " tokens apart: lower `simulations`" +
                     simulations + " or `branching` (" + std::to_string(how_.branching) + ")");
    constexpr auto why = "cannot be used with `search`";
    if (p.best_of > 0)
      refuse_field("best_of", "cannot be used with `search`, whose best `n` answers are returned");
    if (p.mirostat != 0)
      refuse_field("mirostat", why);
    for (const auto& other : p.techniques)
      if (const auto together = other->group(); together && other.get() != this)
        refuse_field(std::string(together->width_field()), why);
    if (p.n > how_.simulations)
      refuse_field("n", "must be at most the `simulations` of `search`" + simulations + ", not " + std::to_string(p.n));
  }

  technique_use_ptr fitted(technique_use_ptr self, const generation&, const technique_limits& limits) const override {
    if (how_.value == search_value::model && !limits.judges)
      refuse_field("search", "has \"model\" as `value`, but there is no reward model; give one with --reward-model");
    return self;
  }

  std::optional<group_kind> group() const override {
    return group_kind{
      .field = "search",
      .width = std::min(how_.parallel, how_.simulations),
      .ranked = true,
      .goes_back = true,
      .judged = how_.value == search_value::model,
      .too_large = "the search needs more blocks than the KV cache has: lower its `parallel`, or `max_tokens`"};
  }
  std::unique_ptr<group_strategy> judge(group_start start) const override {
    return std::make_unique<tree_search>(how_, std::move(start));
  }

private:
  search_options how_;
};

technique_use_ptr read(const field_reader& body, const technique_facts& model) {
  using namespace sampling_fields;
  const auto search = body.object("search");
  if (!search)
    return nullptr;
  for (auto [key, value] : json::object(search->body()))
    if (std::ranges::find(members, std::string_view(key)) == members.end())
      body.refuse("search", "has no member \"" + std::string(key).substr(0, 64) + '"');
  if (const auto method = search->text("method"); method && *method != "mcts")
    body.refuse("search", "may only have \"mcts\" as `method`, not \"" + std::string(*method).substr(0, 64) + '"');
  search_options to;
  if (const auto value = search->text("value"); value && *value == "model")
    to.value = search_value::model;
  else if (value && *value != "likelihood")
    body.refuse("search",
                "must have \"likelihood\" or \"model\" as `value`, not \"" + std::string(*value).substr(0, 64) + '"');
  if (to.value == search_value::model && !model.judges)
    refuse_field("search",
                 "cannot have \"model\" as `value`: this server has no reward model, which --reward-model "
                 "gives it; \"likelihood\" can be used",
                 errc::unsupported);
  const auto integer = [&](const char* key, int fallback, int most) {
    return static_cast<int>(search->integer(key, 1, most).value_or(fallback));
  };
  to.simulations = integer("simulations", usual_simulations, most_simulations);
  to.branching = integer("branching", to.branching, most_branching);
  to.parallel = integer("parallel", to.parallel, most_sequences);
  to.exploration = static_cast<float>(search->number("exploration", {0, 100}).value_or(to.exploration));
  to.length_penalty = static_cast<float>(search->number("length_penalty", {-10, 10}).value_or(to.length_penalty));
  return searched_by(to);
}

technique_use_ptr of_flags(const flag_values& flags) {
  search_options to;
  const auto integer = [&](const char* name, int& value, int most) {
    if (const auto text = text_of(flags, name); !text.empty())
      value = static_cast<int>(parse_integer(text, 0, most));
  };
  integer("simulations", to.simulations, most_simulations);
  integer("branching", to.branching, most_branching);
  if (text_of(flags, "search_value") == "model")
    to.value = search_value::model;
  return searched_by(to);
}

using option = technique_option;

constexpr auto table = std::to_array<option>({
  {"search", option::completion | option::chat | option::several},
  {"simulations", option::run, option::kind::integer, "",
   "Search the tree of answers for the likeliest one: try so many (at --temperature 0, greedily from each beginning); "
   "0: no search",
   nullptr, 0, most_simulations, "0"},
  {"branching", option::run, option::kind::integer, "",
   "With --simulations: how many tokens are told apart at each place of an answer", nullptr, 1, most_branching, "8"},
  {"search_value", option::run, option::kind::choice, "likelihood|model",
   "With --simulations: what makes an answer better, its likelihood or the score of --reward-model (model) "
   "[likelihood]"},
});

} // namespace

technique_use_ptr searched_by(const search_options& how) {
  return how.simulations == 0 ? nullptr : std::make_shared<search_use>(how);
}

const search_options* search_of(const technique_use* use) {
  return use ? &static_cast<const search_use*>(use)->how() : nullptr;
}

const technique tree_search_technique{.name = "tree_search", .options = table, .read = read, .of_flags = of_flags};

} // namespace troupe
