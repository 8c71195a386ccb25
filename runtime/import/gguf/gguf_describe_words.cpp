// What a folder says beside its configuration and tensors, as keys of a GGUF file: tokenizer, special tokens, ends of
// answers, sampling, chat template.
#include "runtime/import/gguf_model.hpp"
#include "runtime/sampling/sampling_table.hpp"
#include "runtime/support/json/json.hpp"
#include "runtime/support/text/base64.hpp"
#include "runtime/support/text/utf8.hpp"
#include "runtime/tokenizer/formats/older_folder.hpp"

#include <algorithm>
#include <array>
#include <unordered_map>

namespace troupe {

namespace {

namespace fs = std::filesystem;

/// Covers most things that tokenizers treat differently.
constexpr std::string_view tokenizer_probe =
  "Hello, world! I've 12345 apples, don't WE'LL x=3.14;\n\n  d\u00e9j\u00e0 vu, nai\u0308ve \u65e5\u672c\u8a9e "
  "\U0001F642\t\tfoo_bar  -- \"quoted\" (2024-01-02)\r\n";

constexpr std::string_view space_mark = "\u2581";

std::uint32_t key_id(token_id id) { return static_cast<std::uint32_t>(id); }

/// A tokenizer.json, or what a file of another format is as one, already accepted by `tokenizer::load`.
json::document tokenizer_document(const fs::path& folder) {
  const auto file = folder / "tokenizer.json";
  if (is_there(file))
    return json::document::load(file, files::tokenizer);
  const auto older = tokenization::find_older_tokenizer(folder);
  if (!older)
    throw failure(errc::not_found, folder.string() + ": has no tokenizer");
  return json::document::parse(older->json, older->file);
}

class tokenizer_file {
public:
  tokenizer_file(const json::document& document, const tokenizer& tokens, int vocab)
    : name_(document.name()),
      root_(document.root()),
      model_(*json::find(root_, "model")),
      tokens_(tokens),
      vocab_(vocab) {
    for (token_id id = 0; id < vocab_; ++id) {
      const auto text = tokens_.token(id);
      const bool there = !text.empty();
      texts_.push_back(there ? std::string(text) : "[PAD" + std::to_string(id) + "]");
      const bool is_byte = flag(model_, "byte_fallback") && text.size() == 6 && text.starts_with("<0x") &&
        text.ends_with('>');
      kinds_.push_back(static_cast<std::int32_t>(!there                     ? gguf_token_kind::unused
                                                   : is_unknown(id)         ? gguf_token_kind::unknown
                                                   : tokens_.is_special(id) ? gguf_token_kind::control
                                                   : is_byte                ? gguf_token_kind::byte
                                                                            : gguf_token_kind::normal));
    }
    mark_added();
  }

  using way = void (tokenizer_file::*)(gguf_writer&) const;

  /// Ways in which llama.cpp may read such a vocabulary, the likeliest first. They throw failure(unsupported) where it
  /// cannot.
  std::vector<way> ways() const {
    const auto type = json::find(model_, "type");
    const auto is = [&](std::string_view name) {
      return type && type->is_string() && type->get_string().value() == name;
    };
    if (is("WordPiece") || is("WordLevel"))
      return {&tokenizer_file::describe_pieces_of_words};
    if (is("Unigram"))
      return {&tokenizer_file::describe_unigram};
    if (!flag(model_, "byte_fallback"))
      return {&tokenizer_file::describe_bytes};
    return {&tokenizer_file::describe_scored, &tokenizer_file::describe_characters};
  }

  /// The tokens alone, for what no way describes.
  void describe_tokens(gguf_writer& to) const {
    to.add("tokenizer.ggml.model", "none");
    list_tokens(to, texts_);
  }

  bool is_unknown(token_id id) const {
    if (tokens_.unk())
      return tokens_.unk() == id;
    const auto number = json::find(model_, "unk_id");
    if (number && number->is_int64())
      return number->get_int64().value() == id;
    const auto name = json::find(model_, "unk_token");
    return name && name->is_string() && tokens_.token(id) == name->get_string().value();
  }

private:
  using merge = std::pair<std::string, std::string>;

  static bool flag(const json::value& of, std::string_view key, bool fallback = false) {
    const auto found = json::find(of, key);
    return found && found->is_bool() ? found->get_bool().value() : fallback;
  }

  void list_tokens(gguf_writer& to, const std::vector<std::string>& texts) const {
    to.add("tokenizer.ggml.tokens", texts);
    to.add("tokenizer.ggml.token_type", kinds_);
  }

  /// Byte-level BPE.
  void describe_bytes(gguf_writer& to) const {
    to.add("tokenizer.ggml.model", "gpt2");
    list_tokens(to, texts_);
    add_merges(to);
    to.add("tokenizer.ggml.pre", words());
  }

