// Attribute access, slices and arithmetic of template values: Python's rules within jinja2's sandbox, with 64-bit
// integers.
#include "runtime/chat/jinja/context.hpp"
#include "runtime/chat/jinja/text/text.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace troupe::jinja {

std::tm context::now() const {
  if (now_)
    return *now_;
  const auto t = std::time(nullptr);
  std::tm local{};
  localtime_r(&t, &local);
  return local;
}

// -- arguments ----------------------------------------------------------------

std::vector<value> bind(std::string_view function, const call_arguments& args,
                        std::initializer_list<std::string_view> names, std::size_t required) {
  const std::string who(function);
  if (args.positional.size() > names.size())
    throw fault(who + "() takes at most " + std::to_string(names.size()) + " arguments (" +
                std::to_string(args.positional.size()) + " given)");
  auto result = args.positional;
  result.resize(names.size());
  std::vector<bool> given(names.size());
  std::fill_n(given.begin(), args.positional.size(), true);
  for (const auto& [key, item] : args.keyword) {
    const auto at = static_cast<std::size_t>(std::ranges::find(names, key) - names.begin());
    if (at == names.size())
      throw fault(who + "() got an unexpected keyword argument '" + key + "'");
    if (given[at])
      throw fault(who + "() got multiple values for argument '" + key + "'");
    result[at] = item;
    given[at] = true;
  }
  for (std::size_t i = 0; i < required; ++i)
    if (!given[i])
      throw fault(who + "() is missing its argument '" + std::string(names.begin()[i]) + "'");
  return result;
}

namespace {

[[noreturn]] void overflow() { throw fault("an integer does not fit into 64 bits"); }

} // namespace

std::int64_t to_integer(const value& v) {
  if (v.is_undefined())
    throw fault(v.why());
  if (v.is_wide())
    overflow();
  if (!v.is_integral())
    throw fault('\'' + v.type_name() + "' object cannot be interpreted as an integer");
  return v.integer();
}

std::int64_t to_integer(const value& v, std::int64_t fallback) {
  return v.is_undefined() || v.is_none() ? fallback : to_integer(v);
}

// -- attributes and items -----------------------------------------------------

namespace {

std::string type_repr(const value& v) { return v.is_none() ? "None" : v.type_name() + " object"; }

/// repr(v) for a message, or the type of a large value.
std::string brief(context& c, const value& v) { return v.extent().weight > 80 ? '<' + v.type_name() + ">" : v.repr(c); }

std::optional<value> attribute(context& c, const value& v, const std::string& name) {
  c.spend(64 + name.size());
  auto found = v.is(kind::object) ? v.obj()->attribute(c, name) : find_method(v, name);
  if (found)
    c.make(128);
  if (found && name.starts_with('_'))
    return value::undefined("access to attribute '" + name + "' of '" + v.type_name() + "' object is unsafe.");
  return found;
}

/// The code point at `index`, counted from the end if negative.
std::optional<value> letter(context& c, const value& of, std::int64_t index) {
  const std::string_view s = of.str();
  std::size_t begin = 0, end = 0;
  if (index >= 0) {
    end = begin = text::offset(c, s, static_cast<std::size_t>(index));
    if (begin == s.size())
      return std::nullopt;
    next_char(s, end);
  } else {
    for (begin = s.size(); index < 0; ++index) {
      if (begin == 0)
        return std::nullopt;
      c.spend(4);
      text::last(s, end = begin, begin);
    }
  }
  return c.copied_like(of, s.substr(begin, end - begin));
}

std::optional<value> item(context& c, const value& v, const value& key) {
  if (v.is(kind::dict)) {
    const bool hashable = !key.is(kind::dict) && (!key.is(kind::sequence) || key.seq().is != shape::list);
    const auto* found = hashable ? v.map().find(c, key) : nullptr;
    return found ? std::optional(*found) : std::nullopt;
  }
  const bool row = v.is(kind::sequence) && v.seq().indexable();
  if (!key.is_integral() || !(row || v.is_string()))
    return std::nullopt;
  if (v.is_string())
    return letter(c, v, key.integer());
  const auto size = static_cast<std::int64_t>(v.seq().items.size());
  const auto at = key.integer() < 0 ? key.integer() + size : key.integer();
  if (at < 0 || at >= size)
    return std::nullopt;
  return v.seq().items[static_cast<std::size_t>(at)];
}

} // namespace

