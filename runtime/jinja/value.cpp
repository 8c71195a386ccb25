#include "runtime/jinja/value.hpp"

#include "runtime/jinja/text.hpp"

#include <algorithm>
#include <cmath>

namespace troupe::jinja {

void extent::add(const extent& part) {
  constexpr unsigned max_depth = 200;
  constexpr std::size_t max_weight = std::size_t{1} << 28;
  depth = std::max(depth, part.depth + 1);
  weight += part.weight;
  if (depth > max_depth)
    throw fault("values are nested deeper than " + std::to_string(max_depth) + " levels");
  if (weight > max_weight)
    throw fault("a value is larger than any chat template should need");
}

// -- construction -------------------------------------------------------------

value::value(dict d) : data_(std::make_shared<const dict>(std::move(d))) {}

value value::undefined(std::string why) {
  value result;
  result.data_ = undefined_type{std::make_shared<const std::string>(std::move(why))};
  return result;
}

value value::list(std::vector<value> items) {
  return make_sequence(shape::list, std::move(items));
}

value value::tuple(std::vector<value> items) {
  return make_sequence(shape::tuple, std::move(items));
}

value make_sequence(shape is, std::vector<value> items, std::string label) {
  auto result = std::make_shared<sequence>();
  for (const auto& item : items)
    result->extent.add(item.extent());
  result->is = is;
  result->items = std::move(items);
  result->label = std::move(label);
  return value(std::shared_ptr<const sequence>(std::move(result)));
}

const value* dict::find(const value& key) const {
  const auto found = index_.find(hash_key(key));
  return found == index_.end() ? nullptr : &entries_[found->second].second;
}

const value* dict::find(std::string_view key) const {
  const auto found = index_.find('s' + std::string(key));
  return found == index_.end() ? nullptr : &entries_[found->second].second;
}

void dict::set(const value& key, value v) {
  extent_.add(key.extent());
  extent_.add(v.extent());
  const auto [at, added] = index_.try_emplace(hash_key(key), entries_.size());
  if (added)
    entries_.emplace_back(key, std::move(v));
  else
    entries_[at->second].second = std::move(v);
}

// -- what a value is ----------------------------------------------------------

std::string value::why() const {
  const auto& reason = std::get<undefined_type>(data_).why;
  return reason ? *reason : "the value is undefined";
}

bool value::truth() const {
  switch (kind()) {
    case kind::undefined:
    case kind::none: return false;
    case kind::boolean:
    case kind::integer: return integer() != 0;
    case kind::real: return real() != 0;
    case kind::string: return !str().empty();
    case kind::sequence: return seq().is == shape::generator || !seq().items.empty();
    case kind::dict: return map().size() != 0;
    default: return true;
  }
}

std::string value::type_name() const {
  switch (kind()) {
    case kind::undefined: return "Undefined";
    case kind::none: return "NoneType";
    case kind::boolean: return "bool";
    case kind::integer: return "int";
    case kind::real: return "float";
    case kind::string: return "str";
    case kind::sequence:
      switch (seq().is) {
        case shape::list: return "list";
        case shape::tuple:
        case shape::group: return "tuple";
        case shape::range: return "range";
        case shape::generator: return "generator";
        default: return seq().label;
      }
    case kind::dict: return "dict";
    default: return obj()->type_name();
  }
}

extent value::extent() const {
  switch (kind()) {
    case kind::string: return {0, str().size() + 1};
    case kind::sequence: return seq().extent;
    case kind::dict: return map().extent();
    default: return {};
  }
}

bool value::same(const value& other) const {
  return data_ == other.data_;
}

std::string value::text() const {
  return is_string() ? str() : is_undefined() ? "" : repr();
}

namespace {

std::string repr_of(const sequence& s) {
  if (s.is == shape::range)
    return s.label;
  if (s.is == shape::generator)
    return "<generator object>";
  const bool round = s.is == shape::tuple || s.is == shape::group;
  std::string out = s.is == shape::view ? s.label + "([" : round ? "(" : "[";
  for (const auto& item : s.items)
    (out += &item == s.items.data() ? "" : ", ") += item.repr();
  if (round && s.items.size() == 1)
    out += ',';
  return out += s.is == shape::view ? "])" : round ? ")" : "]";
}

} // namespace

std::string value::repr() const {
  switch (kind()) {
    case kind::undefined: return "Undefined";
    case kind::none: return "None";
    case kind::boolean: return integer() ? "True" : "False";
    case kind::integer: return std::to_string(integer());
    case kind::real: return text::repr(real());
    case kind::string: return text::repr(str());
    case kind::sequence: return repr_of(seq());
    case kind::dict: {
      std::string out = "{";
      for (const auto& [key, item] : map().entries())
        out += (out.size() > 1 ? ", " : "") + key.repr() + ": " + item.repr();
      return out + "}";
    }
    default: return '<' + type_name() + '>';
  }
}

// -- comparison ---------------------------------------------------------------

namespace {

std::string key_of_real(double d) {
  // 1, 1.0 and True are one key in Python.
  if (d == std::floor(d) && std::abs(d) < 9.2e18)
    return 'n' + std::to_string(static_cast<std::int64_t>(d));
  return 'f' + text::repr(d);
}

bool both(const value& a, const value& b, kind k) {
  return a.is(k) && b.is(k);
}

bool row(const value& v) {
  return v.is(kind::sequence) && v.seq().indexable();
}

int sign(auto a, auto b) {
  return a < b ? -1 : b < a ? 1 : 0;
}

/// Exact where a conversion to double would round the integer.
int compare_numbers(const value& a, const value& b) {
  if (a.is_integral() && b.is_integral())
    return sign(a.integer(), b.integer());
  return sign(static_cast<long double>(a.is_integral() ? a.integer() : a.real()),
              static_cast<long double>(b.is_integral() ? b.integer() : b.real()));
}

bool not_a_number(const value& v) {
  return v.is(kind::real) && std::isnan(v.real());
}

std::string_view row_type(const sequence& s) {
  return s.is == shape::group || s.is == shape::tuple ? "tuple" : s.is == shape::range ? "range" : "list";
}

} // namespace

std::string hash_key(const value& v) {
  switch (v.kind()) {
    case kind::undefined: return "u";
    case kind::none: return "0";
    case kind::boolean:
    case kind::integer: return 'n' + std::to_string(v.integer());
    case kind::real: return key_of_real(v.real());
    case kind::string: return 's' + v.str();
    case kind::sequence: {
      if (row_type(v.seq()) != "tuple")
        break;
      std::string key = "(";
      for (const auto& item : v.seq().items) {
        const auto part = hash_key(item);
        key += std::to_string(part.size()) + ':' + part;
      }
      return key;
    }
    case kind::object: return 'o' + std::to_string(reinterpret_cast<std::uintptr_t>(v.obj().get()));
    default: break;
  }
  throw fault("unhashable type: '" + v.type_name() + "'");
}

bool equal(const value& a, const value& b) {
  if (a.is_number() && b.is_number())
    return !not_a_number(a) && !not_a_number(b) && compare_numbers(a, b) == 0;
  if (both(a, b, kind::string))
    return a.str() == b.str();
  if (row(a) && row(b))
    return row_type(a.seq()) == row_type(b.seq())
           && std::ranges::equal(a.seq().items, b.seq().items, equal);
  if (both(a, b, kind::dict))
    return a.map().size() == b.map().size()
           && std::ranges::all_of(a.map().entries(), [&](const auto& entry) {
                const auto* other = b.map().find(entry.first);
                return other && equal(entry.second, *other);
              });
  return a.same(b);
}

int compare(const value& a, const value& b, std::string_view op) {
  for (const auto* v : {&a, &b})
    if (v->is_undefined())
      throw fault(v->why());
  if (a.is_number() && b.is_number())
    return compare_numbers(a, b);
  if (both(a, b, kind::string))
    return sign(a.str().compare(b.str()), 0);
  if (row(a) && row(b) && row_type(a.seq()) == row_type(b.seq()) && a.seq().is != shape::range) {
    const auto &x = a.seq().items, &y = b.seq().items;
    for (std::size_t i = 0; i < std::min(x.size(), y.size()); ++i)
      if (!equal(x[i], y[i]))
        return compare(x[i], y[i], op);
    return sign(x.size(), y.size());
  }
  throw fault('\'' + std::string(op) + "' not supported between instances of '" + a.type_name() + "' and '"
              + b.type_name() + "'");
}

bool ordered(std::string_view op, const value& a, const value& b) {
  const auto sign = compare(a, b, op);
  if (not_a_number(a) || not_a_number(b))
    return false;
  return op == "<" ? sign < 0 : op == "<=" ? sign <= 0 : op == ">" ? sign > 0 : sign >= 0;
}

// -- iteration ----------------------------------------------------------------

bool iterable(const value& v) {
  return v.is_undefined() || v.is_string() || v.is(kind::sequence) || v.is(kind::dict);
}

std::vector<value> iterate(const value& v) {
  switch (v.kind()) {
    case kind::undefined: return {};
    case kind::string: {
      const auto parts = text::characters(v.str());
      return {parts.begin(), parts.end()};
    }
    case kind::sequence: {
      const auto& s = v.seq();
      if (s.is == shape::generator && std::exchange(s.consumed, true))
        return {};
      return s.items;
    }
    case kind::dict: {
      std::vector<value> keys;
      for (const auto& [key, item] : v.map().entries())
        keys.push_back(key);
      return keys;
    }
    default: throw fault('\'' + v.type_name() + "' object is not iterable");
  }
}

std::optional<std::size_t> length(const value& v) {
  switch (v.kind()) {
    case kind::undefined: return 0;
    case kind::string: return text::length(v.str());
    case kind::sequence:
      return v.seq().is == shape::generator ? std::nullopt : std::optional(v.seq().items.size());
    case kind::dict: return v.map().size();
    default: return std::nullopt;
  }
}

} // namespace troupe::jinja
