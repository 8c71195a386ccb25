#include "api/cli/batch_lines.hpp"

#include "api/openai/object_id.hpp"
#include "api/openai/openai_response.hpp"
#include "runtime/support/json/field_reader.hpp"
#include "runtime/support/json/json_object.hpp"
#include "runtime/support/text/utf8.hpp"

namespace troupe::cli {

namespace {

constexpr std::size_t most_id_bytes = 512;
constexpr std::string_view answer_mark = R"({"id":"batch_req_)";

std::string batch_line(std::string_view custom_id, std::string_view response, std::string_view error) {
  return json_object()
           .text("id", object_id("batch_req_", 12))
           .text_or_null("custom_id", custom_id)
           .raw("response", response)
           .raw("error", error)
           .str() +
    '\n';
}

} // namespace

batch_request parse_batch_line(std::string_view line) {
  batch_request result;
  auto document = std::make_shared<const json::document>(json::document::parse(line, "the line", errc::bad_request));
  const field_reader fields(document->root());
  const auto needed = [&](std::string_view key) {
    const auto found = fields.text(key);
    if (!found || found->empty())
      fields.refuse(key, "is required");
    return std::string(*found);
  };
  result.custom_id = needed("custom_id");
  if (result.custom_id.size() > most_id_bytes)
    fields.refuse("custom_id", "must have at most " + std::to_string(most_id_bytes) + " bytes");
  if (const auto method = fields.text("method"); method && *method != "POST")
    fields.refuse("method", "must be \"POST\", not \"" + std::string(*method) + '"');
  result.url = needed("url");
  const auto body = fields.object("body");
  if (!body)
    fields.refuse("body", "is required");
  result.body = body->body();
  result.document = std::move(document);
  return result;
}

std::string custom_id_of(std::string_view line) {
  try {
    const auto document = json::document::parse(line, "the line", errc::bad_request);
    return std::string(field_reader(document.root()).text("custom_id").value_or(""));
  } catch (const failure&) {
    return {};
  }
}

bool may_be_answer(std::string_view line) { return line.starts_with(answer_mark) || answer_mark.starts_with(line); }

std::string answered_line(std::string_view custom_id, unsigned status, std::string_view body) {
  return batch_line(
    custom_id,
    json_object().number("status_code", status).text("request_id", object_id("req_", 12)).raw("body", body).str(),
    "null");
}

std::string failed_line(std::string_view custom_id, const error& why) {
  return answered_line(custom_id, status_of(why.code), error_body(why));
}

std::string invalid_line(std::string_view custom_id, const error& why) {
  return batch_line(custom_id, "null",
                    json_object().text("code", "invalid_request").text("message", to_utf8(why.message)).str());
}

} // namespace troupe::cli
