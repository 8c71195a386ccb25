// Lookahead decoding as published (Fu et al. 2024): each step corrects a window of guesses, W places by N - 1 levels, and
// verifies up to G n-grams that have followed the last token, side by side: a tree of (W + G) (N - 1) rows. The first
// level is a line of W guesses of the tokens that follow; behind each of them stand the N - 2 corrections that the model
// made of the place after it in the steps since, so that with what it now chooses there, each place yields an n-gram. The
// oldest level then makes room for the choices. State is derivable from the transcript, beside the guesses it began with.
#pragma once

#include "runtime/techniques/speculation/drafter.hpp"

#include <cstdint>
#include <deque>
#include <optional>
#include <string_view>
#include <unordered_map>

namespace troupe {

struct lookahead_shape {
  int window = 0;  // W; 0: not as published
  int ngram = 0;   // N, tokens
  int guesses = 0; // G

  int rows() const { return (window + guesses) * (ngram - 1); }
  bool operator==(const lookahead_shape&) const = default;
};

/// "W,N,G": W and G from 1, N from 2 to 8, and at most 60 rows. Nothing for anything else.
std::optional<lookahead_shape> lookahead_shape_of(std::string_view text);

class lookahead_window final : public drafter {
public:
  explicit lookahead_window(const lookahead_shape& shape)
    : shape_(shape), levels_(static_cast<std::size_t>(shape.ngram - 1)) {}

  bool branches() const override { return true; }
  bool ready() const override { return known_ > 0; }
  /// 1 if an n-gram has followed the last token.
  std::size_t grade() const override;

  void append(std::span<const token_id> tokens) override;
  /// The first n-gram's tokens.
  void propose(std::size_t most, std::vector<token_id>& guesses) override;
  void propose_tree(std::size_t most, std::size_t room, std::vector<token_id>& guesses,
                    std::vector<std::int32_t>& parents) override;
  void observe_tree(std::span<const token_id> choices) override;

private:
  using ngram = std::vector<token_id>;

  void add(std::span<const token_id> tokens); // an n-gram
  void fill();

  lookahead_shape shape_;
  std::unordered_map<token_id, std::deque<ngram>> pool_; // what has followed a token, the newest first
  std::deque<token_id> oldest_;                          // keys of the pool, in the order in which they were first seen
  std::deque<token_id> text_;                            // the last tokens
  std::uint64_t known_ = 0;                              // tokens of the sequence
  std::vector<std::vector<token_id>> levels_;            // [N - 1][W], each a place behind the level before
  bool moved_ = false;                                   // by a place, since the last tokens
  // What was proposed last:
  std::vector<std::vector<std::int32_t>> places_; // [W][N - 1], its guess of a place and level; those that there are
  std::vector<token_id> proposed_;
};

} // namespace troupe
