// Parses templates by jinja2's grammar, with loop controls and transformers' `generation` tag.
#pragma once

#include "runtime/chat/jinja/syntax/ast.hpp"

namespace troupe::jinja {

/// Throws failure(bad_file) with line and column, or failure(unsupported) for tags that need several templates.
ast::block parse(std::string_view source);

} // namespace troupe::jinja
