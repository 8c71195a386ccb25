// The text of multimodal checkpoints. tiny_families holds some that transformers wrote (families_test.cpp); here texts
// of other checkpoints are presented as parts of multimodal ones.
#include "runtime/checkpoint/safetensors.hpp"
#include "runtime/checkpoint/text_tensors.hpp"
#include "runtime/import/model_source.hpp"
#include "runtime/model/families/text_part.hpp"
#include "runtime/model/tensor_names.hpp"
#include "runtime/support/files/mapped_file.hpp"
#include "tests/runtime/model/decoder_checks.hpp"

#include <functional>

using namespace troupe;
using namespace troupe::test;

namespace {

namespace fs = std::filesystem;

using renaming = std::function<std::string(const std::string&)>;

/// Replaces the first `from` in each name; names without it stay.
renaming replacing(std::string from, std::string to) {
  return [=](const std::string& name) {
    const auto at = name.find(from);
    return at == name.npos ? name : name.substr(0, at) + to + name.substr(at + from.size());
  };
}

renaming under(const std::string& prefix) {
  return [=](const std::string& name) { return prefix + name; };
}

/// Writes the tensors of the checkpoint in `from` under other names (empty: without it), and a vector of zeros for each
/// of `more`.
void write_renamed(const fs::path& from, const fs::path& to, const renaming& name, const std::string& config,
                   const std::vector<std::string>& more = {}) {
  fs::create_directories(to);
  const auto file = from / "model.safetensors";
  const mapped_file map(file);
  std::string header, data;
  const auto add = [&](const std::string& tensor, const std::string& type, const std::string& shape,
                       const std::string& bytes) {
    header += (header.empty() ? "{\"" : ",\"") + tensor + R"(":{"dtype":")" + type + R"(","shape":)" + shape +
      R"(,"data_offsets":[)" + std::to_string(data.size()) + "," + std::to_string(data.size() + bytes.size()) + "]}";
    data += bytes;
  };
  for (const auto& [stored, tensor] : read_safetensors_header(map.bytes(), file.string()))
    if (const auto renamed = name(stored); !renamed.empty())
      add(renamed, std::string(to_string(tensor.info.type)), to_string(tensor.info.shape),
          std::string(reinterpret_cast<const char*>(map.bytes().data()) + tensor.offset, tensor.info.bytes));
  for (const auto& tensor : more)
    add(tensor, "F32", "[2]", std::string(8, '\0'));
  write(to / "model.safetensors", safetensors(header + "}", 0) + data);
  write(to / "config.json", config);
}

/// The configuration in `from` as `place` of one of type `whole`, with the text's type and members around it.
std::string nested(const fs::path& from, const std::string& whole, const std::string& place = "text_config",
                   const std::string& type = "", const std::string& around = "") {
  auto text = content(from / "config.json");
  const auto at = text.find(R"("model_type": ")") + 15;
  if (!type.empty())
    text.replace(at, text.find('"', at) - at, type);
  return R"({"model_type":")" + whole + R"(","vision_config":{"hidden_size":8},)" + around + "\"" + place +
    "\":" + text + "}";
}

std::vector<row_logits> logits_of(const model_source& source) {
  std::mt19937 random(3);
  const auto ids = random_tokens(random, 40, source.config.vocab);
  engine e(source, targets().back(), 1, dtype::f32);
  return e.step({{ids, 0, first_blocks(ids.size())}});
}

model_config parsed(const std::string& text) { return parse_model_config(json::document::parse(text, "config.json")); }

} // namespace

