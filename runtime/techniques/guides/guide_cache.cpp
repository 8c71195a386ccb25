#include "runtime/techniques/guides/guide_cache.hpp"

#include "runtime/support/error.hpp"
#include "runtime/tokenizer/tokenizer.hpp"

#include <algorithm>
#include <utility>

namespace troupe::guides {

namespace {

/// Equal for sources that compile to the same guide.
std::string key_of(const guide_source& s) {
  std::string key;
  const auto add = [&key](const std::string& text) { key += std::to_string(text.size()) + ':' + text; };
  key += static_cast<char>('a' + static_cast<int>(s.what));
  key += s.any_order ? 'o' : '-';
  key += s.compact ? 'c' : '-';
  key += s.closed ? 'n' : '-';
  add(s.text);
  for (const auto& c : s.choices)
    add(c);
  key += '|';
  add(s.after);
  add(s.preface_begin);
  add(s.preface_end);
  add(s.thinking.begin);
  add(s.thinking.end);
  add(s.thinking.close);
  key += s.thinking.is_open ? 'o' : '-';
  for (const auto& text : s.banned)
    add(text);
  return key;
}

} // namespace

guide_cache::guide_cache(std::shared_ptr<const tokenizer> tokens, std::vector<token_id> ends, const limits& l,
                         std::vector<token_id> markers)
  : tokens_(std::move(tokens)),
    ends_(std::move(ends)),
    markers_(std::move(markers)),
    limits_(l),
    pool_(std::make_shared<guide_pool>(l.all_bytes)) {}

std::shared_ptr<const answer_guide> guide_cache::get(const guide_source& source, bool stops,
                                                     const std::stop_token& stop, bool brief) {
  meter most(brief ? limits_.little : meter::limits{limits_.guide.compiling, limits_.guide.work}, stop);
  try {
    return get(source, stops, most);
  } catch (const too_complex&) {
    if (!brief || most.spent() == meter::reason::none)
      throw; // it will not do better with more
    return nullptr;
  }
}

std::shared_ptr<const answer_guide> guide_cache::get(const guide_source& source, bool stops, meter& most) {
  if (!tokens_)
    refuse_field(field_of(source), "needs a tokenizer, and this model has none");
  if (ends_.empty() && !stops && source.what != guide_source::kind::anything)
    refuse_field(field_of(source), "needs a token that ends the answer; this model has none, so give `stop_token_ids`");
  auto key = key_of(source);
  const auto known = [&]() -> std::shared_ptr<const answer_guide> { // under the lock
    const auto found = std::ranges::find(entries_, key, &entry::key);
    if (found == entries_.end())
      return nullptr;
    entries_.splice(entries_.begin(), entries_, found);
    return entries_.front().guide;
  };
  {
    const std::scoped_lock hold(lock_);
    if (auto guide = known())
      return guide;
    if (!vocabulary_)
      vocabulary_ = guide_vocabulary::of(*tokens_, ends_, markers_);
    make_room(field_of(source));
  }
  const auto banned = source.banned.empty() ? nullptr : banned_of(source.banned);
  const auto made = [&] {
    try {
      return within(most, [&] { return made_of(source, banned); });
    } catch (const failure& f) {
      blame(f, field_of(source));
    }
  }();
  const std::scoped_lock hold(lock_);
  if (auto guide = known()) // another thread was faster
    return guide;
  entries_.push_front({std::move(key), made});
  return made;
}

// With the first mask, which every answer needs.
std::shared_ptr<const answer_guide> guide_cache::made_of(const guide_source& source,
                                                         std::shared_ptr<const banned_tokens> banned) const {
  const auto made = std::make_shared<const answer_guide>(source, tokens_, vocabulary_, limits_.guide, pool_,
                                                         std::move(banned));
  answer_state first(made);
  std::vector<std::uint64_t> mask(vocabulary_->words());
  first.mask(mask);
  return made;
}

// A server's policy has them, not a client: there are few, and making them is not a client's work.
std::shared_ptr<const banned_tokens> guide_cache::banned_of(const std::vector<std::string>& texts) {
  const std::scoped_lock hold(banned_lock_);
  for (const auto& [known, made] : banned_)
    if (known == texts)
      return made;
  auto made = std::make_shared<const banned_tokens>(texts, vocabulary_);
  static_cast<void>(made->forbidden(0)); // which every answer needs
  if (banned_.size() >= most_banned)
    banned_.pop_back();
  banned_.emplace_front(texts, made);
  return made;
}

void guide_cache::make_room(const std::string& field) {
  std::size_t unused = 0, unused_bytes = 0;
  for (auto e = entries_.begin(); e != entries_.end();) {
    if (e->guide.use_count() > 1) {
      ++e;
      continue;
    }
    unused_bytes += e->guide->memory() + e->key.size();
    if (++unused >= limits_.kept || unused_bytes > limits_.kept_bytes || pool_->is_full())
      e = entries_.erase(e);
    else
      ++e;
  }
  if (pool_->is_full())
    throw failure(errc::overloaded,
                  "`" + field + "`: the guides of running requests take too much memory; try again later", field);
}

} // namespace troupe::guides
