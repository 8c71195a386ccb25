// Monte-Carlo tree search as a technique: what a request asks of it (tree_search.hpp is how it is done).
#pragma once

#include "runtime/techniques/technique.hpp"

#include <cstdint>

namespace troupe {

extern const technique tree_search_technique;

/// What a tree search values answers by: their log-probability, or what a judge makes of their text.
enum class search_value : std::uint8_t { likelihood, model };

struct search_options {
  int simulations = 0;      // answers that are tried; 0: no search
  int branching = 8;        // likeliest tokens that are told apart at each place
  int parallel = 8;         // simulations that run side by side; another number finds others
  float exploration = 2;    // weight of what was seldom tried against what was good
  float length_penalty = 0; // an answer's likelihood is its log-probability / its length ^ length_penalty
  search_value value = search_value::likelihood;
};

inline constexpr int most_simulations = 1 << 16, most_branching = 64;

/// Bounds of what one search may cost: tokens that are generated, and tokens that its tree tells apart.
inline constexpr long most_search_tokens = 1 << 20, most_search_nodes = 1 << 18;

/// A use with these options; null: there are no simulations.
technique_use_ptr searched_by(const search_options& how);

/// The options of a use of this technique. Null: it is null.
const search_options* search_of(const technique_use* use);

} // namespace troupe
