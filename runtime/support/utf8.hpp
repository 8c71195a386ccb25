// UTF-8 on the way out: JSON strings must be valid, and OpenAI's offsets count characters. Pure functions.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace troupe {

bool is_utf8(std::string_view bytes);

/// `bytes` with every maximal invalid part replaced by U+FFFD, as decoders for the web do it.
std::string to_utf8(std::string_view bytes);

/// Characters (code points) of valid UTF-8.
std::size_t count_characters(std::string_view text);

} // namespace troupe