value get_attribute(context& c, const value& object, const std::string& name) {
  if (object.is_undefined())
    throw fault(object.why());
  if (auto found = attribute(c, object, name))
    return *found;
  if (auto found = item(c, object, value(name)))
    return *found;
  return value::undefined('\'' + type_repr(object) + "' has no attribute '" + name + "'");
}

value get_item(context& c, const value& object, const value& key) {
  if (object.is_undefined())
    throw fault(object.why());
  if (auto found = item(c, object, key))
    return *found;
  if (!key.is_string())
    return value::undefined(type_repr(object) + " has no element " + brief(c, key));
  if (auto found = attribute(c, object, key.str()))
    return *found;
  return value::undefined('\'' + type_repr(object) + "' has no attribute " + brief(c, key));
}

namespace {

/// The code points at the given indices, which are monotonic.
std::string letters_at(context& c, std::string_view s, std::vector<std::size_t> numbers) {
  const bool falling = numbers.size() > 1 && numbers[0] > numbers[1];
  if (falling)
    std::ranges::reverse(numbers);
  std::string out;
  std::size_t at = 0, number = 0;
  for (const auto wanted : numbers) {
    const auto skipped = text::offset(c, s.substr(at), wanted - number);
    auto end = at += skipped;
    next_char(s, end);
    c.make(end - at);
    out.append(s, at, end - at);
    at = end;
    number = wanted + 1;
  }
  return falling ? text::reverse(c, out) : out;
}

} // namespace

value slice_of(context& c, const value& object, const value& start, const value& stop, const value& step) {
  if (object.is_undefined())
    throw fault(object.why());
  const bool row = object.is(kind::sequence) && object.seq().indexable();
  if (!row && !object.is_string()) // unlike other subscripts, slices are left to Python
    throw fault("'" + object.type_name() + "' object is not subscriptable");
  const auto by = to_integer(step, 1);
  if (by == 0)
    throw fault("slice step cannot be zero");
  const auto size = static_cast<std::int64_t>(*length(c, object));
  const std::int64_t lowest = by < 0 ? -1 : 0, highest = by < 0 ? size - 1 : size;
  const auto bound = [&](const value& v, std::int64_t fallback) {
    const auto at = to_integer(v, fallback);
    return v.is_none() || v.is_undefined() ? fallback : std::clamp(at < 0 ? at + size : at, lowest, highest);
  };
  const auto from = bound(start, by < 0 ? highest : lowest), to = bound(stop, by < 0 ? lowest : highest);
  const auto distance = by > 0 ? to - from : from - to;
  const auto stride = static_cast<std::uint64_t>(by > 0 ? by : -(by + 1)) + (by > 0 ? 0 : 1);
  const auto count = distance <= 0 ? 0 : (static_cast<std::uint64_t>(distance) - 1) / stride + 1;
  if (object.is_string() && by == 1) {
    const auto begin = text::offset(c, object.str(), static_cast<std::size_t>(from));
    const auto rest = std::string_view(object.str()).substr(begin);
    return c.copied_like(object, rest.substr(0, text::offset(c, rest, static_cast<std::size_t>(count))));
  }
  c.make(count * (sizeof(value) + sizeof(std::size_t)));
  std::vector<std::size_t> chosen;
  for (auto at = from; by > 0 ? at < to : at > to; at += by) {
    chosen.push_back(static_cast<std::size_t>(at));
    if (by > 0 ? by >= to - at : by <= to - at)
      break;
  }
  if (row) {
    std::vector<value> items;
    for (auto at : chosen)
      items.push_back(object.seq().items[at]);
    return c.list(std::move(items), object.seq().is == shape::list ? shape::list : shape::tuple);
  }
  return c.text_like(object, letters_at(c, object.str(), std::move(chosen)));
}

