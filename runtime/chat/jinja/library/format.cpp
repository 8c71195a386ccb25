// Python's "%s" % x and "{}".format(x) for the types of templates.
#include "runtime/chat/jinja/context.hpp"
#include "runtime/chat/jinja/text/text.hpp"
#include "runtime/support/text/ascii.hpp"
#include "runtime/support/text/number_text.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>

namespace troupe::jinja {

namespace {

/// A conversion, common to both syntaxes.
struct field {
  std::string fill = " ";
  char align = '\0'; // '<' '>' '^', '=' (pad after the sign), or 0 for the default of the type
  char sign = '-';   // '-': negatives only, '+': always, ' ': a space for positives
  bool alternate = false, grouped = false;
  std::size_t width = 0;
  std::optional<std::size_t> precision;
  char type = '\0';
};

constexpr std::size_t widest = 10000;

std::size_t number(std::string_view s, std::size_t& at) {
  std::size_t n = 0;
  for (; at < s.size() && is_ascii_digit(s[at]); ++at)
    if ((n = n * 10 + static_cast<std::size_t>(s[at] - '0')) > widest)
      throw fault("a width or precision over " + std::to_string(widest) + " in a format string");
  return n;
}

[[noreturn]] void unknown(char type, const value& v) {
  throw fault(std::string("unknown format code '") + type + "' for object of type '" + v.type_name() + "'");
}

std::string digits_of(context& c, std::uint64_t magnitude, char type) {
  const int base = type == 'x' || type == 'X' ? 16 : type == 'o' ? 8 : type == 'b' ? 2 : 10;
  char digits[64];
  const auto end = std::to_chars(digits, digits + sizeof digits, magnitude, base).ptr;
  const std::string_view all(digits, static_cast<std::size_t>(end - digits));
  return type == 'X' ? text::upper(c, all) : std::string(all);
}

/// Formats as %#.*g does: with the zeros behind the last digit.
std::string general_with_zeros(double magnitude, int precision) {
  const int digits = std::max(precision, 1);
  const auto out = to_scientific(magnitude, digits - 1);
  const auto exponent = out.find('e');
  if (exponent == out.npos) // infinity and NaN
    return out;
  const int size = std::stoi(out.substr(exponent + 1));
  return size < -4 || size >= digits ? out : to_fixed(magnitude, digits - 1 - size);
}

std::string real_digits(context& c, double d, const field& f) {
  const int precision = static_cast<int>(f.precision.value_or(6));
  const double magnitude = std::abs(f.type == '%' ? d * 100 : d);
  const char type = ascii_lower(f.type);
  auto out = type == 'e' ? to_scientific(magnitude, precision)
    : type != 'g'        ? to_fixed(magnitude, precision)
    : f.alternate        ? general_with_zeros(magnitude, precision)
                         : to_general(magnitude, precision);
  if (f.alternate && std::isfinite(magnitude) && out.find('.') == out.npos)
    out.insert(std::min(out.find('e'), out.size()), 1, '.');
  return (type == f.type ? out : text::upper(c, out)) + (f.type == '%' ? "%" : "");
}

void group_thousands(std::string& digits) {
  const auto whole = std::min(digits.find_first_not_of("0123456789"), digits.size());
  for (auto at = whole; at > 3; at -= 3)
    digits.insert(at - 3, 1, ',');
}

std::string numeric(context& c, const value& v, const field& f) {
  const bool real = std::string_view("eEfFgG%").find(f.type) != std::string_view::npos;
  const bool negative = v.is(kind::real) ? std::signbit(v.real()) && !std::isnan(v.real()) : v.integer() < 0;
  std::string prefix = negative ? "-" : f.sign == '-' ? "" : std::string(1, f.sign), digits;
  if (v.is_wide() && !real) {
    if (f.type != 'd' && f.type != '\0')
      throw fault("an integer does not fit into 64 bits");
    digits = v.digits()->substr(negative ? 1 : 0);
  } else if (real || (v.is(kind::real) && f.precision)) {
    auto as = f;
    as.type = real ? f.type : 'g';
    digits = real_digits(c, v.real(), as);
  } else if (v.is(kind::real)) {
    digits = text::repr(std::abs(v.real()));
  } else {
    const auto magnitude = static_cast<std::uint64_t>(v.integer());
    digits = digits_of(c, negative ? 0 - magnitude : magnitude, f.type);
    if (f.alternate && f.type != 'd' && f.type != '\0')
      prefix += std::string("0") + f.type;
  }
  if (f.grouped)
    group_thousands(digits);
  if (f.align == '=')
    return prefix + text::pad(c, digits, f.width - std::min(f.width, prefix.size()), '>', f.fill);
  return text::pad(c, prefix + digits, f.width, f.align ? f.align : '>', f.fill);
}

std::string textual(context& c, std::string s, const field& f) {
  if (f.precision) {
    std::size_t at = 0;
    for (std::size_t n = 0; n < *f.precision && at < s.size(); ++n)
      next_char(s, at);
    s.resize(at);
  }
  return text::pad(c, s, f.width, f.align && f.align != '=' ? f.align : '<', f.fill);
}

std::string character(context& c, const value& v, const field& f) {
  const auto code = to_integer(v);
  if (code < 0 || code > 0x10FFFF || (code >= 0xD800 && code < 0xE000))
    throw fault("%c arg not in range(0x110000)");
  std::string out;
  append_char(out, static_cast<char32_t>(code));
  return textual(c, std::move(out), f);
}

// -- "%s" % x -----------------------------------------------------------------

class percent {
public:
  percent(context& c, const value& format, const value& given)
    : context_(c), format_(format.str()), escapes_(format.is_markup()), given_(given) {}

