#include "runtime/chat/jinja/evaluator.hpp"

namespace troupe::jinja {

evaluator::level::level(evaluator& in) : in_(in) {
  constexpr unsigned max_depth = 800; // nested calls of eval and run
  if (++in_.depth_ > max_depth) {
    --in_.depth_;
    throw fault("the template calls itself too deeply");
  }
}

value evaluator::eval(const ast::expression& e) {
  const level guard(*this);
  spend(step_cost);
  at_ = e.at;
  return std::visit([&](const auto& node) { return on(node, e.at); }, e.is);
}

std::vector<value> evaluator::eval(const std::vector<ast::expression_ptr>& all) {
  std::vector<value> result;
  for (const auto& e : all)
    result.push_back(eval(*e));
  return result;
}

value evaluator::on(const ast::name& n, position) {
  const auto* found = scope_->find(*this, n.is);
  return found ? *found : value::undefined('\'' + n.is + "' is undefined");
}

value evaluator::on(const ast::dict_literal& d, position at) {
  dict result;
  for (const auto& [key, item] : d.items) {
    auto k = eval(*key), v = eval(*item);
    at_ = at;
    result.set(*this, k, std::move(v));
  }
  return value(std::move(result));
}

value evaluator::on(const ast::attribute& a, position at) {
  const auto object = eval(*a.object);
  at_ = at;
  return get_attribute(*this, object, a.name);
}

value evaluator::on(const ast::item& i, position at) {
  const auto object = eval(*i.object), key = eval(*i.key);
  at_ = at;
  return get_item(*this, object, key);
}

value evaluator::on(const ast::slice& s, position at) {
  const auto object = eval(*s.object), start = eval(s.start), stop = eval(s.stop), step = eval(s.step);
  at_ = at;
  return slice_of(*this, object, start, stop, step);
}

value evaluator::filtered(const ast::filter& f, value input) {
  auto given = arguments(f.given);
  if (!f.find)
    throw fault("no filter named '" + f.name + "'");
  return f.find(*this, input, given);
}

value evaluator::filtered(const ast::expression& chain, value printed) {
  const auto& f = std::get<ast::filter>(chain.is);
  auto input = f.input ? filtered(*f.input, std::move(printed)) : std::move(printed);
  at_ = chain.at;
  return filtered(f, std::move(input));
}

value evaluator::on(const ast::test& t, position at) {
  const auto input = eval(*t.input);
  const auto given = arguments(t.given);
  at_ = at;
  if (!t.find)
    throw fault("no test named '" + t.name + "'");
  return value(t.find(*this, input, given));
}

value evaluator::on(const ast::sign& s, position at) {
  auto of = eval(*s.of);
  at_ = at;
  return s.is == '-' ? negate(of) : negate(negate(of));
}

value evaluator::on(const ast::binary& b, position at) {
  const auto left = eval(*b.left), right = eval(*b.right);
  at_ = at;
  return arithmetic(*this, b.op, left, right);
}

value evaluator::on(const ast::logical& l, position) {
  auto left = eval(*l.left);
  return left.truth() == l.conjunction ? eval(*l.right) : left;
}

value evaluator::on(const ast::comparison& c, position at) {
  auto left = eval(*c.first);
  for (const auto& [op, operand] : c.rest) {
    auto right = eval(*operand);
    at_ = at;
    if (!holds(op, left, right))
      return value(false);
    left = std::move(right);
  }
  return value(true);
}

bool evaluator::holds(const std::string& op, const value& a, const value& b) {
  if (op == "in" || op == "not in") {
    return contains(*this, b, a) == (op == "in");
  }
  if (op == "==" || op == "!=")
    return equal(*this, a, b) == (op == "==");
  return ordered(*this, op, a, b);
}

value evaluator::on(const ast::concatenation& c, position at) {
  std::string out;
  for (const auto& part : c.parts) {
    const auto v = eval(*part);
    at_ = at;
    if (v.is_string()) {
      make(v.str().size());
      out += v.str();
    } else {
      out += string(v);
    }
  }
  return text(std::move(out));
}

value evaluator::on(const ast::conditional& c, position at) {
  if (eval(*c.condition).truth())
    return eval(*c.then);
  at_ = at;
  return c.otherwise ? eval(*c.otherwise)
                     : value::undefined("the inline if-expression evaluated to false and no else section was defined.");
}

call_arguments evaluator::arguments(const ast::arguments& given) {
  call_arguments result{eval(given.positional), {}};
  for (const auto& [key, item] : given.keyword)
    result.keyword.emplace_back(key, eval(*item));
  if (given.unpacked_list)
    for (auto& item : items(eval(*given.unpacked_list)))
      result.positional.push_back(std::move(item));
  if (given.unpacked_dict) {
    const auto more = eval(*given.unpacked_dict);
    if (!more.is(kind::dict))
      throw fault("the argument after ** must be a mapping, not " + more.type_name());
    spend(more.map().size() * 2 * sizeof(value));
    for (const auto& [key, item] : more.map().entries()) {
      if (!key.is_string())
        throw fault("keywords must be strings");
      result.keyword.emplace_back(key.str(), item);
    }
  }
  return result;
}

value evaluator::call(const ast::call& c, position at, const value* caller) {
  const auto callee = eval(*c.callee);
  auto given = arguments(c.given);
  at_ = at;
  if (caller)
    given.keyword.emplace_back("caller", *caller);
  if (callee.is_undefined())
    throw fault(callee.why());
  if (!callee.is(kind::object))
    throw fault('\'' + callee.type_name() + "' object is not callable");
  auto result = callee.obj()->call(*this, given);
  at_ = at;
  return result;
}

} // namespace troupe::jinja
