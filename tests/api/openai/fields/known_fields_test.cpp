// Fields that nothing reads are told, and no field that something reads is.
#include "api/openai/fields/known_fields.hpp"
#include "tests/api/openai/parse_request.hpp"
#include "tests/test_data.hpp"

#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>

using namespace troupe;
using namespace troupe::test;

TEST_CASE("a field that nothing reads is told, with the one that may be meant") {
  const auto notes = [](const std::string& fields) { return completion(R"({"prompt":"a",)" + fields + "}").notes; };
  CHECK(notes(R"("temperature":1,"top_k":3,"user":"u","seed":1,"stream":false)").empty());
  CHECK(notes(R"("tempratur":1)") ==
        std::vector<std::string>{"`tempratur` is not known here and has no effect; did you mean `temperature`?"});
  CHECK(notes(R"("max_token":1)").front().ends_with("did you mean `max_tokens`?"));
  CHECK(notes(R"("of_another_server":1)") ==
        std::vector<std::string>{"`of_another_server` is not known here and has no effect"});
  CHECK(notes(R"("messages":[])").size() == 1);                         // of chats only
  CHECK(notes(R"("of_another_server":null,"tempratur":null)").empty()); // of clients that send all that they know
  CHECK(notes(R"("stream":true,"stream_options":{"include_usag":true})").front() ==
        "`stream_options.include_usag` is not known here and has no effect; did you mean `include_usage`?");
  CHECK(chat(R"({"messages":[{"role":"user","content":"x"}],"tool_choise":"auto"})")
          .notes.front()
          .ends_with("did you mean `tool_choice`?"));
}

TEST_CASE("an operator may have requests with such fields refused, or nothing said, by every API") {
  const auto body = [](const std::string& fields) {
    return json::document::parse("{" + fields + "}", "the body", errc::bad_request);
  };
  const auto notes = [&](unknown_fields how, const std::string& fields) {
    auto model = byte_model();
    model->unknown = how;
    const auto given = body(fields);
    return parse_generation(dialect::completions, field_reader(given.root()), *model).notes;
  };
  const auto why = fault_of([&] { notes(unknown_fields::reject, R"("prompt":"a","temprature":0.1)"); });
  CHECK(why.code == errc::bad_request);
  CHECK(why.param == "temprature");
  CHECK(why.message == "`temprature` is not known here; did you mean `temperature`?");
  CHECK(notes(unknown_fields::reject, R"("prompt":"a","temperature":0.1)").empty());
  CHECK(notes(unknown_fields::ignore, R"("prompt":"a","temprature":0.1)").empty());
  CHECK(fault_of([&] {
          notes(unknown_fields::reject, R"("prompt":"a","stream":true,"stream_options":{"include_usag":true})");
        }).param == "stream_options.include_usag");
  auto strict = byte_model();
  strict->unknown = unknown_fields::reject;
  const auto given = body(R"("input":"a","dimension":2)");
  CHECK(fault_of([&] { notes_on_members(field_reader(given.root()), strict->unknown, {}); }).param == "input");
}

TEST_CASE("notes are few, and a header's are short and printable") {
  std::string body = R"({"prompt":"a")";
  for (int i = 0; i < 100; ++i)
    body += ",\"" + std::string(1000, 'x') + std::to_string(i) + "\":0";
  const auto notes = completion(body + "}").notes;
  CHECK(notes.size() == most_notes + 1);
  CHECK(notes.back() == "92 more fields are not known here");
  CHECK(header_of_notes(notes).size() <= 1024);
  CHECK(header_of_notes({"a\r\nb", "\xc3\xa4"}) == "a??b; ??");
}

TEST_CASE("every field that the sources read from a body is known") {
  const auto sources = std::filesystem::path(test_data()).parent_path().parent_path() / "api" / "openai";
  const std::regex reads(
    R"re((?:body|body_)\.(?:text|boolean|integer|number|find|has|list|object|ids|texts)\("(\w+)")re");
  int found = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(sources)) {
    const auto path = entry.path().string();
    if (entry.path().extension() != ".cpp" || path.find("/responses/") != path.npos ||
        path.ends_with("embeddings.cpp") || path.ends_with("infill.cpp") || path.ends_with("rankings.cpp") ||
        path.ends_with("watermark_fields.cpp"))
      continue;
    std::ifstream file(path);
    const std::string text((std::istreambuf_iterator<char>(file)), {});
    for (std::sregex_iterator at(text.begin(), text.end(), reads), end; at != end; ++at) {
      const auto name = (*at)[1].str();
      if (name == "tokens") // of /detokenize
        continue;
      CAPTURE(path);
      CAPTURE(name);
      CHECK(is_known_field(name, field_scope::both));
      ++found;
    }
  }
  CHECK(found > 30);
}
