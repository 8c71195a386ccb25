// Runs the statements of a parsed template. Used by program.cpp.
#pragma once

#include "runtime/chat/jinja/syntax/ast.hpp"

#include <ctime>
#include <optional>
#include <string>

namespace troupe::jinja {

/// The text that `template_body` prints. Arguments and errors are those of program::render.
std::string interpret(const ast::block& template_body, const value& globals, const render_limits& limits,
                      std::optional<std::tm> now);

} // namespace troupe::jinja
