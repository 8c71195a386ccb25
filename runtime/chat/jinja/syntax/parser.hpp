// Templates from text to `ast`, by jinja2's grammar with its loop controls and the `generation` tag of transformers.
#pragma once

#include "runtime/chat/jinja/syntax/ast.hpp"

namespace troupe::jinja {

/// Throws failure(bad_file, or unsupported for what only makes sense with several templates) with line and column.
ast::block parse(std::string_view source);

} // namespace troupe::jinja
