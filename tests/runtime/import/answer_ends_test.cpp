#include "tests/runtime/checkpoint/gguf_test_data.hpp"
#include "tests/runtime/model/model_test_data.hpp"

#include "runtime/engine/loading/loader.hpp"
#include "runtime/import/answer_ends.hpp"
#include "runtime/import/gguf_model.hpp"
#include "runtime/support/json/json_text.hpp"

#include <filesystem>

using namespace troupe;
using namespace troupe::test;

namespace {

using texts = std::vector<std::string>;

/// What one published model's files say: its special tokens, and of these the ends that its GGUF files' keys name.
struct vocabulary {
  const char* model;
  const char* eos;
  const char* eot;     // or null
  const char* eom;     // or null
  texts control;       // of type control
  texts others;        // of type user-defined
  texts expected_ends; // sorted as in the file
};

const std::vector<vocabulary>& published() {
  static const std::vector<vocabulary> all{
    {"Llama 2", "</s>", nullptr, nullptr, {"<s>", "</s>"}, {}, {"</s>"}},
    {"Mistral Small 3",
     "</s>",
     nullptr,
     nullptr,
     {"<unk>", "<s>", "</s>", "[INST]", "[/INST]", "[AVAILABLE_TOOLS]", "[TOOL_CALLS]", "[SYSTEM_PROMPT]"},
     {},
     {"</s>"}},
    {"Llama 3.1",
     "<|eot_id|>",
     nullptr,
     nullptr,
     {"<|begin_of_text|>", "<|end_of_text|>", "<|reserved_special_token_0|>", "<|finetune_right_pad_id|>",
      "<|start_header_id|>", "<|end_header_id|>", "<|eom_id|>", "<|eot_id|>", "<|python_tag|>"},
     {},
     {"<|end_of_text|>", "<|eom_id|>", "<|eot_id|>"}},
    {"Llama 3.1, base, whose files name the end of a text alone",
     "<|end_of_text|>",
     nullptr,
     nullptr,
     {"<|begin_of_text|>", "<|end_of_text|>", "<|eom_id|>", "<|eot_id|>"},
     {},
     {"<|end_of_text|>", "<|eom_id|>", "<|eot_id|>"}},
    {"Llama 4",
     "<|eot|>",
     nullptr,
     nullptr,
     {"<|begin_of_text|>", "<|end_of_text|>", "<|fim_prefix|>", "<|header_start|>", "<|header_end|>", "<|eom|>",
      "<|eot|>", "<|step|>", "<|python_start|>", "<|python_end|>"},
     {},
     {"<|end_of_text|>", "<|eom|>", "<|eot|>"}},
    {"Qwen 2.5 and 3",
     "<|im_end|>",
     nullptr,
     nullptr,
     {"<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|object_ref_start|>", "<|vision_start|>", "<|image_pad|>"},
     {"<tool_call>", "</tool_call>", "<|fim_prefix|>", "<|fim_pad|>", "<|repo_name|>", "<|file_sep|>", "<think>",
      "</think>"},
     {"<|endoftext|>", "<|im_end|>"}},
    {"Gemma 2 and 3",
     "<eos>",
     "<end_of_turn>",
     nullptr,
     {"<pad>", "<eos>", "<bos>", "<unk>", "<mask>", "<start_of_turn>", "<end_of_turn>"},
     {"</s>", "<b>", "</b>"}, // HTML
     {"<eos>", "<end_of_turn>"}},
    {"Gemma 4",
     "<turn|>",
     nullptr,
     nullptr,
     {"<pad>", "<eos>", "<bos>", "<|tool>", "<tool|>", "<|tool_call>", "<tool_call|>", "<|tool_response>", "<|turn>",
      "<turn|>", "<|channel>", "<channel|>"},
     {"</s>"},
     {"<eos>", "<|tool_response>", "<turn|>"}},
    {"Phi 3",
     "<|endoftext|>",
     nullptr,
     nullptr,
     {"<s>", "<|endoftext|>", "<|assistant|>", "<|placeholder1|>", "<|system|>", "<|end|>", "<|user|>"},
     {"</s>"},
     {"<|endoftext|>", "<|end|>"}},
    {"Phi 4",
     "<|im_end|>",
     nullptr,
     nullptr,
     {"<|endoftext|>", "<|fim_prefix|>", "<|im_start|>", "<|im_end|>", "<|im_sep|>", "<|endofprompt|>"},
     {},
     {"<|endoftext|>", "<|im_end|>"}},
    {"Phi 4 mini",
     "<|endoftext|>",
     nullptr,
     nullptr,
     {"<|endoftext|>", "<|user|>", "<|assistant|>", "<|end|>", "<|system|>", "<|tag|>", "<|endofprompt|>"},
     {"<|tool|>", "<|/tool|>", "<|tool_call|>", "<|/tool_call|>", "<|tool_response|>"},
     {"<|endoftext|>", "<|end|>"}},
    {"gpt-oss",
     "<|return|>",
     nullptr,
     nullptr,
     {"<|startoftext|>", "<|endoftext|>", "<|return|>", "<|constrain|>", "<|channel|>", "<|start|>", "<|end|>",
      "<|message|>", "<|call|>", "<|endofprompt|>"},
     {},
     {"<|endoftext|>", "<|return|>", "<|call|>"}},
    {"gpt-oss, in files that call its tokens user-defined",
     "<|return|>",
     nullptr,
     nullptr,
     {"<|endoftext|>", "<|return|>"},
     {"<|constrain|>", "<|channel|>", "<|start|>", "<|end|>", "<|message|>", "<|call|>"},
     {"<|endoftext|>", "<|return|>", "<|call|>"}},
    {"Solar Open",
     "<|flush|>",
     nullptr,
     nullptr,
     {"<|startoftext|>", "<|endoftext|>", "<|begin|>", "<|end|>", "<|content|>", "<|think|>", "<|flush|>", "<|calls|>"},
     {},
     {"<|endoftext|>", "<|flush|>", "<|calls|>"}},
    {"DeepSeek V3 and R1",
     "<｜end▁of▁sentence｜>",
     nullptr,
     nullptr,
     {"<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", "<｜▁pad▁｜>", "<｜User｜>", "<｜Assistant｜>",
      "<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<｜tool▁call▁end｜>",
      "<｜tool▁calls▁end｜>", "<｜tool▁outputs▁begin｜>"},
     {"<think>", "</think>"},
     {"<｜end▁of▁sentence｜>"}},
    {"GLM 4.5",
     "<|endoftext|>",
     "<|user|>",
     "<|observation|>",
     {"<|endoftext|>", "[MASK]", "[gMASK]", "[sMASK]", "<sop>", "<eop>", "<|system|>", "<|user|>", "<|assistant|>",
      "<|observation|>", "/nothink"},
     {"<think>", "</think>", "<tool_call>", "</tool_call>", "<arg_key>", "</arg_key>"},
     {"<|endoftext|>", "<|user|>", "<|observation|>"}},
    {"Kimi K2",
     "<|im_end|>",
     nullptr,
     nullptr,
     {"[BOS]", "[EOS]", "<|im_end|>", "<|im_user|>", "<|im_assistant|>", "<|start_header_id|>", "<|end_header_id|>",
      "[EOT]", "<|im_system|>", "<|tool_calls_section_begin|>", "<|tool_call_begin|>", "<|im_middle|>"},
     {},
     {"[EOS]", "<|im_end|>", "[EOT]"}},
    {"A fine-tune of Mistral in ChatML",
     "<|im_end|>",
     nullptr,
     nullptr,
     {"<unk>", "<s>", "</s>", "<|im_end|>"},
     {"<|im_start|>"},
     {"</s>", "<|im_end|>"}},
    {"The same, whose file names the base's end and calls its own user-defined",
     "</s>",
     nullptr,
     nullptr,
     {"<unk>", "<s>", "</s>"},
     {"<|im_start|>", "<|im_end|>"},
     {"</s>", "<|im_end|>"}},
    {"Command R",
     "<|END_OF_TURN_TOKEN|>",
     nullptr,
     nullptr,
     {"<PAD>", "<UNK>", "<CLS>", "<SEP>", "<MASK_TOKEN>", "<BOS_TOKEN>", "<EOS_TOKEN>", "<|START_OF_TURN_TOKEN|>",
      "<|END_OF_TURN_TOKEN|>", "<|USER_TOKEN|>", "<|CHATBOT_TOKEN|>", "<|START_RESPONSE|>", "<|END_RESPONSE|>"},
     {},
     {"<|END_OF_TURN_TOKEN|>"}},
    {"Granite 3 and 4",
     "<|end_of_text|>",
     nullptr,
     nullptr,
     {"<|end_of_text|>", "<fim_prefix>", "<filename>", "<|start_of_role|>", "<|end_of_role|>", "<|tool_call|>"},
     {},
     {"<|end_of_text|>"}},
    {"SmolVLM",
     "<end_of_utterance>",
     nullptr,
     nullptr,
     {"<|endoftext|>", "<|im_start|>", "<|im_end|>", "<repo_name>", "<fake_token_around_image>", "<end_of_utterance>"},
     {},
     {"<|endoftext|>", "<|im_end|>", "<end_of_utterance>"}},
    {"Ling 2",
     "<|role_end|>",
     nullptr,
     nullptr,
     {"<|startoftext|>", "<|endoftext|>", "[CLS]", "[gMASK]", "<role>", "</role>", "<|role_end|>"},
     {},
     {"<|endoftext|>", "<|role_end|>"}},
    {"EXAONE",
     "[|endofturn|]",
     nullptr,
     nullptr,
     {"[PAD]", "[BOS]", "[UNK]", "[|endofturn|]", "[|system|]", "[|user|]", "[|assistant|]"},
     {},
     {"[|endofturn|]"}},
    {"MiniMax M2",
     "[e~[",
     nullptr,
     nullptr,
     {"]!p~[", "<fim_prefix>", "[e~[", "]~b]", "]~!b["},
     {"<minimax:tool_call>", "</minimax:tool_call>", "<think>", "</think>"},
     {"[e~["}},
  };
  return all;
}

texts all_of(const vocabulary& v) {
  auto all = v.control;
  all.insert(all.end(), v.others.begin(), v.others.end());
  return all;
}

std::vector<token_id> ids_of(const texts& of, const texts& in) {
  std::vector<token_id> ids;
  for (const auto& text : of) {
    const auto found = std::ranges::find(in, text);
    REQUIRE_MESSAGE(found != in.end(), text);
    ids.push_back(static_cast<token_id>(found - in.begin()));
  }
  std::ranges::sort(ids);
  return ids;
}

/// A GGUF file without tensors; `type_of`: of each token.
class ends_file {
public:
  ends_file(const vocabulary& v, const std::function<std::int32_t(const std::string&)>& type_of) {
    const auto all = all_of(v);
    std::string tokens, types;
    for (const auto& text : all) {
      tokens += packed_string(text);
      types += packed(type_of(text));
    }
    gguf_text file;
    file.keys = {entry("general.architecture", "llama"),
                 entry("tokenizer.ggml.model", "gpt2"),
                 entry("tokenizer.ggml.pre", "gpt-2"),
                 array_entry("tokenizer.ggml.tokens", gguf_type::string, all.size(), tokens),
                 array_entry("tokenizer.ggml.token_type", gguf_type::i32, all.size(), types),
                 array_entry("tokenizer.ggml.merges", gguf_type::string, 0, "")};
    const auto key = [&](const char* name, const char* text) {
      if (text)
        file.keys.push_back(
          entry(name, gguf_type::u32, static_cast<std::uint32_t>(ids_of({std::string(text)}, all).front())));
    };
    key("tokenizer.ggml.eos_token_id", v.eos);
    key("tokenizer.ggml.eot_token_id", v.eot);
    key("tokenizer.ggml.eom_token_id", v.eom);
    write(folder_.path() / "m.gguf", file.str());
  }
  gguf_file open() const { return gguf_file(folder_.path() / "m.gguf"); }

private:
  temp_folder folder_;
};

std::shared_ptr<const tokenizer> tokens_of(const texts& special, const char* eos = nullptr) {
  std::string vocab, added;
  for (std::size_t i = 0; i < special.size(); ++i) {
    const auto id = std::to_string(i);
    added += (i > 0 ? "," : "") + (R"({"special":true,"id":)" + id + R"(,"content":)" + json_text(special[i]) + "}");
  }
  tokenizer::named_tokens named;
  if (eos)
    named.eos = ids_of({eos}, special).front();
  return tokenizer::parse(R"({"added_tokens":[)" + added + R"(],"model":{"type":"BPE","vocab":{},"merges":[]}})", "t",
                          named);
}

/// The ends of a folder's model whose files state some.
struct folder_case {
  texts special, stated;
  const char* eos;
  std::string chat;

