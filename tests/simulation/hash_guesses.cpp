#include "tests/simulation/hash_guesses.hpp"

#include "tests/simulation/dice.hpp"
#include "tests/simulation/hash_device.hpp"
#include "tests/simulation/hash_model.hpp"

namespace troupe::simulation {

guess_reply hash_guesses::serve(const guess_request& request) {
  guess_reply reply{.number = request.number};
  for (const auto& id : request.ended)
    known_.erase(id);
  for (const auto& d : request.demands) {
    auto& known = known_[d.sequence];
    if (d.known > known.size())
      throw broken_promise("guesses are wanted behind tokens that were not told");
    known.resize(d.known);
    known.insert(known.end(), d.tokens.begin(), d.tokens.end());
    guess_answer answer{.sequence = d.sequence};
    const auto how = mixed(known.size() + d.assumed.size(), d.sequence.request) % 8;
    answer.behind = how == 0;
    auto last = !d.assumed.empty() ? d.assumed.back() : known.empty() ? 1 : known.back();
    std::int32_t before = -1; // guess
    for (int i = 0; i < (how < 2 ? 0 : d.guesses); ++i) {
      const auto likely = likely_behind(last);
      // Now and then the likely one is not the first.
      const bool second = d.others > 0 && mixed(how, static_cast<std::uint64_t>(i)) % 3 == 0;
      const auto add = [&](token_id token) {
        answer.guesses.push_back(token);
        answer.parents.push_back(before);
        answer.chances.push_back(0.5f);
      };
      if (second)
        add(last);
      const auto now = static_cast<std::int32_t>(answer.guesses.size());
      add(last = likely);
      before = now;
    }
    reply.answers.push_back(std::move(answer));
  }
  reply.drawing_ms = 0.1;
  reply.passes = 1;
  return reply;
}

} // namespace troupe::simulation
