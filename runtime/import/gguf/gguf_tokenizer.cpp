#include "runtime/import/answer_ends.hpp"
#include "runtime/import/gguf/gguf_words.hpp"
#include "runtime/import/gguf_model.hpp"
#include "runtime/support/files/file_reading.hpp"
#include "runtime/support/json/json_text.hpp"
#include "runtime/tokenizer/formats/pieces.hpp"
#include "runtime/tokenizer/formats/word_patterns.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>

namespace troupe {

namespace {

namespace words = tokenization::words;
using tokenization::added_json, tokenization::around_json, tokenization::merges_json, tokenization::vocab_json,
  tokenization::scored_bpe_json, tokenization::unigram_json, tokenization::preparation_json,
  tokenization::pieces_decoder_json;
using tokenization::added_piece, tokenization::piece_kind, tokenization::piece_list, tokenization::preparation,
  tokenization::ranked_merge, tokenization::symbol_search;

constexpr std::string_view tokens_key = "tokenizer.ggml.tokens", types_key = "tokenizer.ggml.token_type",
                           merges_key = "tokenizer.ggml.merges", scores_key = "tokenizer.ggml.scores",
                           pre_key = "tokenizer.ggml.pre", model_key = "tokenizer.ggml.model",
                           charsmap_key = "tokenizer.ggml.precompiled_charsmap",
                           template_key = "tokenizer.chat_template",
                           tools_template_key = "tokenizer.chat_template.tool_use";

constexpr std::string_view mark = "\u2581";

const word_rule& word_rule_of(const gguf_metadata& metadata, std::string_view name) {
  std::string known;
  for (const auto& rule : word_rules()) {
    if (rule.name == name)
      return rule;
    known += (known.empty() ? "" : ", ") + std::string(rule.name);
  }
  throw failure(errc::unsupported, metadata.label(pre_key) + " is " + shown(name) + ", supported are " + known);
}

using special_ids = tokenizer::named_tokens;

/// The vocabulary of a file, checked.
class gguf_vocabulary {
public:
  explicit gguf_vocabulary(const gguf_metadata& metadata) : metadata_(metadata) {
    auto tokens = metadata_.strings(tokens_key);
    if (!tokens || tokens->empty())
      throw failure(errc::bad_file, metadata_.label(tokens_key) + " is missing or empty");
    pieces_.texts = std::move(*tokens);
    const auto types = metadata_.integers(types_key).value_or(std::vector<std::int32_t>(pieces_.size(), 1));
    expect_size(types_key, types.size());
    for (const auto type : types)
      pieces_.kinds.push_back(static_cast<piece_kind>(type));
    // Some files call an end of answers an ordinary token; then prompts would have its letters in its place.
    for (std::size_t i = 0; i < pieces_.size(); ++i)
      if (pieces_.kinds[i] == piece_kind::normal && is_end_by_name(pieces_.texts[i]))
        pieces_.kinds[i] = piece_kind::control;
  }

  const piece_list& pieces() const { return pieces_; }
  const gguf_metadata& metadata() const { return metadata_; }

  /// Required, and finite.
  void read_scores() {
    auto scores = metadata_.floats(scores_key);
    if (!scores)
      throw failure(errc::bad_file, metadata_.label(scores_key) + " is missing");
    expect_size(scores_key, scores->size());
    if (!std::ranges::all_of(*scores, [](float s) { return std::isfinite(s); }))
      throw failure(errc::bad_file, metadata_.label(scores_key) + " must hold finite numbers");
    pieces_.scores = std::move(*scores);
  }

  /// The token that `key` names; nothing if it is absent or the highest u32, which means none.
  std::optional<token_id> id(std::string_view key) const {
    const auto found = metadata_.integer(key, 0, std::numeric_limits<std::uint32_t>::max());
    if (!found || *found == std::numeric_limits<std::uint32_t>::max())
      return std::nullopt;
    if (static_cast<std::size_t>(*found) >= pieces_.size())
      throw failure(errc::bad_file,
                    metadata_.label(key) + " is " + std::to_string(*found) + ", but there are " +
                      std::to_string(pieces_.size()) + " tokens");
    return static_cast<token_id>(*found);
  }

  std::string_view text(token_id id) const { return pieces_.texts[static_cast<std::size_t>(id)]; }

  special_ids special() const {
    return {id("tokenizer.ggml.bos_token_id"), id("tokenizer.ggml.eos_token_id"),
            id("tokenizer.ggml.unknown_token_id")};
  }
  std::optional<token_id> separator() const { return id("tokenizer.ggml.seperator_token_id"); } // as files spell it

