#include "runtime/import/gguf_model.hpp"
#include "runtime/support/json_text.hpp"
#include "runtime/tokenizer/unicode.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <unordered_map>

namespace troupe {

namespace {

constexpr std::string_view tokens_key = "tokenizer.ggml.tokens", types_key = "tokenizer.ggml.token_type",
                           merges_key = "tokenizer.ggml.merges", scores_key = "tokenizer.ggml.scores",
                           pre_key = "tokenizer.ggml.pre", model_key = "tokenizer.ggml.model",
                           template_key = "tokenizer.chat_template";

std::string comma(const std::string& list) { return list.empty() ? "" : ","; }

constexpr std::string_view byte_level = R"({"type":"ByteLevel","add_prefix_space":false,"use_regex":false})";
constexpr std::string_view byte_level_words = R"({"type":"ByteLevel","add_prefix_space":false,"use_regex":true})";

/// A way to split texts into words, with its names in files.
struct word_rule {
  std::string_view name;
  std::string_view digits;     // quantifier: how many digits make a word; empty: GPT-2's words
  bool single_digits = false;  // splits off each digit, then applies GPT-2's words
  bool ignore_merges = false;  // words that are tokens skip merging
  bool nfc = false;            // normalises to NFC first
  bool bos = false;            // default of add_bos_token
  std::string_view regex = {}; // instead of words with `digits`
};

/// Of o200k: words end where the case changes.
constexpr std::string_view gpt_4o_words =
  R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
  R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
  R"(|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

/// llama.cpp does not normalise to NFC for qwen2; the models' own tokenizers do.
constexpr std::array word_rules{
  word_rule{.name = "gpt-2", .digits = ""},
  word_rule{.name = "default", .digits = ""},
  word_rule{.name = "smollm", .digits = "", .single_digits = true},
  word_rule{.name = "llama-bpe", .digits = "{1,3}", .ignore_merges = true, .bos = true},
  word_rule{.name = "llama3", .digits = "{1,3}", .ignore_merges = true, .bos = true},
  word_rule{.name = "llama-v3", .digits = "{1,3}", .ignore_merges = true, .bos = true},
  word_rule{.name = "qwen2", .digits = "{1}", .nfc = true},
  word_rule{.name = "deepseek-r1-qwen", .digits = "{1}", .nfc = true},
  word_rule{.name = "stablelm2", .digits = "{1}"},
  word_rule{.name = "olmo", .digits = ""},
  word_rule{.name = "phi-2", .digits = ""},
  word_rule{.name = "starcoder", .digits = "", .single_digits = true},
  word_rule{.name = "refact", .digits = "", .single_digits = true}, // Granite's, too
  word_rule{.name = "chatglm-bpe", .digits = "{1,3}"},
  word_rule{.name = "glm4", .digits = "{1,3}"},
  word_rule{.name = "gpt-4o", .digits = "{1,3}", .regex = gpt_4o_words},
};

const word_rule& word_rule_of(const gguf_metadata& metadata) {
  const auto name = metadata.string(pre_key).value_or("default");
  std::string known;
  for (const auto& rule : word_rules) {
    if (rule.name == name)
      return rule;
    known += (known.empty() ? "" : ", ") + std::string(rule.name);
  }
  throw failure(errc::unsupported, metadata.label(pre_key) + " is " + shown(name) + ", supported are " + known);
}

std::string words_regex(const word_rule& rule) {
  if (!rule.regex.empty())
    return std::string(rule.regex);
  return R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N})" + std::string(rule.digits) +
    R"(| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
}

std::string pre_tokenizer_json(const word_rule& rule) {
  if (rule.single_digits)
    return R"({"type":"Sequence","pretokenizers":[{"type":"Digits","individual_digits":true},)" +
      std::string(byte_level_words) + "]}";
  if (rule.digits.empty())
    return std::string(byte_level_words);
  return R"({"type":"Sequence","pretokenizers":[{"type":"Split","pattern":{"Regex":)" + json_text(words_regex(rule)) +
    R"(},"behavior":"Isolated","invert":false},)" + std::string(byte_level) + "]}";
}

using special_ids = tokenizer::named_tokens;

