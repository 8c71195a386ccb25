// Structural tags: text that is free until a trigger, from which on it follows a tag's content. vLLM's `structures` and
// `triggers`, and XGrammar's `format`. Beyond these, and of this program's own making:
//   - `any_text` has `unless_begins`: texts that it must not begin with behind white space;
//   - `json_schema` has `closed`, as guide_source::closed;
// - `enforced` {part, content, otherwise} is `content`, if that can be compiled, else `otherwise`. `part` is its
// number,
//     an index of guide_source::parts; without `otherwise`, what cannot be compiled is an error of that field.
#pragma once

#include "runtime/guide/grammar/grammar.hpp"
#include "runtime/guide/guide_source.hpp"

namespace troupe::guides {

/// The finished grammar, of which `finish` makes the rule of the whole text that of the guide. Throws
/// failure(bad_request) naming the part at fault.
grammar compile_structural_tag(const guide_source& source, const guide_limits& limits,
                               void (*finish)(grammar&, const guide_source&));

} // namespace troupe::guides
