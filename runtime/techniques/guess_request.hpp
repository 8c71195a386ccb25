// What the guesser of a scheduler asks the model that computes guesses for it (guesser.hpp), and the reply. One request
// serves all sequences. At most one is unanswered, beside one that is made while a step is computed.
#pragma once

#include "runtime/support/types.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace troupe {

struct sampling_params; // runtime/sampling/sampling_params.hpp

/// Hidden states behind the model's final norm, of neighbouring positions: what a guess_model may read
/// beside the tokens that follow. A guesser gets those of guesses in the order in which it listed them.
struct state_rows {
  std::int32_t position = 0;           // of the first
  std::int32_t rows = 0;               // more than 0
  std::shared_ptr<const float> values; // [rows, width], host memory
  std::size_t width = 0;

  std::int32_t end() const { return position + rows; }
};

/// How many of a prompt's last tokens need states. Guesses do not see those before them.
inline constexpr std::int32_t most_state_rows = 512;

struct guess_demand {
  sequence_id sequence;
  std::shared_ptr<const sampling_params> params; // the target's: a guess is drawn with its random numbers
  std::size_t prompt_tokens = 0;                 // of the transcript
  std::size_t known = 0;                         // tokens of the transcript that earlier demands have brought
  std::vector<token_id> tokens;                  // that follow those
  int guesses = 0;                               // wanted
  std::vector<state_rows> states = {};           // ascending; since the last demand; if they are wanted
  int others = 0;                                // guesses wanted beside each
  // If others are wanted: how often guesses of each grade are right, and the chance to be right below which a line does
  // not go on.
  std::vector<float> rates = {};
  float least_chance = 0;
  // Behind the transcript: guesses that a step verifies meanwhile. Taken for granted in this demand alone.
  std::vector<token_id> assumed = {};
};

struct guess_request {
  std::uint64_t number = 0;
  std::vector<guess_demand> demands = {};
  std::vector<sequence_id> ended = {}; // since the last request
  // Set by who asked, on its thread, once it can use no more than there is; null: it never is.
  std::shared_ptr<const std::atomic<bool>> enough = {};

  bool is_enough() const { return enough && enough->load(std::memory_order_relaxed); }
};

struct guess_answer {
  sequence_id sequence;
  std::vector<token_id> guesses = {}; // at most as many behind each other as wanted
  bool behind = false;                // more of the transcript must be computed before there can be guesses
  // If others are wanted:
  std::vector<std::int32_t> parents = {}; // of each guess the one that it follows, which comes earlier; -1: the
                                          // transcript. Of those that follow the same, the first was drawn
  std::vector<float> chances = {};        // of each guess, in the model's own distribution
};

struct guess_reply {
  std::uint64_t number = 0;
  std::vector<guess_answer> answers = {}; // one per demand, in order
  // Milliseconds: of passes that computed what was behind, in so many rows, and of passes that drew guesses.
  double catch_up_ms = 0, drawing_ms = 0;
  int catch_up_rows = 0, passes = 0;
};

} // namespace troupe
