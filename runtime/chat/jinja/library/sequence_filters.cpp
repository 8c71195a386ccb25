// Filters on sequences and mappings.
#include "runtime/chat/jinja/library/filters.hpp"
#include "runtime/chat/jinja/text/text.hpp"

#include <algorithm>
#include <set>

namespace troupe::jinja {

namespace {

/// Looks up `a.b.0` in a value, by the rules of jinja2's make_attrgetter. Without a path, yields the value itself.
class getter {
public:
  getter(context& c, const value& path, bool fold_case = false, value fallback = {})
    : context_(c), fold_case_(fold_case), fallback_(std::move(fallback)) {
    if (path.is_string()) {
      for (auto part : text::split(c, path.str(), ".", -1))
        parts_.push_back(text::all(c, part, text::is_decimal) ? index(part) : c.copied(part));
    } else if (!path.is_none() && !path.is_undefined()) {
      parts_.push_back(path);
    }
  }

  value operator()(value v) const {
    context_.spend(16);
    for (const auto& part : parts_) {
      v = get_item(context_, v, part);
      if (v.is_undefined() && !fallback_.is_undefined() && !fallback_.is_none())
        v = fallback_;
    }
    return fold_case_ && v.is_string() ? context_.text(text::lower(context_, v.str())) : v;
  }

private:
  static value index(std::string_view digits) {
    if (digits.size() > 18)
      throw fault("the index " + std::string(digits.substr(0, 40)) + " does not fit into 64 bits");
    return value(static_cast<std::int64_t>(std::stoll(std::string(digits))));
  }

