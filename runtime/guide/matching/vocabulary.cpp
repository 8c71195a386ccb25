#include "runtime/guide/matching/vocabulary.hpp"

#include "runtime/support/text/utf8.hpp"
#include "runtime/tokenizer/tokenizer.hpp"

#include <algorithm>
#include <utility>

namespace troupe::guides {

namespace {

struct text {
  std::string_view bytes;
  token_id id;
  const text_bounds* from; // each of its bytes, to its end
};

/// The kind of the first character, and how many bytes it has.
std::pair<character_kinds, std::size_t> first_character(std::string_view bytes) {
  if (const auto b = static_cast<unsigned char>(bytes[0]); b < 0x80)
    return {kind_of(b), 1};
  utf8_state utf8;
  for (std::size_t i = 0; i < bytes.size(); ++i)
    switch (utf8.advance(static_cast<unsigned char>(bytes[i]))) {
      case utf8_state::step::invalid: return {other_kind, 1};
      case utf8_state::step::complete: {
        std::size_t at = 0;
        return {is_wide_space(next_char(bytes, at)) ? other_kind : beyond_ascii, i + 1};
      }
      case utf8_state::step::incomplete: break;
    }
  return {beyond_ascii, bytes.size()};
}

/// Appends for each byte what lies from there to the end.
void append_bounds(std::string_view bytes, std::vector<text_bounds>& out) {
  const auto begin = out.size();
  out.resize(begin + bytes.size());
  for (auto i = bytes.size(); i-- > 0;) {
    const auto [kinds, size] = first_character(bytes.substr(i));
    const auto behind = i + size < bytes.size() ? out[begin + i + size] : text_bounds();
    out[begin + i] = {kinds | behind.kinds(), behind.length() + 1};
  }
}

constexpr std::size_t longest_token = 4096; // longer ones are left out, as no text needs them

token_tree tree_of(std::vector<text> texts) {
  std::ranges::sort(texts, [](const text& a, const text& b) {
    return a.bytes != b.bytes ? a.bytes < b.bytes : a.id < b.id; // as unsigned bytes
  });
  token_tree tree;
  for (const auto& t : texts)
    tree.tokens.push_back(t.id);
  // Nodes in the order of their depth; `texts[first, end)` pass through a node.
  tree.nodes.push_back({0, 0, static_cast<std::uint32_t>(texts.size()), 0, 0});
  tree.bytes.push_back(0);
  tree.behind.emplace_back();
  for (std::size_t i = 0, depth = 0, level_end = 1; i < tree.nodes.size(); ++i) {
    if (i == level_end) {
      level_end = tree.nodes.size();
      ++depth;
    }
    const auto end = tree.nodes[i].end;
    auto at = tree.nodes[i].first;
    while (at < end && texts[at].bytes.size() == depth)
      ++at;
    tree.nodes[i].own = static_cast<std::uint16_t>(std::min<std::uint32_t>(at - tree.nodes[i].first, 0xFFFF));
    for (auto k = at; k < end; ++k)
      tree.behind[i] |= texts[k].from[depth];
    tree.nodes[i].children = static_cast<std::uint32_t>(tree.nodes.size());
    while (at < end) {
      const auto byte = texts[at].bytes[depth];
      auto last = at;
      while (last < end && texts[last].bytes[depth] == byte)
        ++last;
      tree.nodes.push_back({0, at, last, 0, 0});
      tree.bytes.push_back(static_cast<unsigned char>(byte));
      tree.behind.emplace_back();
      ++tree.nodes[i].count;
      at = last;
    }
  }
  return tree;
}

struct prefix {
  std::size_t characters = 0, bytes = 0;
};

/// Leading characters of an alphabet.
prefix prefix_of(std::string_view bytes, alphabet a) {
  const auto ascii = ascii_of(a);
  prefix p;
  utf8_state utf8;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    const auto b = static_cast<unsigned char>(bytes[i]);
    if (b < 0x80 ? !ascii.has(b) : a != alphabet::plain)
      break;
    const auto step = utf8.advance(b);
    if (step == utf8_state::step::invalid)
      break;
    if (step == utf8_state::step::complete) {
      if (i >= 2 && (bytes.substr(i - 2, 3) == "\xE2\x80\xA8" || bytes.substr(i - 2, 3) == "\xE2\x80\xA9"))
        break;
      p = {p.characters + 1, i + 1};
    }
  }
  return p;
}

void set_bit(std::vector<std::uint64_t>& mask, token_id id) {
  mask[static_cast<std::size_t>(id) / 64] |= std::uint64_t(1) << (id % 64);
}

alphabet_tokens tokens_by(alphabet a, const std::vector<text>& all, std::size_t words) {
  alphabet_tokens result;
  std::vector<text> behind, more;
  std::vector<std::vector<text>> by_count;
  for (auto& only : result.only)
    only.resize(words);
  for (const auto& t : all) {
    const auto p = prefix_of(t.bytes, a);
    const text rest{t.bytes.substr(p.bytes), t.id, t.from + p.bytes};
    const bool is_long = p.characters > alphabet_tokens::longest;
    if (is_long)
      more.push_back(t);
    if (rest.bytes.empty())
      for (auto c = is_long ? result.only.size() - 1 : p.characters; c < result.only.size(); ++c)
        set_bit(result.only[c], t.id);
    else {
      behind.push_back(rest);
      if (!is_long) {
        by_count.resize(std::max(by_count.size(), p.characters + 1));
        by_count[p.characters].push_back(rest);
      }
    }
  }
  result.behind = tree_of(std::move(behind));
  result.more = tree_of(std::move(more));
  for (auto& texts : by_count)
    result.behind_count.push_back(tree_of(std::move(texts)));
  return result;
}

} // namespace

