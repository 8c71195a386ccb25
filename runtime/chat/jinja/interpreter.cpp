#include "runtime/chat/jinja/parser.hpp"
#include "runtime/chat/jinja/program.hpp"
#include "runtime/chat/jinja/scope.hpp"
#include "runtime/chat/jinja/text.hpp"
#include "runtime/support/error.hpp"

#include <algorithm>

namespace troupe::jinja {

namespace {

/// What follows a statement: the next one, or the end of the loop or of its turn.
enum class flow { next, leave, again };

constexpr unsigned max_depth = 800;   // calls of eval and run within each other
constexpr std::size_t step_cost = 64; // of an expression or statement, in the bytes that context::spend counts

class interpreter;

class macro_object : public object {
public:
  macro_object(interpreter& in, const ast::macro_body& body, scope_ptr where)
    : in_(in), body_(body), where_(std::move(where)) {}
  std::string type_name() const override { return "Macro"; }
  bool callable() const override { return true; }
  std::optional<value> attribute(context&, std::string_view name) override {
    return name == "name" ? std::optional(value(body_.name)) : std::nullopt;
  }
  value call(context&, const call_arguments& args) override;
  void clear() override { where_.reset(); }

private:
  interpreter& in_;
  const ast::macro_body& body_;
  scope_ptr where_;
};

class interpreter : public context {
public:
  interpreter(const value& names, const render_limits& limits, std::optional<std::tm> now) : context(limits, now) {
    auto outermost = std::make_shared<scope>();
    for (const auto& [name, item] : globals())
      outermost->names.emplace_back(name, item);
    scope_ = std::make_shared<scope>(scope{std::move(outermost), {}});
    for (const auto& [name, item] : names.map().entries())
      scope_->names.emplace_back(name.str(), item);
  }

  std::string render(const ast::block& body) {
    std::string out;
    out_ = &out;
    try {
      run(body);
    } catch (const raised& r) {
      throw failure(errc::bad_request, r.what());
    } catch (const stopped& s) {
      throw failure(errc::cancelled, s.what());
    } catch (const fault& f) {
      throw failure(errc::bad_request, to_string(at_) + ": " + f.what());
    }
    return out;
  }

  /// A macro's body with its parameters bound, by the rules of jinja2's Macro.
  value invoke(const ast::macro_body& m, const scope_ptr& where, call_arguments args) {
    spend((m.parameters.size() + 1) * (args.keyword.size() + 1));
    auto inner = std::make_shared<scope>(scope{where, {}});
    const auto take = [&](std::string_view key) -> std::optional<value> {
      const auto found = std::ranges::find(args.keyword, key, [](const auto& entry) { return entry.first; });
      if (found == args.keyword.end())
        return std::nullopt;
      auto result = std::move(found->second);
      args.keyword.erase(found);
      return result;
    };
    const auto expects = [&](std::string_view name) {
      return std::ranges::any_of(m.parameters, [&](const auto& p) { return p.name == name; });
    };
    std::vector<const ast::parameter*> absent;
    for (std::size_t i = 0; i < m.parameters.size(); ++i) {
      const auto& name = m.parameters[i].name;
      if (i < args.positional.size())
        inner->set(*this, name, args.positional[i]);
      else if (auto given = take(name))
        inner->set(*this, name, std::move(*given));
      else
        absent.push_back(&m.parameters[i]);
    }
    if (m.uses_caller && !expects("caller"))
      inner->set(*this, "caller", take("caller").value_or(value::undefined("No caller defined")));
    if (m.uses_kwargs && !expects("kwargs")) {
      dict rest;
      for (const auto& [key, item] : args.keyword)
        rest.set(*this, value(key), item);
      inner->set(*this, "kwargs", value(std::move(rest)));
    } else if (!args.keyword.empty()) {
      throw fault("macro '" + m.name + "' takes no keyword argument '" + args.keyword.front().first + "'");
    }
    const auto expected = std::min(m.parameters.size(), args.positional.size());
    if (m.uses_varargs && !expects("varargs"))
      inner->set(
        *this, "varargs",
        list({args.positional.begin() + static_cast<std::ptrdiff_t>(expected), args.positional.end()}, shape::tuple));
    else if (expected < args.positional.size())
      throw fault("macro '" + m.name + "' takes not more than " + std::to_string(expected) + " argument(s)");
    return value(within(std::move(inner), [&] {
      for (const auto* p : absent)
        scope_->set(*this, p->name,
                    p->fallback ? eval(*p->fallback)
                                : value::undefined("parameter '" + p->name + "' was not provided"));
      run(m.body);
    }));
  }

private:
  // -- places -----------------------------------------------------------------

