// Which tensors of a source something else than its layers is computed from, so that nobody is told that they are not
// used. Pure.
#pragma once

#include "runtime/import/model_source.hpp"

#include <set>
#include <string>

namespace troupe {

/// The tensors of heads: for further tokens (multi-token prediction), and over pooled states (classifiers, Dense layers
/// of sentence encoders). Empty for those of a head that cannot be read, which who reads it says.
std::set<std::string> head_tensors(const model_source& source);

} // namespace troupe
