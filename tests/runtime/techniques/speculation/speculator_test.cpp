#include "runtime/sampling/philox.hpp"
#include "runtime/sampling/sampling_params.hpp"
#include "runtime/scheduling/planning/guess_trees.hpp"
#include "runtime/techniques/speculation/speculator.hpp"
#include "runtime/techniques/speculation/technique.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <random>

using namespace troupe;

namespace {

using ids = std::vector<token_id>;

/// A target whose text has passages that repeat the prompt and passages that do not.
token_id target_token(const ids& text, std::size_t prompt) {
  const auto i = text.size() - prompt;
  if (i / 40 % 2 == 0)
    return text[i % prompt];
  std::uint64_t h = 1469598103934665603u;
  for (std::size_t k = text.size() - 3; k < text.size(); ++k)
    h = (h ^ static_cast<std::uint64_t>(text[k])) * 1099511628211u;
  return static_cast<token_id>(h >> 40) % 500;
}

struct oracle : drafter {
  std::size_t prompt, wrong_every;
  ids text = {};
  oracle(std::size_t p, std::size_t wrong) : prompt(p), wrong_every(wrong) {}
  void append(std::span<const token_id> tokens) override { text.insert(text.end(), tokens.begin(), tokens.end()); }
  void propose(std::size_t most, std::vector<token_id>& guesses) override {
    auto next = text;
    for (std::size_t i = 0; i < most; ++i) {
      next.push_back(target_token(next, prompt));
      guesses.push_back(next.size() % wrong_every == 0 ? next.back() + 1 : next.back());
    }
  }
};

/// Runs sequences as a scheduler does, one step at a time, on a machine whose steps take 20 ms and 1 ms per row.
struct speculating_machine {
  struct running {
    sequence_id id;
    std::shared_ptr<const sampling_params> params;
    ids prompt, text;
    bool proposed = false;
  };

  explicit speculating_machine(speculation_settings settings)
    : guesser(std::move(settings), [](int rows) {
        return step_estimate{20.0 + rows, true};
      }) {}

  void add(sequence_id id, ids prompt, int max_tokens, speculation kind = speculation::automatic,
           const ids& prediction = {}) {
    sampling_params params;
    params.max_tokens = max_tokens;
    params.techniques.set(speculated_by(kind));
    running r{id, std::make_shared<const sampling_params>(params), prompt, prompt};
    guesser.begin(id, r.params, r.text, r.prompt.size(), prediction);
    sequences.push_back(std::move(r));
  }

  /// As after a preemption.
  void readmit(std::size_t i) {
    auto& r = sequences[i];
    guesser.end(r.id);
    guesser.begin(r.id, r.params, r.text, r.prompt.size(), {});
  }

  static std::size_t left(const running& r) {
    return as_size(r.params->max_tokens) - (r.text.size() - r.prompt.size());
  }

  /// A draft model that is right but for every `draft_wrong_every`-th position.
  void draw(const guess_request& request) {
    ++requests;
    guesser.deliver(reply_to(request));
  }

  guess_reply reply_to(const guess_request& request) {
    const auto ms = requests == slow_request ? 400.0 : 2.0;
    guess_reply reply{.number = request.number, .answers = {}, .drawing_ms = ms, .passes = 1};
    if (catch_up_ms > 0) {
      reply.catch_up_ms = catch_up_ms;
      reply.catch_up_rows = 100;
    }
    for (const auto id : request.ended)
      drafted.erase(id);
    for (const auto& d : request.demands) {
      auto& text = drafted[d.sequence];
      if (d.known == 0)
        text.clear();
      REQUIRE(text.size() == d.known);
      text.insert(text.end(), d.tokens.begin(), d.tokens.end());
      const auto of = std::ranges::find(sequences, d.sequence, &running::id);
      REQUIRE(of != sequences.end());
      CHECK(text == of->text); // it has been told everything
      guess_answer answer{d.sequence, {}, false};
      auto next = text;
      next.insert(next.end(), d.assumed.begin(), d.assumed.end());
      std::int32_t before = -1;
      for (int g = 0; g < d.guesses; ++g) {
        next.push_back(target_token(next, d.prompt_tokens));
        const auto hash = random_bits(next.size(), 0, 0) >> 32;
        const bool wrong = hash % draft_wrong_every == 0, unsure = wrong || hash % draft_wrong_every == 1;
        const auto add = [&](token_id token, float chance) {
          answer.guesses.push_back(token);
          if (d.others > 0) {
            answer.parents.push_back(before);
            answer.chances.push_back(chance);
          }
        };
        const auto now = static_cast<std::int32_t>(answer.guesses.size());
        add(wrong ? 0 : next.back(), unsure ? 0.4f : 0.95f);
        if (d.others > 0) {
          add(1, 0.02f);
          add(wrong ? next.back() : 2, unsure ? 0.3f : 0.01f);
          others += 2;
        }
        before = now;
      }
      reply.answers.push_back(std::move(answer));
    }
    return reply;
  }