  std::string run() {
    std::string out;
    while (at_ < format_.size()) {
      const auto next = std::min(format_.find('%', at_), format_.size());
      context_.make(next - at_);
      out += format_.substr(at_, next - at_);
      at_ = next;
      if (at_ < format_.size())
        out += one();
      context_.spend(8);
    }
    const bool single = !(given_.is(kind::sequence) && given_.type_name() == "tuple") && !given_.is(kind::dict);
    if (single ? used_ == 0 && !given_.is(kind::sequence) : !given_.is(kind::dict) && used_ < given_.seq().items.size())
      throw fault("not all arguments converted during string formatting");
    return out;
  }

private:
  char peek() const {
    if (at_ >= format_.size())
      throw fault("incomplete format");
    return format_[at_];
  }

  value next() {
    if (given_.is(kind::sequence) && given_.type_name() == "tuple") {
      if (used_ < given_.seq().items.size())
        return given_.seq().items[used_++];
    } else if (used_++ == 0) {
      return given_;
    }
    throw fault("not enough arguments for format string");
  }

  value named() {
    const auto end = format_.find(')', at_);
    if (end == format_.npos)
      throw fault("incomplete format key");
    if (!given_.is(kind::dict))
      throw fault("format requires a mapping");
    const std::string key(format_.substr(at_, end - at_));
    at_ = end + 1;
    const auto* found = given_.map().find(std::string_view(key));
    if (!found)
      throw fault("the format names '" + key + "', which is not given");
    return *found;
  }

  std::string one() {
    ++at_;
    std::optional<value> keyed;
    if (peek() == '(') {
      ++at_;
      keyed = named();
    }
    field f;
    f.align = '>';
    bool zero = false;
    for (;; ++at_) {
      const char c = peek();
      if (c == '-')
        f.align = '<';
      else if (c == '+' || (c == ' ' && f.sign != '+'))
        f.sign = c;
      else if (c == '0')
        zero = true;
      else if (c == '#')
        f.alternate = true;
      else if (c != ' ')
        break;
    }
    f.width = size(f);
    if (peek() == '.') {
      ++at_;
      f.precision = size(f);
    }
    while (peek() == 'l' || peek() == 'h' || peek() == 'L')
      ++at_;
    const auto begin = at_;
    f.type = format_[begin];
    next_char(format_, at_);
    type_ = format_.substr(begin, at_ - begin);
    context_.make(f.width + 32 * f.precision.value_or(0));
    if (f.type == '%')
      return "%";
    return converted(keyed ? *keyed : next(), f, zero);
  }

