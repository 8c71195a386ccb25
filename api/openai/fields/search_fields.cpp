#include "api/openai/fields/search_fields.hpp"

#include "runtime/sampling/sampling_ranges.hpp"
#include "runtime/sampling/search_options.hpp"
#include "runtime/support/error.hpp"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>

namespace troupe {

namespace {

constexpr int usual_simulations = 64;
constexpr auto members_of_search = std::to_array<std::string_view>(
  {"method", "simulations", "branching", "parallel", "exploration", "length_penalty", "value"});

} // namespace

void read_search(const field_reader& body, const served_model& model, sampling_params& params) {
  using namespace sampling_fields;
  const auto search = body.object("search");
  if (!search)
    return;
  for (auto [key, value] : json::object(search->body()))
    if (std::ranges::find(members_of_search, std::string_view(key)) == members_of_search.end())
      body.refuse("search", "has no member \"" + std::string(key).substr(0, 64) + '"');
  if (const auto method = search->text("method"); method && *method != "mcts")
    body.refuse("search", "may only have \"mcts\" as `method`, not \"" + std::string(*method).substr(0, 64) + '"');
  auto& to = params.search;
  if (const auto value = search->text("value"); value && *value == "model")
    to.value = search_value::model;
  else if (value && *value != "likelihood")
    body.refuse("search",
                "must have \"likelihood\" or \"model\" as `value`, not \"" + std::string(*value).substr(0, 64) + '"');
  if (to.value == search_value::model && !model.judges)
    throw failure(errc::unsupported,
                  "`search` cannot have \"model\" as `value`: this server has no reward model, which --reward-model "
                  "gives it; \"likelihood\" can be used",
                  "search");
  const auto integer = [&](const char* key, int fallback, int most) {
    return static_cast<int>(search->integer(key, 1, most).value_or(fallback));
  };
  to.simulations = integer("simulations", usual_simulations, most_simulations);
  to.branching = integer("branching", to.branching, most_branching);
  to.parallel = integer("parallel", to.parallel, most_sequences);
  to.exploration = static_cast<float>(search->number("exploration", {0, 100}).value_or(to.exploration));
  to.length_penalty = static_cast<float>(search->number("length_penalty", {-10, 10}).value_or(to.length_penalty));
}

} // namespace troupe
