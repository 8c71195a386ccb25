// Reads the fields of one message in protocol buffers' wire format. Untrusted input: every length is checked against
// what is there, and each field consumes bytes, so that no file makes an endless loop. A view into the file.
// Format: https://protobuf.dev/programming-guides/encoding/
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>

namespace troupe::tokenization {

class protobuf_reader {
public:
  explicit protobuf_reader(std::string_view message) : left_(message) {}

  struct field {
    std::uint32_t number;
    std::uint64_t value = 0; // varint, or the bits of 4 or 8 bytes
    std::string_view bytes;  // strings, bytes and messages

    bool flag() const { return value != 0; }
    std::int64_t integer() const { return static_cast<std::int64_t>(value); }
    float real() const { return std::bit_cast<float>(static_cast<std::uint32_t>(value)); }
  };

  /// The next field, or nothing at the end. Throws std::invalid_argument if the message is malformed.
  std::optional<field> next() {
    if (left_.empty())
      return std::nullopt;
    const auto tag = varint();
    if (tag >> 3 == 0 || tag >> 3 > 0x1FFFFFFF)
      throw std::invalid_argument("has a field of the number " + std::to_string(tag >> 3));
    field found{static_cast<std::uint32_t>(tag >> 3), 0, {}};
    switch (tag & 7) {
      case 0: found.value = varint(); break;
      case 1: found.value = fixed<std::uint64_t>(); break;
      case 2: found.bytes = take(varint()); break;
      case 5: found.value = fixed<std::uint32_t>(); break;
      default: throw std::invalid_argument("has a field of the unknown wire type " + std::to_string(tag & 7));
    }
    return found;
  }

private:
  std::uint64_t varint() {
    std::uint64_t value = 0;
    for (int shift = 0; shift < 70; shift += 7) {
      const auto byte = static_cast<unsigned char>(take(1)[0]);
      if (shift < 64)
        value |= std::uint64_t(byte & 0x7F) << shift;
      if (byte < 0x80)
        return value;
    }
    throw std::invalid_argument("has a number of more than 10 bytes");
  }

  template <class T>
  T fixed() {
    T value;
    std::memcpy(&value, take(sizeof value).data(), sizeof value);
    return value;
  }

  std::string_view take(std::uint64_t count) {
    if (count > left_.size())
      throw std::invalid_argument("is cut off: a field takes " + std::to_string(count) + " bytes, but only " +
                                  std::to_string(left_.size()) + " are left");
    const auto part = left_.substr(0, count);
    left_.remove_prefix(count);
    return part;
  }

  std::string_view left_;
};

} // namespace troupe::tokenization