  std::size_t size(field& f) {
    if (peek() != '*')
      return number(format_, at_);
    ++at_;
    auto n = to_integer(next());
    if (n < 0)
      f.align = '<';
    n = n < 0 ? -n : n;
    if (n < 0 || static_cast<std::size_t>(n) > widest)
      throw fault("a width or precision over " + std::to_string(widest) + " in a format string");
    return static_cast<std::size_t>(n);
  }

  std::string converted(value v, field f, bool zero) {
    if (f.type == 's' && escapes_)
      return textual(context_, escaped(context_, v), f);
    if (f.type == 's')
      return textual(context_, v.text(context_), f);
    if (f.type == 'r' || f.type == 'a')
      return textual(context_, escapes_ ? text::escape_html(context_, v.repr(context_)) : v.repr(context_), f);
    if (f.type == 'c')
      return v.is_string() ? textual(context_, v.text(context_), f) : character(context_, v, f);
    if (zero && f.align == '>') {
      f.fill = "0";
      f.align = '=';
    }
    if (v.is_undefined())
      throw fault(v.why());
    if (std::string_view("diuxXo").find(f.type) != std::string_view::npos) {
      if (v.is(kind::real) && (f.type == 'd' || f.type == 'i' || f.type == 'u') && std::abs(v.real()) < 9.2e18)
        v = value(static_cast<std::int64_t>(v.real()));
      if (!v.is_integral() && !v.is_wide())
        throw fault(std::string("%") + f.type + " format: an integer is required, not " + v.type_name());
      f.type = f.type == 'i' || f.type == 'u' ? 'd' : f.type;
      f.precision.reset();
    } else if (std::string_view("eEfFgG").find(f.type) == std::string_view::npos) {
      throw fault("unsupported format character '" + std::string(type_) + "'");
    } else if (!v.is_number()) {
      throw fault("must be real number, not " + v.type_name());
    }
    return numeric(context_, v, f);
  }