  /// The draft model goes on meanwhile, and replies before the step has ended, or later.
  void draw_ahead() {
    const auto request = guesser.collect_ahead();
    if (!request)
      return;
    CHECK_FALSE(guesser.collect_ahead().has_value());
    CHECK_FALSE(request->is_enough());
    ++ahead_requests;
    late = {request, reply_to(*request)};
    if (random() % 2 == 0)
      deliver_late();
  }

  void deliver_late() {
    if (late.first)
      guesser.deliver(late.second);
    late.first.reset();
  }

  void step() {
    std::vector<decoding_sequence> decoding;
    for (const auto& r : sequences)
      decoding.push_back({r.id, static_cast<int>(std::min<std::size_t>(left(r) - 1, 16))});
    const plain_step plain{static_cast<int>(sequences.size()), static_cast<int>(sequences.size())};
    waited += guesser.waits(plain, decoding);
    if (const auto request = guesser.collect(plain, decoding, 100)) {
      deliver_late(); // in order
      CHECK(guesser.waits(plain, decoding));
      CHECK_FALSE(guesser.collect(plain, decoding, 100).has_value());
      draw(*request);
    }
    auto proposals = guesser.propose(plain, decoding, room);
    draw_ahead();
    std::size_t rows = sequences.size();
    for (std::size_t i = 0; i < sequences.size(); ++i) {
      auto& r = sequences[i];
      auto& guesses = proposals[i].tokens;
      REQUIRE(depth_of(proposals[i]) <= decoding[i].most);
      trees += !proposals[i].parents.empty();
      if (!guesses.empty() && random() % 8 == 0)
        fit(proposals[i], static_cast<int>(random() % guesses.size()), decoding[i].most, true); // too few blocks
      const auto& parents = proposals[i].parents;
      rows += guesses.size();
      const bool had_guesses = !guesses.empty();
      (proposals[i].predicted ? predicted : own) += guesses.size();
      std::vector<ids> seen{r.text}; // up to the last known token, and to each guess
      ids choices{target_token(r.text, r.prompt.size())};
      std::size_t last = 0; // right one
      ids line{choices[0]};
      for (std::size_t g = 0; g < guesses.size(); ++g) {
        const auto before = parents.empty() ? g : as_size(parents[g] + 1);
        seen.push_back(seen[before]);
        seen.back().push_back(guesses[g]);
        choices.push_back(target_token(seen.back(), r.prompt.size()));
        if (before == last && guesses[g] == choices[before]) {
          last = g + 1;
          line.push_back(choices.back());
        }
      }
      if (had_guesses)
        CHECK(guesser.judged(r.id, choices) == line.size() - 1);
      else
        guesser.append(r.id, choices);
      beside += had_guesses && last > line.size() - 1;
      r.text.insert(r.text.end(), line.begin(), line.end());
    }
    CHECK(rows <= sequences.size() + as_size(room));
    for (const auto& p : proposals)
      ahead += p.ahead && !p.tokens.empty();
    const auto ms = 20.0 + static_cast<double>(rows);
    const auto plain_ms = 20.0 + plain.rows;
    guesser.finished({plain, ms, ms, plain_ms, ms - plain_ms, true});
    ++steps;
    if (guesser.asked()) {
      REQUIRE(late.first);
      deliver_late();
      CHECK_FALSE(guesser.asked());
    } else if (late.first) {
      CHECK(late.first->is_enough()); // nobody waits for what is guessed behind a wrong guess
    }
    std::erase_if(sequences, [&](const running& r) {
      if (left(r) > 0)
        return false;
      guesser.end(r.id);
      done.push_back(r);
      return true;
    });
  }

