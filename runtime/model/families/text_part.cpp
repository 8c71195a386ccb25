#include "runtime/model/families/text_part.hpp"

#include "runtime/model/config_limits.hpp"
#include "runtime/model/families/family.hpp"
#include "runtime/support/json/json_reader.hpp"
#include "runtime/support/json/json_text.hpp"

#include <algorithm>
#include <array>
#include <set>

namespace troupe {

namespace {

using json::reader;

/// A `model_type` of texts: what it is here, and the values of its configuration class in transformers that differ from
/// the family's or that the family requires: nested configurations leave them out.
struct text_type {
  std::string_view name, family;
  std::string_view defaults;   // an object
  std::string_view fixed = {}; // an object whose members replace those given: the class has no such keys
  bool divided_heads = false;  // `head_dim` is hidden_size / num_attention_heads where it is absent
};

constexpr std::string_view qwen2_vl =
  R"({"vocab_size":152064,"hidden_size":8192,"intermediate_size":29568,"num_hidden_layers":80,
"num_attention_heads":64,"num_key_value_heads":8,"rms_norm_eps":1e-5,"rope_theta":1000000,
"max_window_layers":80,"eos_token_id":151645})";
constexpr std::string_view glm4v =
  R"({"vocab_size":151552,"hidden_size":4096,"intermediate_size":13696,"num_hidden_layers":40,
"num_attention_heads":32,"rms_norm_eps":1e-5,"max_position_embeddings":32768,"partial_rotary_factor":1})";
constexpr std::string_view phi4 =
  R"({"vocab_size":200064,"hidden_size":3072,"intermediate_size":8192,"num_hidden_layers":32,
"num_attention_heads":32,"num_key_value_heads":8,"max_position_embeddings":131072})";
/// What Granite and Llama share.
constexpr std::string_view llama =
  R"({"vocab_size":32000,"hidden_size":4096,"intermediate_size":11008,"num_hidden_layers":32,
"num_attention_heads":32,"eos_token_id":2})";
constexpr std::string_view qwen2 =
  R"({"vocab_size":151936,"hidden_size":4096,"intermediate_size":22016,"num_hidden_layers":32,
"num_attention_heads":32})";

constexpr std::string_view exaone4 =
  R"({"vocab_size":102400,"hidden_size":4096,"intermediate_size":16384,"num_hidden_layers":32,
"num_attention_heads":32,"eos_token_id":2})";

constexpr std::array text_types{
  text_type{"llama", "llama", llama},
  text_type{"mistral", "mistral",
            R"({"vocab_size":32000,"hidden_size":4096,"intermediate_size":14336,"num_hidden_layers":32,
"num_attention_heads":32,"eos_token_id":2})"},
  text_type{"qwen2", "qwen2", qwen2},
  text_type{"qwen3", "qwen3", qwen2},
  text_type{"gemma2", "gemma2",
            R"({"vocab_size":256000,"hidden_size":2304,"intermediate_size":9216,"num_hidden_layers":26,
"num_attention_heads":8,"eos_token_id":1})"},
  text_type{"gemma3_text", "gemma3_text",
            R"({"vocab_size":262208,"hidden_size":2304,"intermediate_size":9216,"num_hidden_layers":26,
"num_attention_heads":8,"eos_token_id":1})"},
  text_type{"gemma3n_text", "gemma3n_text",
            R"({"vocab_size":262400,"hidden_size":2048,"intermediate_size":16384,"num_hidden_layers":35,
"num_attention_heads":8,"num_key_value_heads":2,"eos_token_id":1})"},
  text_type{"granite4_vision_text", "granite", llama},
  text_type{"granite_docling_text", "granite",
            R"({"vocab_size":133800,"hidden_size":1024,"intermediate_size":2048,"num_hidden_layers":28,
"num_attention_heads":16,"num_key_value_heads":4,"max_position_embeddings":32768,"rms_norm_eps":1e-5,
"tie_word_embeddings":true,"embedding_multiplier":12,"logits_scaling":4,"residual_multiplier":0.263,
"attention_multiplier":0.015625,"eos_token_id":100257})"},
  text_type{"qwen2_vl", "qwen2", qwen2_vl},
  text_type{"qwen2_vl_text", "qwen2", qwen2_vl},
  text_type{"qwen2_5_vl", "qwen2", qwen2_vl},
  text_type{"qwen2_5_vl_text", "qwen2", qwen2_vl},
  text_type{"qwen2_5_omni_text", "qwen2",
            R"({"vocab_size":152064,"hidden_size":3584,"intermediate_size":18944,"num_hidden_layers":28,
"num_attention_heads":28,"num_key_value_heads":4,"rope_theta":1000000})"},
  text_type{"qwen3_vl_text", "qwen3",
            R"({"vocab_size":151936,"hidden_size":4096,"intermediate_size":22016,"num_hidden_layers":32,
"num_attention_heads":32,"rope_theta":500000,"max_position_embeddings":128000})",
            R"({"use_sliding_window":false})"},
  text_type{"qwen3_vl_moe_text", "qwen3_moe",
            R"({"vocab_size":151936,"hidden_size":2048,"intermediate_size":5632,"num_hidden_layers":24,
"num_attention_heads":16,"num_key_value_heads":16,"rope_theta":500000,"max_position_embeddings":128000,
"num_local_experts":60,"num_experts_per_tok":4,"moe_intermediate_size":1408})",
            R"({"use_sliding_window":false,"norm_topk_prob":true})"},
  text_type{"qwen3_omni_moe_text", "qwen3_moe",
            R"({"vocab_size":3584,"hidden_size":2048,"intermediate_size":18944,"num_hidden_layers":28,
"num_attention_heads":28,"num_key_value_heads":4,"rope_theta":1000000,"norm_topk_prob":true})",
            R"({"use_sliding_window":false})"},
  text_type{"glm4v_text", "glm4", glm4v, R"({"attention_bias":true})", true},
  text_type{"glm_ocr_text", "glm4",
            R"({"vocab_size":59392,"hidden_size":1024,"intermediate_size":4096,"num_hidden_layers":16,
"num_attention_heads":16,"num_key_value_heads":8,"rms_norm_eps":1e-5,"max_position_embeddings":131072,
"partial_rotary_factor":1})",
            R"({"attention_bias":false})", true},
  text_type{"exaone4", "exaone4", exaone4},
  text_type{"exaone4_5_text", "exaone4", exaone4}, // as EXAONE 4.5 was published first
  text_type{"muse_glimmer_text", "muse_glimmer_text",
            R"({"vocab_size":202048,"hidden_size":6656,"intermediate_size":19968,"num_hidden_layers":52,
"num_attention_heads":32,"eos_token_id":200001})"},
  text_type{"mistral_large4_text", "mistral_large4_text",
            R"({"vocab_size":204800,"hidden_size":6144,"intermediate_size":24576,"num_hidden_layers":72,
"num_attention_heads":64,"eos_token_id":2})"},
  text_type{"inkling_text", "inkling_text",
            R"({"vocab_size":201024,"hidden_size":6144,"intermediate_size":24576,"num_hidden_layers":66,
"num_attention_heads":64,"eos_token_id":2})"},
  text_type{"step3p5", "step3p5",
            R"({"vocab_size":128815,"hidden_size":4096,"intermediate_size":11264,"num_hidden_layers":45,
"num_attention_heads":64,"eos_token_id":1})"},
  text_type{"phi4_multimodal", "phi3", phi4},
  text_type{"phi4mm", "phi3", phi4},
};