  /// Counts a level of recursion for as long as it lives.
  class level {
  public:
    explicit level(interpreter& in) : in_(in) {
      if (++in_.depth_ > max_depth) {
        --in_.depth_;
        throw fault("the template calls itself too deeply");
      }
    }
    ~level() { --in_.depth_; }
    level(const level&) = delete;

  private:
    interpreter& in_;
  };

  /// Runs `body` in the scope `inner`; what it prints is the result.
  template <class Body>
  std::string within(scope_ptr inner, Body body) {
    std::string printed;
    auto* const outer = std::exchange(out_, &printed);
    std::swap(scope_, inner);
    body();
    std::swap(scope_, inner);
    out_ = outer;
    return printed;
  }

  scope_ptr nested() const { return std::make_shared<scope>(scope{scope_, {}}); }

  void emit(std::string_view s) {
    make(s.size());
    out_->append(s);
  }

  // -- statements -------------------------------------------------------------

  flow run(const ast::block& body) {
    const level guard(*this);
    for (const auto& s : body) {
      spend(step_cost);
      at_ = s.at;
      const auto then = std::visit([&](const auto& node) { return on(node); }, s.is);
      if (then != flow::next)
        return then;
    }
    return flow::next;
  }

  flow on(const ast::data& d) {
    emit(d.is);
    return flow::next;
  }

  flow on(const ast::print& p) {
    const auto v = eval(*p.of);
    if (v.is_string())
      emit(v.str());
    else
      emit(string(v));
    return flow::next;
  }

  /// What has been printed so far by the innermost block that is captured.
  value printed() { return copied(*out_); }

  flow on(const ast::assignment& a) {
    assign(*a.target, eval(*a.to));
    return flow::next;
  }

  flow on(const ast::capture& c) {
    flow then = flow::next;
    value result;
    auto text = within(nested(), [&] {
      then = run(c.body);
      if (then == flow::next && c.through)
        result = filtered(*c.through, printed());
    });
    if (then == flow::next)
      assign(*c.target, c.through ? result : value(std::move(text)));
    return then;
  }

  flow on(const ast::filter_block& f) {
    flow then = flow::next;
    std::string result;
    within(nested(), [&] {
      then = run(f.body);
      if (then == flow::next)
        result = string(filtered(*f.through, printed()));
    });
    emit(result);
    return then;
  }

  flow on(const ast::branch& b) {
    for (const auto& [condition, then] : b.cases)
      if (eval(*condition).truth())
        return run(then);
    return run(b.otherwise);
  }

  flow on(const ast::loop& l) {
    auto over = eval(*l.over);
    if (l.recursive)
      emit(recurse(l, scope_, over, 0).str());
    else
      return iterate_over(l, over, 0);
    return flow::next;
  }

  flow on(const ast::macro& m) {
    scope_->set(*this, m.is.name, macro_value(m.is));
    return flow::next;
  }

  flow on(const ast::call_block& c) {
    auto caller = macro_value(c.caller);
    emit(string(call(std::get<ast::call>(c.call->is), c.call->at, &caller)));
    return flow::next;
  }

  flow on(const ast::with& w) {
    auto inner = nested();
    std::vector<value> given;
    for (const auto& [target, to] : w.set)
      given.push_back(eval(*to));
    std::swap(scope_, inner);
    for (std::size_t i = 0; i < given.size(); ++i)
      assign(*w.set[i].first, std::move(given[i]));
    const auto then = run(w.body);
    std::swap(scope_, inner);
    return then;
  }

