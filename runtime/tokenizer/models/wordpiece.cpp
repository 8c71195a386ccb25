#include "runtime/tokenizer/models/wordpiece.hpp"

#include "runtime/support/meter.hpp"
#include "runtime/support/text/utf8.hpp"

#include <algorithm>

namespace troupe::tokenization {

wordpiece::wordpiece(const json::reader& model) {
  const auto vocab = model.at("vocab");
  words_ = vocabulary(vocab);
  if (words_.longest() > longest_piece)
    vocab.refuse("has a token of " + std::to_string(words_.longest()) + " bytes, at most " +
                 std::to_string(longest_piece) + " are supported");
  const auto prefix_field = model.child("continuing_subword_prefix");
  const auto prefix = prefix_field ? std::string(prefix_field->string()) : std::string("##");
  std::vector<trie::entry> starts, continuations;
  for (token_id id = 0; id < static_cast<token_id>(words_.id_end()); ++id) {
    const auto text = words_.text(id);
    if (words_.id_of(text) != id)
      continue;
    starts.push_back({text, id});
    if (text.starts_with(prefix))
      continuations.push_back({text.substr(prefix.size()), id});
  }
  starts_ = trie(std::move(starts));
  continuations_ = trie(std::move(continuations));
  const auto unk = model.child("unk_token");
  unk_token_ = unk ? std::string(unk->string()) : std::string("[UNK]");
  unk_id_ = words_.id_of(unk_token_).value_or(-1);
  most_characters_ = static_cast<std::size_t>(model.integer("max_input_chars_per_word", 0, 1 << 30).value_or(100));
}

void wordpiece::encode_word(std::string_view word, word_scratch&, std::vector<token_id>& ids) const {
  const auto characters = std::ranges::count_if(word, [](unsigned char c) { return (c & 0xC0) != 0x80; });
  const auto before = ids.size();
  bool known = static_cast<std::size_t>(characters) <= most_characters_;
  for (std::size_t begin = 0; known && begin < word.size();) {
    meter::charge(1);
    std::size_t length = 0;
    (begin == 0 ? starts_ : continuations_).prefixes(word.substr(begin), [&](std::size_t found, token_id id) {
      if (length == 0)
        ids.push_back(id);
      length = found;
      ids.back() = id;
    });
    known = length > 0;
    begin += length;
  }
  if (known)
    return;
  ids.resize(before);
  if (unk_id_ < 0)
    throw failure(errc::bad_request,
                  "the text has a word outside the vocabulary, as is the unknown token `" + unk_token_ + "`");
  ids.push_back(unk_id_);
}

} // namespace troupe::tokenization
