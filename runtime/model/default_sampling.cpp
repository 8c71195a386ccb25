#include "runtime/model/default_sampling.hpp"

#include "runtime/sampling/sampling_table.hpp"
#include "runtime/support/text/number_text.hpp"

#include <algorithm>
#include <array>

namespace troupe {

bool decides_draws(std::string_view parameter) {
  constexpr std::array<std::string_view, 8> names{"temperature", "top_k",          "top_p",      "min_p",
                                                  "typical_p",   "epsilon_cutoff", "eta_cutoff", "xtc_probability"};
  return std::ranges::find(names, parameter) != names.end();
}

sampling_params default_sampling(const generation_defaults& of, sampling_convention users) {
  auto params = of.sampling;
  if (of.sampling_source.empty() && users == sampling_convention::local) {
    params.temperature = 0.8f;
    params.top_k = 40;
    params.top_p = 0.95f;
    params.min_p = 0.05f;
  }
  return params;
}

std::string source_of_sampling(const generation_defaults& of) {
  return of.sampling_source.empty() ? "defaults, as the model names none" : of.sampling_source;
}

std::vector<std::pair<std::string, std::string>> named_sampling(const sampling_params& of) {
  std::vector<std::pair<std::string, std::string>> named;
  sampling_fields::for_each([&](const auto& field) {
    const auto value = of.*field.member;
    if (field.name == "temperature" || (field.sources.checkpoint && value != sampling_params{}.*field.member))
      named.emplace_back(field.name, shortest_digits(value));
  });
  return named;
}

std::string told_sampling(const sampling_params& of) {
  std::string text;
  for (const auto& [name, value] : named_sampling(of))
    text += (text.empty() ? "" : ", ") + name + ' ' + value;
  return text;
}

} // namespace troupe