  /// SentencePiece's BPE, whose merges follow from scores.
  void describe_scored(gguf_writer& to) const {
    to.add("tokenizer.ggml.model", "llama");
    list_tokens(to, texts_);
    to.add("tokenizer.ggml.scores", scores());
    to.add("tokenizer.ggml.add_space_prefix", has_prefix());
  }

  /// Gemma 4's: merges of characters.
  void describe_characters(gguf_writer& to) const {
    to.add("tokenizer.ggml.model", "gemma4");
    list_tokens(to, texts_);
    add_merges(to);
    to.add("tokenizer.ggml.add_space_prefix", false);
  }

  /// WordPiece: files mark the tokens that begin words, not those that continue them.
  void describe_pieces_of_words(gguf_writer& to) const {
    constexpr std::string_view goes_on = "##";
    auto spelled = texts_;
    for (std::size_t id = 0; id < spelled.size(); ++id)
      if (kinds_[id] == static_cast<std::int32_t>(gguf_token_kind::normal))
        spelled[id] = spelled[id].starts_with(goes_on) ? spelled[id].substr(goes_on.size())
                                                       : std::string(space_mark) + spelled[id];
    to.add("tokenizer.ggml.model", "bert");
    list_tokens(to, spelled);
    const auto normalizer = json::find(root_, "normalizer");
    const bool lower = normalizer && flag(*normalizer, "lowercase", true);
    to.add("tokenizer.ggml.normalizer.lowercase", lower);
    to.add("tokenizer.ggml.normalizer.strip_accents", normalizer && flag(*normalizer, "strip_accents", lower));
  }

  void describe_unigram(gguf_writer& to) const {
    std::vector<float> scores(texts_.size(), -10000);
    json::array vocab;
    if (const auto found = json::find(model_, "vocab"); found && !found->get(vocab)) {
      std::size_t id = 0;
      for (const json::value piece : vocab) {
        json::array pair;
        double score = 0;
        if (id < scores.size() && !piece.get(pair) && !pair.at(1).get(score))
          scores[id] = static_cast<float>(score);
        ++id;
      }
    }
    to.add("tokenizer.ggml.model", "t5");
    to.add("tokenizer.ggml.pre", "default");
    list_tokens(to, texts_);
    to.add("tokenizer.ggml.scores", scores);
    const auto text_of = [&](const char* part) {
      const auto found = json::find(root_, part);
      return found ? simdjson::minify(*found) : std::string();
    };
    const auto normalizer = text_of("normalizer"), pre = text_of("pre_tokenizer");
    const bool never = pre.find(R"("prepend_scheme":"never")") != pre.npos ||
      pre.find(R"("add_prefix_space":false)") != pre.npos;
    to.add("tokenizer.ggml.add_space_prefix",
           (pre.find("Metaspace") != pre.npos && !never) ||
             normalizer.find(R"("add_dummy_prefix":true)") != normalizer.npos);
    to.add("tokenizer.ggml.remove_extra_whitespaces",
           pre.find("WhitespaceSplit") != pre.npos || normalizer.find(R"( {2,})") != normalizer.npos ||
             normalizer.find(R"("remove_extra_whitespaces":true)") != normalizer.npos);
    constexpr std::string_view map = R"("precompiled_charsmap":")";
    if (const auto at = normalizer.find(map); at != normalizer.npos) {
      const auto begin = at + map.size();
      const auto bytes = decode_base64(normalizer.substr(begin, normalizer.find('"', begin) - begin));
      if (bytes && !bytes->empty())
        to.add("tokenizer.ggml.precompiled_charsmap",
               gguf_value{gguf_type::array, std::as_bytes(std::span(*bytes)), gguf_type::u8, bytes->size()});
    }
  }

  /// Merges are pairs, or texts with a space in between.
  std::vector<merge> merges() const {
    std::vector<merge> result;
    json::array list;
    if (const auto found = json::find(model_, "merges"); !found || found->get(list))
      return result;
    for (const json::value item : list) {
      std::string_view text;
      json::array pair;
      if (!item.get(text)) {
        const auto space = text.find(' ', 1);
        result.emplace_back(text.substr(0, space), text.substr(space + 1));
      } else if (!item.get(pair)) {
        result.emplace_back(pair.at(0).get_string().value(), pair.at(1).get_string().value());
      }
    }
    return result;
  }

  void add_merges(gguf_writer& to) const {
    std::vector<std::string> lines;
    for (const auto& [left, right] : merges())
      lines.push_back(left + " " + right);
    to.add("tokenizer.ggml.merges", lines);
  }

