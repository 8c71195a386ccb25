// Compares values: which are equal, which comes first. Also the keys of dictionaries.
#include "runtime/chat/jinja/text/text.hpp"
#include "runtime/chat/jinja/value.hpp"
#include "runtime/support/text/number_text.hpp"

#include <algorithm>
#include <cmath>

namespace troupe::jinja {

namespace {

/// All digits of a whole number.
std::string whole_digits(double d) { return to_fixed(d, 0); }

std::string key_of_real(double d) {
  // 1, 1.0 and True are one key in Python.
  if (d == std::floor(d) && std::abs(d) < 9.2e18)
    return 'n' + std::to_string(static_cast<std::int64_t>(d));
  if (d == std::floor(d) && std::isfinite(d))
    return 'n' + whole_digits(d);
  return 'f' + text::repr(d);
}

bool both(const value& a, const value& b, kind k) { return a.is(k) && b.is(k); }

bool row(const value& v) { return v.is(kind::sequence) && v.seq().indexable(); }

int sign(auto a, auto b) { return a < b ? -1 : b < a ? 1 : 0; }

int compare_wide(const value& a, const value& b) {
  for (const auto* v : {&a, &b})
    if (!v->is_integral() && !v->is_wide() && !std::isfinite(v->real()))
      return v == &a ? sign(v->real(), 0.0) : sign(0.0, v->real());
  const auto digits = [](const value& v) { // a fraction decides nothing beside an integer beyond 64 bits
    return v.is_integral() ? std::to_string(v.integer())
      : v.is_wide()        ? *v.digits()
                           : whole_digits(std::trunc(v.real()));
  };
  const auto x = digits(a), y = digits(b);
  const bool negative = x.front() == '-';
  if (negative != (y.front() == '-'))
    return negative ? -1 : 1;
  const auto of_sizes = sign(x.size(), y.size());
  const auto magnitudes = of_sizes != 0 ? of_sizes : sign(x.compare(y), 0);
  return negative ? -magnitudes : magnitudes;
}

/// Exact even if a conversion to double would round the integer.
int compare_numbers(const value& a, const value& b) {
  if (a.is_wide() || b.is_wide())
    return compare_wide(a, b);
  if (a.is_integral() && b.is_integral())
    return sign(a.integer(), b.integer());
  return sign(static_cast<long double>(a.is_integral() ? a.integer() : a.real()),
              static_cast<long double>(b.is_integral() ? b.integer() : b.real()));
}

bool not_a_number(const value& v) { return v.is(kind::real) && std::isnan(v.real()); }

std::string_view row_type(const sequence& s) {
  return s.is == shape::group || s.is == shape::tuple ? "tuple" : s.is == shape::range ? "range" : "list";
}

/// Appends a key that is prefix-free, and equal for equal values only.
void add_key(meter& m, std::string& out, const value& v, bool inside) {
  m.spend(16);
  switch (v.kind()) {
    case kind::undefined: out += 'u'; return;
    case kind::none: out += '0'; return;
    case kind::boolean:
    case kind::integer: (out += 'n').append(std::to_string(v.integer())).append(inside ? ";" : ""); return;
    case kind::real: (out += v.is_wide() ? 'n' + *v.digits() : key_of_real(v.real())).append(inside ? ";" : ""); return;
    case kind::string:
      m.make(v.str().size());
      (out += 's').append(inside ? std::to_string(v.str().size()) + ':' : "").append(v.str());
      return;
    case kind::sequence: {
      if (row_type(v.seq()) != "tuple")
        break;
      out += '(';
      for (const auto& item : v.seq().items)
        add_key(m, out, item, true);
      out += ')';
      return;
    }
    case kind::object:
      (out += 'o').append(std::to_string(reinterpret_cast<std::uintptr_t>(v.obj().get()))).append(inside ? ";" : "");
      return;
    default: break;
  }
  throw fault("unhashable type: '" + v.type_name() + "'");
}

} // namespace

std::string hash_key(meter& m, const value& v) {
  std::string out;
  add_key(m, out, v, false);
  return out;
}

namespace {

/// Charges a comparison of texts.
void spend_on(meter& m, const std::string& a, const std::string& b) { m.spend(std::min(a.size(), b.size()) / 4); }

} // namespace

bool equal(meter& m, const value& a, const value& b) {
  m.spend(8);
  if (a.is_number() && b.is_number())
    return !not_a_number(a) && !not_a_number(b) && compare_numbers(a, b) == 0;
  if (both(a, b, kind::string)) {
    spend_on(m, a.str(), b.str());
    return a.str() == b.str();
  }
  const auto alike = [&](const value& x, const value& y) { return equal(m, x, y); };
  if (row(a) && row(b))
    return row_type(a.seq()) == row_type(b.seq()) && std::ranges::equal(a.seq().items, b.seq().items, alike);
  if (both(a, b, kind::dict))
    return a.map().size() == b.map().size() && std::ranges::all_of(a.map().entries(), [&](const auto& entry) {
             m.spend(128);
             const auto* other = b.map().find(m, entry.first);
             return other && alike(entry.second, *other);
           });
  return a.same(b);
}

int compare(meter& m, const value& a, const value& b, std::string_view op) {
  m.spend(8);
  for (const auto* v : {&a, &b})
    if (v->is_undefined())
      throw fault(v->why());
  if (a.is_number() && b.is_number())
    return compare_numbers(a, b);
  if (both(a, b, kind::string)) {
    spend_on(m, a.str(), b.str());
    return sign(a.str().compare(b.str()), 0);
  }
  if (row(a) && row(b) && row_type(a.seq()) == row_type(b.seq()) && a.seq().is != shape::range) {
    const auto &x = a.seq().items, &y = b.seq().items;
    for (std::size_t i = 0; i < std::min(x.size(), y.size()); ++i)
      if (!equal(m, x[i], y[i]))
        return compare(m, x[i], y[i], op);
    return sign(x.size(), y.size());
  }
  throw fault('\'' + std::string(op) + "' not supported between instances of '" + a.type_name() + "' and '" +
              b.type_name() + "'");
}

bool ordered(meter& m, std::string_view op, const value& a, const value& b) {
  const auto sign = compare(m, a, b, op);
  if (not_a_number(a) || not_a_number(b))
    return false;
  return op == "<" ? sign < 0 : op == "<=" ? sign <= 0 : op == ">" ? sign > 0 : sign >= 0;
}

} // namespace troupe::jinja
