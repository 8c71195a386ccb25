// Real chat templates lead to their formats (where shared/templates is beside the checkout), and so do short ones.
#include "runtime/chat/output/call_format.hpp"
#include "runtime/chat/output/find_chat_format.hpp"
#include "runtime/chat/output/reasoning_format.hpp"
#include "runtime/support/error.hpp"
#include "tests/test_data.hpp"

#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <iterator>

using namespace troupe;

namespace {

struct known_template {
  const char *name, *calls, *reasoning;
};

const known_template known_templates[] = {
  {"Bielik-11B-v3.0-Instruct", "hermes", "think"},
  {"ByteDance-Seed-OSS", "seed_oss", "seed"},
  {"GLM-4.6", "glm45", "think"},
  {"GLM-4.7-Flash", "glm45", "think"},
  {"HuggingFaceTB-SmolLM3-3B", "json", "think"},
  {"LFM2-8B-A1B", "lfm2", ""},
  {"LFM2.5-Instruct", "lfm2", "think"},
  {"MiniMax-M2", "minimax_m2", "think"},
  {"NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", "qwen3_coder", "think"},
  {"NVIDIA-Nemotron-Nano-v2", "nemotron", "think"},
  {"Qwen3-Coder", "qwen3_coder", ""},
  {"Qwen3.5-4B", "qwen3_coder", "think"},
  {"google-gemma-4-31B-it", "gemma4", "gemma4"},
  {"Kimi-K2-Instruct", "kimi_k2", ""},
  {"NousResearch-Hermes-3-Llama-3.1-8B-tool_use", "hermes", ""},
  {"Qwen-QwQ-32B", "hermes", "think"},
  {"Qwen-Qwen2.5-7B-Instruct", "hermes", ""},
  {"Qwen-Qwen3-0.6B", "hermes", "think"},
  {"deepseek-ai-DeepSeek-R1-Distill-Llama-8B", "deepseek_v3", "think"},
  {"deepseek-ai-DeepSeek-V3.1", "deepseek_v31", "think"},
  {"google-gemma-2-2b-it", "json", ""},
  {"meta-llama-Llama-3.1-8B-Instruct", "llama3_json", ""},
  {"meta-llama-Llama-3.2-3B-Instruct", "llama3_json", ""},
  {"microsoft-Phi-3.5-mini-instruct", "json", ""},
  {"mistralai-Mistral-Nemo-Instruct-2407", "mistral", ""},
};

std::pair<std::string, std::string> names_of(const chat_format& format) {
  return {format.calls ? std::string(format.calls->name()) : "",
          format.reasoning ? std::string(format.reasoning->name()) : ""};
}

using format_pair = std::pair<std::string, std::string>;

} // namespace

TEST_CASE("published templates lead to their models' formats") {
  const auto source = std::filesystem::path(test_data()).parent_path().parent_path();
  std::filesystem::path folder;
  for (const auto* up : {"../shared/templates", "../../shared/templates"})
    if (std::filesystem::exists(source / up))
      folder = source / up;
  for (const auto& [name, calls, reasoning] : known_templates) {
    std::ifstream file(folder / (std::string(name) + ".jinja"));
    if (!file)
      continue; // this machine lacks them
    const std::string text(std::istreambuf_iterator<char>(file), {});
    CAPTURE(name);
    CHECK(names_of(find_chat_format(text)) == format_pair{calls, reasoning});
  }
}

TEST_CASE("templates lead to formats by the marks that they write") {
  const auto of = [](std::string_view text) { return names_of(find_chat_format(text)); };
  CHECK(of("") == format_pair{"json", ""});
  CHECK(of("{{ '<tool_call>' }}") == format_pair{"hermes", ""});
  CHECK(of("<tool_call>\n<function=x>\n<parameter=y>") == format_pair{"qwen3_coder", ""});
  CHECK(of("<minimax:tool_call>\n<invoke name=\"x\">\n<parameter name=\"y\"> <think>") ==
        format_pair{"minimax_m2", "think"});
  CHECK(of("List of tools: <|tool_list_start|>[]<|tool_list_end|>") == format_pair{"lfm2", ""});
  CHECK(of("{{ 'List of tools: ' + (tools | tojson) }}") == format_pair{"lfm2", ""}); // LFM 2.5
  CHECK(of("<tool_call> List of tools: ") == format_pair{"hermes", ""});
  CHECK(of("<|tool_call>call: <|channel>thought\\n <channel|>") == format_pair{"gemma4", "gemma4"});
  CHECK(of("<TOOLCALL>[]</TOOLCALL> <think>") == format_pair{"nemotron", "think"}); // its second generation
  CHECK(of("[TOOL_CALLS] [ARGS] [THINK]") == format_pair{"mistral_args", "mistral"});
  CHECK(of("<|tool_call|>") == format_pair{"granite", ""});
  CHECK(of("<|tool_call|> <|/tool_call|>") == format_pair{"phi4_mini", ""});
  CHECK(of("<|start|>assistant<|channel|>final<|message|>") == format_pair{"harmony", ""});
}

TEST_CASE("formats can be named, and left out") {
  CHECK(names_of(find_chat_format("<tool_call><think>", {"mistral", "thinking"})) ==
        format_pair{"mistral", "thinking"});
  CHECK(names_of(find_chat_format("<tool_call><think>", {"none", "none"})) == format_pair{"", ""});
  CHECK_THROWS_AS(find_chat_format("", {"nobody", "auto"}), failure);
  CHECK_THROWS_AS(find_chat_format("", {"auto", "nobody"}), failure);
  for (const auto& name : call_format_names())
    CHECK_NOTHROW(find_chat_format("", {name, "auto"}));
  for (const auto& name : reasoning_format_names())
    CHECK_NOTHROW(find_chat_format("", {"auto", name}));
}