  /// Added tokens are found in texts even if they are not special.
  void mark_added() {
    json::array added;
    if (const auto found = json::find(root_, "added_tokens"); !found || found->get(added))
      return;
    for (const json::value token : added) {
      const auto id = json::find(token, "id");
      const auto at = id && id->is_int64() ? id->get_int64().value() : -1;
      if (at >= 0 && at < vocab_ && !tokens_.is_special(static_cast<token_id>(at)))
        kinds_[static_cast<std::size_t>(at)] = static_cast<std::int32_t>(gguf_token_kind::user_defined);
    }
  }

  /// Pieces merged earlier score higher; pieces that are never merged come last.
  std::vector<float> scores() const {
    std::unordered_map<std::string, std::size_t> rank;
    const auto all = merges();
    for (std::size_t i = 0; i < all.size(); ++i)
      rank.emplace(all[i].first + all[i].second, i);
    std::vector<float> result;
    for (std::size_t id = 0; id < texts_.size(); ++id) {
      const auto found = rank.find(texts_[id]);
      const bool is_byte = kinds_[id] == static_cast<std::int32_t>(gguf_token_kind::byte);
      result.push_back(is_byte                 ? 0.0f
                         : found == rank.end() ? -1e6f - static_cast<float>(id)
                                               : -static_cast<float>(found->second));
    }
    return result;
  }

  /// Whether texts are prefixed with a space.
  bool has_prefix() const {
    const auto normalizer = json::find(root_, "normalizer");
    const auto pre = json::find(root_, "pre_tokenizer");
    return (normalizer && simdjson::minify(*normalizer).find("\"Prepend\"") != std::string::npos) ||
      (pre && simdjson::minify(*pre).find("\"always\"") != std::string::npos);
  }

  std::string words() const {
    const auto pre = json::find(root_, "pre_tokenizer");
    const auto name = pre ? gguf_pre_tokenizer(*pre, flag(model_, "ignore_merges")) : std::nullopt;
    if (!name)
      throw failure(errc::unsupported, name_ + ": GGUF has no name for how its `pre_tokenizer` splits texts");
    return *name;
  }

  std::string name_;
  json::value root_, model_;
  const tokenizer& tokens_;
  token_id vocab_;
  std::vector<std::string> texts_; // a text for every id
  std::vector<std::int32_t> kinds_;
};

/// The named tokens that templates know, or nothing.
std::optional<token_id> named_token(const fs::path& folder, const tokenizer& tokens, const char* name) {
  for (const auto* file : {"tokenizer_config.json", "special_tokens_map.json"}) {
    if (!is_there(folder / file))
      continue;
    const auto document = json::document::load(folder / file);
    const auto found = json::find(document.root(), name);
    const auto text = found && found->is_object() ? json::find(*found, "content") : found;
    if (text && text->is_string())
      return tokens.id_of(text->get_string().value());
  }
  return std::nullopt;
}

void describe_special(gguf_writer& to, const fs::path& folder, const tokenizer& tokens, const tokenizer_file& words,
                      const generation_defaults& generation, bool encoder, int vocab) {
  auto stops = generation.stops;
  std::erase_if(stops, [&](token_id stop) { return stop >= vocab; }); // which a configuration's defaults may be
  const auto around = tokens.encode("a", true), bare = tokens.encode("a", false);
  auto bos = tokens.bos(), eos = tokens.eos(), unk = tokens.unk();
  auto sep = named_token(folder, tokens, "sep_token"), pad = named_token(folder, tokens, "pad_token"),
       cls = named_token(folder, tokens, "cls_token"), mask = named_token(folder, tokens, "mask_token");
  // Encoders have what goes around a text, whatever it is called.
  if (encoder && around.size() > bare.size() && tokens.is_special(around.front()))
    bos = around.front();
  if (encoder && around.size() > bare.size() && tokens.is_special(around.back()) && !eos)
    eos = around.back();
  if (encoder) { // else llama.cpp takes BERT's numbers
    cls = cls ? cls : bos;
    sep = sep ? sep : eos;
    pad = pad ? pad : tokens.id_of("[PAD]");
    mask = mask ? mask : tokens.id_of("[MASK]");
  }
  if (!eos && !stops.empty())
    eos = stops.front();
  for (token_id i = 0; !unk && i < vocab; ++i)
    if (words.is_unknown(i))
      unk = i;
  const std::array named{bos, eos, unk, sep, pad, cls, mask}; // as in gguf_special_tokens
  for (std::size_t i = 0; i < named.size(); ++i)
    if (named[i] && *named[i] < vocab)
      to.add(gguf_special_tokens[i].second, key_id(*named[i]));
  std::vector<token_id> others;
  std::ranges::copy_if(stops, std::back_inserter(others), [&](token_id stop) { return stop != eos; });
  if (!others.empty())
    to.add("tokenizer.ggml.eot_token_id", key_id(others[0]));
  if (others.size() > 1)
    to.add("tokenizer.ggml.eom_token_id", key_id(others[1]));
  if (others.size() > 2)
    to.add("tokenizer.ggml.eos_token_ids", std::vector<std::int32_t>(stops.begin(), stops.end()));
  const bool ends = !around.empty() && eos == around.back();
  to.add("tokenizer.ggml.add_bos_token", !around.empty() && bos == around.front());
  to.add("tokenizer.ggml.add_eos_token", ends);
  if (sep)
    to.add("tokenizer.ggml.add_sep_token", !ends && !around.empty() && sep == around.back());
}

/// The defaults that llama.cpp knows, where they are not those of every model.
void describe_sampling(gguf_writer& to, const sampling_params& sampling) {
  const sampling_params usual;
  sampling_fields::for_each([&]<class T>(const sampling_field<T>& field) {
    const auto key = gguf_sampling_key(field.name);
    if (!key || sampling.*field.member == usual.*field.member)
      return;
    if constexpr (std::is_integral_v<T>)
      to.add(*key, static_cast<std::int32_t>(sampling.*field.member));
    else
      to.add(*key, sampling.*field.member);
  });
}

/// What a file that says `described` does to texts otherwise than the folder's tokenizer: nothing, or a sentence.
/// `single`: to one text; else to two together, which encoders and rerankers read, or to tokens.
std::string tokenizer_difference(const gguf_writer& described, const tokenizer& tokens, const std::string& model,
                                 bool single, const model_config& config) {
  const auto head = described.head();
  const auto name = model + " as GGUF";
  const auto read = make_gguf_tokenizer(read_gguf(std::as_bytes(std::span(head)), name).metadata, name);
  if (!single && (config.encoder || config.headless)) {
    constexpr std::size_t most = 1 << 20;
    const auto here = read->encode_pair("a", "a", most), there = tokens.encode_pair("a", "a", most);
    if (here.ids != there.ids || here.second != there.second)
      return "GGUF cannot say how its tokenizer joins two texts";
  }
  const auto same = [&](std::string_view text) { return read->encode(text, true) == tokens.encode(text, true); };
  for (const std::string_view text : {std::string_view("a"), tokenizer_probe})
    if (single && !same(text))
      return "GGUF cannot say how its tokenizer cuts " + shown(text);
  for (token_id id = 0; static_cast<std::size_t>(id) < tokens.vocab_size(); ++id) {
    const auto text = tokens.token_bytes(id);
    if (single && is_utf8(text) && !same(text))
      return "GGUF cannot say how its tokenizer cuts " + shown(text);
    if (!single && id < config.vocab && !tokens.token(id).empty() && read->token_bytes(id) != text)
      return "GGUF cannot say what its token " + std::to_string(id) + " is in a text";
  }
  return {};
}

} // namespace

