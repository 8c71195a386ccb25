// The state of one rendering that all operations share: its budget of work, the time, and the objects that may form
// cycles. Lives for one call of `program::render`, on one thread. Also declares the operations and the library.
#pragma once

#include "runtime/chat/jinja/value.hpp"

#include <ctime>
#include <functional>
#include <initializer_list>

namespace troupe::jinja {

class context : public meter {
public:
  context(const render_limits& limits, std::optional<std::tm> now) : meter(limits), now_(now) {}
  context(const context&) = delete;
  context& operator=(const context&) = delete;
  ~context() {
    for (auto& kept : kept_)
      kept->clear();
  }

  /// Strings and sequences made by the template. Charge their overhead; `copied` and `list` charge the contents as
  /// well.
  value text(std::string s) {
    make(64);
    return value(std::move(s));
  }
  value copied(std::string_view s) {
    make(64 + s.size());
    return value(s);
  }
  value markup(std::string s) {
    make(64);
    return value::markup(std::move(s));
  }
  /// Makes text that is derived from `origin`: markup if that is markup.
  value text_like(const value& origin, std::string s) {
    return origin.is_markup() ? markup(std::move(s)) : text(std::move(s));
  }
  value copied_like(const value& origin, std::string_view s) {
    make(s.size());
    return text_like(origin, std::string(s));
  }
  value list(std::vector<value> items, shape is = shape::list) {
    make(64 + items.size() * sizeof(value));
    return make_sequence(is, std::move(items));
  }
  /// The items that iterating `v` yields, charged.
  std::vector<value> items(const value& v) { return iterate(*this, v); }
  /// str(v), charged.
  std::string string(const value& v) { return v.text(*this); }
  /// Keeps an object until the rendering ends, then clears it: it may be part of a cycle.
  void keep(std::shared_ptr<object> o) {
    make(256);
    kept_.push_back(std::move(o));
  }
  std::tm now() const;

private:
  std::optional<std::tm> now_;
  std::vector<std::shared_ptr<object>> kept_;
};

struct call_arguments {
  std::vector<value> positional;
  std::vector<std::pair<std::string, value>> keyword;
};

/// The arguments in the order of `names`, by Python's rules; absent ones are undefined. Throws fault if one of the
/// first `required` is absent, or one is unknown or given twice.
std::vector<value> bind(std::string_view function, const call_arguments& args,
                        std::initializer_list<std::string_view> names, std::size_t required = 0);

/// `v` as an integer. Throws fault for other kinds.
std::int64_t to_integer(const value& v);
/// `v` as an integer, or `fallback` for undefined and none.
std::int64_t to_integer(const value& v, std::int64_t fallback);

// -- operations, by the rules of jinja2's sandbox ------------------------------

/// `object.name` (an attribute, else an item) and `object[key]` (an item, else an attribute).
value get_attribute(context& c, const value& object, const std::string& name);
value get_item(context& c, const value& object, const value& key);
/// The method of a string, list, tuple or dict, or nothing if there is none of that name. An undefined with a reason if
/// the sandbox forbids it.
std::optional<value> find_method(const value& self, std::string_view name);
value slice_of(context& c, const value& object, const value& start, const value& stop, const value& step);
/// +, -, *, /, //, %, **.
value arithmetic(context& c, std::string_view op, const value& a, const value& b);
value negate(const value& v);
/// `item in container`.
bool contains(context& c, const value& container, const value& item);
/// `format % arguments` and `format.format(...)`. A format that is markup escapes its arguments and yields markup.
value format_percent(context& c, const value& format, const value& arguments);
value format_braces(context& c, const value& format, const call_arguments& args);
/// markupsafe.escape(v), as text: HTML escapes unless `v` is markup.
std::string escaped(context& c, const value& v);

using filter_function = value (*)(context&, const value& input, const call_arguments&);
using test_function = bool (*)(context&, const value& input, const call_arguments&);
/// Null if there is none of that name.
filter_function find_filter(std::string_view name);
test_function find_test(std::string_view name);
/// `range`, `namespace`, `raise_exception`, ...
const std::vector<std::pair<std::string, value>>& globals();

/// A callable implemented in C++.
class function : public object {
public:
  using body = std::function<value(context&, const call_arguments&)>;
  explicit function(body call) : call_(std::move(call)) {}
  std::string type_name() const override { return "function"; }
  bool callable() const override { return true; }
  value call(context& c, const call_arguments& args) override { return call_(c, args); }

private:
  body call_;
};

/// The object that `namespace()` makes, the only one that a template can change. Its repr omits the contents, which may
/// include the namespace itself.
class name_space : public object {
public:
  explicit name_space(dict attributes) : attributes_(std::move(attributes)) {}
  std::string type_name() const override { return "Namespace"; }
  std::optional<value> attribute(context&, std::string_view name) override;
  void set(context& c, std::string_view name, value v) {
    c.make(256);
    attributes_.set(name, std::move(v));
  }
  void clear() override { attributes_ = {}; }

private:
  dict attributes_;
};

/// Thrown by raise_exception, with the template's own sentence.
class raised : public fault {
public:
  using fault::fault;
};

} // namespace troupe::jinja
