// Base64 (RFC 4648). Pure functions.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace troupe {

/// The bytes of `text`, or nothing if it is malformed. Padding may be missing.
std::optional<std::string> decode_base64(std::string_view text);

/// With padding.
std::string encode_base64(std::string_view bytes);

} // namespace troupe