std::vector<std::string> describe_words(gguf_writer& to, const fs::path& folder, const model_config& config,
                                        const generation_defaults& generation, const tokenizer& tokens,
                                        const std::string& model) {
  const auto document = tokenizer_document(folder);
  const tokenizer_file file(document, tokens, config.vocab);
  const auto with_special = [&](gguf_writer described) {
    describe_special(described, folder, tokens, file, generation, config.encoder, config.vocab);
    return described;
  };
  std::optional<gguf_writer> found;
  std::vector<std::string> lines;
  std::string why;
  for (const auto way : file.ways()) {
    gguf_writer described;
    std::string differs;
    try {
      (file.*way)(described);
      described = with_special(std::move(described));
      differs = tokenizer_difference(described, tokens, model, true, config);
    } catch (const failure& f) {
      if (f.what_failed().code != errc::unsupported)
        throw;
      differs = f.what();
    }
    if (differs.empty()) {
      found = std::move(described);
      break;
    }
    if (why.empty())
      why = differs;
  }
  const bool read_by_others = found.has_value();
  if (!found) {
    gguf_writer alone;
    file.describe_tokens(alone);
    found = with_special(std::move(alone));
    lines.push_back(model + ": " + why.substr(why.starts_with(model + ": ") ? model.size() + 2 : 0) +
                    "; the file has it in a form that llama.cpp does not read");
  }
  // Two texts together, and texts of tokens, as the folder's own tokenizer has them.
  if (!read_by_others || !tokenizer_difference(*found, tokens, model, false, config).empty())
    found->add(exact_tokenizer_key, simdjson::minify(document.root()));
  const auto head = found->head();
  const auto read = read_gguf(std::as_bytes(std::span(head)), model).metadata;
  for (const auto& [key, value] : read.all())
    to.add(key, value);
  describe_sampling(to, generation.sampling);
  const auto chat = chat_template::source(folder);
  if (chat)
    to.add("tokenizer.chat_template", chat->standard);
  if (chat && chat->tool_use) {
    to.add("tokenizer.chat_templates", std::vector<std::string>{"tool_use"});
    to.add("tokenizer.chat_template.tool_use", *chat->tool_use);
  }
  return lines;
}

} // namespace troupe
