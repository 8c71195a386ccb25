#include "api/openai/responses/response_store.hpp"

#include "api/openai/responses/conversation.hpp"

#include <doctest/doctest.h>

using namespace troupe;

namespace {

stored_response of_bytes(std::size_t count) { return {std::string(count - 512, 'x'), {}, {}}; }

} // namespace

TEST_CASE("A store forgets the responses that were used least recently, by number") {
  response_store store(2, 1 << 20);
  store.keep(0, "a", of_bytes(600), "client 0");
  store.keep(0, "b", of_bytes(600), "client 0");
  CHECK(store.find(0, "a"));
  store.keep(0, "c", of_bytes(600), "client 0");
  CHECK(store.find(0, "a"));
  CHECK(!store.find(0, "b"));
  CHECK(store.find(0, "c"));
  CHECK(store.bytes() == 1200);
}

TEST_CASE("A store forgets the responses that were used least recently, by bytes") {
  response_store store(100, 2000);
  store.keep(0, "a", of_bytes(900), "client 0");
  store.keep(0, "b", of_bytes(900), "client 0");
  store.keep(0, "c", of_bytes(1500), "client 0");
  CHECK(!store.find(0, "a"));
  CHECK(!store.find(0, "b"));
  CHECK(store.find(0, "c"));
  store.keep(0, "d", of_bytes(2001), "client 0");
  CHECK(!store.find(0, "d"));
  CHECK(store.find(0, "c"));
  CHECK(store.bytes() == 1500);
  response_store none(100, 0);
  none.keep(0, "a", of_bytes(512), "client 0");
  CHECK(!none.find(0, "a"));
}

TEST_CASE("The owner that has most is the first to lose a response, by bytes") {
  response_store store(100, 3000);
  store.keep(1, "small", of_bytes(600), "client 1");
  for (const auto* id : {"a", "b", "c", "d", "e"})
    store.keep(2, id, of_bytes(1000), "client 2");
  CHECK(store.find(1, "small"));
  CHECK(!store.find(2, "c"));
  CHECK(store.find(2, "d"));
  CHECK(store.find(2, "e"));
  store.keep(1, "larger", of_bytes(1400), "client 1"); // of whose owner there would be as much
  CHECK(store.find(1, "larger"));
  CHECK(store.bytes() <= 3000);
}

TEST_CASE("The owner that has most is the first to lose a response, by number") {
  response_store store(3, 1 << 20);
  store.keep(1, "one", of_bytes(600), "client 1");
  for (const auto* id : {"a", "b", "c", "d"})
    store.keep(2, id, of_bytes(600), "client 2");
  CHECK(store.find(1, "one"));
  CHECK(!store.find(2, "b"));
  CHECK(store.find(2, "c"));
  CHECK(store.find(2, "d"));
}

TEST_CASE("A client pays for what its connections keep, and loses of that first") {
  response_store store(4, 1 << 20);
  store.keep(1, "another's", of_bytes(600), "another");
  for (std::size_t connection = 100; connection < 120; ++connection)
    store.keep(connection, std::to_string(connection), of_bytes(600), "client");
  CHECK(store.find(1, "another's"));
  CHECK(!store.find(100, "100"));
  CHECK(!store.find(118, "119"));
  CHECK(store.find(119, "119"));
  store.forget(119);
  CHECK(!store.find(119, "119"));
  CHECK(store.find(118, "118"));
}

TEST_CASE("An owner sees and deletes its own responses only") {
  response_store store(10, 1 << 20);
  store.keep(1, "a", of_bytes(600), "client 1");
  CHECK(!store.find(2, "a"));
  CHECK(!store.remove(2, "a"));
  const auto held = store.find(1, "a");
  CHECK(store.remove(1, "a"));
  CHECK(!store.remove(1, "a"));
  CHECK(!store.find(1, "a"));
  CHECK(held->bytes() == 600);
  CHECK(store.bytes() == 0);
}

TEST_CASE("What an assistant thinks, says and calls in one turn is one message") {
  conversation chat;
  chat.add_message("user", "\"q\"");
  chat.add_reasoning("r");
  chat.add_message("assistant", "\"a\"");
  chat.add_call("1", "f", "{}");
  chat.add_call("2", "g", "{\"x\":1}");
  chat.add_call_output("1", "\"o\"");
  chat.add_message("assistant", "\"b\"");
  chat.add_message("assistant", "\"c\"");
  const std::string calls = R"([{"id":"1","type":"function","function":{"name":"f","arguments":"{}"}},)"
                            R"({"id":"2","type":"function","function":{"name":"g","arguments":"{\"x\":1}"}}])";
  const std::string expected = R"({"role":"user","content":"q"},{"role":"assistant","content":"a",)"
                               R"("reasoning_content":"r","tool_calls":)" +
    calls +
    R"(},{"role":"tool","tool_call_id":"1","content":"o"},{"role":"assistant","content":"b"},)"
    R"({"role":"assistant","content":"c"})";
  CHECK(chat.messages() == expected);
  CHECK(chat.has_call("2"));
  conversation more(chat.messages());
  CHECK(more.has_call("1"));
  CHECK(more.has_call("2"));
  for (const auto* other : {"f", "", "3", "q", R"({"id":"1)"})
    CHECK_FALSE(more.has_call(other));
  more.add_call("\"3", "h", "{}");
  CHECK(more.has_call("\"3"));
  more = conversation(chat.messages());
  more.add_message("user", "\"z\"");
  CHECK(more.messages() == expected + R"(,{"role":"user","content":"z"})");
}
