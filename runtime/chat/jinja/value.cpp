#include "runtime/chat/jinja/value.hpp"

#include "runtime/chat/jinja/text/text.hpp"

#include <algorithm>

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

value value::wide(double d, std::string digits) {
  value result(d);
  std::get<real_type>(result.data_).digits = std::make_shared<const std::string>(std::move(digits));
  return result;
}

value value::markup(std::string s) {
  value result(std::move(s));
  std::get<text_type>(result.data_).safe = true;
  return result;
}

value value::list(std::vector<value> items) { return make_sequence(shape::list, std::move(items)); }

value value::tuple(std::vector<value> items) { return make_sequence(shape::tuple, std::move(items)); }

value make_sequence(shape is, std::vector<value> items, std::string label) {
  auto result = std::make_shared<sequence>();
  for (const auto& item : items)
    result->extent.add(item.extent());
  result->is = is;
  result->items = std::move(items);
  result->label = std::move(label);
  return value(std::shared_ptr<const sequence>(std::move(result)));
}

const value* dict::find(meter& m, const value& key) const {
  const auto found = index_.find(hash_key(m, key));
  return found == index_.end() ? nullptr : &entries_[found->second].second;
}

const value* dict::find(std::string_view key) const {
  const auto found = index_.find('s' + std::string(key));
  return found == index_.end() ? nullptr : &entries_[found->second].second;
}

void dict::set(meter& m, const value& key, value v) {
  auto hashed = hash_key(m, key);
  m.make(256 + hashed.size());
  put(std::move(hashed), key, std::move(v));
}

void dict::set(std::string_view key, value v) { put('s' + std::string(key), value(key), std::move(v)); }

void dict::put(std::string hashed, const value& key, value v) {
  extent_.add(key.extent());
  extent_.add(v.extent());
  const auto [at, added] = index_.try_emplace(std::move(hashed), entries_.size());
  if (added)
    entries_.emplace_back(key, std::move(v));
  else
    entries_[at->second].second = std::move(v);
}

// -- inspection ---------------------------------------------------------------

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
    case kind::real: return is_wide() ? "int" : "float";
    case kind::string: return is_markup() ? "Markup" : "str";
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
    case kind::real: return {0, digits() ? digits()->size() + 1 : 1};
    case kind::string: return {0, str().size() + 1};
    case kind::sequence: return seq().extent;
    case kind::dict: return map().extent();
    default: return {};
  }
}

bool value::same(const value& other) const { return data_ == other.data_; }

namespace {

/// Implements repr().
class printer {
public:
  explicit printer(meter& m) : meter_(m) {}

  void print(const value& v) {
    meter_.spend(16);
    switch (v.kind()) {
      case kind::undefined: return add("Undefined");
      case kind::none: return add("None");
      case kind::boolean: return add(v.integer() ? "True" : "False");
      case kind::integer: return add(std::to_string(v.integer()));
      case kind::real: return add(v.digits() ? *v.digits() : text::repr(v.real()));
      case kind::string:
        add(v.is_markup() ? "Markup(" : "");
        add(text::repr(meter_, v.str()));
        return add(v.is_markup() ? ")" : "");
      case kind::sequence: return print(v.seq());
      case kind::dict: return print(v.map());
      default: return add('<' + v.type_name() + '>');
    }
  }

  std::string out;

private:
  void add(std::string_view s) {
    meter_.make(s.size());
    out += s;
  }

  void print(const sequence& s) {
    if (s.is == shape::range)
      return add(s.label);
    if (s.is == shape::generator)
      return add("<generator object>");
    const bool round = s.is == shape::tuple || s.is == shape::group;
    add(s.is == shape::view ? s.label + "([" : round ? "(" : "[");
    for (const auto& item : s.items) {
      add(&item == s.items.data() ? "" : ", ");
      print(item);
    }
    add(round && s.items.size() == 1 ? "," : "");
    add(s.is == shape::view ? "])" : round ? ")" : "]");
  }

  void print(const dict& d) {
    add("{");
    for (const auto& entry : d.entries()) {
      add(&entry == d.entries().data() ? "" : ", ");
      print(entry.first);
      add(": ");
      print(entry.second);
    }
    add("}");
  }

  meter& meter_;
};

} // namespace

std::string value::text(meter& m) const {
  if (!is_string())
    return is_undefined() ? "" : repr(m);
  m.make(str().size());
  return str();
}

std::string value::repr(meter& m) const {
  printer p(m);
  p.print(*this);
  return std::move(p.out);
}

// -- iteration ----------------------------------------------------------------

bool iterable(const value& v) { return v.is_undefined() || v.is_string() || v.is(kind::sequence) || v.is(kind::dict); }

std::vector<value> iterate(meter& m, const value& v) {
  constexpr std::size_t letter = 4 * sizeof(value);
  switch (v.kind()) {
    case kind::undefined: return {};
    case kind::string: {
      std::vector<value> letters;
      const std::string_view s = v.str();
      for (std::size_t at = 0; at < s.size();) {
        m.make(letter);
        const auto begin = at;
        next_char(s, at);
        letters.emplace_back(s.substr(begin, at - begin));
      }
      return letters;
    }
    case kind::sequence: {
      const auto& s = v.seq();
      if (s.is == shape::generator && std::exchange(s.consumed, true))
        return {};
      m.spend(s.items.size() * sizeof(value));
      return s.items;
    }
    case kind::dict: {
      m.spend(v.map().size() * sizeof(value));
      std::vector<value> keys;
      for (const auto& [key, item] : v.map().entries())
        keys.push_back(key);
      return keys;
    }
    default: throw fault('\'' + v.type_name() + "' object is not iterable");
  }
}

std::optional<std::size_t> length(meter& m, const value& v) {
  switch (v.kind()) {
    case kind::undefined: return 0;
    case kind::string: return text::length(m, v.str());
    case kind::sequence: return v.seq().is == shape::generator ? std::nullopt : std::optional(v.seq().items.size());
    case kind::dict: return v.map().size();
    default: return std::nullopt;
  }
}

} // namespace troupe::jinja
