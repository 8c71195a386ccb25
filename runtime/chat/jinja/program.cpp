#include "runtime/chat/jinja/program.hpp"

#include "runtime/chat/jinja/interpreter.hpp"
#include "runtime/chat/jinja/syntax/parser.hpp"

namespace troupe::jinja {

struct program::body {
  ast::block statements;
};

program program::parse(std::string_view source) {
  return program(std::make_shared<const body>(body{jinja::parse(source)}));
}

std::string program::render(const value& globals, const render_limits& limits, std::optional<std::tm> now) const {
  return interpret(body_->statements, globals, limits, now);
}

} // namespace troupe::jinja
