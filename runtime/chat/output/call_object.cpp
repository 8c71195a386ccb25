#include "runtime/chat/output/call_object.hpp"

#include "runtime/support/error.hpp"
#include "runtime/support/json/json.hpp"

namespace troupe {

namespace {

using scan = json_scanner::status;

/// The object whose JSON a JSON string holds, or nothing.
std::string object_within(const std::string& text) {
  try {
    const auto document = json::document::parse(text, "arguments", errc::bad_request);
    std::string_view inner;
    if (document.root().get(inner))
      return {};
    const auto object = json::document::parse(inner, "arguments", errc::bad_request);
    return object.root().is_object() ? std::string(inner) : std::string();
  } catch (const failure&) {
    return {};
  }
}

} // namespace

/// The object ends.
reading call_object::close() {
  if (begun_)
    return reading::done;
  if (name_.empty() || !out_->begin_call(name_))
    return reading::failed;
  out_->arguments(held_.empty() ? "{}" : held_);
  out_->end_call();
  return reading::done;
}

/// The first byte of a member's value.
reading call_object::value(char c) {
  if (key_ == "name") {
    at_ = at::name;
    return c == '"' && name_.empty() ? reading::more : reading::failed;
  }
  scanner_ = {};
  const bool is_arguments = (key_ == "arguments" || key_ == "parameters") && c != 'n'; // null is as good as none
  if (is_arguments && c == '"' && !begun_ && held_.empty()) {
    at_ = at::quoted;
    held_ = c;
    scanner_.take(c);
    return reading::more;
  }
  if (!is_arguments) {
    at_ = at::other;
    return scanner_.take(c) == scan::failed ? reading::failed : reading::more;
  }
  if (c != '{' || begun_ || !held_.empty())
    return reading::failed;
  at_ = at::arguments;
  if (!name_.empty() && !(begun_ = out_->begin_call(name_)))
    return reading::failed;
  return arguments(c);
}

reading call_object::arguments(char c) {
  const auto how = scanner_.take(c);
  if (how == scan::failed)
    return reading::failed;
  if (begun_)
    out_->arguments({&c, 1});
  else
    held_ += c;
  if (how != scan::done)
    return reading::more;
  at_ = at::comma_or_end;
  out_->end_call();
  return begun_ ? reading::settled : reading::more;
}

/// A string that must hold an object.
reading call_object::quoted(char c) {
  held_ += c;
  switch (scanner_.take(c)) {
    case scan::more: return reading::more;
    case scan::done: break;
    default: return reading::failed;
  }
  held_ = object_within(held_);
  at_ = at::comma_or_end;
  return held_.empty() ? reading::failed : reading::more; // the call begins when the object ends
}

reading call_object::take(char c) {
  switch (at_) {
    case at::key:
      if (c == '"')
        at_ = at::colon;
      else
        key_ += c;
      return c == '\\' ? reading::failed : reading::more;
    case at::name:
      if (c == '"')
        at_ = at::comma_or_end;
      else
        name_ += c;
      return c == '\\' || (c == '"' && name_.empty()) || name_.size() > most_name_bytes ? reading::failed
                                                                                        : reading::more;
    case at::arguments: return arguments(c);
    case at::quoted: return quoted(c);
    case at::other: {
      const auto how = scanner_.take(c);
      if (how == scan::failed)
        return reading::failed;
      if (how == scan::more)
        return reading::more;
      at_ = at::comma_or_end;
      if (how == scan::done)
        return reading::more;
      break; // the byte is behind the value
    }
    default: break;
  }
  if (is_space(c))
    return reading::more;
  switch (at_) {
    case at::brace: at_ = at::key_or_end; return c == '{' ? reading::more : reading::failed;
    case at::key_or_end:
      key_.clear();
      at_ = at::key;
      return c == '"' ? reading::more : reading::failed;
    case at::colon: at_ = at::value; return c == ':' ? reading::more : reading::failed;
    case at::value: return value(c);
    default: // comma_or_end
      if (c == '}')
        return close();
      at_ = at::key_or_end;
      return c == ',' ? reading::more : reading::failed;
  }
}

reading call_list::take(char c) {
  if (at_ == at::object) {
    const auto how = object_.take(c);
    if (how != reading::done)
      return how;
    at_ = at::comma_or_end;
    return bare_ ? reading::done : reading::settled;
  }
  if (is_space(c))
    return reading::more;
  if (at_ == at::bracket && c == '{') {
    bare_ = true;
    at_ = at::object;
    return object_.take(c);
  }
  if (at_ == at::comma_or_end && c == ']')
    return reading::done;
  const char wanted = at_ == at::bracket ? '[' : ',';
  object_ = call_object(*out_);
  at_ = at::object;
  return c == wanted ? reading::more : reading::failed;
}

reading call_arguments::take(char c, std::string_view name) {
  if (!begun_ && is_space(c))
    return reading::more;
  const auto how = scanner_.take(c);
  if (how == scan::failed || (!begun_ && (c != '{' || !out_->begin_call(name))))
    return reading::failed;
  begun_ = true;
  out_->arguments({&c, 1});
  if (how != scan::done)
    return reading::more;
  out_->end_call();
  return reading::done;
}

} // namespace troupe
