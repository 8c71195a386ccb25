// The table "Ends of answers, and what bounds them" of runtime/sampling/REFERENCE.md. Ends of guides, and so of reasoning
// and forced tool calls, are in execution/guided_sampler_test.cpp.
#include "runtime/engine/transcript.hpp"
#include "runtime/sampling/groups/group_endings.hpp"
#include "runtime/sampling/sampler.hpp"
#include "tests/test_data.hpp"

#include <doctest/doctest.h>

using namespace troupe;

namespace {

using finish = enum sampled_token::finish;

auto words() {
  static const auto t = tokenizer::load(test_data() + "/golden/llama-gqa");
  return t;
}

/// What is liked best, always.
struct model {
  token_id likes;
  std::vector<token_id> eos = {};
};

struct end {
  std::size_t tokens = 0;
  finish_reason why = finish_reason::cancelled;
  std::string text, stop;

  bool operator==(const end&) const = default;
};

/// One token of text after the other: "a", always the second choice.
token_id letter() { return words()->encode("a", false).at(0); }

end answer(const model& m, sampling_params params) {
  params.temperature = 0;
  const auto shared = std::make_shared<const sampling_params>(params);
  generation what;
  what.prompt = words()->encode("once", false);
  what.sampling = params;
  sequence_sampler sampler(shared, m.eos, what.prompt, {}, 0);
  sampling_scratch scratch;
  transcript t(0, words(), what);
  std::vector<float> logits(words()->vocab_size());
  logits[static_cast<std::size_t>(letter())] = 1;
  logits[static_cast<std::size_t>(m.likes)] = 2;
  end result;
  while (!t.finished())
    if (const auto e = t.push(sampler.sample(logits, scratch))) {
      result.text += e->text;
      result.stop = e->stop;
    }
  const auto summary = t.summary();
  return {summary.tokens, summary.reason, result.text, result.stop};
}

sampling_params bounds(int min_tokens, int max_tokens, bool ignore_eos = false) {
  sampling_params p;
  p.min_tokens = min_tokens;
  p.max_tokens = max_tokens;
  p.ignore_eos = ignore_eos;
  return p;
}

} // namespace

TEST_CASE("EOS ends an answer behind min_tokens, unless it is ignored; it is not part of the text") {
  const model m{4, {4}};
  CHECK(answer(m, bounds(0, 8)) == end{1, finish_reason::stop, "", ""});
  CHECK(answer(m, bounds(3, 8)) == end{4, finish_reason::stop, "aaa", ""});
  CHECK(answer(m, bounds(8, 8)) == end{8, finish_reason::length, "aaaaaaaa", ""});
  CHECK(answer(m, bounds(0, 8, true)).tokens == 8);
  CHECK(answer(m, bounds(0, 8, true)).why == finish_reason::length);
  CHECK(answer(m, bounds(3, 8, true)).tokens == 8);
}

TEST_CASE("a stop id ends an answer behind min_tokens, whether EOS is ignored or not; it is not part of the text") {
  for (const bool ignored : {false, true}) {
    const auto with_stop = [&](int least) {
      auto p = bounds(least, 8, ignored);
      p.stop_token_ids = {7};
      return p;
    };
    const model m{7, {4}};
    CHECK(answer(m, with_stop(0)) == end{1, finish_reason::stop, "", ""});
    CHECK(answer(m, with_stop(3)) == end{4, finish_reason::stop, "aaa", ""});
    CHECK(answer(m, with_stop(8)) == end{8, finish_reason::length, "aaaaaaaa", ""});
  }
}

TEST_CASE("a stop text ends an answer whose last token is behind min_tokens; it is cut off") {
  for (const bool ignored : {false, true}) {
    const auto with_stop = [&](int least, std::string text) {
      auto p = bounds(least, 8, ignored);
      p.stop = {std::move(text)};
      return p;
    };
    const model m{letter(), {4}};
    CHECK(answer(m, with_stop(0, "a")) == end{1, finish_reason::stop, "", "a"});
    CHECK(answer(m, with_stop(3, "a")) == end{4, finish_reason::stop, "aaa", "a"});
    CHECK(answer(m, with_stop(3, "aaa")) == end{4, finish_reason::stop, "a", "aaa"}); // begins among the first
    CHECK(answer(m, with_stop(7, "a")) == end{8, finish_reason::stop, "aaaaaaa", "a"});
    CHECK(answer(m, with_stop(8, "a")) == end{8, finish_reason::length, "aaaaaaaa", ""});
    CHECK(answer(m, with_stop(0, "b")).why == finish_reason::length);
  }
}

TEST_CASE("sequences of a group end as those that are sampled alone") {
  for (const bool ignored : {false, true}) {
    auto p = bounds(3, 8, ignored);
    p.stop_token_ids = {7};
    const group_endings endings(p, {4});
    CHECK(std::vector(endings.ids().begin(), endings.ids().end()) == std::vector<token_id>{4, 7});
    CHECK(endings.forbidden(2));
    CHECK_FALSE(endings.forbidden(3));
    CHECK(endings.of(4, 4) == (ignored ? finish::none : finish::eos));
    CHECK(endings.of(7, 4) == finish::stop_token);
    CHECK(endings.of(5, 7) == finish::none);
    CHECK(endings.of(5, 8) == finish::length);
  }
}
