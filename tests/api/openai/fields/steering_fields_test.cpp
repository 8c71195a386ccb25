#include "runtime/techniques/steering/steering_file.hpp"
#include "runtime/techniques/steering/steering_library.hpp"
#include "tests/api/openai/parse_request.hpp"

#include <doctest/doctest.h>

#include <filesystem>
#include <unistd.h>

using namespace troupe;
using namespace troupe::test;

namespace {

/// A model of four layers with a vector "calm".
std::shared_ptr<served_model> steerable_model() {
  namespace fs = std::filesystem;
  const auto file = fs::temp_directory_path() / ("troupe-steering-fields-" + std::to_string(getpid()));
  write_steering(file, {{1, 2}, {3, 4}, {}, {}}, "");
  auto library = std::make_shared<steering_library>(4, 2);
  library->add("calm", file);
  fs::remove(file);
  auto model = byte_model();
  model->techniques.set(steering_technique, std::move(library));
  return model;
}

std::vector<steering_choice> steering_of(dialect speaks, const std::string& list) {
  const std::string text = speaks == dialect::chat ? R"("messages":[{"role":"user","content":"a"}])"
                                                   : R"("prompt":"a")";
  const auto body = "{" + text + R"(,"steering":)" + list + "}";
  const auto parsed = json::document::parse(body, "the body", errc::bad_request);
  const auto asked = parse_generation(speaks, field_reader(parsed.root()), *steerable_model());
  const auto choices = choices_of(asked.prompts.at(0).sampling.techniques.find(steering_technique));
  return {choices.begin(), choices.end()};
}

} // namespace

TEST_CASE("Completions and chats say how they are steered") {
  for (const auto speaks : {dialect::completions, dialect::chat}) {
    CHECK(steering_of(speaks, R"([{"name":"calm"},{"name":"calm","strength":-1.5,"first_layer":1,"last_layer":3}])") ==
          std::vector<steering_choice>{{"calm"}, {"calm", -1.5f, 1, 3}});
    CHECK(steering_of(speaks, "[]").empty());
    CHECK(steering_of(speaks, "null").empty());
  }
}

TEST_CASE("Bad steering is refused by the name of the field") {
  const auto refused = [](const std::string& list, const std::string& field) {
    const auto e = fault_of([&] { steering_of(dialect::completions, list); });
    CHECK(e.code == errc::bad_request);
    CHECK(e.param == field);
    return e.message;
  };
  CHECK(refused(R"([{"name":"wild"}])", "steering[0].name") ==
        R"(`steering[0].name` must be one of "calm", not "wild")");
  CHECK(refused(R"([{"name":"calm","first_layer":4}])", "steering[0].first_layer") ==
        "`steering[0].first_layer` must be a layer of the model, 0 to 3, not 4");
  CHECK(refused(R"([{"name":"calm"},{"strength":1}])", "steering[1].name") == "`steering[1].name` is required");
  refused(R"([{"name":"calm","strenght":1}])", "steering[0].strenght");
  refused(R"([{"name":"calm","strength":"much"}])", "steering[0].strength");
  refused(R"([{"name":"calm","strength":1e9}])", "steering[0].strength");
  refused(R"([{"name":"calm","last_layer":-1}])", "steering[0].last_layer");
  refused(R"(["calm"])", "steering[0]");
  refused(R"({"name":"calm"})", "steering");
  std::string many = "[";
  for (int i = 0; i < 17; ++i)
    many += R"({"name":"calm"},)";
  many.back() = ']';
  refused(many, "steering");
  const auto e = fault_of([] { completion(R"({"prompt":"a","steering":[{"name":"calm"}]})"); });
  CHECK(e.message == "`steering[0].name` names a steering vector, but there are none; --steer NAME=FILE adds one");
}
