// The requests that simulated clients send: a fixed repertoire of small ones that share prompts, so that each is run alone once and
// compared many times.
#pragma once

#include "runtime/engine/generation.hpp"

#include <memory>
#include <string>

namespace troupe::simulation {

inline constexpr int templates = 600;
inline constexpr int longest_context = 96; // tokens of prompt and answer
inline constexpr int most_sequences = 4;   // of one request

/// The same for the same number; clients of one share the guide's source, as the prompts of one body do.
generation request_of(int number);

/// Whether its answers are valued by a judge.
bool wants_judge(const generation& g);

/// Whether it names an adapter, or steering vectors.
bool wants_variants(const generation& g);

/// A line about it.
std::string describe(const generation& g);

} // namespace troupe::simulation
