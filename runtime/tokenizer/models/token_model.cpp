#include "runtime/tokenizer/models/token_model.hpp"

#include "runtime/support/text/utf8.hpp"
#include "runtime/tokenizer/models/bpe.hpp"
#include "runtime/tokenizer/models/unigram.hpp"
#include "runtime/tokenizer/models/wordpiece.hpp"

#include <algorithm>
#include <limits>

namespace troupe::tokenization {

namespace {

// Limits of the cache of words within a call: a few megabytes in total.
constexpr std::size_t longest_known_word = 64;
constexpr std::size_t most_known_words = 1 << 15;

/// Early files do not name the type of their model.
std::string type_of(const json::reader& model) {
  if (const auto type = model.child("type"))
    return std::string(type->string());
  const auto vocab = model.find("vocab");
  if (vocab && vocab->is_array())
    return "Unigram";
  return model.has("max_input_chars_per_word") ? "WordPiece" : "BPE";
}

} // namespace

vocabulary::vocabulary(const json::reader& texts_with_ids) {
  std::size_t bytes = 0, count = 0;
  token_id highest = -1;
  for (const auto [token, value] : texts_with_ids.object()) {
    std::uint64_t id = 0;
    if (!is_utf8(token))
      texts_with_ids.refuse("has a token that is not valid Unicode");
    if (value.get_uint64().get(id) || id > highest_id)
      texts_with_ids.refuse("gives token `" + std::string(token) + "` an id that is not an integer from 0 to " +
                            std::to_string(highest_id));
    bytes += token.size();
    highest = std::max(highest, static_cast<token_id>(id));
    ++count;
  }
  reserve(count, bytes, static_cast<std::size_t>(highest + 1));
  for (const auto [token, value] : texts_with_ids.object()) {
    const auto id = static_cast<token_id>(value.get_uint64().value_unsafe());
    if (!add(token, id))
      texts_with_ids.refuse("gives the id " + std::to_string(id) + " to both `" + std::string(text(id)) + "` and `" +
                            std::string(token) + "`");
  }
}

void vocabulary::reserve(std::size_t count, std::size_t bytes, std::size_t id_end) {
  bytes_.reserve(bytes + 1); // so that the text of an empty token is not null
  texts_.resize(id_end);
  ids_.reserve(count);
}

bool vocabulary::add(std::string_view text, token_id id) {
  auto& slot = texts_[static_cast<std::size_t>(id)];
  if (slot.data())
    return false;
  const auto begin = bytes_.size();
  bytes_.insert(bytes_.end(), text.begin(), text.end());
  slot = std::string_view(bytes_.data() + begin, text.size());
  ids_.insert_or_assign(slot, id);
  return true;
}

std::optional<token_id> vocabulary::id_of(std::string_view text) const {
  const auto found = ids_.find(text);
  return found == ids_.end() ? std::nullopt : std::optional(found->second);
}

bool vocabulary::has(token_id id) const {
  return id >= 0 && static_cast<std::size_t>(id) < texts_.size() && texts_[static_cast<std::size_t>(id)].data();
}

std::string_view vocabulary::text(token_id id) const {
  return has(id) ? texts_[static_cast<std::size_t>(id)] : std::string_view();
}

std::size_t vocabulary::longest() const {
  std::size_t longest = 0;
  for (const auto& text : texts_)
    longest = std::max(longest, text.size());
  return longest;
}

std::string byte_token_name(int byte) {
  constexpr std::string_view digits = "0123456789ABCDEF";
  return {'<', '0', 'x', digits[static_cast<std::size_t>(byte >> 4)], digits[byte & 15u], '>'};
}

void token_model::encode(std::string_view word, word_scratch& scratch, std::vector<token_id>& ids) const {
  if (word.size() > std::numeric_limits<std::int32_t>::max())
    throw failure(errc::bad_request, "the text is too long to be tokenized");
  const bool short_word = word.size() <= longest_known_word;
  if (short_word) {
    if (const auto found = scratch.known.find(word); found != scratch.known.end()) {
      const auto first = scratch.known_ids.begin() + found->second.begin;
      ids.insert(ids.end(), first, first + found->second.count);
      return;
    }
  }
  const std::size_t before = ids.size();
  encode_word(word, scratch, ids);
  if (short_word && scratch.known.size() < most_known_words) {
    const auto begin = static_cast<std::uint32_t>(scratch.known_ids.size());
    scratch.known_ids.insert(scratch.known_ids.end(), ids.begin() + static_cast<std::ptrdiff_t>(before), ids.end());
    scratch.known.emplace(word, word_scratch::range{begin, static_cast<std::uint32_t>(ids.size() - before)});
  }
}

std::unique_ptr<const token_model> make_token_model(const json::reader& model) {
  const auto type = type_of(model);
  if (type == "BPE")
    return std::make_unique<bpe>(model);
  if (type == "Unigram")
    return std::make_unique<unigram>(model);
  if (type == "WordPiece")
    return std::make_unique<wordpiece>(model);
  model.at("type").refuse("is `" + type + "`: this model type is not supported; BPE, Unigram and WordPiece are",
                          errc::unsupported);
}

} // namespace troupe::tokenization