  void run(int preempt_every = 0) {
    while (!sequences.empty()) {
      step();
      if (preempt_every > 0 && steps % preempt_every == 0 && !sequences.empty())
        readmit(random() % sequences.size());
    }
    for (const auto& r : done) {
      auto text = r.prompt;
      while (text.size() < r.text.size())
        text.push_back(target_token(text, r.prompt.size()));
      CHECK(text == r.text);
    }
  }

  speculator guesser;
  std::vector<running> sequences, done;
  std::map<sequence_id, ids> drafted;
  std::minstd_rand random{5};
  std::size_t draft_wrong_every = 1'000'000;
  int room = 100, steps = 0, waited = 0, requests = 0;
  int slow_request = 0;                                      // of the draft model: other programs had the processor
  double catch_up_ms = 0;                                    // that it takes to read a prompt of 100 tokens
  std::size_t predicted = 0, own = 0;                        // guesses
  std::size_t others = 0;                                    // that the draft model named
  int ahead_requests = 0, ahead = 0;                         // asked beside a step; proposals made by them
  std::pair<std::optional<guess_request>, guess_reply> late; // unanswered
  int trees = 0, beside = 0; // proposals that branch, and those of which not the first line was right
};

ids prompt_of(int tokens, token_id from = 0) {
  ids p;
  for (token_id t = 0; t < tokens; ++t)
    p.push_back(from + t * 7 % 501);
  return p;
}

} // namespace

TEST_CASE("speculator: texts are the same whatever guesses, and repetitions are generated faster") {
  for (const auto kind :
       {speculation::automatic, speculation::ngram, speculation::lookahead, speculation::jacobi, speculation::off}) {
    speculating_machine m({});
    m.add({1, 0}, prompt_of(60), 400, kind);
    m.run();
    CAPTURE(static_cast<int>(kind));
    if (kind == speculation::off) {
      CHECK(m.steps == 400);
      CHECK(m.waited == 0);
    } else if (kind != speculation::lookahead && kind != speculation::jacobi) {
      CHECK(m.steps < 300);
    }
    const auto& c = m.guesser.counters();
    CHECK(m.steps + static_cast<int>(c.accepted) == 400);
    CHECK(c.accepted <= c.proposed);
    std::uint64_t sum = 0;
    for (const auto at : c.accepted_at)
      sum += at;
    CHECK(sum == c.accepted);
  }
}

TEST_CASE("speculator: a draft model that is right guesses ahead, and is hardly ever waited for") {
  for (const int forced : {0, 4}) {
    CAPTURE(forced);
    speculating_machine m({.draft_model = true, .forced = forced, .ahead = true});
    m.add({1, 0}, prompt_of(60), 400, speculation::draft);
    m.run();
    CHECK(m.steps < 250);
    CHECK(m.ahead > 3 * m.requests);
    CHECK(m.requests > 0);
  }
}

TEST_CASE("speculator: texts are the same with guesses ahead, right and wrong, early and late, cut and preempted") {
  for (const int forced : {0, 3})
    for (const int preempt_every : {0, 5}) {
      CAPTURE(forced);
      CAPTURE(preempt_every);
      speculating_machine m({.draft_model = true, .forced = forced, .ahead = true});
      m.draft_wrong_every = 7;
      for (std::uint64_t i = 0; i < 6; ++i)
        m.add({i, 0}, prompt_of(20 + static_cast<int>(i) * 9, static_cast<token_id>(i)), 50 + static_cast<int>(i) * 40,
              i == 3 ? speculation::off : speculation::draft);
      m.room = 20;
      m.run(preempt_every);
      CHECK(m.requests > 10);
      CHECK(m.ahead_requests > 10);
      CHECK(m.ahead > 10);
    }
}

