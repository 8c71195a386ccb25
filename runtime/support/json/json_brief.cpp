#include "runtime/support/json/json_brief.hpp"

#include "runtime/support/json/json.hpp"

namespace troupe {

std::string json_brief(json::value v, std::size_t most) {
  std::string text = simdjson::minify(v);
  if (text.size() <= most)
    return text;
  while (most > 0 && (static_cast<unsigned char>(text[most]) & 0xC0) == 0x80)
    --most;
  return text.substr(0, most);
}

} // namespace troupe
