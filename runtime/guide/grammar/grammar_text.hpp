// Grammars in text: GBNF as llama.cpp has it, and Lark as far as it is context-free.
#pragma once

#include "runtime/guide/grammar/grammar.hpp"

#include <string_view>

namespace troupe::guides {

/// Adds the rules of a grammar in GBNF (with `::=`) or Lark; the rule of the whole text. Throws failure(bad_request)
/// with the line of what is malformed or not supported.
rule_id add_grammar(grammar& g, std::string_view text);

rule_id add_gbnf(grammar& g, std::string_view text); // starts at `root`
rule_id add_lark(grammar& g, std::string_view text); // starts at `start`

} // namespace troupe::guides