TEST_CASE("speculator: random workloads with a draft model, preemptions and cut proposals") {
  for (const int preempt_every : {0, 5}) {
    speculating_machine m({.draft_model = true});
    m.draft_wrong_every = 7;
    for (std::uint64_t i = 0; i < 6; ++i)
      m.add({i, 0}, prompt_of(20 + static_cast<int>(i) * 9, static_cast<token_id>(i)), 50 + static_cast<int>(i) * 40,
            i == 3     ? speculation::off
              : i == 4 ? speculation::draft
                       : speculation::automatic);
    m.room = 20;
    m.run(preempt_every);
    CHECK(m.requests > 20);
    CHECK(m.guesser.counters().accepted > 100);
    CHECK(m.steps < 220); // the longest has 250 tokens
  }
}

TEST_CASE("speculator: where a draft model is unsure, what it takes for second best is guessed beside it") {
  const auto steps = [](bool branches) {
    speculating_machine m({.draft_model = true, .branches = branches});
    m.draft_wrong_every = 4;
    m.add({1, 0}, prompt_of(20), 600, speculation::draft);
    m.run();
    CHECK((m.others > 0) == branches);
    CHECK((m.trees > 20) == branches);
    CHECK((m.beside > 20) == branches);
    return m.steps;
  };
  const auto line = steps(false), tree = steps(true);
  CAPTURE(line);
  CAPTURE(tree);
  CHECK(tree < 0.9 * line);
}

TEST_CASE("speculator: one slow pass of the draft model does not make it too dear for good") {
  for (const int slow : {0, 1, 12}) {
    CAPTURE(slow);
    speculating_machine m({.draft_model = true});
    m.slow_request = slow;
    m.add({1, 0}, prompt_of(20), 600, speculation::draft);
    m.run();
    CHECK(m.requests > 20);
    CHECK(m.steps < 500);
  }
}

TEST_CASE("speculator: prompts that the draft model was slow to read do not keep it from reading others for good") {
  speculating_machine m({.draft_model = true});
  for (int slow = 0; slow < 8; ++slow) {
    m.add({1 + as_size(slow), 0}, prompt_of(100), 2, speculation::draft);
    m.catch_up_ms = 5000; // of 100 rows
    m.run();
  }
  m.catch_up_ms = 0;
  const auto before = m.requests;
  for (int later = 0; m.requests == before; ++later) {
    REQUIRE(later < 100);
    m.add({100 + as_size(later), 0}, prompt_of(100), 300, speculation::draft);
    m.run();
    m.done.clear();
  }
}

TEST_CASE("speculator: a prediction that comes true") {
  speculating_machine m({});
  ids text = prompt_of(10, 3);
  for (int i = 0; i < 200; ++i)
    text.push_back(target_token(text, 10));
  m.add({1, 0}, prompt_of(10, 3), 200, speculation::automatic, ids(text.begin() + 10, text.end()));
  m.run();
  CHECK(m.steps < 40);
  CHECK(m.predicted > 100);
}

TEST_CASE("speculator: guesses of its own are told apart from those of a prediction that does not come true") {
  speculating_machine m({});
  m.add({1, 0}, prompt_of(30), 200, speculation::automatic, ids(200, 999));
  m.run();
  CHECK(m.predicted <= 16); // its beginning
  CHECK(m.own > 50);
}

TEST_CASE("speculator: a drafter of the engine's choice is the only source") {
  int made = 0;
  speculating_machine m({.custom = [&](sequence_id id, std::span<const token_id> prompt) {
    CHECK(id == sequence_id{4, 1});
    ++made;
    return std::make_unique<oracle>(prompt.size(), 10);
  }});
  m.add({4, 1}, prompt_of(30), 300);
  m.run();
  CHECK(made == 1);
  CHECK(m.steps < 100);
}

TEST_CASE("speculator: what is off stays off") {
  speculating_machine off({.mode = speculation::off});
  off.add({1, 0}, prompt_of(60), 100);
  off.run();
  CHECK(off.steps == 100);
  speculating_machine none({.most_guesses = 0});
  none.add({1, 0}, prompt_of(60), 100, speculation::ngram);
  none.run();
  CHECK(none.steps == 100);
}

