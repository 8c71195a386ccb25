// A draft model whose guesses are an oracle's: it computes as ever, which takes its time, and each of its guesses is
// then right with a given probability. Measures what drafting gains at a rate of acceptance, whatever the models. What
// the oracle said was not computed before, so a pass behind it has a row more for each.
#pragma once

#include "runtime/techniques/guesser.hpp"
#include "tests/bench/tools/oracle_drafter.hpp"

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace troupe {

class oracle_guesses final : public guess_model {
public:
  /// What the oracle says behind a prompt, of a sequence; nothing: guesses are the draft model's own.
  using find_oracle = std::function<std::optional<oracle_line>(sequence_id id, std::span<const token_id> prompt)>;

  oracle_guesses(std::unique_ptr<guess_model> computes, find_oracle find)
    : computes_(std::move(computes)), find_(std::move(find)) {}

  guess_reply serve(const guess_request& request) override {
    auto lines = request;
    for (auto& demand : lines.demands)
      demand.others = 0;
    auto reply = computes_->serve(lines);
    for (const auto& id : request.ended)
      texts_.erase(id);
    for (std::size_t i = 0; i < request.demands.size(); ++i) {
      const auto& demand = request.demands[i];
      auto& text = texts_[demand.sequence];
      text.resize(std::min(text.size(), demand.known));
      text.insert(text.end(), demand.tokens.begin(), demand.tokens.end());
      const auto oracle = find_(demand.sequence, std::span(text).first(std::min(text.size(), demand.prompt_tokens)));
      if (!oracle)
        continue;
      auto at = text.size() + demand.assumed.size() - demand.prompt_tokens;
      for (auto& guess : reply.answers[i].guesses)
        guess = oracle->at(at++);
    }
    return reply;
  }

private:
  std::unique_ptr<guess_model> computes_;
  find_oracle find_;
  std::map<sequence_id, std::vector<token_id>> texts_;
};

} // namespace troupe
