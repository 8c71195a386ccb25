// Guesses from a known continuation, each token right with a given probability. Measures what speculation gains at a
// rate of acceptance, whatever the model. Wrong guesses depend on the position and the salt alone.
#pragma once

#include "runtime/sampling/philox.hpp"
#include "runtime/techniques/speculation/drafter.hpp"

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

namespace troupe {

/// What an oracle says of the tokens that follow a prompt.
struct oracle_line {
  std::shared_ptr<const std::vector<token_id>> continuation;
  double acceptance = 1;
  std::uint64_t salt = 0;
  int vocab = 1;

  /// Behind its end, whatever.
  token_id at(std::size_t place) const {
    const auto right = place < continuation->size() ? (*continuation)[place] : 0;
    const bool is_right = static_cast<double>(random_bits(salt, place, 0) >> 11) * 0x1p-53 < acceptance;
    return is_right ? right : (right + 1) % vocab;
  }
};

class oracle_drafter final : public drafter {
public:
  oracle_drafter(oracle_line line, std::size_t prompt_tokens) : line_(std::move(line)), prompt_tokens_(prompt_tokens) {}

  void append(std::span<const token_id> tokens) override { known_ += tokens.size(); }

  void propose(std::size_t most, std::vector<token_id>& guesses) override {
    for (auto at = generated(); most-- > 0 && at < line_.continuation->size(); ++at)
      guesses.push_back(line_.at(at));
  }

  bool ready() const override { return known_ >= prompt_tokens_ && generated() < line_.continuation->size(); }

private:
  std::size_t generated() const { return known_ - prompt_tokens_; }

  oracle_line line_;
  std::size_t prompt_tokens_, known_ = 0;
};

} // namespace troupe
