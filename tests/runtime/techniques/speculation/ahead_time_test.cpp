// What it is worth to guess ahead, in virtual time: the real speculator, a step that takes 20 ms and 1 ms for each
// further row, and a draft model whose passes take a given time, either in turn or on threads of its own.
#include "runtime/sampling/philox.hpp"
#include "runtime/sampling/sampling_params.hpp"
#include "runtime/techniques/speculation/speculator.hpp"
#include "runtime/techniques/speculation/technique.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

using namespace troupe;

namespace {

using ids = std::vector<token_id>;

struct drafted_answer {
  double acceptance = 0.8, pass_ms = 4;
  bool ahead = false;
  double slower = 0; // by which part a step takes longer beside the draft model
  int forced = 0;    // guesses
};

class timed_answer {
public:
  static constexpr int tokens = 2000;
  static constexpr sequence_id id{1, 0};

  explicit timed_answer(const drafted_answer& how)
    : how_(how),
      guesser_({.draft_model = true, .forced = how.forced, .branches = false, .ahead = how.ahead}, [](int rows) {
        return step_estimate{step_ms(rows), true};
      }) {
    params_->max_tokens = tokens;
    params_->techniques.set(speculated_by(speculation::draft));
    guesser_.begin(id, params_, text_, text_.size(), {});
  }

  double ms() {
    while (left() > 0)
      step();
    return now_;
  }

private:
  static double step_ms(int rows) { return 19.0 + rows; }
  static token_id right(std::size_t place) { return static_cast<token_id>(place % 97); }

  int left() const { return tokens + 8 - static_cast<int>(text_.size()); }

  guess_reply reply_to(const guess_request& request, int guesses) const {
    guess_reply reply{.number = request.number};
    guess_answer answer;
    answer.sequence = id;
    for (auto at = text_.size() + request.demands[0].assumed.size(); guesses-- > 0; ++at) {
      const bool is_right = static_cast<double>(random_bits(7, at, 0) >> 11) * 0x1p-53 < how_.acceptance;
      answer.guesses.push_back(is_right ? right(at) : 99);
    }
    reply.passes = static_cast<int>(answer.guesses.size());
    reply.drawing_ms = reply.passes * how_.pass_ms;
    reply.answers.push_back(std::move(answer));
    return reply;
  }

  void step() {
    const plain_step plain{1, 1};
    const std::vector<decoding_sequence> decoding{{id, std::min(left() - 1, 16), false}};
    guesser_.waits(plain, decoding);
    if (const auto request = guesser_.collect(plain, decoding, 64)) {
      now_ = std::max(now_, draft_free_);
      deliver_late();
      const auto reply = reply_to(*request, request->demands[0].guesses);
      now_ += reply.drawing_ms;
      guesser_.deliver(reply);
    }
    const auto guesses = guesser_.propose(plain, decoding, 64)[0].tokens;
    const auto expected = step_ms(1 + static_cast<int>(guesses.size()));
    auto took = expected;
    if (const auto request = guesser_.collect_ahead()) {
      took *= 1 + how_.slower;
      const auto begun = static_cast<int>(std::ceil(took / how_.pass_ms)); // before the step has ended
      late_ = reply_to(*request, std::min(request->demands[0].guesses, begun));
      draft_free_ = now_ + late_->drawing_ms;
    }
    now_ += took;
    ids choices{right(text_.size())};
    for (std::size_t i = 0; i < guesses.size(); ++i)
      choices.push_back(right(text_.size() + i + 1));
    std::size_t accepted = 0;
    if (guesses.empty())
      guesser_.append(id, choices);
    else
      accepted = guesser_.judged(id, choices);
    text_.insert(text_.end(), choices.begin(), choices.begin() + static_cast<std::ptrdiff_t>(accepted) + 1);
    guesser_.finished({plain, took, took, step_ms(1), expected - step_ms(1), true});
    if (guesser_.asked()) {
      now_ = std::max(now_, draft_free_);
      deliver_late();
    }
  }

  void deliver_late() {
    if (const auto reply = std::exchange(late_, std::nullopt))
      guesser_.deliver(*reply);
  }

  drafted_answer how_;
  speculator guesser_;
  std::shared_ptr<sampling_params> params_ = std::make_shared<sampling_params>();
  ids text_ = ids(8, 1);
  double now_ = 0, draft_free_ = 0;
  std::optional<guess_reply> late_;
};

/// How much faster an answer is with guesses ahead than in turn.
double gain_of(drafted_answer how) {
  const auto in_turn = timed_answer(how).ms();
  how.ahead = true;
  return in_turn / timed_answer(how).ms();
}

} // namespace

TEST_CASE("guessing ahead makes answers faster, the more guesses are right and the longer they take") {
  for (const double pass : {1, 4, 10})
    for (const double acceptance : {0.6, 0.8, 0.95}) {
      const auto gain = gain_of({.acceptance = acceptance, .pass_ms = pass});
      const auto forced = gain_of({.acceptance = acceptance, .pass_ms = pass, .forced = 4});
      MESSAGE("a pass of ", pass, " ms, acceptance ", acceptance, ": ", gain, ", with four guesses a step ", forced);
      CHECK(gain >= 0.985);
    }
  CHECK(gain_of({.acceptance = 0.95, .pass_ms = 4}) > 1.2);
  CHECK(gain_of({.acceptance = 0.8, .pass_ms = 4}) > 1.05);
}

TEST_CASE("where steps take longer beside the draft model than is saved, nothing is guessed ahead") {
  for (const double acceptance : {0.6, 0.8, 0.95}) {
    CAPTURE(acceptance);
    CHECK(gain_of({.acceptance = acceptance, .pass_ms = 1, .slower = 0.6}) > 0.95);
  }
}
