#include "runtime/techniques/speculation/draft_model.hpp"

#include "tests/runtime/techniques/speculation/draft_model_cases.hpp"

using namespace troupe;

TEST_CASE("draft model: one that equals the target guesses its tokens, greedy and sampled") {
  draft_cases::guesses_of_an_equal_model(draft_cases::on_cpu());
}

TEST_CASE("draft model: prompts are computed in parts that delay no other sequence") {
  draft_cases::chunks(draft_cases::on_cpu());
}

TEST_CASE("draft model: who was not served for longest loses its blocks, and gets them back") {
  draft_cases::few_blocks(draft_cases::on_cpu());
}

TEST_CASE("draft model: guesses end with the context, with the answer and with the vocabulary") {
  draft_cases::limits(draft_cases::on_cpu());
}
