// Converts JSON to template values and back, as Python's json module does.
#include "runtime/chat/jinja/text/text.hpp"
#include "runtime/chat/jinja/value.hpp"
#include "runtime/support/error.hpp"
#include "runtime/support/json/json_digits.hpp"
#include "runtime/support/text/simdjson.hpp"

#include <algorithm>
#include <cmath>
#include <string_view>
#include <utility>

namespace troupe::jinja {

namespace {

value read(simdjson::dom::element json) {
  using simdjson::dom::element_type;
  switch (json.type()) {
    case element_type::ARRAY: {
      std::vector<value> items;
      const simdjson::dom::array array = json.get_array().value_unsafe();
      for (auto item : array)
        items.push_back(read(item));
      return value::list(std::move(items));
    }
    case element_type::OBJECT: {
      dict result;
      const simdjson::dom::object object = json.get_object().value_unsafe();
      for (auto [key, item] : object)
        result.set(key, read(item));
      return value(std::move(result));
    }
    case element_type::INT64: return value(json.get_int64().value_unsafe());
    case element_type::UINT64: {
      const auto wide = json.get_uint64().value_unsafe();
      return value::wide(static_cast<double>(wide), std::to_string(wide));
    }
    case element_type::DOUBLE: {
      // Python's rule: integers have any number of digits, other numbers are doubles.
      const auto nearest = json.get_double().value_unsafe();
      const auto written = json::digits(json);
      return written && json::is_wide_integer(*written) ? value::wide(nearest, std::string(*written)) : value(nearest);
    }
    case element_type::STRING: return value(json.get_string().value_unsafe());
    case element_type::BOOL: return value(json.get_bool().value_unsafe());
    default: return value(nullptr);
  }
}

class writer {
public:
  writer(meter& m, const json_style& style) : meter_(m), style_(style) {}

  void write(const value& v, unsigned level = 0) {
    meter_.spend(16);
    switch (v.kind()) {
      case kind::none: add("null"); break;
      case kind::boolean: add(v.integer() ? "true" : "false"); break;
      case kind::integer: add(std::to_string(v.integer())); break;
      case kind::real: add(v.digits() ? *v.digits() : real(v.real())); break;
      case kind::string: add(text::json(meter_, v.str(), style_.ensure_ascii)); break;
      case kind::sequence: write_list(v, level); break;
      case kind::dict: write_dict(v.map(), level); break;
      default: refuse(v);
    }
  }

  std::string out;

private:
  void add(std::string_view s) {
    meter_.make(s.size());
    out += s;
  }

  [[noreturn]] static void refuse(const value& v) {
    throw fault("Object of type " + v.type_name() + " is not JSON serializable");
  }

  static std::string real(double d) {
    return std::isnan(d) ? "NaN" : std::isinf(d) ? (d < 0 ? "-Infinity" : "Infinity") : text::repr(d);
  }

  void separate(bool first, unsigned level) {
    if (!first)
      add(style_.item_separator);
    new_line(level);
  }

  void new_line(unsigned level) {
    if (!style_.indent)
      return;
    add("\n");
    for (unsigned i = 0; i < level; ++i)
      add(*style_.indent);
  }

  void write_list(const value& v, unsigned level) {
    const auto& items = v.seq().items;
    const auto is = v.seq().is;
    if (is != shape::list && is != shape::tuple && is != shape::group)
      refuse(v);
    add("[");
    for (std::size_t i = 0; i < items.size(); ++i) {
      separate(i == 0, level + 1);
      write(items[i], level + 1);
    }
    if (!items.empty())
      new_line(level);
    add("]");
  }

  void write_dict(const dict& d, unsigned level) {
    std::vector<const dict::entry*> entries;
    meter_.spend(d.size() * sizeof(void*));
    for (const auto& entry : d.entries())
      entries.push_back(&entry);
    if (style_.sort_keys)
      std::ranges::stable_sort(entries, [this](auto* a, auto* b) { return compare(meter_, a->first, b->first) < 0; });
    add("{");
    for (std::size_t i = 0; i < entries.size(); ++i) {
      separate(i == 0, level + 1);
      add(key(entries[i]->first));
      add(style_.key_separator);
      write(entries[i]->second, level + 1);
    }
    if (!entries.empty())
      new_line(level);
    add("}");
  }

  std::string key(const value& v) const {
    switch (v.kind()) {
      case kind::string: return text::json(meter_, v.str(), style_.ensure_ascii);
      case kind::none: return "\"null\"";
      case kind::boolean: return v.integer() ? "\"true\"" : "\"false\"";
      case kind::integer: return '"' + std::to_string(v.integer()) + '"';
      case kind::real: return '"' + (v.digits() ? *v.digits() : real(v.real())) + '"';
      default: throw fault("keys must be str, int, float, bool or None, not " + v.type_name());
    }
  }

  meter& meter_;
  const json_style& style_;
};

} // namespace

value from_json(simdjson::dom::element json) {
  try {
    return read(json);
  } catch (const fault& f) {
    throw failure(errc::bad_request, f.what());
  }
}

std::string to_json(meter& m, const value& v, const json_style& style) {
  writer w(m, style);
  w.write(v);
  return std::move(w.out);
}

} // namespace troupe::jinja