  texts ends(std::vector<std::string>* said = nullptr) const {
    const auto tokens = tokens_of(special, eos);
    std::optional<chat_template> how;
    if (!chat.empty())
      how = chat_template::parse(chat, "", "");
    std::vector<std::string> remarks;
    texts result;
    for (const auto id : answer_ends(ids_of(stated, special), *tokens, how ? &*how : nullptr, remarks))
      result.emplace_back(tokens->token(id));
    if (said)
      *said = remarks;
    return result;
  }
};

const std::string chatml = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
                           "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

} // namespace

TEST_CASE("Answers of published models in GGUF files end where they should, whatever kinds their tokens have") {
  for (const auto& v : published()) {
    CAPTURE(std::string(v.model));
    const auto all = all_of(v);
    const auto expected = ids_of(v.expected_ends, all);
    const auto as_published = [&](const std::string& text) {
      return std::ranges::find(v.control, text) != v.control.end() ? 3 : 4;
    };
    const ends_file file(v, as_published);
    CHECK(parse_gguf_generation(file.open()).stops == expected);
    // With the tokenizer's end, and with every kind that converters have given to such tokens.
    std::vector<std::string> said;
    CHECK(answer_ends(expected, *make_gguf_tokenizer(file.open()), nullptr, said) == expected);
    for (const int kind : {1, 4}) {
      CAPTURE(kind);
      const ends_file other(v,
                            [&](const std::string& text) { return is_end_by_name(text) ? kind : as_published(text); });
      CHECK(parse_gguf_generation(other.open()).stops == expected);
    }
  }
}

