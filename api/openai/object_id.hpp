// Ids of objects that clients may ask for again or send back: unguessable. Any thread.
#pragma once

#include "api/openai/request_draws.hpp"
#include "runtime/support/text/hex.hpp"

#include <array>
#include <cerrno>
#include <cstddef>
#include <string>
#include <string_view>
#include <system_error>

#include <sys/random.h>

namespace troupe {

/// A random byte of the system's, which is asked for many at once: a request may need thousands of ids.
inline unsigned char new_random_byte() {
  struct stock {
    std::array<unsigned char, 4096> bytes{};
    std::size_t left = 0;
  };
  thread_local stock mine;
  while (mine.left == 0) {
    const auto count = ::getrandom(mine.bytes.data(), mine.bytes.size(), 0);
    if (count < 0 && errno != EINTR)
      throw std::system_error(errno, std::generic_category(), "no random numbers");
    mine.left = count < 0 ? 0 : static_cast<std::size_t>(count);
  }
  return mine.bytes[--mine.left];
}

/// A random byte, or the one that the request in hand drew before.
inline unsigned char random_byte() {
  auto* its = drawing_for::current();
  if (!its)
    return new_random_byte();
  if (its->next == its->bytes.size())
    its->bytes += static_cast<char>(new_random_byte());
  return static_cast<unsigned char>(its->bytes[its->next++]);
}

/// "resp_" and 48 random hexadecimal digits, for the prefix "resp_".
inline std::string object_id(std::string_view prefix, std::size_t bytes = 24) {
  std::string result(prefix);
  result.reserve(prefix.size() + 2 * bytes);
  for (std::size_t i = 0; i < bytes; ++i)
    append_hex(result, random_byte());
  return result;
}

} // namespace troupe
