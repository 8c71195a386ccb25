#include "runtime/tokenizer/tokenizer.hpp"

#include "runtime/support/files/file_state.hpp"
#include "runtime/support/json/not_a_model.hpp"
#include "runtime/support/meter.hpp"
#include "runtime/tokenizer/added_tokens.hpp"
#include "runtime/tokenizer/formats/older_folder.hpp"
#include "runtime/tokenizer/models/token_model.hpp"
#include "runtime/tokenizer/normalizer.hpp"
#include "runtime/tokenizer/post_processor.hpp"
#include "runtime/tokenizer/pre_tokenizer.hpp"
#include "runtime/tokenizer/token_decoder.hpp"
#include "runtime/tokenizer/unicode.hpp"

#include <algorithm>

namespace troupe {

using namespace tokenization;

/// The order of members matters: added tokens need the normalizer, and the post-processor looks up tokens.
struct tokenizer::parts {
  std::unique_ptr<const token_model> model;
  normalizer normalize;
  added_tokens added;
  pre_tokenizer pre_tokenize;
  post_processor post_process;
  token_decoder decode;
  named_tokens special;

  explicit parts(const json::reader& root)
    : model(make_token_model(root.at("model"))),
      normalize(made_from<normalizer>(root.child("normalizer"))),
      added(root.child("added_tokens") ? added_tokens(*root.child("added_tokens"), model->words(), normalize)
                                       : added_tokens()),
      pre_tokenize(made_from<pre_tokenizer>(root.child("pre_tokenizer"))),
      post_process(root.child("post_processor")
                     ? post_processor(*root.child("post_processor"), [this](token_id id) { return has(id); })
                     : post_processor()),
      decode(made_from<token_decoder>(root.child("decoder"))) {
    if (const auto version = root.child("version"); version && version->string() != "1.0")
      version->refuse("is `" + std::string(version->string()) + "`; only 1.0 is supported", errc::unsupported);
    const auto longest = std::max(model->words().longest(), added.longest_token());
    if (static_cast<double>(longest) * decode.most_growth() > static_cast<double>(longest_decoded_token))
      root.refuse("can make a text of more than " + std::to_string(longest_decoded_token) +
                    " bytes of one token: its longest has " + std::to_string(longest) +
                    ", which its `decoder` may grow",
                  errc::unsupported);
  }

  template <class Part>
  static Part made_from(const std::optional<json::reader>& description) {
    return description ? Part(*description) : Part();
  }

  bool has(token_id id) const { return added.find(id) || model->words().has(id); }

  std::optional<token_id> id_of(std::string_view token) const {
    const auto found = added.id_of(token);
    return found ? found : model->words().id_of(token);
  }