bool contains(context& c, const value& container, const value& item) {
  if (container.is_string()) {
    if (!item.is_string())
      throw fault("'in <string>' requires string as left operand, not " + item.type_name());
    return text::find(c, container.str(), item.str()) != std::string::npos;
  }
  if (container.is(kind::dict))
    return container.map().find(c, item) != nullptr;
  if (!iterable(container))
    throw fault("argument of type '" + container.type_name() + "' is not iterable");
  const auto is_it = [&](const value& v) { return v.same(item) || equal(c, v, item); };
  if (container.is(kind::sequence) && container.seq().is != shape::generator)
    return std::ranges::any_of(container.seq().items, is_it);
  return std::ranges::any_of(c.items(container), is_it);
}

std::string escaped(context& c, const value& v) {
  if (v.is_markup())
    return c.string(v);
  return v.is_string() ? text::escape_html(c, v.str()) : text::escape_html(c, c.string(v));
}

// -- arithmetic ---------------------------------------------------------------

namespace {

/// `compute` is a checked operation of the compiler and returns whether it overflowed.
value checked(bool (*compute)(std::int64_t, std::int64_t, std::int64_t*), std::int64_t a, std::int64_t b) {
  std::int64_t result = 0;
  if (compute(a, b, &result))
    overflow();
  return value(result);
}

bool add(std::int64_t a, std::int64_t b, std::int64_t* r) { return __builtin_add_overflow(a, b, r); }
bool subtract(std::int64_t a, std::int64_t b, std::int64_t* r) { return __builtin_sub_overflow(a, b, r); }
bool multiply(std::int64_t a, std::int64_t b, std::int64_t* r) { return __builtin_mul_overflow(a, b, r); }

std::int64_t divisor(const value& v, const char* what) {
  if (v.integer() == 0)
    throw fault(std::string("integer ") + what + " by zero");
  return v.integer();
}

value power(std::int64_t base, std::int64_t exponent) {
  if (exponent < 0) {
    if (base == 0)
      throw fault("0.0 cannot be raised to a negative power");
    return value(std::pow(static_cast<double>(base), static_cast<double>(exponent)));
  }
  if (base == 0 || base == 1 || base == -1)
    return value(exponent == 0 ? std::int64_t{1} : base == -1 && exponent % 2 == 0 ? std::int64_t{1} : base);
  std::int64_t result = 1;
  for (; exponent > 0; --exponent)
    if (multiply(result, base, &result))
      overflow();
  return value(result);
}

value integers(std::string_view op, const value& left, const value& right) {
  const auto a = left.integer(), b = right.integer();
  if (op == "+")
    return checked(add, a, b);
  if (op == "-")
    return checked(subtract, a, b);
  if (op == "*")
    return checked(multiply, a, b);
  if (op == "**")
    return power(a, b);
  if (op == "/")
    return value(static_cast<double>(a) / static_cast<double>(divisor(right, "division")));
  const auto by = divisor(right, op == "%" ? "modulo" : "division or modulo");
  if (by == -1)
    return op == "%" ? value(0) : checked(subtract, 0, a);
  const bool lower = a % by != 0 && (a % by < 0) != (by < 0); // C++ rounds towards zero, Python towards minus infinity
  return op == "%" ? value(a % by + (lower ? by : 0)) : value(a / by - (lower ? 1 : 0));
}

value reals(std::string_view op, double a, double b) {
  if (op == "+")
    return value(a + b);
  if (op == "-")
    return value(a - b);
  if (op == "*")
    return value(a * b);
  if (op == "**") {
    if (a == 0 && b < 0)
      throw fault("0.0 cannot be raised to a negative power");
    if (a < 0 && b != std::floor(b))
      throw fault("a power is a complex number");
    const auto result = std::pow(a, b);
    if (std::isinf(result) && std::isfinite(a) && std::isfinite(b))
      throw fault("a power does not fit into a float");
    return value(result);
  }
  if (b == 0)
    throw fault("float division by zero");
  if (op == "/")
    return value(a / b);
  auto rest = std::fmod(a, b);
  if (rest != 0 && (rest < 0) != (b < 0))
    rest += b;
  return op == "%" ? value(rest == 0 ? std::copysign(0.0, b) : rest) : value(std::round((a - rest) / b));
}

value repeat(context& c, const value& v, std::int64_t times) {
  const auto n = static_cast<std::size_t>(std::max<std::int64_t>(times, 0));
  const auto unit = v.is_string() ? v.str().size() : v.seq().items.size() * sizeof(value);
  if (unit != 0 && n > std::numeric_limits<std::uint32_t>::max() / unit)
    throw fault("a repetition is longer than any chat template should need");
  c.make(64 + unit * n);
  if (v.is_string()) {
    std::string out;
    out.reserve(unit * n);
    for (std::size_t i = 0; unit != 0 && i < n; ++i)
      out += v.str();
    return v.is_markup() ? value::markup(std::move(out)) : value(std::move(out));
  }
  std::vector<value> items;
  for (std::size_t i = 0; unit != 0 && i < n; ++i)
    items.insert(items.end(), v.seq().items.begin(), v.seq().items.end());
  return make_sequence(v.seq().is, std::move(items));
}

bool concatenable(const value& v) { return v.is(kind::sequence) && v.seq().indexable() && v.seq().is != shape::range; }

} // namespace

