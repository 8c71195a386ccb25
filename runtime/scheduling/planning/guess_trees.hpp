// Guesses that branch, as rows of a step. Pure functions.
#pragma once

#include "runtime/techniques/guesser.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace troupe {

/// Guesses behind each other, at most.
std::int32_t depth_of(const guess_run& guesses);

/// How many of the first guesses are one line.
std::int32_t first_line(const guess_run& guesses);

/// Leaves the first guesses: at most `most`, at most `depth` behind each other, and only those of the first line where
/// trees are not computed. What is one line then needs no parents.
void fit(guess_run& guesses, std::int32_t most, std::int32_t depth, bool trees);

/// The tree of a sequence's rows in a step (kernels::row_tree): `known` rows of known tokens, then the guesses.
std::vector<std::int32_t> row_parents(std::int32_t known, std::span<const std::int32_t> guesses);

} // namespace troupe
