// The methods of strings, lists, tuples and dicts that jinja2's sandbox allows.
#include "runtime/chat/jinja/context.hpp"
#include "runtime/chat/jinja/text/text.hpp"

#include <algorithm>

namespace troupe::jinja {

namespace {

using method = value (*)(context&, const value& self, const call_arguments&);

struct entry {
  std::string_view name;
  method call;
};

const std::string& string_of(const value& v) {
  if (v.is_undefined())
    throw fault(v.why());
  if (!v.is_string())
    throw fault("a str was expected, not '" + v.type_name() + "'");
  return v.str();
}

std::string optional_string(const value& v, std::string fallback = {}) {
  return v.is_undefined() || v.is_none() ? std::move(fallback) : string_of(v);
}

/// The parts of `self` as a sequence; markup if `self` is.
value strings(context& c, const value& self, const std::vector<std::string_view>& parts, shape is = shape::list) {
  std::vector<value> items;
  for (auto part : parts)
    items.push_back(c.copied_like(self, part));
  return c.list(std::move(items), is);
}

template <std::string (*map)(meter&, std::string_view)>
value mapped_method(context& c, const value& self, const call_arguments& args) {
  bind("method", args, {});
  return c.text_like(self, map(c, self.str()));
}

template <bool (*holds)(meter&, std::string_view)>
value whole(context& c, const value& self, const call_arguments& args) {
  bind("method", args, {});
  return value(holds(c, self.str()));
}

template <bool (*is)(char32_t)>
bool every(meter& m, std::string_view s) {
  return text::all(m, s, is);
}

template <bool left, bool right>
value stripped(context& c, const value& self, const call_arguments& args) {
  const auto chars = bind("strip", args, {"chars"})[0];
  if (chars.is_string() && chars.str().empty())
    return self;
  const auto kept = text::strip(c, self.str(), optional_string(chars), left, right);
  return kept.size() == self.str().size() ? self : c.copied_like(self, kept);
}

/// `s[start:end]` for find, count, startswith and the like; nothing if that is out of range.
std::optional<std::string_view> window(context& c, const std::string& s, const value& start, const value& end) {
  const auto given = [](const value& v) { return !v.is_undefined() && !v.is_none(); };
  if (!given(start) && !given(end))
    return s;
  const auto size = static_cast<std::int64_t>(text::length(c, s));
  const auto clamp = [&](std::int64_t at) { return std::clamp<std::int64_t>(at < 0 ? at + size : at, 0, size); };
  const auto first = to_integer(start, 0);
  const auto from = clamp(first), to = clamp(to_integer(end, size));
  if (first > size || from > to)
    return std::nullopt;
  const auto offset = [&](std::int64_t index) { return text::offset(c, s, static_cast<std::size_t>(index)); };
  const auto begin = offset(from);
  return std::string_view(s).substr(begin, offset(to) - begin);
}

template <bool front>
value starts_or_ends(context& c, const value& self, const call_arguments& args) {
  const auto a = bind(front ? "startswith" : "endswith", args, {"prefix", "start", "end"}, 1);
  const auto part = window(c, self.str(), a[1], a[2]);
  const auto matches = [&](const value& v) {
    c.spend(8 + (v.is_string() ? v.str().size() / 4 : 0));
    return part && (front ? part->starts_with(string_of(v)) : part->ends_with(string_of(v)));
  };
  if (a[0].is(kind::sequence) && a[0].type_name() == "tuple")
    return value(std::ranges::any_of(a[0].seq().items, matches));
  return value(matches(a[0]));
}

template <bool last, bool must>
value found(context& c, const value& self, const call_arguments& args) {
  const auto a = bind("find", args, {"sub", "start", "end"}, 1);
  const auto& wanted = string_of(a[0]);
  const auto part = window(c, self.str(), a[1], a[2]);
  const auto at = !part ? std::string_view::npos
    : last              ? text::find_last(c, *part, wanted)
                        : text::find(c, *part, wanted);
  if (at != std::string_view::npos)
    return value(static_cast<std::int64_t>(
      text::length(c, {self.str().data(), static_cast<std::size_t>(part->data() - self.str().data()) + at})));
  if (must)
    throw fault("substring not found");
  return value(-1);
}

value counted(context& c, const value& self, const call_arguments& args) {
  const auto a = bind("count", args, {"sub", "start", "end"}, 1);
  const auto part = window(c, self.str(), a[1], a[2]);
  return value(part ? static_cast<std::int64_t>(text::count(c, *part, string_of(a[0]))) : std::int64_t{0});
}

template <std::vector<std::string_view> (*cut)(meter&, std::string_view, std::string_view, long long)>
value split(context& c, const value& self, const call_arguments& args) {
  const auto a = bind("split", args, {"sep", "maxsplit"});
  if (a[0].is_string() && a[0].str().empty())
    throw fault("empty separator");
  return strings(c, self, cut(c, self.str(), optional_string(a[0]), to_integer(a[1], -1)));
}

value split_lines(context& c, const value& self, const call_arguments& args) {
  return strings(c, self, text::split_lines(c, self.str(), bind("splitlines", args, {"keepends"})[0].truth()));
}

template <bool last>
value partition(context& c, const value& self, const call_arguments& args) {
  const auto a = bind("partition", args, {"sep"}, 1);
  const auto& separator = string_of(a[0]);
  const std::string_view s = self.str();
  if (separator.empty())
    throw fault("empty separator");
  const auto at = last ? text::find_last(c, s, separator) : text::find(c, s, separator);
  if (at == s.npos)
    return last ? strings(c, self, {"", "", s}, shape::tuple) : strings(c, self, {s, "", ""}, shape::tuple);
  return strings(c, self, {s.substr(0, at), separator, s.substr(at + separator.size())}, shape::tuple);
}

value replaced(context& c, const value& self, const call_arguments& args) {
  const auto a = bind("replace", args, {"old", "new", "count"}, 2);
  const auto &from = string_of(a[0]), &to = string_of(a[1]);
  const auto limit = to_integer(a[2], -1);
  if (!self.is_markup())
    return c.text(text::replace(c, self.str(), from, to, limit));
  return c.markup(text::replace(c, self.str(), from, escaped(c, a[1]), limit));
}

template <bool front>
value without(context& c, const value& self, const call_arguments& args) {
  const auto a = bind(front ? "removeprefix" : "removesuffix", args, {"affix"}, 1);
  std::string_view s = self.str();
  const auto& affix = string_of(a[0]);
  c.spend(affix.size() / 4);
  if (front ? s.starts_with(affix) : s.ends_with(affix))
    s = front ? s.substr(affix.size()) : s.substr(0, s.size() - affix.size());
  return c.copied_like(self, s);
}

value joined(context& c, const value& self, const call_arguments& args) {
  std::string out;
  bool first = true;
  for (const auto& item : c.items(bind("join", args, {"iterable"}, 1)[0])) {
    if (!item.is_string() && !self.is_markup())
      throw fault("sequence item: expected str instance, " + item.type_name() + " found");
    c.make(self.str().size());
    if (!std::exchange(first, false))
      out += self.str();
    if (self.is_markup()) {
      out += escaped(c, item);
    } else {
      c.make(item.str().size());
      out += item.str();
    }
  }
  return c.text_like(self, std::move(out));
}

template <char align>
value justified(context& c, const value& self, const call_arguments& args) {
  const auto a = bind("justify", args, {"width", "fillchar"}, 1);
  const auto given = optional_string(a[1], " ");
  const auto fill = self.is_markup() && !a[1].is_markup() ? text::escape_html(c, given) : given;
  if (text::length(c, fill) != 1)
    throw fault("the fill character must be exactly one character long");
  const auto width = static_cast<std::size_t>(std::max<std::int64_t>(to_integer(a[0]), 0));
  return c.text_like(self, text::pad(c, self.str(), width, align, fill));
}

value zero_filled(context& c, const value& self, const call_arguments& args) {
  const auto width = static_cast<std::size_t>(
    std::max<std::int64_t>(to_integer(bind("zfill", args, {"width"}, 1)[0]), 0));
  const std::string_view s = self.str();
  const std::size_t sign = !s.empty() && (s[0] == '-' || s[0] == '+') ? 1 : 0;
  return c.text_like(
    self, std::string(s.substr(0, sign)) + text::pad(c, s.substr(sign), width - std::min(width, sign), '>', "0"));
}

bool is_alphanumeric(char32_t c) { return text::is_alpha(c) || text::is_numeric(c); }

constexpr entry string_methods[] = {
  {"capitalize", mapped_method<text::capitalize>},
  {"center", justified<'^'>},
  {"count", counted},
  {"endswith", starts_or_ends<false>},
  {"find", found<false, false>},
  {"format", [](context& c, const value& self, const call_arguments& args) { return format_braces(c, self, args); }},
  {"index", found<false, true>},
  {"isalnum", whole<every<is_alphanumeric>>},
  {"isalpha", whole<every<text::is_alpha>>},
  {"isdecimal", whole<every<text::is_decimal>>},
  {"isdigit", whole<every<text::is_decimal>>},
  {"islower", whole<text::all_lower>},
  {"isnumeric", whole<every<text::is_numeric>>},
  {"isspace", whole<every<text::is_space>>},
  {"isupper", whole<text::all_upper>},
  {"join", joined},
  {"ljust", justified<'<'>},
  {"lower", mapped_method<text::lower>},
  {"lstrip", stripped<true, false>},
  {"partition", partition<false>},
  {"removeprefix", without<true>},
  {"removesuffix", without<false>},
  {"replace", replaced},
  {"rfind", found<true, false>},
  {"rindex", found<true, true>},
  {"rjust", justified<'>'>},
  {"rpartition", partition<true>},
  {"rsplit", split<text::split_right>},
  {"rstrip", stripped<false, true>},
  {"split", split<text::split>},
  {"splitlines", split_lines},
  {"startswith", starts_or_ends<true>},
  {"strip", stripped<true, true>},
  {"swapcase", mapped_method<text::swap_case>},
  {"title", mapped_method<text::title>},
  {"upper", mapped_method<text::upper>},
  {"zfill", zero_filled},
};

value index_of(context& c, const value& self, const call_arguments& args) {
  const auto wanted = bind("index", args, {"value"}, 1)[0];
  const auto& items = self.seq().items;
  const auto at = std::ranges::find_if(items, [&](const value& v) { return equal(c, v, wanted); });
  if (at == items.end())
    throw fault(wanted.repr(c) + " is not in " + self.type_name());
  return value(at - items.begin());
}

value occurrences(context& c, const value& self, const call_arguments& args) {
  const auto wanted = bind("count", args, {"value"}, 1)[0];
  return value(std::ranges::count_if(self.seq().items, [&](const value& v) { return equal(c, v, wanted); }));
}

value copy(context&, const value& self, const call_arguments&) {
  return self; // containers are immutable
}

constexpr entry list_methods[] = {{"copy", copy}, {"count", occurrences}, {"index", index_of}};

template <class Part>
value view(context& c, const value& self, const char* label, Part part) {
  std::vector<value> items;
  c.make(self.map().size() * 8 * sizeof(value)); // pairs are separate values
  for (const auto& entry : self.map().entries())
    items.push_back(part(entry));
  return make_sequence(shape::view, std::move(items), label);
}

constexpr entry dict_methods[] = {
  {"copy", copy},
  {"get",
   [](context& c, const value& self, const call_arguments& args) {
     const auto a = bind("get", args, {"key", "default"}, 1);
     const auto* found = self.map().find(c, a[0]);
     return found ? *found : args.positional.size() > 1 ? a[1] : value(nullptr);
   }},
  {"items",
   [](context& c, const value& self, const call_arguments& args) {
     bind("items", args, {});
     return view(c, self, "dict_items", [](const auto& e) { return value::tuple({e.first, e.second}); });
   }},
  {"keys",
   [](context& c, const value& self, const call_arguments& args) {
     bind("keys", args, {});
     return view(c, self, "dict_keys", [](const auto& e) { return e.first; });
   }},
  {"values",
   [](context& c, const value& self, const call_arguments& args) {
     bind("values", args, {});
     return view(c, self, "dict_values", [](const auto& e) { return e.second; });
   }},
};

bool changes(const value& self, std::string_view name) {
  constexpr std::string_view of_list[] = {"append", "clear", "pop", "reverse", "insert", "sort", "extend", "remove"};
  constexpr std::string_view of_dict[] = {"clear", "pop", "popitem", "setdefault", "update"};
  return self.is(kind::dict) ? std::ranges::find(of_dict, name) != std::end(of_dict)
                             : self.type_name() == "list" && std::ranges::find(of_list, name) != std::end(of_list);
}

template <std::size_t n>
std::optional<value> find_in(const entry (&table)[n], const value& self, std::string_view name) {
  const auto found = std::ranges::find(table, name, &entry::name);
  if (found == std::end(table))
    return std::nullopt;
  return value(std::make_shared<function>(
    [self, call = found->call](context& c, const call_arguments& args) { return call(c, self, args); }));
}

} // namespace

std::optional<value> find_method(const value& self, std::string_view name) {
  if (self.is_string())
    return find_in(string_methods, self, name);
  if (!self.is(kind::dict) && !(self.is(kind::sequence) && self.seq().indexable()))
    return std::nullopt;
  if (changes(self, name))
    return value::undefined("access to attribute '" + std::string(name) + "' of '" + self.type_name() +
                            "' object is unsafe.");
  if (self.is(kind::dict))
    return find_in(dict_methods, self, name);
  if (self.seq().is == shape::group && (name == "grouper" || name == "list"))
    return self.seq().items[name == "list"];
  return find_in(list_methods, self, name);
}

} // namespace troupe::jinja
