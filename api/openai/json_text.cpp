#include "api/openai/json_text.hpp"

#include <boost/json/serialize.hpp>
#include <boost/json/string.hpp>
#include <boost/json/value.hpp>

#include <charconv>
#include <cmath>

namespace troupe {

namespace {

template <class T>
std::string shortest(T value) {
  char buffer[32];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, value).ptr;
  return std::string(buffer, end);
}

} // namespace

std::string json_text(std::string_view text) {
  return boost::json::serialize(boost::json::string_view(text.data(), text.size()));
}

std::string json_logprob(float value) { return std::isfinite(value) ? shortest(value) : "-9999.0"; }

std::string json_number(double value) { return std::isfinite(value) ? shortest(value) : "0"; }

std::string json_ids(std::span<const token_id> ids) {
  std::string result = "[";
  for (const auto id : ids) {
    if (result.size() > 1)
      result += ',';
    result += shortest(id);
  }
  return result += ']';
}

} // namespace troupe