TEST_CASE("Texts within multimodal checkpoints give the bits that they give alone") {
  const temp_folder folder;
  struct example {
    std::string text, config;
    renaming name;
  };
  const auto path = [](const std::string& model) { return data() / model; };
  const auto within = replacing("model.", "model.language_model.");
  const std::vector<example> examples{
    {"golden/mistral-swa", nested(path("golden/mistral-swa"), "llava_next"), under("language_model.")},
    {"golden/llama-mqa-rope3", nested(path("golden/llama-mqa-rope3"), "llava"), within},
    {"golden/llama-gqa", nested(path("golden/llama-gqa"), "idefics3"), replacing("model.", "model.text_model.")},
    {"golden/qwen2", nested(path("golden/qwen2"), "internvl_chat", "llm_config"), under("language_model.")},
    {"golden/qwen2", nested(path("golden/qwen2"), "qwen2_vl", "text_config", "qwen2_vl_text"),
     [](auto name) { return name; }},
    {"golden/qwen2",
     R"({"model_type":"qwen2_5_omni","thinker_config":)" +
       nested(path("golden/qwen2"), "qwen2_5_omni_thinker", "text_config", "qwen2_5_omni_text") + "}",
     under("thinker.")},
    {"golden/qwen3", nested(path("golden/qwen3"), "qwen3_vl", "text_config", "qwen3_vl_text"), within},
    {"families/gemma3", nested(path("families/gemma3"), "gemma3"), under("language_model.")},
    {"families/gemma3", nested(path("families/gemma3"), "gemma3"), within},
    {"families/qwen3-moe",
     nested(path("families/qwen3-moe"), "qwen3_omni_moe_thinker", "text_config", "qwen3_omni_moe_text"), within},
    {"families/exaone4", nested(path("families/exaone4"), "exaone4_5", "text_config", "exaone4_5_text"), within},
    {"families/granite", nested(path("families/granite"), "granite4_vision", "text_config", "granite4_vision_text"),
     within},
    {"tiny_families/phi3-longrope", "", replacing("_proj.weight", "_proj.base_layer.weight")},
  };
  int number = 0;
  for (auto example : examples) {
    CAPTURE(example.text);
    CAPTURE(example.config.substr(0, 60));
    if (example.config.empty()) {
      example.config = content(path(example.text) / "config.json");
      example.config.replace(example.config.find(R"("phi3")"), 6, R"("phi4mm")");
    }
    const auto to = folder.path() / std::to_string(number++);
    write_renamed(path(example.text), to, example.name, example.config,
                  {"vision_tower.layers.0.weight", "model.visual.blocks.0.bias",
                   "model.embed_tokens_extend.image.weight", "model.layers.0.self_attn.qkv_proj.lora_A.vision.weight"});
    const auto source = open_model(to.string()), alone = open(example.text);
    CHECK(source.config.multimodal != "");
    CHECK(source.config.family == alone.config.family);
    CHECK(logits_of(source) == logits_of(alone));
    const auto lines = check_tensors(*source.tensors, source.config);
    CHECK(lines ==
          std::vector{to.string() + ": of this " + source.config.multimodal +
                      " model only the text is used; 4 tensors of other parts, the first "
                      "`encoders.image.weight`, are left out"});
  }
}

TEST_CASE("A multimodal model's head is the one that is stored, and tied where none is and either level says so") {
  const temp_folder folder;
  const auto tied = data() / "golden/llama-mha-tied", untied = data() / "golden/llama-gqa";
  const auto open_as = [&](const fs::path& from, const std::string& around, const std::string& drop = "none") {
    write_renamed(
      from, folder.path(), [&](const auto& name) { return name == drop ? "" : "language_model." + name; },
      nested(from, "mistral3", "text_config", "", around));
    return open_model(folder.path().string());
  };
  CHECK(open_as(tied, "").config.tied);
  CHECK(open_as(tied, R"("tie_word_embeddings":false,)").config.tied);
  CHECK(!open_as(untied, "").config.tied);
  const auto stored = open_as(untied, R"("tie_word_embeddings":true,)");
  CHECK(!stored.config.tied);
  CHECK(logits_of(stored) == logits_of(open("golden/llama-gqa")));
  CHECK(open_as(untied, R"("tie_word_embeddings":true,)", "lm_head.weight").config.tied);
  const auto missing = open_as(untied, "", "lm_head.weight");
  CHECK(failure_of([&] { check_tensors(*missing.tensors, missing.config); }) ==
        folder.path().string() + ": tensor `lm_head.weight` is missing, expected with the shape [768, 128]");
}

