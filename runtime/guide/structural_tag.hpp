// Structural tags: text that is free until a trigger, from which on it follows a tag's content. vLLM's `structures` and
// `triggers`, and XGrammar's `format`; beyond these, `any_text` has `unless_begins`: texts that it must not begin with
// behind white space.
#pragma once

#include "runtime/guide/grammar/grammar.hpp"

#include <string_view>

namespace troupe::guides {

/// The rule of the whole text. Throws failure(bad_request) naming the part at fault.
rule_id add_structural_tag(grammar& g, std::string_view json);

} // namespace troupe::guides
