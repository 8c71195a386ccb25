// Filters on text and single values, and the lookup of all filters.
#include "runtime/chat/jinja/library/filters.hpp"

#include "runtime/chat/jinja/text/text.hpp"
#include "runtime/support/text/ascii.hpp"
#include "runtime/support/text/number_text.hpp"

#include <algorithm>
#include <cmath>

namespace troupe::jinja {

namespace {

/// The text of a string, or str(v), stored in `held`.
std::string_view text_of(context& c, const value& v, std::string& held) {
  if (v.is_string())
    return v.str();
  held = c.string(v);
  return held;
}

template <std::string (*map)(meter&, std::string_view)>
value mapped(context& c, const value& v, const call_arguments& args) {
  bind("filter", args, {});
  std::string held;
  return c.text_like(v, map(c, text_of(c, v, held)));
}

value title(context& c, const value& v, const call_arguments& args) {
  bind("title", args, {});
  std::string held;
  return c.text(text::title_words(c, text_of(c, v, held)));
}

value escape(context& c, const value& v, const call_arguments& args) {
  bind("escape", args, {});
  return c.markup(escaped(c, v));
}

value force_escape(context& c, const value& v, const call_arguments& args) {
  bind("forceescape", args, {});
  std::string held;
  return c.markup(text::escape_html(c, text_of(c, v, held)));
}

value safe(context& c, const value& v, const call_arguments& args) {
  bind("safe", args, {});
  return v.is_markup() ? v : c.markup(c.string(v));
}

value trim(context& c, const value& v, const call_arguments& args) {
  const auto chars = bind("trim", args, {"chars"})[0];
  const auto set = chars.is_string() ? std::string_view(chars.str()) : std::string_view();
  std::string held;
  const auto s = text_of(c, v, held);
  const auto kept = chars.is_string() && set.empty() ? s : text::strip(c, s, set, true, true);
  return v.is_string() && kept.size() == s.size() ? v : c.copied_like(v, kept);
}

value replace(context& c, const value& v, const call_arguments& args) {
  const auto a = bind("replace", args, {"old", "new", "count"}, 2);
  std::string held, held_from, held_to;
  const auto s = text_of(c, v, held), from = text_of(c, a[0], held_from), to = text_of(c, a[1], held_to);
  return c.text(text::replace(c, s, from, to, to_integer(a[2], -1)));
}

value center(context& c, const value& v, const call_arguments& args) {
  const auto width = std::max<std::int64_t>(to_integer(bind("center", args, {"width"})[0], 80), 0);
  std::string held;
  return c.text_like(v, text::pad(c, text_of(c, v, held), static_cast<std::size_t>(width), '^'));
}

value indent(context& c, const value& v, const call_arguments& args) {
  const auto a = bind("indent", args, {"width", "first", "blank"});
  std::string by;
  if (a[0].is_string()) {
    by = a[0].str();
  } else {
    const auto width = std::max<std::int64_t>(to_integer(a[0], 4), 0);
    c.make(static_cast<std::size_t>(width));
    by.assign(static_cast<std::size_t>(width), ' ');
  }
  if (!v.is_string())
    throw fault("unsupported operand type(s) for +=: '" + v.type_name() + "' and 'str'");
  c.make(2 * v.str().size());
  const auto s = v.str() + "\n";
  const auto lines = text::split_lines(c, s, false);
  c.make(lines.size() * (by.size() + 1));
  std::string out = a[1].truth() ? by : "";
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (i > 0)
      out += !lines[i].empty() || a[2].truth() ? "\n" + by : "\n";
    out += lines[i];
  }
  return c.text_like(v, std::move(out));
}

value format(context& c, const value& v, const call_arguments& args) {
  const auto s = v.is_string() ? v : c.text(c.string(v));
  if (args.keyword.empty())
    return format_percent(c, s, value::tuple(args.positional));
  if (!args.positional.empty())
    throw fault("can't handle positional and keyword arguments at the same time");
  dict named;
  for (const auto& [key, item] : args.keyword)
    named.set(c, value(key), item);
  return format_percent(c, s, value(std::move(named)));
}

// -- numbers ------------------------------------------------------------------

value absolute(context&, const value& v, const call_arguments& args) {
  bind("abs", args, {});
  if (v.is_undefined())
    throw fault(v.why());
  if (!v.is_number())
    throw fault("bad operand type for abs(): '" + v.type_name() + "'");
  if (v.is_wide())
    return v.real() < 0 ? negate(v) : v;
  return v.is(kind::real) ? value(std::abs(v.real())) : v.integer() < 0 ? negate(v) : value(v.integer());
}

/// Texts of more bytes are not numbers.
constexpr std::size_t longest_number = 1000;

/// Python's float(text), or nothing if that is no number.
std::optional<double> read_real(context& c, std::string_view s) {
  std::string digits(text::strip(c, s, {}, true, true).substr(0, longest_number + 1));
  if (digits.size() > longest_number)
    return std::nullopt;
  const auto letters = text::lower(c, digits);
  const bool named = letters.find("inf") != letters.npos || letters.find("nan") != letters.npos;
  if (digits.empty() || letters.find('x') != letters.npos || letters.find('(') != letters.npos ||
      (!named && digits.find_first_not_of("0123456789+-.eE_") != digits.npos) || digits.find("__") != digits.npos)
    return std::nullopt;
  std::erase(digits, '_');
  return to_real(digits);
}

/// Python's int(text, base), or nothing if that is no integer.
std::optional<std::int64_t> read_integer(context& c, std::string_view s, std::int64_t base) {
  s = text::strip(c, s, {}, true, true);
  if (s.size() > longest_number)
    return std::nullopt;
  std::string digits(s);
  const bool negative = digits.starts_with('-');
  if (negative || digits.starts_with('+'))
    digits.erase(0, 1);
  const auto prefix = digits.size() > 2 && digits[0] == '0' ? static_cast<char>(digits[1] | 0x20) : '\0';
  const std::int64_t named = prefix == 'x' ? 16 : prefix == 'o' ? 8 : prefix == 'b' ? 2 : 0;
  if (named != 0 && (base == named || base == 0)) {
    digits.erase(0, 2);
    base = named;
  }
  base = base == 0 ? 10 : base;
  if (digits.empty() || digits.ends_with('_') || digits.starts_with('_') || digits.find("__") != digits.npos)
    return std::nullopt;
  std::erase(digits, '_');
  std::int64_t result = 0;
  for (const char c : digits) {
    const std::int64_t digit = is_ascii_digit(c) ? c - '0' : is_ascii_letter(c) ? (c | 0x20) - 'a' + 10 : 99;
    if (digit >= base)
      return std::nullopt;
    if (__builtin_mul_overflow(result, base, &result) ||
        (negative ? __builtin_sub_overflow(result, digit, &result) : __builtin_add_overflow(result, digit, &result)))
      throw fault("the integer " + std::string(s) + " does not fit into 64 bits");
  }
  return result;
}

value truncated(double d, const value& fallback) {
  if (!std::isfinite(d))
    return fallback;
  if (std::abs(d) >= 9.2e18)
    throw fault("an integer does not fit into 64 bits");
  return value(static_cast<std::int64_t>(d));
}

value to_int(context& c, const value& v, const call_arguments& args) {
  const auto a = bind("int", args, {"default", "base"});
  const auto fallback = a[0].is_undefined() ? value(0) : a[0];
  if (v.is_undefined())
    throw fault(v.why());
  if (v.is_wide())
    return v;
  if (v.is_number())
    return v.is_integral() ? value(v.integer()) : truncated(v.real(), fallback);
  if (!v.is_string())
    return fallback;
  const auto base = to_integer(a[1], 10);
  if (base < 0 || base == 1 || base > 36)
    throw fault("int() base must be >= 2 and <= 36, or 0");
  if (const auto read = read_integer(c, v.str(), base))
    return value(*read);
  const auto real = read_real(c, v.str());
  return real ? truncated(*real, fallback) : fallback;
}

value to_float(context& c, const value& v, const call_arguments& args) {
  const auto a = bind("float", args, {"default"});
  if (v.is_undefined())
    throw fault(v.why());
  if (v.is_number())
    return value(v.real());
  const auto real = v.is_string() ? read_real(c, v.str()) : std::nullopt;
  return real ? value(*real) : a[0].is_undefined() ? value(0.0) : a[0];
}

value round(context& c, const value& v, const call_arguments& args) {
  const auto a = bind("round", args, {"precision", "method"});
  const auto precision = to_integer(a[0], 0);
  const auto method = a[1].is_undefined() ? "common" : c.string(a[1]);
  if (v.is_undefined())
    throw fault(v.why());
  if (method != "common" && method != "ceil" && method != "floor")
    throw fault("method must be common, ceil or floor");
  if (!v.is_number() || std::abs(precision) > 300)
    throw fault("cannot round a value of type " + v.type_name() + " to " + std::to_string(precision) + " digits");
  if (method == "common" && (v.is_integral() || v.is_wide()) && precision >= 0)
    return v.is_wide() ? v : value(v.integer());
  const auto scale = std::pow(10.0, static_cast<double>(std::abs(precision)));
  const auto scaled = precision < 0 ? v.real() / scale : v.real() * scale;
  if (method == "common" && precision >= 0) {
    // Correctly rounded from the exact binary value, as Python does.
    return value(to_real(to_fixed(v.real(), static_cast<int>(precision))).value());
  }
  const auto whole = method == "ceil" ? std::ceil(scaled)
    : method == "floor"               ? std::floor(scaled)
                                      : std::nearbyint(scaled);
  const auto result = precision < 0 ? whole * scale : whole / scale;
  return v.is_integral() && method == "common" ? truncated(result, value(0)) : value(result);
}

// -- any value ----------------------------------------------------------------

value fall_back(context&, const value& v, const call_arguments& args) {
  const auto a = bind("default", args, {"default_value", "boolean"});
  if (!v.is_undefined() && !(a[1].truth() && !v.truth()))
    return v;
  return args.positional.empty() && args.keyword.empty() ? value("") : a[0];
}

value to_json_text(context& c, const value& v, const call_arguments& args) {
  const auto a = bind("tojson", args, {"ensure_ascii", "indent", "separators", "sort_keys"});
  json_style style;
  style.ensure_ascii = a[0].truth();
  style.sort_keys = a[3].truth();
  if (a[1].is_string())
    style.indent = a[1].str();
  else if (!a[1].is_none() && !a[1].is_undefined())
    style.indent = std::string(static_cast<std::size_t>(std::clamp<std::int64_t>(to_integer(a[1]), 0, 1000)), ' ');
  if (style.indent)
    style.item_separator = ",";
  if (iterable(a[2]) && !a[2].is_undefined()) {
    const auto pair = c.items(a[2]);
    if (pair.size() != 2 || !pair[0].is_string() || !pair[1].is_string())
      throw fault("separators must be two strings");
    style.item_separator = pair[0].str();
    style.key_separator = pair[1].str();
  }
  return c.text(to_json(c, v, style));
}

value attribute(context& c, const value& v, const call_arguments& args) {
  const auto name = c.string(bind("attr", args, {"name"}, 1)[0]);
  if (v.is_undefined())
    throw fault(v.why());
  // Attributes only, not the items of a dict.
  const auto found = v.is(kind::object) ? v.obj()->attribute(c, name) : find_method(v, name);
  return found ? get_attribute(c, v, name)
               : value::undefined('\'' + v.type_name() + " object' has no attribute '" + name + "'");
}

value as_text(context& c, const value& v, const call_arguments& args) {
  bind("string", args, {});
  return v.is_string() ? v : c.text(c.string(v));
}

value count_words(context& c, const value& v, const call_arguments& args) {
  bind("wordcount", args, {});
  std::string held;
  return std::int64_t(text::count_words(c, text_of(c, v, held)));
}

constexpr named_filter filters[] = {
  {"abs", absolute},
  {"attr", attribute},
  {"capitalize", mapped<text::capitalize>},
  {"center", center},
  {"d", fall_back},
  {"default", fall_back},
  {"e", escape},
  {"escape", escape},
  {"float", to_float},
  {"forceescape", force_escape},
  {"format", format},
  {"indent", indent},
  {"int", to_int},
  {"lower", mapped<text::lower>},
  {"replace", replace},
  {"round", round},
  {"safe", safe},
  {"string", as_text},
  {"title", title},
  {"tojson", to_json_text},
  {"trim", trim},
  {"upper", mapped<text::upper>},
  {"wordcount", count_words},
};

} // namespace

filter_function find_filter(std::string_view name) {
  const auto found = std::ranges::find(filters, name, &named_filter::name);
  return found == std::end(filters) ? find_sequence_filter(name) : found->call;
}

} // namespace troupe::jinja
