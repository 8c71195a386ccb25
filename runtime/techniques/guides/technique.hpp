// Guides as a technique: what answers must look like (a JSON Schema, a regular expression, a grammar, calls of tools),
// how long their reasoning may be, and which texts they never contain.
#pragma once

#include "runtime/techniques/guides/guide_sources.hpp"

#include <memory>
#include <utility>

namespace troupe {

extern const technique guides_technique;

namespace guides {

/// A request's use of `source`; null: none.
technique_use_ptr following(source_ptr source);
inline technique_use_ptr following(guide_source source) {
  return following(std::make_shared<const guide_source>(std::move(source)));
}

/// What the answers of a request follow; null: nothing.
source_ptr source_of(const generation& asked);

} // namespace guides

} // namespace troupe