value arithmetic(context& c, std::string_view op, const value& a, const value& b) {
  if (op == "%" && a.is_string())
    return format_percent(c, a, b);
  for (const auto* v : {&a, &b})
    if (v->is_undefined())
      throw fault(v->why());
  if (a.is_integral() && b.is_integral())
    return integers(op, a, b);
  const auto whole = [](const value& v) { return v.is_integral() || v.is_wide(); };
  if (op != "/" && whole(a) && whole(b) && (a.is_wide() || b.is_wide())) // the result would be a wide integer
    overflow();
  if (a.is_number() && b.is_number())
    return reals(op, a.real(), b.real());
  if (op == "+" && a.is_string()) {
    if (!b.is_string())
      throw fault("can only concatenate str (not \"" + b.type_name() + "\") to str");
    if (a.is_markup() || b.is_markup())
      return c.markup(escaped(c, a) + escaped(c, b));
    c.make(a.str().size() + b.str().size());
    return c.text(a.str() + b.str());
  }
  if (op == "+" && concatenable(a) && concatenable(b) && a.type_name() == b.type_name()) {
    c.make((a.seq().items.size() + b.seq().items.size()) * sizeof(value));
    auto items = a.seq().items;
    items.insert(items.end(), b.seq().items.begin(), b.seq().items.end());
    return c.list(std::move(items), a.seq().is);
  }
  if (op == "*" && b.is_integral() && (a.is_string() || concatenable(a)))
    return repeat(c, a, b.integer());
  if (op == "*" && a.is_integral() && (b.is_string() || concatenable(b)))
    return repeat(c, b, a.integer());
  throw fault("unsupported operand type(s) for " + std::string(op) + ": '" + a.type_name() + "' and '" + b.type_name() +
              "'");
}

value negate(const value& v) {
  if (v.is_undefined())
    throw fault(v.why());
  if (v.is_integral())
    return integers("-", value(0), v);
  if (v.is_wide())
    return value::wide(-v.real(), v.digits()->starts_with('-') ? v.digits()->substr(1) : '-' + *v.digits());
  if (v.is_number())
    return value(-v.real());
  throw fault("bad operand type for unary -: '" + v.type_name() + "'");
}

} // namespace troupe::jinja