/// Translates the vocabulary of a file to the parts of a tokenizer.json.
class vocabulary {
public:
  explicit vocabulary(const gguf_metadata& metadata) : metadata_(metadata) {
    const auto tokens = metadata_.strings(tokens_key);
    if (!tokens || tokens->empty())
      throw failure(errc::bad_file, metadata_.label(tokens_key) + " is missing or empty");
    tokens_ = *tokens;
    types_ = metadata_.integers(types_key).value_or(std::vector<std::int32_t>(tokens_.size(), 1));
    expect_size(types_key, types_.size());
  }

  const std::vector<std::string_view>& tokens() const { return tokens_; }
  const gguf_metadata& metadata() const { return metadata_; }

  void expect_size(std::string_view key, std::size_t size) const {
    if (size != tokens_.size())
      throw failure(errc::bad_file,
                    metadata_.label(key) + " has " + std::to_string(size) + " entries, expected " +
                      std::to_string(tokens_.size()) + ", one per token");
  }

  /// The token that `key` names; nothing if it is absent or the highest u32, which means none.
  std::optional<token_id> id(std::string_view key) const {
    const auto found = metadata_.integer(key, 0, std::numeric_limits<std::uint32_t>::max());
    if (!found || *found == std::numeric_limits<std::uint32_t>::max())
      return std::nullopt;
    if (static_cast<std::size_t>(*found) >= tokens_.size())
      throw failure(errc::bad_file,
                    metadata_.label(key) + " is " + std::to_string(*found) + ", but there are " +
                      std::to_string(tokens_.size()) + " tokens");
    return static_cast<token_id>(*found);
  }

  std::string_view text(token_id id) const { return tokens_[static_cast<std::size_t>(id)]; }

  std::string vocab_json() const {
    std::string list;
    for (std::size_t i = 0; i < tokens_.size(); ++i)
      list += comma(list) + json_text(tokens_[i]) + ":" + std::to_string(i);
    return "{" + list + "}";
  }

  /// Tokens that are matched verbatim in texts.
  std::string added_json() const {
    std::string list;
    for (std::size_t i = 0; i < tokens_.size(); ++i) {
      const auto kind = static_cast<gguf_token_kind>(types_[i]);
      const bool special = kind == gguf_token_kind::control || kind == gguf_token_kind::unknown;
      if ((special || kind == gguf_token_kind::user_defined) && !tokens_[i].empty())
        list += comma(list) + R"({"id":)" + std::to_string(i) + R"(,"content":)" + json_text(tokens_[i]) +
          R"(,"single_word":false,"lstrip":false,"rstrip":false,"normalized":false,"special":)" +
          (special ? "true}" : "false}");
    }
    return "[" + list + "]";
  }

  /// BOS before and EOS after a text, if the file or the tokenizer's kind asks for them.
  std::string post_processor_json(const special_ids& ids, bool bos_by_default) const {
    const bool add_bos = metadata_.boolean("tokenizer.ggml.add_bos_token").value_or(bos_by_default);
    const bool add_eos = metadata_.boolean("tokenizer.ggml.add_eos_token").value_or(false);
    std::string special;
    const auto token = [&](token_id id) {
      const auto name = json_text(text(id));
      if (special.find(name + ":") == std::string::npos)
        special += comma(special) + name + R"(:{"id":)" + name + R"(,"ids":[)" + std::to_string(id) +
          R"(],"tokens":[)" + name + "]}";
      return R"({"SpecialToken":{"id":)" + name + R"(,"type_id":0}})";
    };
    const auto before = add_bos && ids.bos ? token(*ids.bos) : std::string();
    const auto after = add_eos && ids.eos ? token(*ids.eos) : std::string();
    const std::string single = "[" + before + comma(before) + R"({"Sequence":{"id":"A","type_id":0}})" + comma(after) +
      after + "]";
    return R"({"type":"TemplateProcessing","single":)" + single + R"(,"pair":)" + single + R"(,"special_tokens":{)" +
      special + "}}";
  }

private:
  const gguf_metadata& metadata_;
  std::vector<std::string_view> tokens_;
  std::vector<std::int32_t> types_;
};

struct pair_of_tokens {
  std::string_view left, right;
};

std::string merges_json(const std::vector<pair_of_tokens>& merges) {
  std::string list;
  for (const auto& [left, right] : merges)
    list += comma(list) + "[" + json_text(left) + "," + json_text(right) + "]";
  return "[" + list + "]";
}