  /// Special tokens that take in the spaces behind them, which files do not say: Phi 3's, as llama.cpp has it.
  std::vector<added_piece> taking_spaces() const {
    std::string name(metadata_.string("general.name").value_or(""));
    std::ranges::transform(name, name.begin(), [](char c) { return c >= 'A' && c <= 'Z' ? char(c - 'A' + 'a') : c; });
    std::vector<added_piece> result;
    if (name.find("phi-3") == name.npos && name.find("phi3") == name.npos)
      return result;
    for (std::size_t i = 0; i < pieces_.size(); ++i) {
      const auto kind = pieces_.kinds[i];
      const auto text = pieces_.texts[i];
      if ((kind == piece_kind::control || kind == piece_kind::user_defined) && !text.empty() && text != "<unk>" &&
          text != "<s>" && text != "<|endoftext|>")
        result.push_back({.id = static_cast<token_id>(i),
                          .content = std::string(text),
                          .right_strip = true,
                          .special = kind == piece_kind::control});
    }
    return result;
  }

private:
  void expect_size(std::string_view key, std::size_t size) const {
    if (size != pieces_.size())
      throw failure(errc::bad_file,
                    metadata_.label(key) + " has " + std::to_string(size) + " entries, expected " +
                      std::to_string(pieces_.size()) + ", one per token");
  }

