#include "tests/api/embed/small_engine.hpp"

using namespace troupe;
using namespace troupe::testing;

TEST_CASE("Guesses from a request's prediction are counted apart from the engine's own") {
  auto options = small();
  options.techniques["speculate"] = {"ngram"};
  options.techniques["draft_tokens"] = {"4"};
  const auto e = engine::start(options);
  e.wait_until_ready();
  auto asked = ask({5, 6, 7, 8, 5, 6, 7, 8}, 60);
  asked.sampling.ignore_eos = true;

  const auto plain = run(e, asked);
  const auto& answer = plain.ids.at(0);
  REQUIRE(plain.done.has_value());
  CHECK(plain.done->accepted_guesses + plain.done->rejected_guesses > 0);
  CHECK(plain.done->accepted_predicted + plain.done->rejected_predicted == 0);

  // Wrong from its fourth token on: a prediction whose first token is wrong is never tried.
  asked.prediction = {answer[0], answer[1], answer[2]};
  asked.prediction.resize(40, answer[3] == 9 ? 10 : 9);
  const auto wrong = run(e, asked);
  CHECK(wrong.ids.at(0) == answer);
  CHECK(wrong.done->accepted_predicted > 0);
  CHECK(wrong.done->rejected_predicted > 0);
  CHECK(wrong.done->accepted_guesses + wrong.done->rejected_guesses >
        wrong.done->accepted_predicted + wrong.done->rejected_predicted);

  asked.prediction = answer;
  const auto right = run(e, asked);
  CHECK(right.ids.at(0) == answer);
  CHECK(right.done->accepted_predicted > 30);
  CHECK(right.done->accepted_guesses >= right.done->accepted_predicted);
}