  /// The decoder's input for a token; nothing if it is skipped or does not exist.
  std::optional<std::string_view> decoder_input(token_id id, bool skip_special_tokens) const {
    if (const auto* token = added.find(id)) {
      if (token->skipped && skip_special_tokens)
        return std::nullopt;
      return token->decoded;
    }
    return model->words().has(id) ? std::optional(model->words().text(id)) : std::nullopt;
  }
};

std::shared_ptr<const tokenizer> tokenizer::load(const std::filesystem::path& folder) {
  const auto file = folder / "tokenizer.json";
  std::unique_ptr<parts> result;
  if (is_there(file)) {
    const auto document = json::document::load(file, files::tokenizer);
    result = std::make_unique<parts>(json::reader(document, json::tokenizer_wording));
  } else {
    const auto older = find_older_tokenizer(folder);
    if (!older)
      refuse_folder(folder, missing::tokenizer);
    const auto document = json::document::parse(older->json, older->file);
    result = std::make_unique<parts>(json::reader(document, json::tokenizer_wording));
    result->special = {older->bos, older->eos, older->unk};
  }
  bool bos = false, eos = false, unk = false; // said so far
  for (const auto* name : {"tokenizer_config.json", "special_tokens_map.json"}) {
    if (!is_there(folder / name))
      continue;
    const auto document = json::document::load(folder / name);
    const json::reader config(document, json::tokenizer_wording);
    const auto set = [&](std::optional<token_id>& id, std::string_view key, bool& said) {
      const auto found = said ? std::nullopt : config.child(key);
      if (!found)
        return;
      said = true;
      id = result->id_of(found->is_object() ? found->at("content").string() : found->string());
    };
    set(result->special.bos, "bos_token", bos);
    set(result->special.eos, "eos_token", eos);
    set(result->special.unk, "unk_token", unk);
  }
  return std::make_shared<const tokenizer>(std::move(result));
}

std::shared_ptr<const tokenizer> tokenizer::parse(std::string_view tokenizer_json, std::string name,
                                                  const named_tokens& special) {
  const auto document = json::document::parse(tokenizer_json, std::move(name));
  auto result = std::make_unique<parts>(json::reader(document, json::tokenizer_wording));
  const auto known = [&](std::optional<token_id> id) { return id && result->has(*id) ? id : std::nullopt; };
  result->special = {known(special.bos), known(special.eos), known(special.unk)};
  return std::make_shared<const tokenizer>(std::move(result));
}

tokenizer::tokenizer(std::unique_ptr<const parts> parts) : parts_(std::move(parts)) {}
tokenizer::~tokenizer() = default;

std::vector<token_id> tokenizer::encode(std::string_view text, bool add_special_tokens) const {
  return parts_->post_process.apply(bare_ids(text), add_special_tokens);
}

std::vector<token_id> tokenizer::encode_cut(std::string_view text, std::size_t most) const {
  auto ids = bare_ids(text);
  const auto around = parts_->post_process.apply({}, true).size();
  ids.resize(std::min(ids.size(), most - std::min(most, around)));
  return parts_->post_process.apply(std::move(ids), true);
}

std::vector<token_id> tokenizer::encode_plain(std::string_view text, std::span<const token_id> marks) const {
  return bare_ids(text, [&](token_id id) {
    const auto* added = parts_->added.find(id);
    return (added && added->special) || std::ranges::find(marks, id) != marks.end();
  });
}

std::vector<std::string_view> tokenizer::specials_in(std::string_view text) const {
  return parts_->added.specials_in(text);
}

std::vector<token_id> tokenizer::encode_around(std::string_view text, bool add_special_tokens,
                                               std::span<const std::size_t> plain_at) const {
  return parts_->post_process.apply(bare_ids(text, nullptr, plain_at), add_special_tokens);
}

token_pair tokenizer::encode_pair(std::string_view first, std::string_view second, std::size_t most_second) const {
  auto behind = bare_ids(second);
  behind.resize(std::min(behind.size(), most_second));
  token_pair result;
  result.ids = parts_->post_process.apply_pair(bare_ids(first), behind, result.second);
  return result;
}

std::vector<token_id> tokenizer::bare_ids(std::string_view text, const std::function<bool(token_id)>& plain,
                                          std::span<const std::size_t> plain_at) const {
  if (!is_utf8(text))
    throw failure(errc::bad_request, "the text is not valid UTF-8");
  match_scratch scratch;
  scratch.growth = growth_budget(text.size());
  word_scratch words_scratch;
  word_list words;
  section raw, part;
  std::vector<token_id> ids;
  for (const auto& outer : parts_->added.cut(text, false, plain, plain_at)) {
    if (outer.id >= 0) {
      ids.push_back(outer.id);
      continue;
    }
    raw.text = text.substr(outer.begin, outer.end - outer.begin);
    raw.start_until = outer.begin == 0 ? 0 : -1;
    parts_->normalize.apply(raw, scratch);
    for (const auto& inner : parts_->added.cut(raw.text, true, plain)) {
      if (inner.id >= 0) {
        ids.push_back(inner.id);
        continue;
      }
      part.text.assign(raw.text, inner.begin, inner.end - inner.begin);
      part.start_until = start_behind(raw.start_until, inner.begin);
      parts_->pre_tokenize.apply(part, words, scratch);
      for (const auto& word : words.words) {
        const auto its = words.view(word);
        meter::charge(1);
        parts_->model->encode(its, words_scratch, ids);
      }
    }
  }
  return ids;
}

std::string tokenizer::decode(std::span<const token_id> ids, bool skip_special_tokens) const {
  constexpr std::size_t most = std::size_t(256) << 20;
  const auto stream = parts_->decode.stream();
  std::string text;
  const auto drain = [&] {
    text += stream->drain();
    if (text.size() > most)
      throw failure(errc::bad_request, "these tokens have a text of more than " + std::to_string(most) + " bytes");
  };
  for (const token_id id : ids)
    if (const auto token = parts_->decoder_input(id, skip_special_tokens)) {
      stream->push(*token);
      drain();
    }
  stream->finish();
  drain();
  return text;
}

std::size_t tokenizer::most_bytes_per_token() const {
  const auto added = parts_->added.most_bytes_per_token();
  const auto words = parts_->pre_tokenize.drops()
    ? 0
    : parts_->model->most_bytes_per_token(parts_->pre_tokenize.byte_level());
  return added == 0 || words == 0 ? 0 : std::max(added, words) * parts_->normalize.shrinks();
}

std::size_t tokenizer::vocab_size() const { return std::max(parts_->model->words().id_end(), parts_->added.id_end()); }

std::optional<token_id> tokenizer::id_of(std::string_view token) const { return parts_->id_of(token); }

std::string_view tokenizer::token(token_id id) const {
  const auto* added = parts_->added.find(id);
  return added ? std::string_view(added->content) : parts_->model->words().text(id);
}

std::string tokenizer::token_bytes(token_id id) const {
  const auto token = parts_->decoder_input(id, false);
  return token ? parts_->decode.bytes(*token) : std::string();
}

bool tokenizer::is_special(token_id id) const {
  const auto* added = parts_->added.find(id);
  return added && added->skipped;
}

std::string tokenizer::remark() const { return parts_->added.remark(); }
std::optional<token_id> tokenizer::bos() const { return parts_->special.bos; }
std::optional<token_id> tokenizer::eos() const { return parts_->special.eos; }
std::optional<token_id> tokenizer::unk() const { return parts_->special.unk; }

struct stream_decoder::state {
  std::shared_ptr<const tokenizer> owner; // keeps alive the decoder that `stream` refers to
  bool skip_special_tokens;
  std::vector<token_id> shown; // sorted
  std::unique_ptr<decode_stream> stream;
};

stream_decoder::stream_decoder(std::shared_ptr<const tokenizer> tokenizer, bool skip_special_tokens,
                               std::vector<token_id> shown)
  : state_(std::make_unique<state>(
      state{tokenizer, skip_special_tokens, std::move(shown), tokenizer->parts_->decode.stream()})) {}
stream_decoder::stream_decoder(stream_decoder&&) noexcept = default;
stream_decoder& stream_decoder::operator=(stream_decoder&&) noexcept = default;
stream_decoder::~stream_decoder() = default;

std::string stream_decoder::push(token_id id) {
  const bool skip = state_->skip_special_tokens && !std::ranges::binary_search(state_->shown, id);
  if (const auto token = state_->owner->parts_->decoder_input(id, skip))
    state_->stream->push(*token);
  return state_->stream->drain();
}

std::string stream_decoder::finish() {
  state_->stream->finish();
  return state_->stream->drain();
}

} // namespace troupe
