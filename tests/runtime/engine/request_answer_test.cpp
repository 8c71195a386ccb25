#include "runtime/engine/request_answer.hpp"
#include "runtime/engine/time_limits.hpp"
#include "tests/test_data.hpp"

#include <doctest/doctest.h>

using namespace troupe;
using namespace std::chrono_literals;

namespace {

/// An answer without a text, and what it has told.
struct told_answer {
  std::vector<token_event> events;
  std::shared_ptr<request_ledger> ledger = std::make_shared<request_ledger>(request_ledger::time_point{});
  request_answer it;

  explicit told_answer(const request& what, std::shared_ptr<const tokenizer> words = nullptr)
    : it(std::make_shared<const request>(what), std::move(words), ledger,
         [this](token_event e) { events.push_back(std::move(e)); }) {}
};

request request_for(int n, int max_tokens) {
  request what;
  what.prompt = {1, 2, 3, 4};
  what.sampling.n = n;
  what.sampling.max_tokens = max_tokens;
  return what;
}

sampled_token a_token(token_id id, float logprob = -1, bool last = false) {
  sampled_token t;
  t.id = id;
  t.logprob = logprob;
  t.finish = last ? sampled_token::finish::length : sampled_token::finish::none;
  return t;
}

constexpr request_ledger::time_point after(std::chrono::milliseconds when) { return request_ledger::time_point(when); }

} // namespace

TEST_CASE("an answer goes on elsewhere with the transcripts of what has not ended") {
  told_answer a(request_for(2, 2));
  CHECK(a.it.unfinished().empty());
  CHECK(a.it.append(0, a_token(7), after(5ms)).empty());
  a.it.append(1, a_token(8), after(6ms));
  a.it.append(1, a_token(9, -1, true), after(7ms));
  const auto rest = a.it.unfinished();
  REQUIRE(rest.size() == 1);
  CHECK(rest[0].index == 0);
  CHECK(rest[0].emitted == std::vector<token_id>{7});
  CHECK(a.it.tokens() == 3);
  CHECK_FALSE(a.it.complete());
}

TEST_CASE("scores of a prompt that come again are told once") {
  auto what = request_for(1, 1);
  what.sampling.prompt_logprobs = 0;
  told_answer a(what);
  const std::vector<sampled_token> first = {a_token(2), a_token(3)}, again = {a_token(2), a_token(3), a_token(4)};
  CHECK(a.it.add_scores(1, first));
  CHECK_FALSE(a.it.add_scores(1, first));
  CHECK_FALSE(a.it.add_scores(4, first)); // what comes before it is not known
  CHECK(a.it.awaits_scores());
  CHECK(a.it.add_scores(1, again));
  CHECK_FALSE(a.it.awaits_scores());
  std::vector<token_id> told;
  for (const auto& e : a.events)
    for (const auto& t : e.prompt)
      told.push_back(t.id);
  CHECK(told == what.prompt);
}

TEST_CASE("the last scores end an answer that generates nothing") {
  auto what = request_for(1, 0);
  what.sampling.prompt_logprobs = 0;
  told_answer a(what);
  CHECK(a.it.add_scores(1, std::vector{a_token(2), a_token(3), a_token(4)}));
  CHECK(a.it.complete());
  REQUIRE(a.events.size() == 1);
  CHECK(a.events[0].finish == finish_reason::length);
  CHECK(a.events[0].prompt.size() == 4);

  what.prompt = {1};
  CHECK(told_answer(what).it.complete());
}

TEST_CASE("a candidate that cannot win any more ends, and the best one is told as the first") {
  auto what = request_for(1, 2);
  what.sampling.best_of = 2;
  told_answer a(what);
  a.it.append(1, a_token(5, -1), after(1ms));
  a.it.append(1, a_token(6, -1, true), after(2ms));
  CHECK(a.events.empty());
  const auto ended = a.it.append(0, a_token(7, -9), after(3ms));
  CHECK(std::vector(ended.begin(), ended.end()) == std::vector<std::uint32_t>{0});
  REQUIRE(a.it.complete());
  const auto done = a.it.close(after(0ms), after(4ms));
  REQUIRE(a.events.size() == 2);
  CHECK(a.events[0].token_ids == std::vector<token_id>{5});
  CHECK(a.events[0].index == 0);
  CHECK(done.choices[0].cumulative_logprob == -2);
  CHECK(done.completion_tokens == 2);
}

TEST_CASE("an answer's times are those of its first plan, its first token and its last one") {
  told_answer a(request_for(1, 3));
  a.it.started(after(10ms), 3);
  a.it.started(after(20ms), 0); // in another replica
  a.it.append(0, a_token(7), after(30ms));
  a.it.append(0, a_token(8), after(45ms));
  a.it.finish(finish_reason::cancelled);
  const auto done = a.it.close(after(2ms), after(50ms));
  CHECK(done.queue_ms == 8);
  CHECK(done.prefill_ms == 20);
  CHECK(done.decode_ms == 15);
  CHECK(done.total_ms == 48);
  CHECK(done.cached_tokens == 3);
  CHECK(done.choices[0].reason == finish_reason::cancelled);
}

TEST_CASE("what ends reasoning becomes part of the answer, up to its last token") {
  const auto words = tokenizer::load(test_data() + "/golden/llama-gqa");
  auto what = request_for(1, 3);
  reasoning_marks marks;
  marks.is_open = true;
  marks.end = "</think>";
  marks.closing = {11, 12, 13};
  what.reasoning = std::make_shared<const reasoning_marks>(marks);
  told_answer a(what, words);
  CHECK_FALSE(a.it.end_reasoning()); // it has no token
  a.it.append(0, a_token(words->encode("so", false).front()), after(1ms));
  CHECK(a.it.end_reasoning());
  CHECK(a.it.complete()); // after three tokens
  CHECK(a.it.tokens() == 3);
  CHECK_FALSE(a.it.end_reasoning());
}

TEST_CASE("of a group's answers, or where nothing is generated, no part can be told") {
  CHECK(told_answer(request_for(1, 3)).it.may_finish());
  CHECK_FALSE(told_answer(request_for(1, 0)).it.may_finish());
  auto embedding = request_for(1, 3);
  embedding.embed = pooling::mean;
  CHECK_FALSE(told_answer(embedding).it.may_finish());
}

TEST_CASE("a request's first token and its last one are due after its limits, or never") {
  auto what = request_for(1, 1);
  CHECK(time_limits(what, after(1s)).next(false) == time_limits::never);
  what.ttft_timeout = 2s;
  CHECK(time_limits(what, after(1s)).next(false) == after(3s));
  CHECK(time_limits(what, after(1s)).next(true) == time_limits::never);
  what.timeout = 1500ms;
  CHECK(time_limits(what, after(1s)).next(false) == after(2500ms));
  CHECK(out_of_time(what, true).message == "the request was not finished within 1500 ms");
  CHECK(out_of_time(what, false).message == "the request had no token within 2000 ms");
}