TEST_CASE("Tensors of a multimodal model's text that are not used, or there under two names, are refused") {
  const temp_folder folder;
  const auto from = data() / "golden/qwen3";
  const auto file = (folder.path() / "model.safetensors").string();
  const auto open_with = [&](const std::string& more) {
    write_renamed(from, folder.path(), under("language_model."), nested(from, "mistral3"), {more});
    const auto source = open_model(folder.path().string());
    check_tensors(*source.tensors, source.config);
  };
  for (const std::string stem : {"layers.1.cross_attn.q_proj.weight", "embed_tokens.additional_embedding.weight"})
    for (const std::string prefix : {"language_model.model.", "model.language_model.", "model.text_model.", "model."}) {
      CAPTURE(prefix + stem);
      const auto own = prefix == "model." ? "" : " (`" + prefix + stem + "`)";
      CHECK(failure_of([&] { open_with(prefix + stem); }) ==
            file + own + ": tensor `model." + stem +
              "` is not one that a qwen3 model uses here, and without it answers would be wrong");
    }
  CHECK(failure_of([&] { open_with("language_model.other.weight"); }).find("is not one that a qwen3 model") !=
        std::string::npos);
  CHECK(failure_of([&] { open_with("model.norm.weight"); }) ==
        file + ": tensors `language_model.model.norm.weight` and `model.norm.weight` are both `model.norm.weight`");
}

TEST_CASE("Configurations within others take the values that transformers leaves out, and some from around them") {
  // As llava-hf/llava-1.5-7b-hf and google/gemma-3-4b-it have them.
  const auto llava = parsed(
    R"({"model_type":"llava","image_token_index":32000,"text_config":{"max_position_embeddings":4096,
    "model_type":"llama","rms_norm_eps":1e-05,"vocab_size":32064},"vision_config":{"hidden_size":1024},
    "vocab_size":32064})");
  CHECK(llava.family == "llama");
  CHECK(llava.multimodal == "llava");
  CHECK(std::tuple(llava.vocab, llava.hidden, llava.ffn, llava.layers, llava.heads, llava.kv_heads, llava.head_dim) ==
        std::tuple(32064, 4096, 11008, 32, 32, 32, 128));
  CHECK(llava.norm_eps == 1e-5f);
  CHECK(!llava.tied);
  const auto gemma = parsed(R"({"model_type":"gemma3","eos_token_id":[1,106],"text_config":{"hidden_size":2560,
    "intermediate_size":10240,"model_type":"gemma3_text","num_hidden_layers":34,
    "rope_scaling":{"factor":8.0,"rope_type":"linear"},"sliding_window":1024}})");
  CHECK(std::tuple(gemma.vocab, gemma.hidden, gemma.heads, gemma.kv_heads, gemma.head_dim) ==
        std::tuple(262208, 2560, 8, 4, 256));
  CHECK(gemma.rope.factor == 8);
  CHECK(gemma.tied);
  // As Qwen/Qwen2-VL-2B-Instruct and Qwen/Qwen3-VL-2B-Instruct.
  const auto qwen = parsed(R"({"model_type":"qwen2_vl","vision_config":{"hidden_size":1536,"model_type":"qwen2_vl"},
    "hidden_size":1536,"intermediate_size":8960,"max_window_layers":28,"num_attention_heads":12,"num_hidden_layers":28,
    "num_key_value_heads":2,"rms_norm_eps":1e-06,"rope_theta":1000000.0,"sliding_window":32768,
    "tie_word_embeddings":true,"use_sliding_window":false,"vocab_size":151936,
    "rope_scaling":{"type":"mrope","mrope_section":[16,24,24]}})");
  CHECK(qwen.family == "qwen2");
  CHECK(qwen.multimodal == "qwen2_vl");
  CHECK(qwen.tied);
  CHECK(qwen.rope.type == rope_type::plain);
  CHECK(qwen.rope.theta == 1000000);
  // The class of Qwen3-VL's experts always renormalises.
  const auto experts = parsed(R"({"model_type":"qwen3_vl_moe","text_config":{"model_type":"qwen3_vl_moe_text",
    "norm_topk_prob":false,"use_sliding_window":true}})");
  CHECK(experts.family == "qwen3_moe");
  CHECK(experts.experts.renormalise);
  CHECK(experts.rope.theta == 500000);
  CHECK(std::ranges::all_of(experts.windows, [](int w) { return w == 0; }));

  const temp_folder folder;
  write(
    folder.path() / "config.json",
    R"({"model_type":"mistral3","eos_token_id":7,"quantization_config":{"quant_method":"awq","bits":4,"group_size":64},
        "text_config":{"model_type":"mistral","eos_token_id":null}})");
  const auto around = read_config(folder.path());
  CHECK(around.generation.stops == std::vector<token_id>{7});
  REQUIRE(around.quantised);
  CHECK(around.quantised->group == 64);
  write(folder.path() / "config.json",
        R"({"model_type":"mistral3","eos_token_id":7,"text_config":{"model_type":"mistral",
        "eos_token_id":[3,4]}})");
  CHECK(read_config(folder.path()).generation.stops == std::vector<token_id>{3, 4});
  write(folder.path() / "config.json", R"({"model_type":"mistral3","text_config":{"model_type":"mistral"}})");
  CHECK(read_config(folder.path()).generation.stops == std::vector<token_id>{2}); // transformers' default
}

