#include "runtime/chat/jinja/interpreter.hpp"

#include "runtime/chat/jinja/evaluator.hpp"
#include "runtime/chat/jinja/text/text.hpp"
#include "runtime/support/error.hpp"

#include <algorithm>

namespace troupe::jinja {

namespace {

/// Where to go after a statement: to the next one, out of the loop, or to its next iteration.
enum class flow { next, leave, again };

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

class interpreter : public evaluator {
public:
  interpreter(const value& names, const render_limits& limits, std::optional<std::tm> now) : evaluator(limits, now) {
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
      const std::string said = r.what(); // up to a NUL, and so perhaps nothing
      throw failure(errc::bad_request,
                    said.empty() ? to_string(at_) + ": the template refuses without a reason" : said);
    } catch (const stopped& s) {
      throw failure(errc::cancelled, s.what());
    } catch (const fault& f) {
      throw failure(errc::bad_request, to_string(at_) + ": " + f.what());
    }
    return out;
  }

  /// Binds the parameters by the rules of jinja2's Macro and runs the macro's body.
  value invoke(const ast::macro_body& m, const scope_ptr& where, call_arguments args) {
    spend((m.parameters.size() + 1) * (args.keyword.size() + 1));
    auto inner = std::make_shared<scope>(scope{where, {}});
    const auto claim = [&](std::string_view key) -> std::optional<value> {
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
      else if (auto given = claim(name))
        inner->set(*this, name, std::move(*given));
      else
        absent.push_back(&m.parameters[i]);
    }
    if (m.uses_caller && !expects("caller"))
      inner->set(*this, "caller", claim("caller").value_or(value::undefined("No caller defined")));
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
  // -- scopes and output ------------------------------------------------------

  /// Runs `body` in the scope `inner` and returns its output.
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

  /// The output so far of the innermost captured block.
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
      finished_one |= then == flow::next; // jinja2's `else` depends on this, not on the number of items
    }
    scope_ = outer;
    if (finished_one || l.otherwise.empty())
      return flow::next;
    scope_ = nested();
    then = run(l.otherwise);
    scope_ = outer;
    return then;
  }

  /// The items of `v` as a sequence: `v` itself if it is one.
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

  std::string* out_ = nullptr;
};

value macro_object::call(context&, const call_arguments& args) { return in_.invoke(body_, where_, args); }

} // namespace

std::string interpret(const ast::block& template_body, const value& globals, const render_limits& limits,
                      std::optional<std::tm> now) {
  return interpreter(globals, limits, now).render(template_body);
}

} // namespace troupe::jinja