TEST_CASE("An end of answers that a GGUF file calls an ordinary token is one token of a prompt") {
  const vocabulary v{"", "<|endoftext|>", nullptr, nullptr, {"<|endoftext|>"}, {"<|im_end|>"}, {}};
  const ends_file file(v, [](const std::string&) { return 1; });
  const auto tokens = make_gguf_tokenizer(file.open());
  CHECK(tokens->encode("<|im_end|>", false) == std::vector<token_id>{1});
  CHECK(tokens->is_special(1));
}

TEST_CASE("A GGUF file's list of ends counts whole, and ids that mean none do not") {
  const vocabulary v{"", "a", nullptr, nullptr, {"a", "b", "c", "d"}, {}, {}};
  temp_folder folder;
  gguf_text file;
  std::string words;
  for (const auto& text : all_of(v))
    words += packed_string(text);
  file.keys = {entry("general.architecture", "llama"),
               array_entry("tokenizer.ggml.tokens", gguf_type::string, 4, words),
               entry("tokenizer.ggml.eos_token_id", gguf_type::u32, std::uint32_t{0}),
               entry("tokenizer.ggml.eot_token_id", gguf_type::u32, ~std::uint32_t{0}),
               array_entry("tokenizer.ggml.eos_token_ids", gguf_type::i32, 3,
                           packed(std::int32_t{3}) + packed(std::int32_t{1}) + packed(std::int32_t{-1}))};
  write(folder.path() / "m.gguf", file.str());
  CHECK(parse_gguf_generation(gguf_file(folder.path() / "m.gguf")).stops == std::vector<token_id>{0, 1, 3});
}

