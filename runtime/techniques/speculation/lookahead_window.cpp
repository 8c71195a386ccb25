#include "runtime/techniques/speculation/lookahead_window.hpp"

#include <algorithm>
#include <array>
#include <charconv>

namespace troupe {

namespace {

constexpr std::size_t most_keys = 4096; // of the pool
constexpr std::size_t recent = 64;      // tokens of the text, from which new guesses are taken
constexpr int most_rows = 60, longest_ngram = 8;

} // namespace

std::optional<lookahead_shape> lookahead_shape_of(std::string_view text) {
  std::array<int, 3> numbers{};
  const auto* at = text.data();
  const auto* end = at + text.size();
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    const auto [next, failed] = std::from_chars(at, end, numbers[i]);
    const bool last = i + 1 == numbers.size();
    if (failed != std::errc() || (last ? next != end : next == end || *next != ','))
      return std::nullopt;
    at = next + (last ? 0 : 1);
  }
  const lookahead_shape shape{numbers[0], numbers[1], numbers[2]};
  const bool fits = shape.window >= 1 && shape.window <= most_rows && shape.guesses >= 1 &&
    shape.guesses <= most_rows && shape.ngram >= 2 && shape.ngram <= longest_ngram && shape.rows() <= most_rows;
  return fits ? std::optional(shape) : std::nullopt;
}

// -- the pool ---------------------------------------------------------------------------------------------------------

void lookahead_window::add(std::span<const token_id> tokens) {
  const auto [found, is_new] = pool_.try_emplace(tokens.front());
  auto& known = found->second;
  ngram rest(tokens.begin() + 1, tokens.end());
  if (const auto same = std::ranges::find(known, rest); same != known.end())
    known.erase(same);
  known.push_front(std::move(rest));
  if (known.size() > static_cast<std::size_t>(shape_.guesses))
    known.pop_back();
  if (!is_new)
    return;
  oldest_.push_back(tokens.front());
  if (oldest_.size() > most_keys) {
    pool_.erase(oldest_.front());
    oldest_.pop_front();
  }
}

std::size_t lookahead_window::grade() const { return !text_.empty() && pool_.contains(text_.back()) ? 1 : 0; }

// -- the window -------------------------------------------------------------------------------------------------------

void lookahead_window::append(std::span<const token_id> tokens) {
  const auto length = static_cast<std::size_t>(shape_.ngram);
  for (const auto token : tokens) {
    text_.push_back(token);
    if (text_.size() > recent)
      text_.pop_front();
    ++known_;
    if (text_.size() >= length) {
      const ngram last(text_.end() - static_cast<std::ptrdiff_t>(length), text_.end());
      add(last);
    }
  }
  // Places that the text has passed; one of them already, where the oldest level was dropped.
  const auto passed = tokens.size() - (moved_ && !tokens.empty() ? 1 : 0);
  moved_ = false;
  for (auto& level : levels_)
    level.erase(level.begin(), level.begin() + static_cast<std::ptrdiff_t>(std::min(passed, level.size())));
  fill();
}

// The first guesses are tokens of the text: any will do, but these are likelier than others.
void lookahead_window::fill() {
  if (text_.empty())
    return;
  auto place = known_;
  for (auto& level : levels_)
    while (level.size() < static_cast<std::size_t>(shape_.window))
      level.push_back(text_[static_cast<std::size_t>(place++ * 0x9e3779b97f4a7c15 % text_.size())]);
}

void lookahead_window::propose(std::size_t most, std::vector<token_id>& guesses) {
  if (text_.empty())
    return;
  if (const auto found = pool_.find(text_.back()); found != pool_.end())
    for (const auto token : found->second.front())
      if (guesses.size() < most)
        guesses.push_back(token);
}

// N-grams first, the newest as the first line; what they begin with in common is one row. Then the window: its first
// level, then what stands behind each of its places.
void lookahead_window::propose_tree(std::size_t most, std::size_t room, std::vector<token_id>& guesses,
                                    std::vector<std::int32_t>& parents) {
  places_.clear();
  const auto add_row = [&](token_id token, std::int32_t parent) {
    guesses.push_back(token);
    parents.push_back(parent);
    return static_cast<std::int32_t>(guesses.size()) - 1;
  };
  if (text_.empty())
    return;
  if (const auto found = pool_.find(text_.back()); found != pool_.end())
    for (const auto& tokens : found->second) {
      std::int32_t parent = -1;
      for (std::size_t i = 0; i < std::min(tokens.size(), most); ++i) {
        std::int32_t same = -1;
        for (std::int32_t row = 0; row < std::ssize(guesses) && same < 0; ++row)
          if (parents[static_cast<std::size_t>(row)] == parent && guesses[static_cast<std::size_t>(row)] == tokens[i])
            same = row;
        if (same < 0 && guesses.size() == room)
          break;
        parent = same >= 0 ? same : add_row(tokens[i], parent);
      }
    }
  std::int32_t parent = -1;
  for (std::size_t place = 0; place < std::min(levels_.front().size(), most) && guesses.size() < room; ++place)
    places_.push_back({parent = add_row(levels_.front()[place], parent)});
  for (std::size_t place = 0; place < places_.size(); ++place)
    for (std::size_t level = 1; level < levels_.size() && place + level < most && guesses.size() < room; ++level)
      places_[place].push_back(add_row(levels_[level][place], places_[place].back()));
  proposed_ = guesses;
}

void lookahead_window::observe_tree(std::span<const token_id> choices) {
  std::vector<token_id> newest;
  for (std::size_t place = 0; place < places_.size(); ++place) {
    const auto& rows = places_[place];
    const auto last = static_cast<std::size_t>(rows.back()) + 1;
    if (rows.size() < levels_.size() || last >= choices.size() || choices[last] < 0)
      break;
    ngram tokens;
    for (const auto row : rows)
      tokens.push_back(proposed_[static_cast<std::size_t>(row)]);
    tokens.push_back(choices[last]);
    newest.push_back(choices[last]);
    add(tokens);
  }
  if (newest.size() < levels_.front().size()) // where there was no room for all: those places keep what they had
    newest.insert(newest.end(), levels_.back().begin() + static_cast<std::ptrdiff_t>(newest.size()),
                  levels_.back().end());
  places_.clear();
  std::rotate(levels_.begin(), levels_.begin() + 1, levels_.end());
  levels_.back() = std::move(newest);
  moved_ = true;
}

} // namespace troupe