special_ids special_ids_of(const vocabulary& words) {
  return {words.id("tokenizer.ggml.bos_token_id"), words.id("tokenizer.ggml.eos_token_id"),
          words.id("tokenizer.ggml.unknown_token_id")};
}

std::shared_ptr<const tokenizer> finish(const vocabulary& words, const special_ids& special, const std::string& head,
                                        const std::string& model, bool bos_by_default, const std::string& name) {
  const std::string json = "{" + head + R"(,"added_tokens":)" + words.added_json() + R"(,"post_processor":)" +
    words.post_processor_json(special, bos_by_default) + R"(,"model":{"type":"BPE","vocab":)" + words.vocab_json() +
    "," + model + "}}";
  return tokenizer::parse(json, name + ": tokenizer", special);
}

std::shared_ptr<const tokenizer> make_byte_level(const vocabulary& words, const std::string& name) {
  const auto& metadata = words.metadata();
  const auto& rule = word_rule_of(metadata);
  const auto lines = metadata.strings(merges_key);
  if (!lines)
    throw failure(errc::bad_file, metadata.label(merges_key) + " is missing");
  std::vector<pair_of_tokens> merges;
  for (const auto line : *lines) {
    const auto space = line.find(' ', 1); // a token may begin with one
    if (space == std::string_view::npos)
      throw failure(errc::bad_file,
                    metadata.label(merges_key) + " holds " + shown(line) + " at index " +
                      std::to_string(merges.size()) + ", expected two tokens with a space between");
    merges.push_back({line.substr(0, space), line.substr(space + 1)});
  }
  const std::string head = std::string(R"("normalizer":)") + (rule.nfc ? R"({"type":"NFC"})" : "null") +
    R"(,"pre_tokenizer":)" + pre_tokenizer_json(rule) + R"(,"decoder":)" + std::string(byte_level);
  const std::string model = std::string(R"("ignore_merges":)") + (rule.ignore_merges ? "true" : "false") +
    R"(,"merges":)" + merges_json(merges);
  return finish(words, special_ids_of(words), head, model, rule.bos, name);
}

/// All pairs of tokens whose joined text is a token, ordered by its score.
std::vector<pair_of_tokens> merges_from_scores(const vocabulary& words) {
  constexpr std::size_t longest_piece = 1024; // bounds the work, as all splits are tried
  const auto& metadata = words.metadata();
  const auto scores = metadata.floats(scores_key);
  if (!scores)
    throw failure(errc::bad_file, metadata.label(scores_key) + " is missing");
  words.expect_size(scores_key, scores->size());
  if (!std::ranges::all_of(*scores, [](float s) { return std::isfinite(s); }))
    throw failure(errc::bad_file, metadata.label(scores_key) + " must hold finite numbers");
  const auto& tokens = words.tokens();
  std::unordered_map<std::string_view, std::size_t> known;
  for (std::size_t i = 0; i < tokens.size(); ++i)
    known.emplace(tokens[i], i);
  std::vector<std::size_t> order(tokens.size());
  for (std::size_t i = 0; i < order.size(); ++i)
    order[i] = i;
  std::ranges::stable_sort(order, [&](std::size_t a, std::size_t b) { return (*scores)[a] > (*scores)[b]; });
  std::vector<pair_of_tokens> merges;
  for (const auto i : order) {
    const auto piece = tokens[i];
    if (piece.size() > longest_piece)
      throw failure(errc::unsupported,
                    metadata.label(tokens_key) + " holds a token of " + std::to_string(piece.size()) +
                      " bytes at index " + std::to_string(i) + ", at most " + std::to_string(longest_piece) +
                      " are supported");
    for (std::size_t cut = 0; cut < piece.size();) {
      tokenization::next_char(piece, cut);
      const auto left = piece.substr(0, cut), right = piece.substr(cut);
      if (!right.empty() && known.contains(left) && known.contains(right))
        merges.push_back({left, right});
    }
  }
  return merges;
}