guide_vocabulary::guide_vocabulary(std::vector<entry> entries, std::vector<token_id> end, std::size_t size)
  : bytes_(size), end_(std::move(end)) {
  std::ranges::sort(end_);
  end_.erase(std::ranges::unique(end_).begin(), end_.end());
  for (auto& e : entries)
    if (!e.bytes.empty() && e.bytes.size() <= longest_token && !is_end(e.id))
      bytes_[static_cast<std::size_t>(e.id)] = std::move(e.bytes);
  std::size_t total = 0;
  for (const auto& b : bytes_)
    total += b.size();
  std::vector<text_bounds> bounds; // of all, one behind the other
  bounds.reserve(total);
  std::vector<text> all;
  for (std::size_t i = 0; i < size; ++i)
    if (!bytes_[i].empty()) {
      all.push_back({bytes_[i], static_cast<token_id>(i), bounds.data() + bounds.size()});
      append_bounds(bytes_[i], bounds);
    }
  for (std::size_t a = 0; a < alphabets; ++a)
    by_alphabet_[a] = tokens_by(static_cast<alphabet>(a), all, words());
  all_ = tree_of(std::move(all));
}

std::shared_ptr<const guide_vocabulary> guide_vocabulary::of(const tokenizer& tokens, std::span<const token_id> end,
                                                             std::span<const token_id> markers) {
  const auto is_text = [&](token_id id) { return !tokens.is_special(id) || std::ranges::binary_search(markers, id); };
  std::vector<entry> entries;
  for (std::size_t i = 0; i < tokens.vocab_size(); ++i) {
    const auto id = static_cast<token_id>(i);
    if (is_text(id) && !tokens.token(id).empty())
      entries.push_back({id, tokens.token_bytes(id)});
  }
  std::vector<token_id> ends(end.begin(), end.end());
  if (const auto eos = tokens.eos())
    ends.push_back(*eos);
  auto result = std::make_shared<guide_vocabulary>(std::move(entries), std::move(ends), tokens.vocab_size());
  for (std::size_t i = 0; i < tokens.vocab_size(); ++i)
    if (const auto id = static_cast<token_id>(i); tokens.is_special(id) && !tokens.token(id).empty()) {
      result->special_.emplace(id, tokens.token_bytes(id));
      if (result->bytes(id).empty())
        result->hidden_.push_back(id);
    }
  return result;
}

std::string_view guide_vocabulary::bytes(token_id id) const {
  return id >= 0 && static_cast<std::size_t>(id) < bytes_.size() ? bytes_[static_cast<std::size_t>(id)]
                                                                 : std::string_view();
}

std::string_view guide_vocabulary::any_bytes(token_id id) const {
  const auto special = special_.find(id);
  return special == special_.end() ? bytes(id) : special->second;
}

bool guide_vocabulary::is_end(token_id id) const { return std::ranges::binary_search(end_, id); }

std::size_t guide_vocabulary::memory() const {
  const auto of = [](const token_tree& t) {
    return t.nodes.size() * (sizeof(token_tree::node) + 1 + sizeof(text_bounds)) + t.tokens.size() * 4;
  };
  auto sum = of(all_) + bytes_.size() * sizeof(std::string);
  for (const auto& t : by_alphabet_) {
    sum += of(t.behind) + of(t.more) + t.only.size() * words() * 8;
    for (const auto& tree : t.behind_count)
      sum += of(tree);
  }
  return sum;
}

} // namespace troupe::guides