TEST_CASE("speculator: unknown sequences and late replies are ignored") {
  speculator s({.draft_model = true}, [](int rows) { return step_estimate{20.0 + rows, true}; });
  s.append({9, 9}, ids{1});
  CHECK(s.judged({9, 9}, ids{1, 2}) == 0);
  s.end({9, 9});
  s.deliver({.number = 3, .answers = {{{9, 9}, {1, 2}}}});
  s.finished({{1, 1}, 20, 20, 20, 0, true});
  const std::vector<decoding_sequence> unknown{{{9, 9}, 4}};
  CHECK_FALSE(s.waits({1, 1}, unknown));
  CHECK(s.propose({1, 1}, unknown, 10)[0].tokens.empty());

  // A sequence that ends while the draft model works for it.
  sampling_params params;
  params.max_tokens = 100;
  s.begin({1, 0}, std::make_shared<const sampling_params>(params), ids{1, 2, 3}, 3, {});
  const std::vector<decoding_sequence> decoding{{{1, 0}, 8}};
  const auto request = s.collect({1, 1}, decoding, 10);
  REQUIRE(request.has_value());
  CHECK(request->demands[0].tokens == ids{1, 2, 3});
  s.end({1, 0});
  s.deliver({.number = request->number, .answers = {{{1, 0}, {4, 5}}}});
  s.begin({2, 0}, std::make_shared<const sampling_params>(params), ids{1, 2, 3}, 3, {});
  const auto next = s.collect({1, 1}, std::vector<decoding_sequence>{{{2, 0}, 8}}, 10);
  REQUIRE(next.has_value());
  CHECK(next->ended == std::vector<sequence_id>{{1, 0}});
}

TEST_CASE("speculator: a fixed number of guesses is made whether it pays or not, and changes no text") {
  for (const auto kind : {speculation::automatic, speculation::lookahead, speculation::jacobi}) {
    speculating_machine m({.forced = 3});
    m.add({1, 0}, prompt_of(60), 200, kind);
    m.run();
    CAPTURE(static_cast<int>(kind));
    const auto& c = m.guesser.counters();
    CHECK(c.drafts + 8 > static_cast<std::uint64_t>(m.steps)); // but at the ends
    CHECK(c.proposed <= 3 * c.drafts);
    CHECK(c.proposed > 2 * c.drafts);
  }
}

TEST_CASE("speculator: hidden states go along with tokens, but for those of wrong guesses and of long ago") {
  speculator s({.mode = speculation::mtp, .mtp = true, .forced = 2}, [](int rows) {
    return step_estimate{20.0 + rows, true};
  });
  sampling_params params;
  params.max_tokens = 4000;
  const sequence_id id{1, 0};
  s.begin(id, std::make_shared<const sampling_params>(params), ids{1, 2, 3}, 3, {});
  const auto rows = [](int first, int count) {
    const auto values = std::make_shared<const std::vector<float>>(as_size(count));
    return state_rows{first, count, {values, values->data()}};
  };
  const std::vector<decoding_sequence> decoding{{id, 8}};
  const auto ask = [&] {
    auto request = s.collect({1, 1}, decoding, 10);
    REQUIRE(request.has_value());
    REQUIRE(request->demands.size() == 1);
    s.deliver({.number = request->number, .answers = {{id, {5, 6}}}});
    return request->demands[0].states;
  };
  CHECK(s.wants_states(id));
  CHECK_FALSE(s.wants_states({2, 0}));
  s.append(id, ids{4});
  s.take_states(id, rows(0, 3), 3);
  auto told = ask();
  REQUIRE(told.size() == 1);
  CHECK(told[0].rows == 3);
  CHECK(s.propose({1, 1}, decoding, 10)[0].tokens == ids{5, 6});
  CHECK(s.judged(id, ids{5, 9, 7}) == 1); // the rows of 4, 5 and 6, of which the last is of another text
  s.take_states(id, rows(3, 3), 4);
  told = ask();
  REQUIRE(told.size() == 1);
  CHECK(told[0].position == 3);
  CHECK(told[0].rows == 2);
  for (int i = 0; i < 2000; ++i) {
    s.append(id, ids{9});
    s.take_states(id, rows(5 + i, 1), 6 + i);
  }
  told = ask();
  CHECK(told.size() == as_size(most_state_rows) + 1);
  CHECK(told.back().position == 2004);

  // Sequences that do not speculate have none.
  params.techniques.set(speculated_by(speculation::off));
  s.begin({3, 0}, std::make_shared<const sampling_params>(params), ids{1, 2, 3}, 3, {});
  CHECK_FALSE(s.wants_states({3, 0}));
  s.take_states({3, 0}, rows(0, 3), 3);
}

