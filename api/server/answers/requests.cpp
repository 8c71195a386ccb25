#include "api/server/answers/answers.hpp"
#include "api/server/request_table.hpp"
#include "runtime/support/json/field_reader.hpp"
#include "runtime/support/json/json_object.hpp"
#include "runtime/support/text/utf8.hpp"

namespace troupe {

reply tell_request(const call& c) { return reply::json(c.requests.find(c.owner, c.id)->json()); }

reply cancel_request(const call& c) {
  for (const auto& one : c.requests.running(c.owner, c.id))
    one->cancel();
  return reply::json(json_object().text("id", to_utf8(c.id)).text("object", "request").flag("cancelled", true).str());
}

reply control_request(const call& c) {
  const auto document = json::document::parse(c.body, "the body", errc::bad_request);
  const field_reader body(document.root());
  const json::object fields = body.body();
  for (const auto field : fields)
    if (field.key != "action")
      refuse_field(to_utf8(field.key), "is not a field of this endpoint, which takes `action` alone");
  const auto action = body.string("action");
  if (!action)
    refuse_field("action", "is required");
  if (*action != "end" && *action != "end_reasoning")
    refuse_field("action", "must be `end` or `end_reasoning`");
  for (const auto& one : c.requests.running(c.owner, c.id))
    *action == "end" ? one->finish() : one->end_reasoning();
  return reply::json(json_object().text("id", to_utf8(c.id)).text("object", "request").text("action", *action).str());
}

} // namespace troupe