std::shared_ptr<const tokenizer> make_sentencepiece(const vocabulary& words, const std::string& name) {
  constexpr std::string_view mark = "\u2581";
  auto special = special_ids_of(words);
  if (!special.unk)
    special.unk = 0;
  const bool prefix = words.metadata().boolean("tokenizer.ggml.add_space_prefix").value_or(true);
  const std::string space_to_mark = R"({"type":"Replace","pattern":{"String":" "},"content":)" + json_text(mark) + "}";
  const std::string normalizer = prefix ? R"({"type":"Sequence","normalizers":[{"type":"Prepend","prepend":)" +
      json_text(mark) + "}," + space_to_mark + "]}"
                                        : space_to_mark;
  const std::string head = R"("normalizer":)" + normalizer +
    R"(,"pre_tokenizer":null,"decoder":{"type":"Sequence","decoders":[)" + R"({"type":"Replace","pattern":{"String":)" +
    json_text(mark) + R"(},"content":" "},{"type":"ByteFallback"},{"type":"Fuse"})" +
    (prefix ? R"(,{"type":"Strip","content":" ","start":1,"stop":0})" : "") + "]}";
  const std::string model = R"("byte_fallback":true,"fuse_unk":true,"unk_token":)" +
    json_text(words.text(*special.unk)) + R"(,"merges":)" + merges_json(merges_from_scores(words));
  return finish(words, special, head, model, true, name);
}

/// The parts of a tokenizer.json's pre_tokenizer that GGUF can express.
struct word_cutting {
  bool digits = false; // one by one
  std::string regex;
  bool gpt2_words = false;
};

void add_cutting(word_cutting& to, const json::value& step) {
  const auto type = json::find(step, "type");
  const auto is = [&](std::string_view name) {
    return type && type->is_string() && type->get_string().value() == name;
  };
  if (is("Sequence")) {
    json::array steps;
    if (const auto found = json::find(step, "pretokenizers"); found && !found->get(steps))
      for (const json::value inner : steps)
        add_cutting(to, inner);
  } else if (is("Digits")) {
    to.digits = true;
  } else if (is("Split")) {
    const auto pattern = json::find(step, "pattern");
    const auto regex = pattern ? json::find(*pattern, "Regex") : std::nullopt;
    to.regex += regex && regex->is_string() ? std::string(regex->get_string().value()) : "?";
  } else if (is("ByteLevel")) {
    const auto words = json::find(step, "use_regex");
    to.gpt2_words = !words || !words->is_bool() || words->get_bool().value();
  } else {
    to.regex += "?";
  }
}

} // namespace

std::optional<std::string> gguf_pre_tokenizer(const json::value& pre_tokenizer, bool ignore_merges) {
  word_cutting found;
  add_cutting(found, pre_tokenizer);
  std::optional<std::string> name;
  for (const auto& rule : word_rules) {
    // The quantifier {1} means nothing.
    const auto plain = [](std::string regex) {
      const auto at = regex.find("{1}");
      return at == std::string::npos ? regex : regex.erase(at, 3);
    };
    const bool same = rule.digits.empty() ? found.regex.empty() && found.gpt2_words
                                          : plain(found.regex) == plain(words_regex(rule)) && !found.gpt2_words;
    if (!same || found.digits != rule.single_digits)
      continue;
    if (ignore_merges == rule.ignore_merges)
      return std::string(rule.name);
    if (!name)
      name = rule.name;
  }
  return name;
}

std::shared_ptr<const tokenizer> make_gguf_tokenizer(const gguf_metadata& metadata, const std::string& file) {
  const auto model = metadata.string(model_key);
  if (!model)
    throw failure(errc::bad_file, metadata.label(model_key) + " is missing");
  const vocabulary words(metadata);
  if (*model == "gpt2")
    return make_byte_level(words, file);
  if (*model == "llama")
    return make_sentencepiece(words, file);
  throw failure(errc::unsupported,
                metadata.label(model_key) + " is " + shown(*model) + ", supported are gpt2 and llama");
}

std::optional<chat_template> make_gguf_chat_template(const gguf_file& file) {
  const auto& metadata = file.metadata();
  const auto source = metadata.string(template_key);
  if (!source)
    return std::nullopt;
  const vocabulary words(metadata);
  const auto special = special_ids_of(words);
  const auto text = [&](std::optional<token_id> id) { return id ? std::string(words.text(*id)) : std::string(); };
  try {
    return chat_template::parse(*source, text(special.bos), text(special.eos));
  } catch (const failure& f) {
    throw failure(f.what_failed().code, metadata.label(template_key) + ": " + f.what());
  }
}

} // namespace troupe
