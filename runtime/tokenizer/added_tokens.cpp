#include "runtime/tokenizer/added_tokens.hpp"

#include "runtime/support/meter.hpp"
#include "runtime/tokenizer/unicode.hpp"

#include <algorithm>
#include <set>

namespace troupe::tokenization {

void prefix_tree::add(std::string_view text, token_id id) {
  std::uint32_t node = 0;
  for (unsigned char byte : text) {
    const auto [edge, added] = edges_.try_emplace(std::uint64_t(node) << 8 | byte,
                                                  static_cast<std::uint32_t>(ids_.size()));
    if (added)
      ids_.push_back(-1);
    if (node == 0)
      starts_[byte] = true;
    node = edge->second;
  }
  if (ids_[node] < 0)
    ids_[node] = id;
}

std::optional<prefix_tree::hit> prefix_tree::find(std::string_view text, std::size_t from) const {
  for (std::size_t begin = from; begin < text.size(); ++begin) {
    if (!starts_[static_cast<unsigned char>(text[begin])])
      continue;
    std::optional<hit> best;
    std::uint32_t node = 0;
    for (std::size_t end = begin; end < text.size();) {
      meter::charge(1);
      const auto edge = edges_.find(std::uint64_t(node) << 8 | static_cast<unsigned char>(text[end]));
      if (edge == edges_.end())
        break;
      node = edge->second;
      ++end;
      if (ids_[node] >= 0)
        best = hit{begin, end, ids_[node]};
    }
    if (best)
      return best;
  }
  return std::nullopt;
}

added_tokens::added_tokens(const json::reader& list, const vocabulary& model, const normalizer& normalizer) {
  const auto items = list.items();
  std::size_t bytes = 0;
  for (const auto& item : items)
    bytes += item.at("content").string().size();
  match_scratch scratch;
  scratch.growth = growth_budget(bytes);
  std::set<std::string> special; // once special, a token stays special
  // `tokenizers` numbers tokens that the model lacks itself, whatever a file that other programs wrote says.
  const auto next_id = [&] {
    const auto size = static_cast<token_id>(model.size());
    return tokens_.empty() ? size : std::max(size, tokens_.rbegin()->first + 1);
  };
  for (const auto& item : items) {
    added_token token;
    token.content = item.at("content").string();
    const auto declared = static_cast<token_id>(item.at("id").integer(0, highest_id));
    token.single_word = item.boolean("single_word", false);
    token.left_strip = item.boolean("lstrip", false);
    token.right_strip = item.boolean("rstrip", false);
    token.special = item.boolean("special", false);
    token.normalized = item.boolean("normalized", !token.special);
    if (token.content.empty())
      continue;
    auto known = id_of(token.content);
    if (!known)
      known = model.id_of(token.content);
    const token_id id = known ? *known : next_id();
    if (!known && model.has(id))
      item.refuse("(`" + token.content + "`) has the id " + std::to_string(declared) + ", but the next free one, " +
                  std::to_string(id) + ", is a token of the model");
    if (id != declared && ++renumbered_ == 1)
      first_renumbered_ = "`" + token.content + "`" + " is read as " + std::to_string(id) + ", not " +
        std::to_string(declared);
    token.decoded = token.content;
    if (token.normalized) {
      section text{token.content, false, true};
      try {
        normalizer.apply(text, scratch);
      } catch (const failure& f) {
        item.refuse(std::string("cannot be normalized: ") + f.what());
      }
      if (text.text.empty())
        item.refuse("(`" + token.content + "`) is empty once it is normalized");
      token.decoded = std::move(text.text);
    }
    // Every token is compared with the text at every character.
    if (const auto longest = std::max(token.content.size(), token.decoded.size()); longest > longest_added_token)
      item.refuse("has " + std::to_string(longest) + " bytes, at most " + std::to_string(longest_added_token) +
                    " are supported",
                  errc::unsupported);
    if (token.special)
      special.insert(token.content);
    ids_[token.content] = id;
    tokens_[id] = std::move(token);
  }
  for (auto& [id, token] : tokens_) {
    token.skipped = special.contains(token.decoded);
    (token.normalized ? normalized_ : raw_).add(token.decoded, id);
  }
}

std::string added_tokens::remark() const {
  if (renumbered_ == 0)
    return {};
  return (renumbered_ == 1 ? "an added token has an id" : std::to_string(renumbered_) + " added tokens have ids") +
    " other than the next after the vocabulary's: " + first_renumbered_ + (renumbered_ == 1 ? "" : ", and so on");
}

std::vector<added_tokens::part> added_tokens::cut(std::string_view text, bool normalized,
                                                  const std::function<bool(token_id)>& plain,
                                                  std::span<const std::size_t> plain_at) const {
  const auto& tree = normalized ? normalized_ : raw_;
  std::vector<part> parts;
  std::size_t done = 0;
  std::size_t space_end = 0; // end of the last scanned run of spaces; none is scanned twice
  if (!tree.empty()) {
    std::size_t from = 0;
    while (const auto hit = tree.find(text, from)) {
      if ((plain && plain(hit->id)) || std::ranges::binary_search(plain_at, hit->begin)) {
        from = hit->begin + 1; // another may begin within it
        continue;
      }
      from = hit->end;
      const auto& token = tokens_.at(hit->id);
      std::size_t begin = hit->begin, end = hit->end;
      if (token.single_word) {
        std::size_t before = begin, after = end;
        if ((begin > 0 && is_word(previous_char(text, before))) ||
            (end < text.size() && is_word(next_char(text, after))))
          continue;
      }
      if (token.left_strip) {
        for (std::size_t pos = begin; pos > done && is_whitespace(previous_char(text, pos));)
          begin = pos;
        begin = std::max(begin, done); // the token before may have taken the space that this one is
      }
      if (token.right_strip) {
        if (end >= space_end) {
          space_end = end;
          for (std::size_t pos = end; pos < text.size() && is_whitespace(next_char(text, pos));)
            space_end = pos;
        }
        end = space_end;
      }
      if (begin >= end)
        continue;
      if (done < begin)
        parts.push_back({done, begin, -1});
      parts.push_back({begin, end, hit->id});
      done = end;
    }
  }
  if (done < text.size())
    parts.push_back({done, text.size(), -1});
  return parts;
}

std::vector<std::string_view> added_tokens::specials_in(std::string_view text) const {
  std::vector<std::string_view> specials;
  for (auto hit = raw_.find(text, 0); hit; hit = raw_.find(text, hit->begin + 1))
    if (tokens_.at(hit->id).special)
      specials.push_back(text.substr(hit->begin, hit->end - hit->begin));
  return specials;
}

std::size_t added_tokens::most_bytes_per_token() const {
  std::size_t longest = 1;
  for (const auto& [id, token] : tokens_) {
    if (token.left_strip || token.right_strip)
      return 0;
    longest = std::max({longest, token.content.size(), token.decoded.size()});
  }
  return longest;
}

const added_token* added_tokens::find(token_id id) const {
  const auto found = tokens_.find(id);
  return found == tokens_.end() ? nullptr : &found->second;
}

std::size_t added_tokens::longest_token() const {
  std::size_t longest = 0;
  for (const auto& [id, token] : tokens_)
    longest = std::max(longest, token.decoded.size());
  return longest;
}

std::optional<token_id> added_tokens::id_of(std::string_view content) const {
  const auto found = ids_.find(std::string(content));
  return found == ids_.end() ? std::nullopt : std::optional(found->second);
}

} // namespace troupe::tokenization
