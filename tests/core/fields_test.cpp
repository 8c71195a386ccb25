// A server whose build has no technique: requests that ask for one find its fields unknown.
#include "api/service/policy.hpp"
#include "runtime/chat/output/call_format.hpp"
#include "tests/api/openai/parse_request.hpp"

#include <doctest/doctest.h>

using namespace troupe;
using namespace troupe::test;

namespace {

/// What is wrong with a chat that has these fields, where unknown ones are rejected.
error refusal_of(const std::string& fields) {
  const auto body = json::document::parse(R"({"messages":[{"role":"user","content":"x"}],)" + fields + "}", "the body",
                                          errc::bad_request);
  const auto model = byte_model();
  model->unknown = unknown_fields::reject;
  model->format.calls = find_call_format("hermes");
  return fault_of([&] { parse_generation(dialect::chat, field_reader(body.root()), *model); });
}

} // namespace

TEST_CASE("fields of techniques that are not there are unknown, as all others") {
  for (const auto* field : {"response_format", "guided_json", "grammar", "steering", "num_beams"}) {
    CAPTURE(field);
    const auto why = refusal_of('"' + std::string(field) + "\":{}");
    CHECK(why.param == field);
    CHECK(why.message.find("is not known here") != std::string::npos);
  }
}

TEST_CASE("calls are read without constraints, but none can be forced, and no text banned") {
  const std::string tools = R"("tools":[{"type":"function","function":{"name":"f"}}])";
  CHECK(refusal_of(tools).message == "nothing was wrong");
  const auto why = refusal_of(tools + R"(,"tool_choice":"required")");
  CHECK(why.code == errc::unsupported);
  CHECK(why.param == "tool_choice");
  generation one;
  CHECK(fault_of([&] { apply_policy({.banned = std::vector<std::string>{"x"}}, *byte_model(), one); }).code ==
        errc::unsupported);
}