  context& context_;
  std::vector<value> parts_;
  bool fold_case_;
  value fallback_;
};

void sort_by(context& c, std::vector<std::pair<value, value>>& keyed, bool reverse) {
  c.make(keyed.size() * sizeof keyed[0]);
  std::ranges::stable_sort(keyed, [&c, reverse](const auto& a, const auto& b) {
    return reverse ? compare(c, b.first, a.first) < 0 : compare(c, a.first, b.first) < 0;
  });
}

value sort(context& c, const value& v, const call_arguments& args) {
  const auto a = bind("sort", args, {"reverse", "case_sensitive", "attribute"});
  std::vector<getter> getters;
  if (a[2].is_string())
    for (auto path : text::split(c, a[2].str(), ",", -1))
      getters.emplace_back(c, c.copied(path), !a[1].truth());
  else
    getters.emplace_back(c, a[2], !a[1].truth());
  std::vector<std::pair<value, value>> keyed;
  for (auto& item : c.items(v)) {
    std::vector<value> keys;
    for (const auto& get : getters)
      keys.push_back(get(item));
    c.make(2 * sizeof item);
    keyed.emplace_back(c.list(std::move(keys), shape::tuple), std::move(item));
  }
  sort_by(c, keyed, a[0].truth());
  std::vector<value> sorted;
  for (auto& [key, item] : keyed)
    sorted.push_back(std::move(item));
  return c.list(std::move(sorted));
}

const dict& mapping(const value& v) {
  if (v.is_undefined())
    throw fault(v.why());
  if (!v.is(kind::dict))
    throw fault('\'' + v.type_name() + "' object is no mapping");
  return v.map();
}

value sort_dict(context& c, const value& v, const call_arguments& args) {
  const auto a = bind("dictsort", args, {"case_sensitive", "by", "reverse"});
  const auto by = a[1].is_undefined() ? "key" : c.string(a[1]);
  if (by != "key" && by != "value")
    throw fault("you can only sort by either \"key\" or \"value\"");
  const getter fold(c, value(), !a[0].truth());
  std::vector<std::pair<value, value>> keyed;
  for (const auto& [key, item] : mapping(v).entries())
    keyed.emplace_back(fold(by == "key" ? key : item), c.list({key, item}, shape::tuple));
  sort_by(c, keyed, a[2].truth());
  std::vector<value> sorted;
  for (auto& [key, pair] : keyed)
    sorted.push_back(std::move(pair));
  return c.list(std::move(sorted));
}

value group(context& c, const value& v, const call_arguments& args) {
  const auto a = bind("groupby", args, {"attribute", "default", "case_sensitive"}, 1);
  const getter get(c, a[0], !a[2].truth(), a[1]), as_is(c, a[0], false, a[1]);
  std::vector<std::pair<value, value>> keyed;
  for (auto& item : c.items(v))
    keyed.emplace_back(get(item), item);
  sort_by(c, keyed, false); // charges their memory
  std::vector<value> groups;
  for (std::size_t i = 0; i < keyed.size();) {
    const auto& key = keyed[i].first;
    const auto grouper = as_is(keyed[i].second);
    std::vector<value> members;
    for (; i < keyed.size() && equal(c, keyed[i].first, key); ++i)
      members.push_back(keyed[i].second);
    auto list = c.list(std::move(members));
    groups.push_back(c.list({grouper, std::move(list)}, shape::group));
  }
  return c.list(std::move(groups));
}

value unique(context& c, const value& v, const call_arguments& args) {
  const auto a = bind("unique", args, {"case_sensitive", "attribute"});
  const getter get(c, a[1], !a[0].truth());
  std::set<std::string> seen;
  std::vector<value> kept;
  for (auto& item : c.items(v)) {
    const auto key = get(item);
    c.make(128);
    if (seen.insert(hash_key(c, key)).second)
      kept.push_back(std::move(item));
  }
  return c.list(std::move(kept), shape::generator);
}

template <bool largest>
value extreme(context& c, const value& v, const call_arguments& args) {
  const auto a = bind(largest ? "max" : "min", args, {"case_sensitive", "attribute"});
  const getter get(c, a[1], !a[0].truth());
  std::optional<std::pair<value, value>> best;
  for (auto& item : c.items(v)) {
    auto key = get(item);
    if (!best || (largest ? ordered(c, ">", key, best->first) : ordered(c, "<", key, best->first)))
      best.emplace(std::move(key), std::move(item));
  }
  return best ? best->second : value::undefined("No aggregated item, sequence was empty.");
}

value sum(context& c, const value& v, const call_arguments& args) {
  const auto a = bind("sum", args, {"attribute", "start"});
  const getter get(c, a[0]);
  value total = a[1].is_undefined() ? value(0) : a[1];
  if (total.is_string())
    throw fault("sum() can't sum strings [use ''.join(seq) instead]");
  for (const auto& item : c.items(v))
    total = arithmetic(c, "+", total, get(item));
  return total;
}

value join(context& c, const value& v, const call_arguments& args) {
  const auto a = bind("join", args, {"d", "attribute"});
  const auto separator = a[0].is_undefined() ? std::string() : c.string(a[0]);
  const getter get(c, a[1]);
  std::string out;
  bool first = true;
  for (const auto& item : c.items(v)) {
    const auto part = get(item);
    if (!std::exchange(first, false)) {
      c.make(separator.size());
      out += separator;
    }
    if (part.is_string()) {
      c.make(part.str().size());
      out += part.str();
    } else {
      out += c.string(part);
    }
  }
  return c.text(std::move(out));
}

value first(context& c, const value& v, const call_arguments& args) {
  bind("first", args, {});
  if (v.is(kind::sequence) && v.seq().indexable())
    return v.seq().items.empty() ? value::undefined("No first item, sequence was empty.") : v.seq().items[0];
  if (v.is_string() && !v.str().empty()) {
    std::size_t end = 0;
    next_char(v.str(), end);
    return c.copied(std::string_view(v.str()).substr(0, end)); // iteration yields no markup
  }
  const auto all = c.items(v);
  return all.empty() ? value::undefined("No first item, sequence was empty.") : all.front();
}

value last(context& c, const value& v, const call_arguments& args) {
  bind("last", args, {});
  if (v.is(kind::sequence) && v.seq().is == shape::generator)
    throw fault("'generator' object is not reversible");
  if (v.is_undefined())
    throw fault(v.why());
  if (v.is_string() && !v.str().empty())
    return get_item(c, v, value(-1));
  const auto all = c.items(v);
  return all.empty() ? value::undefined("No last item, sequence was empty.") : all.back();
}

value count(context& c, const value& v, const call_arguments& args) {
  bind("length", args, {});
  const auto n = length(c, v);
  if (!n)
    throw fault("object of type '" + v.type_name() + "' has no len()");
  return value(static_cast<std::int64_t>(*n));
}

value list(context& c, const value& v, const call_arguments& args) {
  bind("list", args, {});
  return c.list(c.items(v));
}

value items(context& c, const value& v, const call_arguments& args) {
  bind("items", args, {});
  if (!v.is_undefined() && !v.is(kind::dict))
    throw fault("can only get item pairs from a mapping");
  std::vector<value> pairs;
  if (v.is(kind::dict))
    for (const auto& [key, item] : v.map().entries())
      pairs.push_back(c.list({key, item}, shape::tuple));
  return c.list(std::move(pairs), shape::generator);
}

value reverse(context& c, const value& v, const call_arguments& args) {
  bind("reverse", args, {});
  if (v.is_string())
    return c.text_like(v, text::reverse(c, v.str()));
  auto all = c.items(v);
  std::ranges::reverse(all);
  const bool once = v.is(kind::sequence) && v.seq().is == shape::generator; // which Python's reversed() does not take
  return c.list(std::move(all), once ? shape::list : shape::generator);
}

std::size_t at_least_one(const value& v, const char* what) {
  const auto n = to_integer(v);
  if (n < 1)
    throw fault(std::string(what) + " takes a size of at least 1");
  return static_cast<std::size_t>(n);
}

value batch(context& c, const value& v, const call_arguments& args) {
  const auto a = bind("batch", args, {"linecount", "fill_with"}, 1);
  const auto size = at_least_one(a[0], "batch");
  std::vector<value> rows, row;
  for (auto& item : c.items(v)) {
    if (row.size() == size)
      rows.push_back(c.list(std::exchange(row, {})));
    row.push_back(std::move(item));
  }
  if (!row.empty()) {
    if (row.size() < size && !a[1].is_none() && !a[1].is_undefined()) {
      c.make(std::min(size, std::size_t{1} << 40) * sizeof(value));
      row.resize(size, a[1]);
    }
    rows.push_back(c.list(std::move(row)));
  }
  return c.list(std::move(rows), shape::generator);
}

value slices(context& c, const value& v, const call_arguments& args) {
  const auto a = bind("slice", args, {"slices", "fill_with"}, 1);
  const auto n = at_least_one(a[0], "slice");
  const auto all = c.items(v);
  c.make(std::min(n, std::size_t{1} << 40) * 64);
  const auto each = all.size() / n, longer = all.size() % n;
  std::vector<value> columns;
  auto at = all.begin();
  for (std::size_t i = 0; i < n; ++i) {
    const auto end = at + static_cast<std::ptrdiff_t>(each + (i < longer ? 1 : 0));
    std::vector<value> column(at, end);
    if (i >= longer && !a[1].is_none() && !a[1].is_undefined())
      column.push_back(a[1]);
    columns.push_back(c.list(std::move(column)));
    at = end;
  }
  return c.list(std::move(columns), shape::generator);
}

/// The arguments after the first `n` positional ones.
call_arguments after(const call_arguments& args, std::size_t n) {
  return {{args.positional.begin() + static_cast<std::ptrdiff_t>(n), args.positional.end()}, args.keyword};
}

value map(context& c, const value& v, const call_arguments& args) {
  std::vector<value> mapped;
  if (!v.truth()) // jinja2 iterates over nothing, none and undefined included
    return c.list({}, shape::generator);
  if (args.positional.empty()) {
    const auto a = bind("map", args, {"attribute", "default"}, 1);
    const getter get(c, a[0], false, a[1]);
    for (auto& item : c.items(v))
      mapped.push_back(get(std::move(item)));
  } else {
    const auto name = c.string(args.positional[0]);
    const auto apply = find_filter(name);
    if (!apply)
      throw fault("no filter named '" + name + "'");
    const auto rest = after(args, 1);
    for (const auto& item : c.items(v)) {
      c.spend(64);
      mapped.push_back(apply(c, item, rest));
    }
  }
  return c.list(std::move(mapped), shape::generator);
}

template <bool wanted, bool by_attribute>
value select(context& c, const value& v, const call_arguments& args) {
  constexpr std::size_t skipped = by_attribute ? 1 : 0;
  if (!v.truth()) // as jinja2, which then ignores the arguments as well
    return c.list({}, shape::generator);
  if (args.positional.size() < skipped)
    throw fault("missing parameter for attribute name");
  const getter get(c, by_attribute ? args.positional[0] : value());
  test_function holds = nullptr;
  call_arguments rest;
  if (args.positional.size() > skipped) {
    const auto name = c.string(args.positional[skipped]);
    holds = find_test(name);
    if (!holds)
      throw fault("no test named '" + name + "'");
    rest = after(args, skipped + 1);
  }
  std::vector<value> kept;
  for (auto& item : c.items(v)) {
    c.spend(64);
    const auto seen = get(item);
    if ((holds ? holds(c, seen, rest) : seen.truth()) == wanted)
      kept.push_back(std::move(item));
  }
  return c.list(std::move(kept), shape::generator);
}

constexpr named_filter sequence_filters[] = {
  {"batch", batch},
  {"count", count},
  {"dictsort", sort_dict},
  {"first", first},
  {"groupby", group},
  {"items", items},
  {"join", join},
  {"last", last},
  {"length", count},
  {"list", list},
  {"map", map},
  {"max", extreme<true>},
  {"min", extreme<false>},
  {"reject", select<false, false>},
  {"rejectattr", select<false, true>},
  {"reverse", reverse},
  {"select", select<true, false>},
  {"selectattr", select<true, true>},
  {"slice", slices},
  {"sort", sort},
  {"sum", sum},
  {"unique", unique},
};

} // namespace

filter_function find_sequence_filter(std::string_view name) {
  const auto found = std::ranges::find(sequence_filters, name, &named_filter::name);
  return found == std::end(sequence_filters) ? nullptr : found->call;
}

} // namespace troupe::jinja
