// Scopes of names, and the variable `loop`. Used by the evaluator and the interpreter during one rendering.
#pragma once

#include "runtime/chat/jinja/context.hpp"

#include <algorithm>

namespace troupe::jinja {

/// The names of one body and, by `around`, of the enclosing ones. Loops, macros and blocks open scopes; branches do
/// not.
struct scope {
  std::shared_ptr<scope> around;
  std::vector<std::pair<std::string_view, value>> names; // views into the template or the globals

  /// Searches linearly, which is charged.
  value* own(meter& m, std::string_view name) {
    m.spend(2 * names.size());
    const auto found = std::ranges::find(names, name, [](const auto& entry) { return entry.first; });
    return found == names.end() ? nullptr : &found->second;
  }

  const value* find(meter& m, std::string_view name) {
    m.spend(name.size());
    for (auto* s = this; s; s = s->around.get())
      if (const auto* found = s->own(m, name))
        return found;
    return nullptr;
  }

  void set(meter& m, std::string_view name, value v) {
    m.spend(name.size());
    if (auto* found = own(m, name))
      *found = std::move(v);
    else
      names.emplace_back(name, std::move(v));
  }
};

using scope_ptr = std::shared_ptr<scope>;

/// The variable `loop`.
class loop_object : public object, public std::enable_shared_from_this<loop_object> {
  const value over_;

public:
  using again = std::function<value(const value& over, unsigned depth)>;

  /// `over` is a sequence.
  loop_object(value over, unsigned depth, again recurse)
    : over_(std::move(over)), items(over_.seq().items), depth_(depth), recurse_(std::move(recurse)) {}

  std::string type_name() const override { return "LoopContext"; }
  bool callable() const override { return true; }

  value call(context&, const call_arguments& args) override {
    if (!recurse_)
      throw fault("The loop must have the 'recursive' marker to be called recursively.");
    return recurse_(bind("loop", args, {"iterable"}, 1)[0], depth_ + 1);
  }

  std::optional<value> attribute(context&, std::string_view name) override {
    const auto size = static_cast<std::int64_t>(items.size()), i = static_cast<std::int64_t>(index);
    if (name == "index")
      return value(i + 1);
    if (name == "index0")
      return value(i);
    if (name == "revindex")
      return value(size - i);
    if (name == "revindex0")
      return value(size - i - 1);
    if (name == "first")
      return value(i == 0);
    if (name == "last")
      return value(i + 1 == size);
    if (name == "length")
      return value(size);
    if (name == "depth")
      return value(std::int64_t{depth_} + 1);
    if (name == "depth0")
      return value(std::int64_t{depth_});
    if (name == "previtem")
      return index == 0 ? value::undefined("there is no previous item") : items[index - 1];
    if (name == "nextitem")
      return index + 1 == items.size() ? value::undefined("there is no next item") : items[index + 1];
    if (name == "cycle" || name == "changed")
      return method(name == "cycle" ? &loop_object::cycle : &loop_object::changed);
    return std::nullopt;
  }

  void clear() override { last_.reset(); }

  const std::vector<value>& items;
  std::size_t index = 0;

private:
  value method(value (loop_object::*call)(context&, const call_arguments&)) {
    return value(std::make_shared<function>(
      [self = shared_from_this(), call](context& c, const call_arguments& args) { return (*self.*call)(c, args); }));
  }

  value cycle(context&, const call_arguments& args) {
    if (args.positional.empty())
      throw fault("no items for cycling given");
    return args.positional[index % args.positional.size()];
  }

  value changed(context& c, const call_arguments& args) {
    auto now = value::tuple(args.positional);
    if (last_ && equal(c, *last_, now))
      return value(false);
    if (!last_)
      c.keep(shared_from_this());
    last_ = std::move(now);
    return value(true);
  }

  unsigned depth_;
  again recurse_;
  std::optional<value> last_;
};

} // namespace troupe::jinja