  flow on(const ast::jump& j) { return j.leave ? flow::leave : flow::again; }

  value macro_value(const ast::macro_body& body) {
    auto made = std::make_shared<macro_object>(*this, body, scope_);
    keep(made);
    return value(std::shared_ptr<object>(std::move(made)));
  }

  value recurse(const ast::loop& l, const scope_ptr& where, const value& over, unsigned depth) {
    return value(within(where, [&] { iterate_over(l, over, depth); }));
  }

  flow iterate_over(const ast::loop& l, const value& over, unsigned depth) {
    const level guard(*this);
    auto all = row(over);
    const auto outer = scope_;
    if (l.only_if) {
      std::vector<value> wanted;
      for (const auto& v : all.seq().items) {
        scope_ = nested();
        assign(*l.target, v);
        if (eval(*l.only_if).truth())
          wanted.push_back(v);
        scope_ = outer;
      }
      all = list(std::move(wanted));
    }
    loop_object::again again;
    if (l.recursive)
      again = [this, &l, outer](const value& deeper, unsigned level) { return recurse(l, outer, deeper, level); };
    const auto loop = std::make_shared<loop_object>(std::move(all), depth, std::move(again));
    bool finished_one = false;
    flow then = flow::next;
    for (std::size_t i = 0; i < loop->items.size() && then != flow::leave; ++i) {
      spend(step_cost);
      loop->index = i;
      scope_ = std::make_shared<scope>(scope{outer, {}});
      scope_->set(*this, "loop", value(std::shared_ptr<object>(loop)));
      assign(*l.target, loop->items[i]);
      then = run(l.body);
      finished_one |= then == flow::next; // jinja2's `else` looks at this, not at whether there were items
    }
    scope_ = outer;
    if (finished_one || l.otherwise.empty())
      return flow::next;
    scope_ = nested();
    then = run(l.otherwise);
    scope_ = outer;
    return then;
  }

  /// What iterating `v` yields, as a sequence: itself where it is one.
  value row(const value& v) {
    const bool shared = v.is(kind::sequence) &&
      (v.seq().is != shape::generator || !std::exchange(v.seq().consumed, true));
    return shared ? v : list(items(v));
  }

  void assign(const ast::expression& target, value v) {
    if (const auto* n = std::get_if<ast::name>(&target.is)) {
      scope_->set(*this, n->is, std::move(v));
    } else if (const auto* t = std::get_if<ast::tuple_literal>(&target.is)) {
      const auto parts = items(v);
      if (parts.size() != t->items.size())
        throw fault((parts.size() < t->items.size() ? "not enough" : "too many") + std::string(" values to unpack, ") +
                    std::to_string(t->items.size()) + " expected");
      for (std::size_t i = 0; i < parts.size(); ++i)
        assign(*t->items[i], parts[i]);
    } else {
      const auto& a = std::get<ast::attribute>(target.is);
      const auto object = eval(*a.object);
      auto* const space = object.is(kind::object) ? dynamic_cast<name_space*>(object.obj().get()) : nullptr;
      if (!space)
        throw fault("cannot assign attribute on non-namespace object");
      space->set(*this, a.name, std::move(v));
    }
  }

  // -- expressions ------------------------------------------------------------

  value eval(const ast::expression& e) {
    const level guard(*this);
    spend(step_cost);
    at_ = e.at;
    return std::visit([&](const auto& node) { return on(node, e.at); }, e.is);
  }

  value eval(const ast::expression_ptr& e) { return e ? eval(*e) : value(); }

  std::vector<value> eval(const std::vector<ast::expression_ptr>& all) {
    std::vector<value> result;
    for (const auto& e : all)
      result.push_back(eval(*e));
    return result;
  }

  value on(const ast::literal& l, position) { return l.is; }

  value on(const ast::name& n, position) {
    const auto* found = scope_->find(*this, n.is);
    return found ? *found : value::undefined('\'' + n.is + "' is undefined");
  }

