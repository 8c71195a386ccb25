// Recognises one JSON value byte by byte, to find its end. A plain value. It accepts control characters within strings,
// because models write line feeds there.
#pragma once

#include <cstdint>
#include <vector>

namespace troupe {

class json_scanner {
public:
  static constexpr std::size_t most_depth = 200;

  enum class status : std::uint8_t {
    more,
    done,   // with this byte
    ended,  // ahead of this byte, which does not belong to the value (a number)
    failed, // not JSON, or nested too deeply
  };
  status take(char c);
  /// Whether the value may end here.
  bool can_end() const;

private:
  enum class at : std::uint8_t {
    value,
    first_item,
    first_key,
    key,
    colon,
    behind,
    string,
    escape,
    hex,
    literal,
    number
  };
  // of a number: behind the sign, a leading zero, other digits, the point, its digits, the e, its sign, its digits
  enum class part : std::uint8_t { sign, zero, digits, point, fraction, e, e_sign, exponent };

  status begin(char c);
  status close();
  status number(char c);
  bool number_can_end() const;

  std::vector<bool> open_; // true: an object
  at at_ = at::value;
  part part_ = part::sign;
  bool is_key_ = false;
  int hex_ = 0;
  const char* literal_ = nullptr; // the rest of true, false, null
};

} // namespace troupe
