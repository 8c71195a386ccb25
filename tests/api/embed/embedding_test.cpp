// Embeddings from the engine: transformers' values, and what may not be asked for beside them.
#include "api/embed/engine.hpp"
#include "runtime/support/json/json.hpp"
#include "runtime/techniques/beams/technique.hpp"
#include "runtime/techniques/guides/technique.hpp"
#include "tests/listener.hpp"

#include <doctest/doctest.h>

#include <cmath>

using namespace troupe;
using namespace troupe::testing;

namespace {

engine_options embedding_engine(const std::string& name) {
  engine_options o;
  o.model = golden(name);
  o.kv_cache_bytes = 16 << 20;
  o.max_context = 512;
  o.compute.threads = 1;
  o.compute.dtype = "f32";
  return o;
}

generation embedding_request(std::vector<token_id> ids, pooling how) {
  generation g;
  g.prompt = std::move(ids);
  g.sampling.max_tokens = 1;
  g.embed = how;
  return g;
}

heard answer_to(const engine& e, generation g) {
  listener l;
  e.submit(std::move(g), l.sink());
  REQUIRE(l.wait());
  return l.result();
}

template <class T>
std::vector<T> numbers_of(json::value list) {
  std::vector<T> result;
  for (auto v : json::array(list))
    if constexpr (std::is_integral_v<T>)
      result.push_back(static_cast<T>(std::int64_t(v)));
    else
      result.push_back(static_cast<T>(double(v)));
  return result;
}

} // namespace

TEST_CASE("embeddings of golden checkpoints are transformers', in any chunks and with a warm cache") {
  const auto document = json::document::load(test_data() + "/embeddings.json");
  for (auto [name, cases] : json::object(document.root())) {
    CAPTURE(std::string(name));
    for (const int step_tokens : {512, 5}) {
      auto options = embedding_engine(std::string(name));
      options.step_tokens = step_tokens;
      const auto e = engine::start(options);
      CHECK(e.wait_until_ready()->embeddings.how == pooling::last);
      for (auto one : json::array(cases)) {
        const auto ids = numbers_of<token_id>(one["ids"]);
        for (const auto& [field, how] :
             {std::pair("mean", pooling::mean), std::pair("last", pooling::last), std::pair("cls", pooling::cls)}) {
          CAPTURE(field);
          const auto expected = numbers_of<double>(one[field]);
          const auto heard = answer_to(e, embedding_request(ids, how));
          REQUIRE(heard.done);
          const auto& found = heard.done->embedding;
          REQUIRE(found.size() == expected.size());
          double worst = 0;
          for (std::size_t i = 0; i < found.size(); ++i)
            worst = std::max(worst, std::abs(found[i] - expected[i]));
          CHECK(worst < 2e-4);
          CHECK(heard.done->prompt_tokens == ids.size());
          CHECK(heard.done->completion_tokens == 0);
          CHECK(heard.ids.at(0).empty());
        }
      }
    }
  }
}

TEST_CASE("an embedding may fill the context, and nothing may be generated or scored beside it") {
  const auto e = engine::start(embedding_engine("llama-gqa"));
  e.wait_until_ready();
  CHECK(answer_to(e, embedding_request(std::vector<token_id>(512, 7), pooling::mean)).done->embedding.size() > 0);
  const auto refused = [&](auto change) {
    auto g = embedding_request({1, 2, 3}, pooling::mean);
    change(g);
    const auto heard = answer_to(e, g);
    REQUIRE(heard.failed);
    CHECK(heard.failed->code == errc::bad_request);
    return heard.failed->param;
  };
  CHECK(refused([](generation& g) { g.prompt.clear(); }) == "prompt");
  CHECK(refused([](generation& g) { g.prompt.resize(513); }) == "prompt");
  CHECK(refused([](generation& g) { g.sampling.n = 2; }) == "embed");
  CHECK(refused([](generation& g) { g.sampling.techniques.set(troupe::beams({.width = 2})); }) == "embed");
  CHECK(refused([](generation& g) { g.sampling.prompt_logprobs = 0; }) == "embed");
  CHECK(refused([](generation& g) { g.sampling.techniques.set(guides::following(guides::guide_source())); }) ==
        "embed");
}

TEST_CASE("an embedding that is cancelled leaves nothing behind") {
  auto options = embedding_engine("llama-gqa");
  options.step_tokens = 2;
  const auto e = engine::start(options);
  e.wait_until_ready();
  listener l;
  const auto handle = e.submit(embedding_request(std::vector<token_id>(500, 7), pooling::mean), l.sink());
  handle.cancel();
  REQUIRE(l.wait());
  CHECK(l.result().done);
  CHECK(answer_to(e, embedding_request({1, 2}, pooling::mean)).done->embedding.size() > 0);
}
