// Tests (`is ...`) and global functions.
#include "runtime/chat/jinja/context.hpp"
#include "runtime/chat/jinja/text/text.hpp"
#include "runtime/support/text/number_text.hpp"

#include <algorithm>

namespace troupe::jinja {

// -- tests --------------------------------------------------------------------

namespace {

value argument(std::string_view test, const call_arguments& args) { return bind(test, args, {"other"}, 1)[0]; }

bool remainder_is(context& c, const value& v, const value& by, int wanted) {
  return equal(c, arithmetic(c, "%", v, by), value(wanted));
}

template <kind k>
bool is_kind(context&, const value& v, const call_arguments&) {
  return v.is(k);
}

bool is_equal(context& c, const value& v, const call_arguments& args) {
  const auto other = argument("eq", args);
  return equal(c, v, other);
}

bool is_unequal(context& c, const value& v, const call_arguments& args) { return !is_equal(c, v, args); }

template <char op, bool or_equal>
bool is_ordered(context& c, const value& v, const call_arguments& args) {
  constexpr char spelled[] = {op, or_equal ? '=' : '\0', '\0'};
  return ordered(c, spelled, v, argument(spelled, args));
}

struct named_test {
  std::string_view name;
  test_function call;
};

constexpr named_test tests[] = {
  {"!=", is_unequal},
  {"<", is_ordered<'<', false>},
  {"<=", is_ordered<'<', true>},
  {"==", is_equal},
  {">", is_ordered<'>', false>},
  {">=", is_ordered<'>', true>},
  {"boolean", is_kind<kind::boolean>},
  {"callable",
   [](context&, const value& v, const call_arguments&) {
     return v.is_undefined() || (v.is(kind::object) && v.obj()->callable());
   }},
  {"defined", [](context&, const value& v, const call_arguments&) { return !v.is_undefined(); }},
  {"divisibleby",
   [](context& c, const value& v, const call_arguments& args) {
     return remainder_is(c, v, argument("divisibleby", args), 0);
   }},
  {"eq", is_equal},
  {"equalto", is_equal},
  {"escaped", [](context&, const value& v, const call_arguments&) { return v.is_markup(); }},
  {"even", [](context& c, const value& v, const call_arguments&) { return remainder_is(c, v, value(2), 0); }},
  {"false", [](context&, const value& v, const call_arguments&) { return v.is(kind::boolean) && !v.truth(); }},
  {"filter", [](context& c, const value& v, const call_arguments&) { return find_filter(c.string(v)) != nullptr; }},
  {"float", [](context&, const value& v, const call_arguments&) { return v.is(kind::real) && !v.is_wide(); }},
  {"ge", is_ordered<'>', true>},
  {"greaterthan", is_ordered<'>', false>},
  {"gt", is_ordered<'>', false>},
  {"in", [](context& c, const value& v, const call_arguments& args) { return contains(c, argument("in", args), v); }},
  {"integer", [](context&, const value& v, const call_arguments&) { return v.is(kind::integer) || v.is_wide(); }},
  {"iterable", [](context&, const value& v, const call_arguments&) { return iterable(v); }},
  {"le", is_ordered<'<', true>},
  {"lessthan", is_ordered<'<', false>},
  {"lower", [](context& c, const value& v, const call_arguments&) { return text::all_lower(c, c.string(v)); }},
  {"lt", is_ordered<'<', false>},
  {"mapping", is_kind<kind::dict>},
  {"ne", is_unequal},
  {"none", is_kind<kind::none>},
  {"number", [](context&, const value& v, const call_arguments&) { return v.is_number(); }},
  {"odd", [](context& c, const value& v, const call_arguments&) { return remainder_is(c, v, value(2), 1); }},
  {"sameas", [](context&, const value& v, const call_arguments& args) { return v.same(argument("sameas", args)); }},
  {"sequence",
   [](context&, const value& v, const call_arguments&) {
     const bool row = v.is(kind::sequence) && v.seq().indexable();
     return row || v.is_string() || v.is(kind::dict) || v.is_undefined(); // all that have a length and take subscripts
   }},
  {"string", is_kind<kind::string>},
  {"test", [](context& c, const value& v, const call_arguments&) { return find_test(c.string(v)) != nullptr; }},
  {"true", [](context&, const value& v, const call_arguments&) { return v.is(kind::boolean) && v.truth(); }},
  {"undefined", is_kind<kind::undefined>},
  {"upper", [](context& c, const value& v, const call_arguments&) { return text::all_upper(c, c.string(v)); }},
};

} // namespace

test_function find_test(std::string_view name) {
  const auto found = std::ranges::find(tests, name, &named_test::name);
  return found == std::end(tests) ? nullptr : found->call;
}

// -- objects ------------------------------------------------------------------

std::optional<value> name_space::attribute(context&, std::string_view name) {
  const auto* found = attributes_.find(name);
  return found ? std::optional(*found) : std::nullopt;
}

namespace {

class cycler : public object {
public:
  explicit cycler(std::vector<value> items) : items_(std::move(items)) {
    if (items_.empty())
      throw fault("at least one item has to be provided");
  }
  std::string type_name() const override { return "Cycler"; }
  std::optional<value> attribute(context&, std::string_view name) override {
    if (name == "current")
      return items_[at_];
    if (name != "next" && name != "reset")
      return std::nullopt;
    // The context keeps the cycler alive as long as the method can be called.
    auto next = [this, step = name == "next"](context&, const call_arguments&) {
      auto result = step ? items_[at_] : value(nullptr);
      at_ = step ? (at_ + 1) % items_.size() : 0;
      return result;
    };
    return value(std::make_shared<function>(std::move(next)));
  }

private:
  std::vector<value> items_;
  std::size_t at_ = 0;
};

/// The arguments of dict() and namespace(): a mapping or pairs, then keywords.
dict dict_from(context& c, const call_arguments& args) {
  dict result;
  if (args.positional.size() > 1)
    throw fault("dict expected at most 1 argument, got " + std::to_string(args.positional.size()));
  if (!args.positional.empty() && args.positional[0].is(kind::dict)) {
    for (const auto& [key, item] : args.positional[0].map().entries())
      result.set(c, key, item);
  } else if (!args.positional.empty()) {
    for (const auto& pair : c.items(args.positional[0])) {
      auto parts = c.items(pair);
      if (parts.size() != 2)
        throw fault("a dict is made of pairs, not of sequences of length " + std::to_string(parts.size()));
      result.set(c, parts[0], parts[1]);
    }
  }
  for (const auto& [key, item] : args.keyword)
    result.set(c, value(key), item);
  return result;
}

value range(context& c, const call_arguments& args) {
  constexpr std::int64_t limit = 100000; // jinja2's MAX_RANGE
  const auto a = bind("range", args, {"start", "stop", "step"}, 1);
  const bool one = args.positional.size() == 1;
  const auto start = one ? 0 : to_integer(a[0]), stop = to_integer(one ? a[0] : a[1]), step = to_integer(a[2], 1);
  if (step == 0)
    throw fault("range() arg 3 must not be zero");
  const auto label = "range(" + std::to_string(start) + ", " + std::to_string(stop) +
    (step == 1 ? ")" : ", " + std::to_string(step) + ")");
  std::vector<value> items;
  for (auto i = start; step > 0 ? i < stop : i > stop;) {
    if (static_cast<std::int64_t>(items.size()) == limit)
      throw fault("Range too big. The sandbox blocks ranges larger than " + std::to_string(limit) + ".");
    items.emplace_back(i);
    if (__builtin_add_overflow(i, step, &i))
      break;
  }
  c.make(64 + items.size() * sizeof(value));
  return make_sequence(shape::range, std::move(items), label);
}

value make_namespace(context& c, const call_arguments& args) {
  auto made = std::make_shared<name_space>(dict_from(c, args));
  c.keep(made);
  return value(std::shared_ptr<object>(std::move(made)));
}

value make_cycler(context& c, const call_arguments& args) {
  auto made = std::make_shared<cycler>(args.positional);
  c.keep(made);
  return value(std::shared_ptr<object>(std::move(made)));
}

value make_joiner(context& c, const call_arguments& args) {
  const auto given = bind("joiner", args, {"sep"})[0];
  c.make(256);
  auto separator = given.is_undefined() ? value(", ") : given;
  return value(std::make_shared<function>([separator, used = std::make_shared<bool>(false)](context&, const auto&) {
    return std::exchange(*used, true) ? separator : value("");
  }));
}

value raise_exception(context& c, const call_arguments& args) {
  throw raised(c.string(bind("raise_exception", args, {"message"}, 1)[0]));
}

value strftime_now(context& c, const call_arguments& args) {
  const auto format = bind("strftime_now", args, {"format"}, 1)[0];
  if (!format.is_string())
    throw fault("strftime_now() takes a str, not '" + format.type_name() + "'");
  constexpr std::size_t most = 4094;
  c.make(most + format.str().size());
  auto out = to_date(format.str(), c.now(), most);
  if (!out)
    throw fault("the date that strftime_now() is to print is too long");
  return c.text(*std::move(out));
}

} // namespace

const std::vector<std::pair<std::string, value>>& globals() {
  const auto callable = [](function::body call) { return value(std::make_shared<function>(std::move(call))); };
  static const std::vector<std::pair<std::string, value>> all = {
    {"range", callable(range)},
    {"dict", callable([](context& c, const call_arguments& args) { return value(dict_from(c, args)); })},
    {"namespace", callable(make_namespace)},
    {"cycler", callable(make_cycler)},
    {"joiner", callable(make_joiner)},
    {"raise_exception", callable(raise_exception)},
    {"strftime_now", callable(strftime_now)},
  };
  return all;
}

} // namespace troupe::jinja
