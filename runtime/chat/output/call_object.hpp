// Reads calls written as JSON objects, {"name": ..., "arguments": {...}}, with members in any order; "parameters"
// stands for "arguments", others are skipped. Plain values that write into a delta_sink.
#pragma once

#include "runtime/chat/output/call_search.hpp"
#include "runtime/chat/output/json_scanner.hpp"

#include <cstdint>
#include <string>

namespace troupe {

/// One object. The call begins as soon as its name is known and its arguments begin. Arguments may be an object's JSON
/// in a string, as OpenAI's API has it.
class call_object {
public:
  explicit call_object(delta_sink& out) : out_(&out) {}
  /// From the brace on; white space may precede it.
  reading take(char c);

private:
  enum class at : std::uint8_t { brace, key_or_end, key, colon, value, name, arguments, quoted, other, comma_or_end };

  reading value(char c);
  reading arguments(char c);
  reading quoted(char c);
  reading close();

  delta_sink* out_;
  at at_ = at::brace;
  json_scanner scanner_;
  std::string key_, name_;
  std::string held_; // arguments ahead of their name
  bool begun_ = false;
};

/// A list of objects: [{...}, {...}], or one without brackets. Each of them settles what was read.
class call_list {
public:
  explicit call_list(delta_sink& out) : out_(&out), object_(out) {}
  /// From the bracket on; white space may precede it.
  reading take(char c);

private:
  enum class at : std::uint8_t { bracket, object, comma_or_end };

  delta_sink* out_;
  at at_ = at::bracket;
  bool bare_ = false; // without brackets
  call_object object_;
};

/// Arguments as a bare JSON object of a function whose name is known: begins the call and ends it.
class call_arguments {
public:
  explicit call_arguments(delta_sink& out) : out_(&out) {}
  /// From the brace on; white space may precede it. Failed if the sink refuses the name.
  reading take(char c, std::string_view name);

private:
  delta_sink* out_;
  json_scanner scanner_;
  bool begun_ = false;
};

} // namespace troupe