TEST_CASE("Multimodal configurations without a text that is known are refused in one sentence") {
  const auto refusal = [](const std::string& text) { return failure_of([&] { parsed(text); }); };
  CHECK(refusal(R"({"model_type":"mllama","text_config":{"model_type":"mllama_text_model","hidden_size":8}})")
          .starts_with("config.json: `text_config`: `model_type` is `mllama_text_model`, supported are llama, "));
  CHECK(refusal(R"({"model_type":"aya_vision"})").starts_with("config.json: `model_type` is `aya_vision`, supported"));
  CHECK(refusal(R"({"model_type":"paligemma","text_config":{"model_type":"gemma"}})") ==
        "config.json: `model_type` is `paligemma`, which is not supported: it reads prompts in both directions");
  CHECK(refusal(R"({"model_type":"llava","text_config":{"hidden_size":8}})") ==
        "config.json: `text_config`: `model_type` is missing");
  for (const std::string other : {"3", "[]", "\"llama\"", "true"}) {
    CAPTURE(other);
    CHECK(refusal(R"({"model_type":"llava","text_config":)" + other + "}")
            .starts_with("config.json: `text_config` must be an object"));
    CHECK(refusal(R"({"model_type":"omni","thinker_config":)" + other + "}")
            .starts_with("config.json: `thinker_config` must be an object"));
  }
  CHECK(refusal(R"({"model_type":"llava","text_config":null})").starts_with("config.json: `model_type` is `llava`"));
  CHECK(refusal(R"({"model_type":"llava","text_config":{"model_type":"llama","num_attention_heads":"many"}})")
          .starts_with("config.json: `text_config`: `num_attention_heads` must be an integer"));
  CHECK(refusal(R"({"text_config":{"model_type":"llama"}})") == "config.json: `model_type` is missing");

  // Only one level is looked at, however deep others are.
  std::string deep = R"({"model_type":"llama"})";
  for (int i = 0; i < 1000; ++i)
    deep = R"({"model_type":"llava","text_config":)" + deep + "}";
  CHECK(refusal(deep).starts_with("config.json: `text_config`: `model_type` is `llava`, supported are"));
  for (int i = 0; i < 1000; ++i)
    deep = R"({"text_config":)" + deep + "}";
  CHECK(refusal(deep).starts_with("config.json: not valid JSON"));
  // A family is read where it stands, whatever it holds.
  const auto both = parsed(R"({"model_type":"llama","vocab_size":10,"hidden_size":64,"num_hidden_layers":1,
    "num_attention_heads":2,"intermediate_size":32,"text_config":{"model_type":"qwen2","hidden_size":8}})");
  CHECK(both.family == "llama");
  CHECK(both.hidden == 64);
  CHECK(both.multimodal.empty());
}
