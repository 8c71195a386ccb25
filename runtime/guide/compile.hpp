// Turns the sources of guides into grammars. One function per kind of source; compile.cpp chooses.
#pragma once

#include "runtime/guide/grammar/grammar.hpp"
#include "runtime/guide/guide_source.hpp"
#include "runtime/guide/limits.hpp"

namespace troupe::guides {

/// Finished. Throws failure(bad_request).
grammar compile_grammar(const guide_source& source, const guide_limits& limits);

} // namespace troupe::guides
