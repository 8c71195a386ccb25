// Rows of prompts that come from embeddings: the same bits as those of the tokens that they are the embeddings of.
#include "runtime/import/model_source.hpp"
#include "runtime/techniques/prompt_embeds/technique.hpp"
#include "tests/api/embed/small_engine.hpp"

#include <limits>

using namespace troupe;
using namespace troupe::testing;

namespace {

/// The embeddings that llama-gqa has of the tokens.
std::shared_ptr<const prompt_embeddings> rows_of(const std::vector<token_id>& ids) {
  const auto source = open_model(golden("llama-gqa"));
  const auto width = static_cast<std::size_t>(source.config.hidden);
  const auto matrix = source.tensors->read("model.embed_tokens.weight");
  const auto* info = source.tensors->find("model.embed_tokens.weight");
  REQUIRE(info);
  auto result = std::make_shared<prompt_embeddings>();
  result->rows = static_cast<std::int32_t>(ids.size());
  result->width = source.config.hidden;
  REQUIRE(info->bytes == sizeof(float) * info->shape[0] * width); // f32
  for (const auto id : ids) {
    const auto* row = static_cast<const float*>(matrix.get()) + static_cast<std::size_t>(id) * width;
    result->values.insert(result->values.end(), row, row + width);
  }
  return result;
}

generation with_rows_of(const std::vector<token_id>& ids, std::vector<token_id> behind, int max_tokens) {
  auto g = ask(std::vector<token_id>(ids.size(), 0), max_tokens);
  g.prompt.insert(g.prompt.end(), behind.begin(), behind.end());
  g.sampling.techniques.set(given_rows(rows_of(ids)));
  return g;
}

std::vector<token_id> some_tokens(std::size_t count, unsigned seed) {
  std::vector<token_id> result;
  for (std::size_t i = 0; i < count; ++i)
    result.push_back(static_cast<token_id>(5 + (seed * 131 + i * 37) % 600));
  return result;
}

std::string complaint(const engine& e, const generation& g) {
  const auto heard = run(e, g);
  return heard.failed ? heard.failed->message : "";
}

} // namespace

TEST_CASE("embeddings of tokens give the answer to these tokens, in any chunks and crowds, cached or not") {
  for (const int step_tokens : {512, 5}) {
    auto options = small();
    options.step_tokens = step_tokens;
    const auto e = engine::start(options);
    e.wait_until_ready();
    const auto head = some_tokens(40, 1), tail = some_tokens(9, 2);
    auto plain = ask(head, 20);
    plain.prompt.insert(plain.prompt.end(), tail.begin(), tail.end());
    const auto expected = run(e, plain);
    const auto rows = with_rows_of(head, tail, 20);
    CHECK(run(e, rows).ids == expected.ids);
    CHECK(run(e, with_rows_of(plain.prompt, {}, 20)).ids == expected.ids); // nothing but rows
    const auto again = run(e, rows);
    CHECK(again.ids == expected.ids);
    CHECK(again.done->cached_tokens >= 32);
    const auto other = run(e, with_rows_of(some_tokens(40, 3), tail, 20)); // the same ids, other rows
    CHECK(other.done->cached_tokens == 0);
    CHECK(other.ids != expected.ids);
    std::vector<listener> crowd(6);
    for (std::size_t i = 0; i < crowd.size(); ++i)
      e.submit(i % 2 ? plain : rows, crowd[i].sink());
    for (auto& one : crowd) {
      REQUIRE(one.wait());
      CHECK(one.result().ids == expected.ids);
    }
    CHECK(idle(e));
  }
}

TEST_CASE("rows that do not fit a model or a request are refused by name") {
  const auto e = engine::start(small());
  e.wait_until_ready();
  auto g = with_rows_of(some_tokens(4, 1), {7}, 3);
  CHECK(complaint(e, g) == "");
  auto narrow = std::make_shared<prompt_embeddings>(*rows_of(g.sampling.techniques.find(prompt_embeds_technique)));
  narrow->width -= 1;
  auto wrong = g;
  wrong.sampling.techniques.set(given_rows(narrow));
  CHECK(complaint(e, wrong).starts_with("`prompt_embeds` must have rows of"));
  auto many = std::make_shared<prompt_embeddings>(*rows_of(g.sampling.techniques.find(prompt_embeds_technique)));
  many->rows = 9;
  wrong.sampling.techniques.set(given_rows(many));
  CHECK(complaint(e, wrong) == "`prompt_embeds` must have as many rows as they replace");
  auto endless = std::make_shared<prompt_embeddings>(*rows_of(g.sampling.techniques.find(prompt_embeds_technique)));
  endless->values[3] = std::numeric_limits<float>::quiet_NaN();
  wrong.sampling.techniques.set(given_rows(endless));
  CHECK(complaint(e, wrong) == "`prompt_embeds` must hold finite numbers");
  g.sampling.prompt_logprobs = 0;
  CHECK(complaint(e, g) == "`prompt_embeds` cannot be scored: its rows are no tokens");
}
