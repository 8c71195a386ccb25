#include "tests/runtime/model/model_test_data.hpp"

#include "kernels/cpu/cpu_backend.hpp"
#include "runtime/import/model_source.hpp"
#include "runtime/model/measuring/perplexity.hpp"
#include "runtime/support/json/json.hpp"

#include <cmath>

using namespace troupe;
using namespace troupe::test;
using kernels::dtype;

namespace {

struct measured {
  model_source source = open_model((data() / "golden/qwen2").string());
  std::unique_ptr<kernels::backend> backend = kernels::make_cpu_backend({.threads = 1});
  std::shared_ptr<const model_weights> weights = load_weights(*source.tensors, source.config, *backend, dtype::f32);

  perplexity_result over(std::span<const token_id> tokens, int context, int stride, int rows) {
    decoder graph(weights, *backend, rows, context);
    const auto blocks = static_cast<std::size_t>((context + kernels::block_tokens - 1) / kernels::block_tokens);
    const auto cache = backend->make_kv_cache(kv_shape_of(source.config, dtype::f32, blocks));
    return measure_perplexity(graph, *backend, *cache, tokens, context, stride);
  }
};

} // namespace

TEST_CASE("Perplexity over a greedy continuation is that of the reference's log-probabilities") {
  measured model;
  const auto document = json::document::load(data() / "golden/qwen2/expected.json");
  json::value longest = document.root();
  std::size_t most = 0;
  const auto cases = *json::find(document.root(), "cases");
  for (json::value c : cases.get_array())
    if (const auto size = c["ids"].get_array().size(); size < 64 && size > most) {
      most = size;
      longest = c;
    }
  std::vector<token_id> ids;
  for (json::value id : longest["ids"].get_array())
    ids.push_back(static_cast<token_id>(id.get_int64().value()));
  const auto prompt = ids.size();
  double sum = 0;
  for (json::value id : longest["greedy"]["ids"].get_array())
    ids.push_back(static_cast<token_id>(id.get_int64().value()));
  for (json::value logprob : longest["greedy"]["logprobs"].get_array())
    sum -= logprob.get_double().value();
  const auto all = model.over(ids, 128, 64, 128), start = model.over({ids.data(), prompt}, 128, 64, 128);
  CHECK(all.tokens == ids.size() - 1);
  const double continuation = all.loss * double(all.tokens) - start.loss * double(start.tokens);
  CHECK(continuation == doctest::Approx(sum).epsilon(1e-4));
  CHECK(all.perplexity() == doctest::Approx(std::exp(all.loss)));
  CHECK(all.deviation > 0);
}

TEST_CASE("Windows count every token but the first once, for any size of steps") {
  measured model;
  const auto document = json::document::load(data() / "golden/qwen2/expected.json");
  std::string text;
  const auto cases = *json::find(document.root(), "cases");
  for (json::value c : cases.get_array())
    if (const auto words = std::string(c["text"].get_string().value()); words.size() > text.size())
      text = words;
  const auto tokens = model.source.load_tokenizer()->encode(text, true);
  REQUIRE(tokens.size() > 300);
  const auto at_once = model.over(tokens, 256, 128, 256);
  CHECK(at_once.tokens == tokens.size() - 1);
  for (const int rows : {1, 7, 100})
    CHECK(model.over(tokens, 256, 128, rows).loss == at_once.loss);
  for (const int stride : {1, 3, 7}) {
    const auto narrow = model.over(tokens, 8, stride, 8);
    CHECK(narrow.tokens == tokens.size() - 1);
    CHECK(narrow.loss != at_once.loss);
  }
  const token_id one[] = {1};
  CHECK(failure_of([&] { model.over(one, 8, 4, 8); }) ==
        "a text of 1 tokens is too short: the second is the first to be predicted");
}
