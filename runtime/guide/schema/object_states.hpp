// The states of objects and arrays in a grammar of JSON, made when they are reached. An object with n optional members
// has n² transitions in order, and 2^n states in any order; a text meets few of them.
#pragma once

#include "runtime/guide/grammar/grammar.hpp"
#include "runtime/guide/schema/plans.hpp"

#include <cstdint>
#include <span>
#include <vector>

namespace troupe::guides {

/// The marks of JSON with the white space around them. Values have none of their own.
struct json_marks {
  expression colon, comma;
  expression open_object, close_object, close_first_object; // the latter behind white space, of an empty object
  expression open_array, close_array, close_first_array;
};
json_marks punctuation(expressions& regex, bool compact);

class object_states final : public state_source {
public:
  object_states(object_plan plan, const std::vector<rule_id>& values, const json_marks& marks, bool any_order);
  /// Behind the opening brace. `self`: this source's number.
  rule_state first(grammar& g, std::uint32_t self);
  rule_edges expand(grammar& g, std::span<const std::uint32_t> key) const override;

private:
  /// What has been written.
  struct progress {
    std::uint32_t next = 0;  // in order: members before it are past
    std::uint32_t count = 0; // of members, as far as it matters
    object_plan::need_set unmet = 0;
    std::vector<std::uint32_t> used; // in any order: a set of members
  };
  enum role : std::uint32_t { before_first_key, before_key, behind_key, before_value, behind_value, done };

  rule_state state(grammar& g, role r, const progress& p, std::uint32_t value = 0) const;
  void key(grammar& g, std::size_t i, const progress& next, rule_id value, rule_edges& out) const;
  void keys(grammar& g, const progress& p, rule_edges& out) const;
  bool used(const progress& p, std::size_t member) const;
  struct counts {
    std::size_t required = 0, all = 0;
  };
  counts left(const progress& p) const;
  bool may_go_on(const progress& p) const;
  bool may_close(const progress& p) const;

  object_plan plan_;
  std::vector<rule_id> rules_;                // of the values of members, then of extras
  std::vector<std::vector<rule_id>> meeting_; // by member: of the values with which it meets needs
  std::vector<expression> keys_;              // with the colon, unless names are told apart
  json_marks marks_;
  std::vector<std::uint32_t> required_; // in order: members from this one on that are
  bool any_order_, counts_;
  std::uint32_t self_ = 0;
};

class array_states final : public state_source {
public:
  array_states(array_plan plan, const std::vector<rule_id>& values, const json_marks& marks);
  rule_state first(grammar& g, std::uint32_t self);
  rule_edges expand(grammar& g, std::span<const std::uint32_t> key) const override;

private:
  enum role : std::uint32_t { before_first_item, before_item, behind_item, done };
  rule_state state(grammar& g, role r, std::uint32_t count, std::uint64_t used) const;

  array_plan plan_;
  std::vector<rule_id> first_;
  rule_id rest_;
  json_marks marks_;
  std::uint32_t self_ = 0;
};

} // namespace troupe::guides