  value on(const ast::list_literal& l, position) { return list(eval(l.items)); }
  value on(const ast::tuple_literal& t, position) { return list(eval(t.items), shape::tuple); }

  value on(const ast::dict_literal& d, position at) {
    dict result;
    for (const auto& [key, item] : d.items) {
      auto k = eval(*key), v = eval(*item);
      at_ = at;
      result.set(*this, k, std::move(v));
    }
    return value(std::move(result));
  }

  value on(const ast::attribute& a, position at) {
    const auto object = eval(*a.object);
    at_ = at;
    return get_attribute(*this, object, a.name);
  }

  value on(const ast::item& i, position at) {
    const auto object = eval(*i.object), key = eval(*i.key);
    at_ = at;
    return get_item(*this, object, key);
  }

  value on(const ast::slice& s, position at) {
    const auto object = eval(*s.object), start = eval(s.start), stop = eval(s.stop), step = eval(s.step);
    at_ = at;
    return slice_of(*this, object, start, stop, step);
  }

  value on(const ast::call& c, position at) { return call(c, at, nullptr); }

  value on(const ast::filter& f, position) { return filtered(f, eval(*f.input)); }

  /// `f` on `input`, or through the filters before it.
  value filtered(const ast::filter& f, value input) {
    auto given = arguments(f.given);
    if (!f.find)
      throw fault("no filter named '" + f.name + "'");
    return f.find(*this, input, given);
  }

  /// The filters of a block on what it printed; the innermost has no input of its own.
  value filtered(const ast::expression& chain, value printed) {
    const auto& f = std::get<ast::filter>(chain.is);
    auto input = f.input ? filtered(*f.input, std::move(printed)) : std::move(printed);
    at_ = chain.at;
    return filtered(f, std::move(input));
  }

  value on(const ast::test& t, position at) {
    const auto input = eval(*t.input);
    const auto given = arguments(t.given);
    at_ = at;
    if (!t.find)
      throw fault("no test named '" + t.name + "'");
    return value(t.find(*this, input, given));
  }

  value on(const ast::negation& n, position) { return value(!eval(*n.of).truth()); }

  value on(const ast::sign& s, position at) {
    auto of = eval(*s.of);
    at_ = at;
    return s.is == '-' ? negate(of) : negate(negate(of));
  }

  value on(const ast::binary& b, position at) {
    const auto left = eval(*b.left), right = eval(*b.right);
    at_ = at;
    return arithmetic(*this, b.op, left, right);
  }

  value on(const ast::logical& l, position) {
    auto left = eval(*l.left);
    return left.truth() == l.conjunction ? eval(*l.right) : left;
  }

  value on(const ast::comparison& c, position at) {
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

  bool holds(const std::string& op, const value& a, const value& b) {
    if (op == "in" || op == "not in") {
      return contains(*this, b, a) == (op == "in");
    }
    if (op == "==" || op == "!=")
      return equal(*this, a, b) == (op == "==");
    return ordered(*this, op, a, b);
  }

  value on(const ast::concatenation& c, position at) {
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

  value on(const ast::conditional& c, position at) {
    if (eval(*c.condition).truth())
      return eval(*c.then);
    at_ = at;
    return c.otherwise
      ? eval(*c.otherwise)
      : value::undefined("the inline if-expression evaluated to false and no else section was defined.");
  }

  call_arguments arguments(const ast::arguments& given) {
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

  value call(const ast::call& c, position at, const value* caller) {
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

  scope_ptr scope_;
  std::string* out_ = nullptr;
  position at_;
  unsigned depth_ = 0;
};

value macro_object::call(context&, const call_arguments& args) { return in_.invoke(body_, where_, args); }

} // namespace

// -- the program --------------------------------------------------------------

struct program::body {
  ast::block statements;
};

program program::parse(std::string_view source) {
  return program(std::make_shared<const body>(body{jinja::parse(source)}));
}

std::string program::render(const value& globals, const render_limits& limits, std::optional<std::tm> now) const {
  return interpreter(globals, limits, now).render(body_->statements);
}

} // namespace troupe::jinja
