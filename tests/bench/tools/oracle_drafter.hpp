// Guesses from a known continuation, each token right with a given probability. Measures what speculation gains at a
// rate of acceptance, whatever the model. Wrong guesses depend on the position and the salt alone.
#pragma once

#include "runtime/sampling/philox.hpp"
#include "runtime/techniques/speculation/drafter.hpp"

#include <memory>

namespace troupe {

class oracle_drafter final : public drafter {
public:
  /// `continuation` follows a prompt of so many tokens.
  oracle_drafter(std::shared_ptr<const std::vector<token_id>> continuation, std::size_t prompt_tokens,
                 double acceptance, std::uint64_t salt, int vocab)
    : continuation_(std::move(continuation)),
      prompt_tokens_(prompt_tokens),
      acceptance_(acceptance),
      salt_(salt),
      vocab_(vocab) {}

  void append(std::span<const token_id> tokens) override { known_ += tokens.size(); }

  void propose(std::size_t most, std::vector<token_id>& guesses) override {
    for (auto at = generated(); most-- > 0 && at < continuation_->size(); ++at) {
      const auto right = (*continuation_)[at];
      guesses.push_back(is_right(at) ? right : (right + 1) % vocab_);
    }
  }

  bool ready() const override { return known_ >= prompt_tokens_ && generated() < continuation_->size(); }

private:
  std::size_t generated() const { return known_ - prompt_tokens_; }
  bool is_right(std::size_t at) const {
    return static_cast<double>(random_bits(salt_, at, 0) >> 11) * 0x1p-53 < acceptance_;
  }

  std::shared_ptr<const std::vector<token_id>> continuation_;
  std::size_t prompt_tokens_, known_ = 0;
  double acceptance_;
  std::uint64_t salt_;
  int vocab_;
};

} // namespace troupe
