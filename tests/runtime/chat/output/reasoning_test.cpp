// Reasoning apart from content: marks at the answer's start or in the prompt, white space, gpt-oss's channels.
#include "tests/runtime/chat/output/parsed_output.hpp"

using namespace troupe;
using namespace troupe::test;

namespace {

std::pair<std::string, std::string> thought(const std::shared_ptr<const chat_output>& what, std::string_view text) {
  const auto parsed = parse_output(what, text);
  return {parsed.reasoning, parsed.content};
}

std::shared_ptr<chat_output> opened_by_prompt(const char* format) {
  auto what = output_of("hermes", format);
  what->opens_reasoning = true;
  return what;
}

using both = std::pair<std::string, std::string>;

} // namespace

TEST_CASE("reasoning at the answer's start is apart from content, without the white space between") {
  const auto think = output_of("hermes", "think");
  CHECK(thought(think, "<think>\nHm, ä.\n\nYes.\n</think>\n\nHello \n") == both{"Hm, ä.\n\nYes.", "Hello \n"});
  CHECK(thought(think, "\n<think></think>Hello") == both{"", "Hello"});
  CHECK(thought(think, "<think>\n never ends </thin") == both{"never ends </thin", ""});
  CHECK(thought(think, "Hello <think>no</think>") == both{"", "Hello <think>no</think>"});
  CHECK(thought(think, "  <thin air") == both{"", "  <thin air"});
  CHECK(thought(think, "  <thi") == both{"", "  <thi"});
  CHECK(thought(think, " \n") == both{"", " \n"});
  CHECK(thought(output_of("hermes", "mistral"), "[THINK]a[/THINK]b") == both{"a", "b"});
  CHECK(thought(output_of("hermes", "granite"), "Here is my thought process: a\nHere is my response: b") ==
        both{"a", "b"});
}

TEST_CASE("reasoning that the prompt opens needs no mark") {
  CHECK(thought(opened_by_prompt("think"), "Hm.\n</think>\n\nHello") == both{"Hm.", "Hello"});
  CHECK(thought(opened_by_prompt("think"), "<think>Hm.</think>Hello") == both{"Hm.", "Hello"});
  CHECK(thought(opened_by_prompt("think"), "Hm. < </thin") == both{"Hm. < </thin", ""});
  CHECK(thought(opened_by_prompt("think"), " <th") == both{"<th", ""});
  CHECK(thought(opened_by_prompt("think"), "</think>Hello") == both{"", "Hello"});
}

TEST_CASE("calls come behind the reasoning, not within") {
  const auto parsed = parse_output(
    output_of("hermes", "think"),
    "<think>I could <tool_call>{\"name\": \"g\", \"arguments\": {}}</tool_call></think>\n"
    "<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>");
  CHECK(parsed.reasoning == "I could <tool_call>{\"name\": \"g\", \"arguments\": {}}</tool_call>");
  CHECK(parsed.content.empty());
  CHECK(parsed.calls == std::vector<std::pair<std::string, std::string>>{{"f", "{}"}});
}

TEST_CASE("channels of gpt-oss are told apart, with and without tools") {
  auto what = output_of("harmony");
  what->tools.clear();
  CHECK(thought(what, "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>Hello") ==
        both{"Hm.", "Hello"});
  CHECK(thought(what, "<|channel|>analysis") == both{"", "<|channel|>analysis"});
  CHECK(what->is_needed());
}

TEST_CASE("reasoning can be left out") {
  auto what = output_of("hermes", "think");
  what->with_reasoning = false;
  CHECK(thought(what, "<think>Hm.</think>Hello") == both{"", "Hello"});
}

TEST_CASE("prompts open and close reasoning at their end") {
  const auto& think = *find_reasoning_format("think");
  CHECK(think.is_opened_by("assistant\n<think>\n"));
  CHECK_FALSE(think.is_opened_by("assistant\n<think>\n\n</think>\n\n"));
  CHECK(think.is_closed_by("assistant\n<think>\n\n</think>\n\n"));
  CHECK_FALSE(think.is_closed_by("assistant\n"));
}
