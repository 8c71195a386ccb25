// Guesses that the text goes on as it did where its last tokens occurred earlier, in the sequence itself or in a
// predicted answer (prompt lookup: Saxena 2023; several continuations side by side: suffix decoding, Oliaro et al.
// 2024). A suffix automaton leads from the last tokens to what followed them, and how often. Long contexts count for
// more than short ones, which say what else may follow. Appending costs the same however long the text is; of texts
// that are too long for its memory, the last part is kept.
#pragma once

#include "runtime/techniques/speculation/drafter.hpp"
#include "runtime/techniques/speculation/suffix_automaton.hpp"

#include <optional>

namespace troupe {

class ngram_drafter final : public drafter {
public:
  static constexpr std::size_t most_tokens = 32768; // that are looked through, the prediction among them

  /// `prediction`: of the answer; may be empty. `expected`: tokens that the sequence may come to have.
  ngram_drafter(std::span<const token_id> prediction, std::size_t expected, std::size_t most = most_tokens);

  void append(std::span<const token_id> tokens) override;
  bool offers() const override { return true; }
  void offer(std::size_t most, std::size_t room, std::vector<offered_guess>& guesses) override;
  /// The likeliest line.
  void propose(std::size_t most, std::vector<token_id>& guesses) override;
  bool ready() const override { return place_ || past_.repeated() != suffix_automaton::empty; }

  std::size_t memory() const; // bytes

private:
  using state = suffix_automaton::state;

  /// A guess that may be offered.
  struct candidate {
    double chance = 0; // that it is right, as counts say
    std::int32_t parent = -1;
    token_id token = 0;
    double confidence = 0; // the same, if its parent is right
    bool beside = false;   // a likelier one
    state context = suffix_automaton::empty;
    std::size_t matched = 0;               // tokens of that context
    std::optional<std::size_t> place = {}; // behind it in the prediction, which is followed from its start
    std::size_t last = 0;                  // tokens up to where it last followed
    bool operator<(const candidate& other) const {
      return chance != other.chance ? chance < other.chance : last < other.last;
    }
  };

  void expand(const candidate& of, std::int32_t as, std::vector<candidate>& into) const;
  void begin_text();
  void shorten();
  bool in_prediction(state s) const { return past_.first_end(s) <= predicted_; }

  std::size_t most_;
  std::vector<token_id> prediction_;
  std::vector<token_id> text_;       // of the sequence, as far as the automaton has it
  std::size_t predicted_ = 0;        // tokens of the prediction in the automaton
  suffix_automaton past_;            // the prediction, a mark, the text
  std::optional<std::size_t> place_; // of the next token in the prediction, while the answer is as predicted
  bool begun_ = false;
};

} // namespace troupe
