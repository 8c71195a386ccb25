#include "runtime/chat/output/json_scanner.hpp"

#include "runtime/chat/output/text_search.hpp"
#include "runtime/support/text/hex.hpp"

namespace troupe {

namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

} // namespace

/// A value has ended.
json_scanner::status json_scanner::close() {
  at_ = at::behind;
  return open_.empty() ? status::done : status::more;
}

json_scanner::status json_scanner::begin(char c) {
  switch (c) {
    case '{':
    case '[':
      if (open_.size() == most_depth)
        return status::failed;
      open_.push_back(c == '{');
      at_ = c == '{' ? at::first_key : at::first_item;
      return status::more;
    case '"':
      is_key_ = false;
      at_ = at::string;
      return status::more;
    case 't': literal_ = "rue"; break;
    case 'f': literal_ = "alse"; break;
    case 'n': literal_ = "ull"; break;
    default:
      if (c != '-' && !is_digit(c))
        return status::failed;
      part_ = c == '-' ? part::sign : c == '0' ? part::zero : part::digits;
      at_ = at::number;
      return status::more;
  }
  at_ = at::literal;
  return status::more;
}

bool json_scanner::number_can_end() const {
  return part_ == part::zero || part_ == part::digits || part_ == part::fraction || part_ == part::exponent;
}

bool json_scanner::can_end() const { return open_.empty() && at_ == at::number && number_can_end(); }

/// Whether `c` continues the number: more, failed, or ended where it does not.
json_scanner::status json_scanner::number(char c) {
  const auto go = [this](part to) {
    part_ = to;
    return status::more;
  };
  const bool digit = is_digit(c);
  switch (part_) {
    case part::sign: return digit ? go(c == '0' ? part::zero : part::digits) : status::failed;
    case part::digits:
      if (digit)
        return status::more;
      [[fallthrough]];
    case part::zero:
      if (c == '.')
        return go(part::point);
      break;
    case part::point: return digit ? go(part::fraction) : status::failed;
    case part::fraction:
      if (digit)
        return status::more;
      break;
    case part::e:
      if (c == '+' || c == '-')
        return go(part::e_sign);
      return digit ? go(part::exponent) : status::failed;
    case part::e_sign: return digit ? go(part::exponent) : status::failed;
    case part::exponent: return digit ? status::more : status::ended;
  }
  return c == 'e' || c == 'E' ? go(part::e) : status::ended;
}

json_scanner::status json_scanner::take(char c) {
  switch (at_) {
    case at::string:
      if (c == '\\')
        at_ = at::escape;
      else if (c == '"' && is_key_)
        at_ = at::colon;
      else if (c == '"')
        return close();
      return status::more;
    case at::escape:
      if (c == 'u')
        hex_ = 4, at_ = at::hex;
      else if (std::string_view("\"\\/bfnrt").find(c) == std::string_view::npos)
        return status::failed;
      else
        at_ = at::string;
      return status::more;
    case at::hex:
      if (!hex_value(c))
        return status::failed;
      if (--hex_ == 0)
        at_ = at::string;
      return status::more;
    case at::literal:
      if (c != *literal_)
        return status::failed;
      return *++literal_ ? status::more : close();
    case at::number: {
      const auto how = number(c);
      if (how != status::ended)
        return how;
      at_ = at::behind;
      if (open_.empty())
        return status::ended;
      break; // the byte is behind the number
    }
    default: break;
  }
  if (is_space(c))
    return status::more;
  switch (at_) {
    case at::first_item:
      if (c != ']')
        return begin(c);
      open_.pop_back();
      return close();
    case at::first_key:
      if (c == '}') {
        open_.pop_back();
        return close();
      }
      [[fallthrough]];
    case at::key:
      is_key_ = true;
      at_ = at::string;
      return c == '"' ? status::more : status::failed;
    case at::colon: at_ = at::value; return c == ':' ? status::more : status::failed;
    case at::behind:
      if (c == ',') {
        at_ = open_.back() ? at::key : at::value;
        return status::more;
      }
      if (c != (open_.back() ? '}' : ']'))
        return status::failed;
      open_.pop_back();
      return close();
    default: return begin(c);
  }
}

} // namespace troupe
