#include "runtime/tokenizer/formats/tiktoken_file.hpp"

#include "runtime/support/error.hpp"
#include "runtime/support/json/json_text.hpp"
#include "runtime/support/text/base64.hpp"
#include "runtime/tokenizer/formats/word_patterns.hpp"
#include "runtime/tokenizer/models/token_model.hpp"
#include "runtime/tokenizer/pre_tokenizer.hpp"

#include <algorithm>
#include <charconv>
#include <span>
#include <stdexcept>
#include <unordered_map>

namespace troupe::tokenization {

namespace {

/// All cuts of a token are tried; the longest of known files has 128 bytes.
constexpr std::size_t longest_token = 256;

struct special_token {
  token_id id;
  std::string_view text;
};

constexpr special_token of_gpt2[] = {{50256, "<|endoftext|>"}};
constexpr special_token of_cl100k[] = {{100257, "<|endoftext|>"},
                                       {100258, "<|fim_prefix|>"},
                                       {100259, "<|fim_middle|>"},
                                       {100260, "<|fim_suffix|>"},
                                       {100276, "<|endofprompt|>"}};
constexpr special_token of_o200k[] = {{199999, "<|endoftext|>"}, {200018, "<|endofprompt|>"}};
constexpr special_token of_harmony[] = {{199998, "<|startoftext|>"}, {199999, "<|endoftext|>"}, {200002, "<|return|>"},
                                        {200003, "<|constrain|>"},   {200005, "<|channel|>"},   {200006, "<|start|>"},
                                        {200007, "<|end|>"},         {200008, "<|message|>"},   {200012, "<|call|>"},
                                        {200018, "<|endofprompt|>"}};
constexpr special_token of_llama3[] = {{128000, "<|begin_of_text|>"},
                                       {128001, "<|end_of_text|>"},
                                       {128006, "<|start_header_id|>"},
                                       {128007, "<|end_header_id|>"},
                                       {128009, "<|eot_id|>"}};
constexpr special_token of_qwen[] = {{151643, "<|endoftext|>"}, {151644, "<|im_start|>"}, {151645, "<|im_end|>"}};

struct tiktoken_family {
  std::string_view name;
  std::string_view words;
  std::span<const special_token> special; // where the files do not name them
  std::string_view bos, eos;
  bool nfc = false;
};

constexpr tiktoken_family families[] = {
  {"gpt2", words::gpt2, of_gpt2, "", "<|endoftext|>"},
  {"r50k_base", words::gpt2, of_gpt2, "", "<|endoftext|>"},
  {"p50k_base", words::gpt2, of_gpt2, "", "<|endoftext|>"},
  {"cl100k_base", words::gpt4, of_cl100k, "", "<|endoftext|>"},
  {"o200k_base", words::gpt4o, of_o200k, "", "<|endoftext|>"},
  {"o200k_harmony", words::gpt4o, of_harmony, "", "<|return|>"},
  {"llama", words::gpt4, of_llama3, "<|begin_of_text|>", "<|end_of_text|>"},
  {"qwen", words::qwen2, of_qwen, "", "<|endoftext|>", true},
  {"chatglm", words::gpt4, {}, "", "<|endoftext|>"},
  {"kimi_k2", words::kimi_k2, {}, "[BOS]", "[EOS]"},
};

const tiktoken_family& family_of(const std::string& name, const std::string& file) {
  std::string known;
  for (const auto& family : families) {
    if (family.name == name)
      return family;
    known += (known.empty() ? "" : ", ") + std::string(family.name);
  }
  throw failure(errc::unsupported,
                file + ": is a tiktoken file, which does not say how texts are split; known are " + known +
                  " (by the file's name or by `model_type` in config.json), not `" + name + "`");
}

struct ranked_token {
  std::string bytes;
  token_id rank = 0;
};

/// A line without its end. Nothing if it is malformed.
std::optional<ranked_token> parse_line(std::string_view line) {
  const auto space = line.find(' ');
  if (space == std::string_view::npos)
    return std::nullopt;
  auto bytes = decode_base64(line.substr(0, space));
  std::uint64_t rank = 0;
  const auto* const end = line.data() + line.size();
  const auto [stop, error] = std::from_chars(line.data() + space + 1, end, rank);
  if (!bytes || bytes->empty() || error != std::errc() || stop != end || rank > highest_id)
    return std::nullopt;
  return ranked_token{std::move(*bytes), static_cast<token_id>(rank)};
}

std::string_view take_line(std::string_view& text) {
  const auto end = std::min(text.find('\n'), text.size());
  auto line = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  if (line.ends_with('\r'))
    line.remove_suffix(1);
  return line;
}

std::vector<ranked_token> read_tokens(std::string_view bytes, const std::string& file) {
  const auto fail = [&](std::size_t line, const std::string& what) {
    throw failure(errc::bad_file, file + ": line " + std::to_string(line) + " " + what);
  };
  std::vector<ranked_token> tokens;
  for (std::size_t number = 1; !bytes.empty(); ++number) {
    const auto line = take_line(bytes);
    if (line.empty())
      continue;
    auto token = parse_line(line);
    if (!token)
      fail(number, "must be a token in base64, a space and a rank from 0 to " + std::to_string(highest_id));
    if (token->bytes.size() > longest_token)
      fail(number,
           "has a token of " + std::to_string(token->bytes.size()) + " bytes, at most " +
             std::to_string(longest_token) + " are supported");
    tokens.push_back(std::move(*token));
  }
  std::ranges::stable_sort(tokens, {}, &ranked_token::rank);
  return tokens;
}

} // namespace

bool begins_as_tiktoken(std::string_view bytes) {
  return bytes.find('\n') < 4096 && parse_line(take_line(bytes)).has_value();
}

translated_file translate_tiktoken(std::string_view bytes, const std::string& file, const std::string& family,
                                   const std::vector<added_piece>& others) {
  const auto& rules = family_of(family, file);
  auto tokens = read_tokens(bytes, file);
  translated_file to;
  const auto size = tokens.size() + rules.special.size() + others.size();
  to.texts.reserve(size); // `pieces` refers to the strings
  const auto add = [&](std::string text, token_id id, piece_kind kind) {
    to.texts.push_back(std::move(text));
    const auto index = static_cast<std::size_t>(id);
    if (index >= to.pieces.texts.size()) {
      to.pieces.texts.resize(index + 1);
      to.pieces.kinds.resize(index + 1, piece_kind::unused);
    }
    if (!to.pieces.texts[index].empty())
      throw failure(errc::bad_file,
                    file + ": gives the id " + std::to_string(id) + " to two tokens, one of them `" + to.texts.back() +
                      "`");
    to.pieces.texts[index] = to.texts.back();
    to.pieces.kinds[index] = kind;
  };
  const auto& alphabet = byte_level_alphabet();
  const auto spelled = [&](std::string_view raw) {
    std::string text;
    for (const unsigned char byte : raw)
      text += alphabet[byte];
    return text;
  };
  for (const auto& token : tokens)
    add(spelled(token.bytes), token.rank, piece_kind::normal);
  for (const auto& other : others)
    add(other.content, other.id, other.special ? piece_kind::control : piece_kind::user_defined);
  for (const auto& special : rules.special)
    if (!to.pieces.find(special.text))
      add(std::string(special.text), special.id, piece_kind::control);
  if (!rules.bos.empty())
    to.bos = to.pieces.find(rules.bos);
  to.eos = to.pieces.find(rules.eos);
  to.add_bos = to.bos.has_value();

  // Two neighbours merge if their joined bytes are a token, the lowest rank first, of equal ones the leftmost.
  std::unordered_map<std::string_view, std::string_view> known; // bytes, spelled
  for (std::size_t i = 0; i < tokens.size(); ++i)
    known.emplace(tokens[i].bytes, to.texts[i]);
  std::vector<ranked_merge> merges;
  for (const auto& token : tokens) {
    const std::string_view whole = token.bytes;
    for (std::size_t cut = 1; cut < whole.size(); ++cut) {
      const auto left = known.find(whole.substr(0, cut)), right = known.find(whole.substr(cut));
      if (left != known.end() && right != known.end())
        merges.push_back({left->second, right->second, static_cast<std::size_t>(token.rank)});
    }
  }
  std::string vocab;
  for (std::size_t i = 0; i < to.pieces.size(); ++i)
    if (!to.pieces.texts[i].empty())
      vocab += (vocab.empty() ? "" : ",") + json_text(to.pieces.texts[i]) + ":" + std::to_string(i);
  try {
    to.members = std::string(R"("normalizer":)") + (rules.nfc ? R"({"type":"NFC"})" : "null") + R"(,"pre_tokenizer":)" +
      words::pre_tokenizer_json({rules.words}) +
      R"(,"decoder":{"type":"ByteLevel"},"model":{"type":"BPE","ignore_merges":true,"vocab":{)" + vocab +
      R"(},"merges":)" + merges_json(merges) + "}";
  } catch (const std::invalid_argument& e) {
    throw failure(errc::unsupported, file + ": " + e.what());
  }
  return to;
}

} // namespace troupe::tokenization