TEST_CASE("A model's answers end at its tokenizer's end of sequence, too") {
  const texts special{"<s>", "</s>", "<|im_start|>", "<|im_end|>"};
  CHECK(folder_case{special, {"</s>"}, "<|im_end|>", ""}.ends() == texts{"</s>", "<|im_end|>"});
  CHECK(folder_case{special, {}, "</s>", ""}.ends() == texts{"</s>"});
  CHECK(folder_case{special, {"</s>"}, nullptr, ""}.ends() == texts{"</s>"});
}

TEST_CASE("Where no end is what the chat template writes behind an answer, that ends answers, too") {
  const texts special{"<s>", "</s>", "<|im_start|>", "<|im_end|>", "<|end|>", "<|endoftext|>"};
  std::vector<std::string> said;
  CHECK(folder_case{special, {"</s>"}, "</s>", chatml}.ends(&said) == texts{"</s>", "<|im_end|>"});
  CHECK(said == texts{"answers also end at `<|im_end|>`, which the chat template writes behind them"});
  CHECK(folder_case{special, {"<|im_end|>"}, nullptr, chatml}.ends(&said) == texts{"<|im_end|>"});
  CHECK(said.empty());
  const std::string phi = "{% for m in messages %}<|{{ m.role }}|>\n{{ m.content }}<|end|>\n{% endfor %}";
  CHECK(folder_case{special, {"<|endoftext|>"}, "<|endoftext|>", phi}.ends() == texts{"<|end|>", "<|endoftext|>"});
  // Templates that refuse the roles, show no answers or write nothing behind them say nothing.
  for (const auto* other : {"{{ raise_exception('no') }}", "<|im_start|>",
                            "{% for m in messages %}<|im_start|>{{ m.content }}{% endfor %}"})
    CHECK(folder_case{special, {"</s>"}, "</s>", other}.ends(&said) == texts{"</s>"});
  CHECK(said.empty());
}