  context& context_;
  std::string_view format_;
  bool escapes_; // the format is markup
  const value& given_;
  std::size_t at_ = 0, used_ = 0;
  std::string_view type_; // the character of the conversion at hand
};

// -- "{}".format(x) -----------------------------------------------------------

field parse_spec(std::string_view s) {
  field f;
  std::size_t at = 0;
  const auto aligns = [&](std::size_t i) { return i < s.size() && std::string_view("<>^=").find(s[i]) != s.npos; };
  if (!s.empty()) {
    std::size_t first = 0;
    next_char(s, first);
    if (aligns(first)) {
      f.fill = s.substr(0, first);
      f.align = s[first];
      at = first + 1;
    } else if (aligns(0)) {
      f.align = s[at++];
    }
  }
  const auto skip = [&](char c) { return at < s.size() && s[at] == c ? (++at, true) : false; };
  f.sign = skip('+') ? '+' : skip(' ') ? ' ' : (skip('-'), '-');
  f.alternate = skip('#');
  if (skip('0') && !f.align) {
    f.fill = "0";
    f.align = '=';
  }
  f.width = number(s, at);
  f.grouped = skip(',');
  if (skip('.'))
    f.precision = number(s, at);
  if (at < s.size())
    f.type = s[at++];
  if (at != s.size())
    throw fault("invalid format specifier '" + std::string(s) + "'");
  return f;
}

std::string format_value(context& c, const value& v, std::string_view spec) {
  const auto f = parse_spec(spec);
  c.make(f.width + 32 * f.precision.value_or(0));
  if (spec.empty())
    return v.text(c);
  if (v.is_number() && !(v.is(kind::boolean) && f.type == '\0')) {
    if (f.type == 'c')
      return character(c, v, f);
    if (f.type == 's' || (f.type != '\0' && std::string_view("dxXobeEfFgG%").find(f.type) == std::string_view::npos) ||
        (v.is(kind::real) && !v.is_wide() && f.type != '\0' &&
         std::string_view("dxXob").find(f.type) != std::string_view::npos))
      unknown(f.type, v);
    return numeric(c, v, f);
  }
  if (!v.is_string() && !v.is(kind::boolean))
    throw fault("unsupported format string passed to " + v.type_name() + ".__format__");
  if (f.type != '\0' && f.type != 's')
    unknown(f.type, v);
  return textual(c, v.text(c), f);
}

/// Evaluates `0.name[key]` of a replacement field.
value look_up(context& c, std::string_view path, const call_arguments& args, std::size_t& automatic) {
  const auto end = std::min(path.find_first_of(".["), path.size());
  const auto first = path.substr(0, end);
  value found;
  if (first.empty() || text::all(c, first, text::is_decimal)) {
    std::size_t at = 0;
    const auto index = first.empty() ? automatic++ : number(first, at);
    if (index >= args.positional.size())
      throw fault("replacement index " + std::to_string(index) + " out of range for positional args tuple");
    found = args.positional[index];
  } else {
    c.spend(args.keyword.size());
    const auto named = std::ranges::find(args.keyword, first, [](const auto& e) { return std::string_view(e.first); });
    if (named == args.keyword.end())
      throw fault("the format names '" + std::string(first) + "', which is not given");
    found = named->second;
  }
  for (path.remove_prefix(end); !path.empty();) {
    const bool item = path[0] == '[';
    const auto stop = item ? path.find(']') : std::min(path.find_first_of(".[", 1), path.size());
    if (stop == path.npos)
      throw fault("missing ']' in format string");
    const auto name = path.substr(1, stop - 1);
    std::size_t at = 0;
    found = !item                            ? get_attribute(c, found, std::string(name))
      : text::all(c, name, text::is_decimal) ? get_item(c, found, value(static_cast<std::int64_t>(number(name, at))))
                                             : get_item(c, found, value(name));
    path.remove_prefix(item ? stop + 1 : stop);
  }
  return found;
}

} // namespace

value format_percent(context& c, const value& format, const value& arguments) {
  return c.text_like(format, percent(c, format, arguments).run());
}

value format_braces(context& c, const value& given, const call_arguments& args) {
  const std::string_view format = given.str();
  std::string out;
  std::size_t automatic = 0;
  for (std::size_t at = 0; at < format.size();) {
    c.spend(8);
    const char brace = format[at];
    if (brace != '{' && brace != '}') {
      out += format[at++];
      continue;
    }
    if (at + 1 < format.size() && format[at + 1] == brace) {
      out += brace;
      at += 2;
      continue;
    }
    const auto end = format.find('}', at);
    if (brace == '}' || end == format.npos)
      throw fault(std::string("single '") + brace + "' encountered in format string");
    const auto inside = format.substr(at + 1, end - at - 1);
    if (inside.find('{') != inside.npos)
      throw fault("replacement fields within replacement fields are not supported");
    const auto colon = std::min(inside.find(':'), inside.size());
    auto path = inside.substr(0, colon);
    const bool as_repr = path.ends_with("!r");
    if (as_repr || path.ends_with("!s"))
      path.remove_suffix(2);
    auto v = look_up(c, path, args, automatic);
    if (as_repr)
      v = c.text(v.repr(c));
    else if (colon != path.size() && inside.substr(path.size()).starts_with("!s"))
      v = c.text(v.text(c));
    const auto spec = inside.substr(std::min(colon + 1, inside.size()));
    if (v.is_markup() && given.is_markup() && !spec.empty())
      throw fault("unsupported format specification for Markup");
    auto part = format_value(c, v, spec);
    out += given.is_markup() && !v.is_markup() ? text::escape_html(c, part) : part;
    at = end + 1;
  }
  return c.text_like(given, std::move(out));
}

} // namespace troupe::jinja
