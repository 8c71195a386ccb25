// A guide as the answers of a model follow it: where in the answer it begins, the tokens that are forced because its
// text is, and the tokens that end an answer. All answers and threads share an answer_guide. An answer_state belongs to
// one answer and is a function of its tokens.
#pragma once

#include "runtime/guide/guide.hpp"
#include "runtime/guide/text_finder.hpp"
#include "runtime/techniques/constraint.hpp"
#include "runtime/techniques/guides/banned_tokens.hpp"
#include "runtime/techniques/guides/thinking.hpp"

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace troupe::guides {

class answer_guide final : public constraint {
public:
  /// Compiles. `tokens` are those of `vocabulary`; `banned` are the source's, null: made here if there are any. Throws
  /// failure(bad_request) whose param is the source's field.
  answer_guide(const guide_source& source, std::shared_ptr<const tokenizer> tokens,
               std::shared_ptr<const guide_vocabulary> vocabulary, const guide_limits& limits,
               std::shared_ptr<guide_pool> pool = nullptr, std::shared_ptr<const banned_tokens> banned = nullptr);

  const guide_vocabulary& vocabulary() const { return guide_->vocabulary(); }
  std::size_t memory() const { return guide_->memory(); } // bytes
  std::unique_ptr<constraint_state> begin(std::shared_ptr<const constraint> self,
                                          const sampling_params& params) const override;
  /// Whether nothing is asked of the answer but a bound of its reasoning and what it must not contain.
  bool is_free() const override { return is_free_; }
  /// See guide::prepare.
  bool prepare(std::uint64_t steps) const override { return !is_free_ && guide_->prepare(steps); }

  static constexpr std::size_t longest_after = 1024; // bytes of guide_source::after

private:
  friend class answer_state;

  /// Tokens with the end of `after` and more, which the guide forbids.
  std::span<const token_id> forbidden(std::size_t matched) const;
  std::optional<token_id> next_token(std::string_view run, std::string_view forced) const;

  std::shared_ptr<const guide> guide_;
  std::shared_ptr<const tokenizer> tokens_;
  text_finder after_;
  bool is_free_;
  bool may_be_empty_ = false;       // the guide asks for nothing: an answer may end ahead of `after`
  std::vector<std::uint64_t> free_; // all tokens but those that end a text; empty where the guide always decides
  std::optional<thinking_rules> thinking_;
  std::shared_ptr<const banned_tokens> banned_; // null: none

  mutable std::mutex lock_; // of what follows
  mutable std::map<std::size_t, std::vector<token_id>> forbidden_;
};

/// A plain value: a copy is a fork. Functions that are not const throw as guide_state's.
class answer_state final : public constraint_state {
public:
  explicit answer_state(std::shared_ptr<const answer_guide> g, thinking_limits limits = {});
  std::unique_ptr<constraint_state> clone() const override { return std::make_unique<answer_state>(*this); }

  const guide_vocabulary& vocabulary() const { return guide_->vocabulary(); }
  std::size_t words() const override { return vocabulary().words(); }

  bool advance(token_id token) override;

  bool can_end() override {
    if (thinking_.thinks())
      return false;
    return guided_ ? guide_->is_free() || state_.can_end() : guide_->may_be_empty_;
  }

  /// `withheld`, if given, gets the tokens that would complete a banned text, and could follow otherwise.
  void mask(std::span<std::uint64_t> out, std::vector<token_id>* withheld = nullptr) override;

  /// The token that must follow: the next one of the text that must, as the tokenizer cuts it. Nothing where the guide
  /// leaves a choice, or where that token may be longer because of what stands behind the text.
  std::optional<token_id> forced() override;

private:
  bool follow(token_id token, std::string_view bytes);

  std::shared_ptr<const answer_guide> guide_;
  guide_state state_;
  thinking_state thinking_;
  banned_state banned_;
  bool guided_;             // else `after` has not been found
  std::size_t matched_ = 0; // bytes of it
  std::string run_;         // the end of the text, as far as it was forced
};

} // namespace troupe::guides
