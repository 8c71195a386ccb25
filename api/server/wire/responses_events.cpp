#include "api/server/wire/responses_events.hpp"

#include "api/openai/fields/known_fields.hpp"
#include "api/openai/openai_response.hpp"
#include "runtime/support/json/field_reader.hpp"
#include "runtime/support/json/json_object.hpp"

#include <algorithm>
#include <utility>

namespace troupe {

namespace {

constexpr std::size_t most_stream_id_bytes = 128;

std::string with_member(std::string_view object, std::string_view name, std::string_view json) {
  std::string result(object);
  if (result.ends_with('}'))
    result.insert(result.size() - 1, ",\"" + std::string(name) + "\":" + std::string(json));
  return result;
}

std::string with_lane(std::string_view object, const std::optional<std::string>& stream_id) {
  return stream_id ? with_member(object, "stream_id", json_text(*stream_id)) : std::string(object);
}

} // namespace

response_create parse_response_event(std::string_view text) {
  std::optional<std::string> stream_id;
  try {
    auto document = std::make_shared<const json::document>(
      json::document::parse(text, "the message", errc::bad_request));
    const field_reader event(document->root());
    if (const auto given = event.text("stream_id")) {
      if (given->empty() || given->size() > most_stream_id_bytes)
        event.refuse("stream_id", "must have 1 to " + std::to_string(most_stream_id_bytes) + " bytes");
      stream_id = *given;
    }
    const auto type = event.text("type");
    if (!type)
      event.refuse("type", "is required");
    if (*type != "response.create")
      refuse_field("type", "must be \"response.create\", not \"" + std::string(*type) + '"', errc::unsupported);
    response_create result;
    result.generates = event.boolean("generate").value_or(true);
    if (const auto previous = event.text("previous_response_id"))
      result.previous = *previous;
    result.stream_id = stream_id;
    result.body = std::move(document);
    return result;
  } catch (const failure& f) {
    throw bad_response_event{std::move(stream_id), f.what_failed()};
  }
}

std::vector<std::string> events_of_stream(std::string_view stream, const std::optional<std::string>& stream_id,
                                          std::vector<std::string>& notes) {
  constexpr std::string_view data = "data: ";
  std::vector<std::string> result;
  while (!stream.empty()) {
    const auto line = stream.substr(0, stream.find('\n'));
    stream.remove_prefix(std::min(stream.size(), line.size() + 1));
    if (line.starts_with(data) && line != "data: [DONE]")
      result.push_back(with_lane(line.substr(data.size()), stream_id));
  }
  if (!result.empty() && !notes.empty())
    result.front() = with_member(result.front(), "warnings", warnings_of_notes(std::exchange(notes, {})));
  return result;
}

std::string response_error_event(const error& why, const std::optional<std::string>& stream_id) {
  const auto code = code_of(why);
  // A response that is not there is a fault of the request here, whose address exists.
  const auto status = code == "previous_response_not_found" ? 400 : status_of(why.code);
  return with_lane(json_object().text("type", "error").number("status", status).raw("error", error_object(why)).str(),
                   stream_id);
}

} // namespace troupe