/// Where configurations keep the text's.
constexpr std::array places{"text_config", "llm_config", "language_config"};

/// A model whose text does not say what it is.
constexpr std::pair inkling{std::string_view("inkling_mm_model"), std::string_view("inkling_text")};

/// Keys that may stand around the text's configuration instead of in it.
constexpr std::array around{"quantization_config", "eos_token_id"};

bool is_family(std::string_view name) { return find_family(name) != nullptr; }

/// One object of members from several.
class merged_object {
public:
  void add(std::string_view key, json::value value) {
    if (keys_.emplace(key).second)
      text_ += (text_.empty() ? "" : ",") + json_text(key) + ":" + simdjson::minify(value);
  }
  void add_integer(std::string_view key, int value) {
    const auto document = json::document::parse(std::to_string(value), "value");
    add(key, document.root());
  }
  void add_all(std::string_view object) {
    if (object.empty())
      return;
    const auto document = json::document::parse(object, "defaults");
    for (auto [key, value] : json::object(document.root()))
      add(key, value);
  }
  std::string text() const { return "{" + text_ + "}"; }

private:
  std::set<std::string, std::less<>> keys_;
  std::string text_;
};

} // namespace

std::optional<text_part> find_text(const json::document& config) {
  const reader outer(config);
  const auto whole = outer.string("model_type");
  if (!whole || is_family(*whole))
    return std::nullopt;
  if (*whole == "paligemma")
    throw failure(errc::unsupported,
                  outer.label("model_type") +
                    " is `paligemma`, which is not supported: it reads prompts in both directions");
  const auto thinker = outer.object("thinker_config"); // of models that also speak
  const auto& holder = thinker ? *thinker : outer;
  std::optional<reader> nested;
  for (const char* place : places)
    if (!nested)
      nested = holder.object(place);
  const auto& text = nested ? *nested : outer;
  auto type = text.string("model_type");
  if (const auto usual = std::string(*whole) + "_text"; !type && nested && is_family(usual))
    type = usual;
  if (!type && nested && *whole == inkling.first)
    type = std::string(inkling.second);
  if (!type)
    throw failure(errc::bad_file, text.label("model_type") + " is missing");
  const auto* const known = std::ranges::find(text_types, *type, &text_type::name);
  if (known == text_types.end() && !nested)
    return std::nullopt;
  const std::string family(known != text_types.end() ? known->family
                             : is_family(*type)      ? std::string_view(*type)
                                                     : family_of(text).name);

  merged_object merged;
  const auto name = json::document::parse(json_text(family), "model_type");
  merged.add("model_type", name.root());
  if (known != text_types.end())
    merged.add_all(known->fixed);
  for (const auto* from : {&holder, &outer})
    if (const auto tied = from->find("tie_word_embeddings"); tied && from->boolean("tie_word_embeddings", false))
      merged.add("tie_word_embeddings", *tied);
  for (const char* key : around)
    for (const auto* from : {&text, &holder, &outer})
      if (const auto found = from->find(key))
        merged.add(key, *found);
  for (auto [key, value] : text.object())
    merged.add(key, value);
  if (known != text_types.end())
    merged.add_all(known->defaults);
  const auto label = nested ? nested->label() : config.name();
  auto result = json::document::parse(merged.text(), label);
  if (known != text_types.end() && known->divided_heads && !json::find(result.root(), "head_dim")) {
    const reader sizes(result);
    merged.add_integer("head_dim",
                       sizes.size("hidden_size", config_limits::max_hidden) /
                         sizes.size("num_attention_heads", config_limits::max_heads));
    result = json::document::parse(merged.text(), label);
  }
  return text_part{std::move(result), *whole};
}

} // namespace troupe