TEST_CASE("A template that writes more than an answer's end adds no further ends") {
  const std::string llama = "{% for m in messages %}<|start_header_id|>{{ m.role }}<|end_header_id|>\n\n{{ m.content }}"
                            "<|eot_id|>{% endfor %}<|start_header_id|>assistant<|end_header_id|>\n\n";
  const texts special{"<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"};
  CHECK(folder_case{special, {"<|end_of_text|>", "<|eot_id|>"}, "<|eot_id|>", llama}.ends() ==
        texts{"<|end_of_text|>", "<|eot_id|>"});
  CHECK(folder_case{special, {"<|end_of_text|>"}, nullptr, llama}.ends() == texts{"<|end_of_text|>", "<|eot_id|>"});
  const std::string command = "{% for m in messages %}{{ m.content }}<|END_RESPONSE|><|END_OF_TURN_TOKEN|>{% endfor %}";
  CHECK(
    folder_case{{"<|END_RESPONSE|>", "<|END_OF_TURN_TOKEN|>"}, {"<|END_OF_TURN_TOKEN|>"}, nullptr, command}.ends() ==
    texts{"<|END_OF_TURN_TOKEN|>"});
}

TEST_CASE("An answer of several messages ends at none of their ends, whatever a file states") {
  const texts special{"<|endoftext|>", "<|return|>", "<|start|>", "<|end|>", "<|message|>", "<|call|>"};
  const std::string harmony =
    "{% for m in messages %}<|start|>{{ m.role }}<|message|>{{ m.content }}<|end|>{% endfor %}";
  const texts right{"<|return|>", "<|call|>"};
  for (const texts& stated : {texts{"<|return|>"}, texts{"<|end|>"}, texts{"<|return|>", "<|end|>"}, texts{}}) {
    std::vector<std::string> said;
    CHECK(folder_case{special, stated, "<|return|>", harmony}.ends(&said) == right);
    CHECK(said.empty());
  }
  CHECK(folder_case{special, {"<|return|>"}, "<|end|>", harmony}.ends() == right);
  // With one of them alone it is another format.
  CHECK(folder_case{{"<|return|>", "<|end|>"}, {"<|end|>"}, nullptr, ""}.ends() == texts{"<|end|>"});
}

TEST_CASE("A loaded model's answers end where its tokenizer_config.json or special_tokens_map.json says") {
  for (const auto* name : {"tokenizer_config.json", "special_tokens_map.json"}) {
    CAPTURE(std::string(name));
    temp_folder folder;
    std::filesystem::copy(data() / "golden/llama-gqa", folder.path());
    std::filesystem::remove(folder.path() / "tokenizer_config.json");
    write(folder.path() / name, R"({"bos_token": "<|begin_of_text|>", "eos_token": {"content": "<|end_of_text|>"}})");
    engine_options options;
    options.model = folder.path().string();
    options.compute.device = "cpu";
    const auto model = load_model(options, {});
    CHECK(model->info.defaults.stops == std::vector<token_id>{1, 4});
    CHECK(model->info.tokenizer->bos() == 0);
  }
}