  const gguf_metadata& metadata_;
  piece_list pieces_;
};

/// What goes around a text if the file does not say.
struct around_text {
  bool bos = false, eos = false, sep = false;
};

std::shared_ptr<const tokenizer> finish(const gguf_vocabulary& words, const special_ids& special,
                                        const std::string& members, const around_text& defaults,
                                        const std::string& added, const std::string& name) {
  const auto wanted = [&](const char* key, bool fallback) { return words.metadata().boolean(key).value_or(fallback); };
  std::vector<token_id> before, after;
  if (special.bos && wanted("tokenizer.ggml.add_bos_token", defaults.bos))
    before.push_back(*special.bos);
  const auto sep = words.separator();
  if (sep && wanted("tokenizer.ggml.add_sep_token", defaults.sep))
    after.push_back(*sep);
  if (special.eos && wanted("tokenizer.ggml.add_eos_token", defaults.eos) && (after.empty() || sep != special.eos))
    after.push_back(*special.eos);
  const std::string json = "{" + members + R"(,"added_tokens":)" + added + R"(,"post_processor":)" +
    around_json(words.pieces(), before, after) + "}";
  return tokenizer::parse(json, name + ": tokenizer", special);
}

/// Merges as files hold them: "left right".
std::string merges_of(const gguf_metadata& metadata) {
  const auto lines = metadata.strings(merges_key);
  if (!lines)
    throw failure(errc::bad_file, metadata.label(merges_key) + " is missing");
  std::vector<ranked_merge> merges;
  for (const auto line : *lines) {
    const auto space = line.find(' ', 1); // a token may begin with one
    if (space == std::string_view::npos)
      throw failure(errc::bad_file,
                    metadata.label(merges_key) + " holds " + shown(line) + " at index " +
                      std::to_string(merges.size()) + ", expected two tokens with a space between");
    merges.push_back({line.substr(0, space), line.substr(space + 1), merges.size()});
  }
  return merges_json(merges);
}

std::shared_ptr<const tokenizer> make_bpe(const gguf_vocabulary& words, std::string_view pre, const std::string& name) {
  const auto& metadata = words.metadata();
  const auto& rule = word_rule_of(metadata, pre);
  const preparation escaped{.dummy_prefix = false, .remove_extra_spaces = false, .escape_spaces = rule.escapes_spaces};
  const std::string normalizer = rule.escapes_spaces
    ? R"({"type":"Replace","pattern":{"String":" "},"content":)" + json_text(mark) + "}"
    : rule.nfc ? R"({"type":"NFC"})"
               : "null";
  const std::string members = R"("normalizer":)" + normalizer + R"(,"pre_tokenizer":)" +
    (rule.characters ? words::split_json(rule.steps) : words::pre_tokenizer_json(rule.steps)) + R"(,"decoder":)" +
    (rule.characters ? pieces_decoder_json(escaped) : std::string(R"({"type":"ByteLevel"})")) +
    R"(,"model":{"type":"BPE","byte_fallback":)" + (rule.characters ? "true" : "false") + R"(,"ignore_merges":)" +
    (rule.ignore_merges ? "true" : "false") + R"(,"vocab":)" + vocab_json(words.pieces()) + R"(,"merges":)" +
    merges_of(metadata) + "}";
  return finish(words, words.special(), members, {.bos = rule.bos, .sep = rule.sep},
                added_json(words.pieces(), symbol_search::text, words.taking_spaces()), name);
}

std::shared_ptr<const tokenizer> make_sentencepiece(gguf_vocabulary& words, const std::string& name) {
  auto special = words.special();
  if (!special.unk)
    special.unk = 0;
  words.read_scores();
  const bool prefix = words.metadata().boolean("tokenizer.ggml.add_space_prefix").value_or(true);
  const std::string space_to_mark = R"({"type":"Replace","pattern":{"String":" "},"content":)" + json_text(mark) + "}";
  const std::string normalizer = prefix ? R"({"type":"Sequence","normalizers":[{"type":"Prepend","prepend":)" +
      json_text(mark) + "}," + space_to_mark + "]}"
                                        : space_to_mark;
  std::string members = R"("normalizer":)" + normalizer + R"(,"pre_tokenizer":null,"decoder":)" +
    pieces_decoder_json({.dummy_prefix = prefix, .remove_extra_spaces = false}) + R"(,"model":)";
  try {
    members += scored_bpe_json(words.pieces(), *special.unk, true);
  } catch (const std::invalid_argument& e) {
    throw failure(errc::unsupported, words.metadata().label(tokens_key) + " " + e.what());
  }
  return finish(words, special, members, {.bos = true},
                added_json(words.pieces(), symbol_search::text, words.taking_spaces()), name);
}

/// The bytes of an array of u8 or i8, or of a missing one.
std::string_view byte_array(const gguf_metadata& metadata, std::string_view key) {
  const auto* found = metadata.find(key);
  if (!found)
    return {};
  if (found->type != gguf_type::array || (found->element != gguf_type::u8 && found->element != gguf_type::i8))
    throw failure(errc::bad_file, metadata.label(key) + " must be an array of u8 or i8");
  return {reinterpret_cast<const char*>(found->bytes.data()), found->bytes.size()};
}

std::shared_ptr<const tokenizer> make_unigram(gguf_vocabulary& words, const std::string& name) {
  const auto& metadata = words.metadata();
  auto special = words.special();
  if (!special.unk)
    special.unk = words.pieces().find(piece_kind::unknown);
  if (!special.unk)
    throw failure(errc::bad_file, metadata.label("tokenizer.ggml.unknown_token_id") + " is missing");
  words.read_scores();
  const preparation how{
    .charsmap = byte_array(metadata, charsmap_key),
    .dummy_prefix = metadata.boolean("tokenizer.ggml.add_space_prefix").value_or(true),
    .remove_extra_spaces = metadata.boolean("tokenizer.ggml.remove_extra_whitespaces").value_or(false)};
  const bool bytes = words.pieces().find(piece_kind::byte).has_value();
  const std::string members = R"("normalizer":)" + preparation_json(how, words.pieces()) +
    R"(,"pre_tokenizer":null,"decoder":)" + pieces_decoder_json(how) + R"(,"model":)" +
    unigram_json(words.pieces(), *special.unk, bytes);
  return finish(words, special, members, {.eos = true}, added_json(words.pieces(), symbol_search::model), name);
}

/// "[CLS]", "[PAD]": files do not give all of them a type of their own.
bool special_name(std::string_view text) {
  return text.size() > 2 && text.starts_with('[') && text.ends_with(']') &&
    std::ranges::all_of(text.substr(1, text.size() - 2), [](char c) { return c >= 'A' && c <= 'Z'; });
}

/// WordPiece. Files mark the tokens that begin words, not those that continue them.
std::shared_ptr<const tokenizer> make_wordpiece(const gguf_vocabulary& words, const std::string& name) {
  const auto& metadata = words.metadata();
  auto special = words.special();
  if (!special.bos)
    special.bos = words.id("tokenizer.ggml.cls_token_id");
  if (!special.bos)
    special.bos = words.pieces().find("[CLS]");
  if (!special.unk)
    special.unk = words.pieces().find("[UNK]");
  if (!special.unk)
    throw failure(errc::bad_file, metadata.label("tokenizer.ggml.unknown_token_id") + " is missing");
  const auto spelled = [](std::string_view text) {
    if (text.starts_with(mark))
      return std::string(text.substr(mark.size()));
    return text.starts_with('[') && text.ends_with(']') ? std::string(text) : "##" + std::string(text);
  };
  piece_list pieces = words.pieces();
  std::vector<std::string> texts;
  for (auto& text : pieces.texts)
    texts.push_back(spelled(text));
  for (std::size_t i = 0; i < texts.size(); ++i) {
    pieces.texts[i] = texts[i];
    if (pieces.kinds[i] == piece_kind::normal && special_name(texts[i]))
      pieces.kinds[i] = piece_kind::control;
  }
  const bool lower = metadata.boolean("tokenizer.ggml.normalizer.lowercase").value_or(true);
  const bool accents = metadata.boolean("tokenizer.ggml.normalizer.strip_accents").value_or(lower);
  const std::string members = std::string(R"("normalizer":{"type":"BertNormalizer","lowercase":)") +
    (lower ? "true" : "false") + R"(,"strip_accents":)" + (accents ? "true" : "false") +
    R"(},"pre_tokenizer":{"type":"BertPreTokenizer"},"decoder":{"type":"WordPiece","prefix":"##"},)" +
    R"("model":{"type":"WordPiece","unk_token":)" + json_text(pieces.texts[static_cast<std::size_t>(*special.unk)]) +
    R"(,"vocab":)" + vocab_json(pieces) + "}";
  return finish(words, special, members, {.bos = true, .sep = true}, added_json(pieces, symbol_search::text), name);
}

/// The parts of a tokenizer.json's pre_tokenizer that GGUF can express: expressions, one after the other. "?" for what
/// it cannot.
void add_steps(std::vector<std::string>& to, const json::value& step) {
  const auto type = json::find(step, "type");
  const auto is = [&](std::string_view name) {
    return type && type->is_string() && type->get_string().value() == name;
  };
  const auto flag = [&](std::string_view key, bool fallback) {
    const auto found = json::find(step, key);
    return found && found->is_bool() ? found->get_bool().value() : fallback;
  };
  if (is("Sequence")) {
    json::array steps;
    if (const auto found = json::find(step, "pretokenizers"); found && !found->get(steps))
      for (const json::value inner : steps)
        add_steps(to, inner);
  } else if (is("Digits")) {
    to.emplace_back(flag("individual_digits", false) ? R"(\p{N})" : "?");
  } else if (is("Split")) {
    const auto pattern = json::find(step, "pattern");
    const auto regex = pattern ? json::find(*pattern, "Regex") : std::nullopt;
    to.push_back(regex && regex->is_string() ? std::string(regex->get_string().value()) : "?");
  } else if (is("ByteLevel")) {
    if (flag("use_regex", true))
      to.emplace_back(words::gpt2);
  } else {
    to.emplace_back("?");
  }
}

/// The quantifier {1} means nothing.
std::string plain(std::string regex) {
  const auto at = regex.find("{1}");
  return at == std::string::npos ? regex : regex.erase(at, 3);
}

} // namespace

std::optional<std::string> gguf_pre_tokenizer(const json::value& pre_tokenizer, bool ignore_merges) {
  std::vector<std::string> found;
  add_steps(found, pre_tokenizer);
  std::optional<std::string> name;
  for (const auto& rule : word_rules()) {
    if (rule.characters || !std::ranges::equal(found, rule.steps, {}, plain))
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
  gguf_vocabulary words(metadata);
  if (const auto exact = metadata.string(exact_tokenizer_key))
    return tokenizer::parse(*exact, metadata.label(exact_tokenizer_key), words.special());
  if (*model == "gpt2")
    return make_bpe(words, metadata.string(pre_key).value_or("default"), file);
  if (*model == "gemma4")
    return make_bpe(words, *model, file);
  if (*model == "llama")
    return make_sentencepiece(words, file);
  if (*model == "t5")
    return make_unigram(words, file);
  if (*model == "bert")
    return make_wordpiece(words, file);
  throw failure(errc::unsupported,
                metadata.label(model_key) + " is " + shown(*model) +
                  ", supported are gpt2, llama, t5, bert and gemma4");
}

std::optional<chat_template> make_gguf_chat_template(const gguf_file& file, const std::string& instead) {
  const auto& metadata = file.metadata();
  const auto own = instead.empty() ? metadata.string(template_key) : std::nullopt;
  if (!own && instead.empty())
    return std::nullopt;
  const auto source = own ? std::string(*own) : read_file(instead, files::chat_template);
  const gguf_vocabulary words(metadata);
  jinja::dict tokens;
  tokens.set("bos_token", jinja::value("")); // templates add them to texts
  tokens.set("eos_token", jinja::value(""));
  for (const auto& [name, key] : gguf_special_tokens)
    if (const auto id = words.id(key))
      tokens.set(name, jinja::value(words.text(*id)));
  const auto tool_use = own ? metadata.string(tools_template_key) : std::nullopt;
  try {
    return chat_template::parse(source, tool_use, std::move(tokens));
  } catch (const failure& f) {
    throw failure(f.what_failed().code, (own ? metadata.label(template_key) : instead) + ": " + f.what());
  }
}

} // namespace troupe