TEST_CASE("speculator: whether guesses would have been right is seen by the tokens that come, at no cost") {
  speculator s({}, [](int rows) { return step_estimate{20.0 * rows, true}; }); // rows cost too much
  sampling_params params;
  params.max_tokens = 4000;
  const sequence_id id{1, 0};
  ids text;
  for (token_id t = 0; t < 60; ++t)
    text.push_back(t % 5);
  s.begin(id, std::make_shared<const sampling_params>(params), text, text.size(), {});
  const std::vector<decoding_sequence> decoding{{id, 8}};
  const auto rate = [&](std::size_t source) { return s.policy().acceptance(id, source, source == 0 ? 7 : 2); };
  const auto go_on = [&](int tokens, bool as_before) {
    for (int i = 0; i < tokens; ++i) {
      s.waits({1, 1}, decoding);
      text.push_back(as_before ? text[text.size() - 5] : static_cast<token_id>(text[text.size() - 5] + 100));
      s.append(id, std::span(text).last(1));
      s.finished({{1, 1}, 20, 20, 20, 0, true});
    }
  };
  constexpr std::size_t ngram = 0, lookahead = 1;
  const auto expected = std::array{rate(ngram), rate(lookahead)};
  go_on(40, true);
  CHECK(rate(ngram) > 0.95);
  CHECK(rate(lookahead) > 0.9);
  CHECK(rate(ngram) > expected[ngram]);
  CHECK(rate(lookahead) > expected[lookahead]);
  const auto sure = std::array{rate(ngram), rate(lookahead)};
  go_on(1, false);
  CHECK(rate(ngram) < sure[ngram]);
  CHECK(rate(lookahead) < sure[lookahead]);
  CHECK(s.counters().proposed <= 2);
}

TEST_CASE("speculator: of guesses that branch, the hidden states of the right ones go along") {
  speculator s({.mode = speculation::mtp, .mtp = true, .forced = 2}, [](int rows) {
    return step_estimate{20.0 + rows, true};
  });
  sampling_params params;
  params.max_tokens = 4000;
  const sequence_id id{1, 0};
  s.begin(id, std::make_shared<const sampling_params>(params), ids{1, 2, 3}, 3, {});
  const auto rows = [](int first, std::vector<float> all) {
    const auto values = std::make_shared<const std::vector<float>>(std::move(all));
    return state_rows{first, static_cast<std::int32_t>(values->size()), {values, values->data()}, 1};
  };
  const std::vector<decoding_sequence> decoding{{id, 8}};
  s.append(id, ids{4});
  s.take_states(id, rows(0, {0, 1, 2}), 3);
  const auto request = s.collect({1, 1}, decoding, 10);
  REQUIRE(request.has_value());
  CHECK(request->demands[0].others > 0);
  s.deliver({.number = request->number, .answers = {{id, {5, 6}, false, {-1, -1}, {0.5f, 0.4f}}}});
  const auto proposed = s.propose({1, 1}, decoding, 10)[0];
  CHECK(proposed.tokens == ids{5, 6});
  CHECK(proposed.parents == std::vector<std::int32_t>{-1, -1});
  CHECK(s.judged(id, ids{6, 9, 7}) == 1);   // the second one
  s.take_states(id, rows(3, {3, 4, 5}), 4); // of the token 4, of 5 and of 6
  const auto next = s.collect({1, 1}, decoding, 10);
  REQUIRE(next.has_value());
  const auto& told = next->demands[0];
  CHECK(told.tokens == ids{6, 7});
  REQUIRE(told.states.size() == 1);
  CHECK(told.states[0].position == 3);
  REQUIRE(told.states[0].rows == 2);
  CHECK(told.states[0].values.get()[0] == 3);
  CHECK(told.states[0].values.get()[1] == 5);
}
