// The values of a template: Python's, as far as chat templates can observe. Cheap to copy, because containers are
// shared and immutable (except namespaces). Used on the rendering thread; functions that traverse a value charge a
// meter.
#pragma once

#include "runtime/chat/jinja/meter.hpp"
#include "runtime/support/json/json_fwd.hpp"

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace troupe::jinja {

class context;
class dict;
class object;
struct sequence;
struct call_arguments;

enum class kind : std::uint8_t { undefined, none, boolean, integer, real, string, sequence, dict, object };

/// The cost of traversing a value. Shared parts count every time they occur.
struct extent {
  unsigned depth = 0;     // levels of containers
  std::size_t weight = 1; // elements and bytes

  /// Adds the extent of a part. Throws fault if the whole is too deep or too large.
  void add(const extent& part);
};

class value {
public:
  /// Undefined without a reason.
  value() = default;
  value(std::nullptr_t) : data_(none_type{}) {}
  value(bool b) : data_(b) {}
  value(int i) : data_(std::int64_t{i}) {}
  value(std::int64_t i) : data_(i) {}
  value(double d) : data_(real_type{d, nullptr}) {}
  value(std::string s) : data_(text_type{std::make_shared<const std::string>(std::move(s))}) {}
  value(std::string_view s) : value(std::string(s)) {}
  value(const char* s) : value(std::string(s)) {}
  value(std::shared_ptr<const sequence> s) : data_(std::move(s)) {}
  value(std::shared_ptr<object> o) : data_(std::move(o)) {}
  value(dict d);
  /// An undefined with the error message for its use.
  static value undefined(std::string why);
  /// An integer beyond 64 bits. Its kind is real, as it is only shown and compared exactly; `d` is nearest to it.
  static value wide(double d, std::string digits);
  /// Text that `escape` leaves alone: markupsafe's Markup.
  static value markup(std::string s);
  /// Throw fault if they nest too deeply or are too large.
  static value list(std::vector<value> items);
  static value tuple(std::vector<value> items);

  jinja::kind kind() const { return static_cast<jinja::kind>(data_.index()); }
  bool is(jinja::kind k) const { return kind() == k; }
  bool is_undefined() const { return is(kind::undefined); }
  bool is_none() const { return is(kind::none); }
  bool is_string() const { return is(kind::string); }
  bool is_markup() const { return is_string() && std::get<text_type>(data_).safe; }
  /// An integer or a boolean, which is an integer in Python.
  bool is_integral() const { return is(kind::integer) || is(kind::boolean); }
  /// An integer beyond 64 bits.
  bool is_wide() const { return is(kind::real) && digits(); }
  bool is_number() const { return is_integral() || is(kind::real); }

  /// Accessors. The kind must match.
  const std::string& str() const { return *std::get<text_type>(data_).is; }
  std::int64_t integer() const { return is(kind::boolean) ? std::get<bool>(data_) : std::get<std::int64_t>(data_); }
  double real() const { return is_integral() ? static_cast<double>(integer()) : std::get<real_type>(data_).is; }
  /// The digits of a wide integer, behind a sign; null of other real numbers.
  const std::string* digits() const { return std::get<real_type>(data_).digits.get(); }
  const sequence& seq() const { return *std::get<std::shared_ptr<const sequence>>(data_); }
  const dict& map() const { return *std::get<std::shared_ptr<const dict>>(data_); }
  const std::shared_ptr<object>& obj() const { return std::get<std::shared_ptr<object>>(data_); }
  /// The error message for the use of an undefined value.
  std::string why() const;

  /// Python's bool(x).
  bool truth() const;
  /// Python's str(x) and repr(x).
  std::string text(meter& m) const;
  std::string repr(meter& m) const;
  /// Python's type(x).__name__.
  std::string type_name() const;
  jinja::extent extent() const;
  /// Python's `a is b`.
  bool same(const value& other) const;

private:
  struct none_type {
    bool operator==(const none_type&) const = default;
  };
  struct undefined_type {
    std::shared_ptr<const std::string> why;
    bool operator==(const undefined_type&) const { return true; }
  };
  struct real_type {
    double is;
    std::shared_ptr<const std::string> digits;
    bool operator==(const real_type&) const = default;
  };
  struct text_type {
    std::shared_ptr<const std::string> is;
    bool safe = false;
    bool operator==(const text_type&) const = default;
  };
  std::variant<undefined_type, none_type, bool, std::int64_t, real_type, text_type, std::shared_ptr<const sequence>,
               std::shared_ptr<const dict>, std::shared_ptr<object>>
    data_;
};

enum class shape : std::uint8_t { list, tuple, group, range, view, generator };

/// All kinds of sequences. A generator is computed eagerly but, as in Python, iterates only once.
struct sequence {
  shape is = shape::list;
  std::vector<value> items;
  std::string label;             // "range(0, 3)" of a range, "dict_keys" of a view
  mutable bool consumed = false; // of a generator
  jinja::extent extent{1, 1};

  bool indexable() const { return is != shape::view && is != shape::generator; }
};

/// A sequence of the given shape. Throws fault if it nests too deeply or is too large.
value make_sequence(shape is, std::vector<value> items, std::string label = {});

/// Keeps insertion order; keys are of any hashable kind.
class dict {
public:
  using entry = std::pair<value, value>;
  const value* find(meter& m, const value& key) const;
  const value* find(std::string_view key) const;
  /// Throws fault if the key is not hashable, or the dict becomes too deep or too large.
  void set(meter& m, const value& key, value v);
  void set(std::string_view key, value v);
  const std::vector<entry>& entries() const { return entries_; }
  std::size_t size() const { return entries_.size(); }
  const jinja::extent& extent() const { return extent_; }

private:
  std::vector<entry> entries_;
  void put(std::string hashed, const value& key, value v);
  std::map<std::string, std::size_t, std::less<>> index_; // O(log n) for any choice of keys
  jinja::extent extent_{1, 1};
};

/// Functions, macros, namespaces and `loop`.
class object {
public:
  virtual ~object() = default;
  virtual std::string type_name() const = 0;
  virtual std::optional<value> attribute(context&, std::string_view) { return std::nullopt; }
  virtual bool callable() const { return false; }
  virtual value call(context&, const call_arguments&) { throw fault("'" + type_name() + "' object is not callable"); }
  /// Drops references, to break cycles.
  virtual void clear() {}
};

/// The key of a value in dicts and `unique`; equal for equal values only. Throws fault if the value is not hashable.
std::string hash_key(meter& m, const value& v);

/// Python's `==`.
bool equal(meter& m, const value& a, const value& b);
/// The sign of Python's ordering. Throws fault, naming `op`, for kinds without an order.
int compare(meter& m, const value& a, const value& b, std::string_view op = "<");
/// `a op b` for op <, <=, >, >=. Unlike compare(), false for NaN.
bool ordered(meter& m, std::string_view op, const value& a, const value& b);

/// The items of an iteration. Throws fault if `v` is not iterable. Consumes a generator.
std::vector<value> iterate(meter& m, const value& v);
bool iterable(const value& v);
/// Python's len(), or nothing for kinds without a length.
std::optional<std::size_t> length(meter& m, const value& v);

/// Keeps the order of keys and the difference between 1 and 1.0. Throws failure(bad_request) for unrepresentable
/// values.
value from_json(json::value json);

/// Options of json.dumps. An `indent` puts every element on its own line.
struct json_style {
  std::optional<std::string> indent = std::nullopt;
  std::string item_separator = ", ";
  std::string key_separator = ": ";
  bool sort_keys = false;
  bool ensure_ascii = false;
};

/// Python's json.dumps. Throws fault for values without a JSON form.
std::string to_json(meter& m, const value& v, const json_style& style = {});

} // namespace troupe::jinja
