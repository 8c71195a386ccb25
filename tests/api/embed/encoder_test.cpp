// Encoders in the engine: texts whole, whatever runs beside them, and nothing generated.
#include "api/embed/engine.hpp"
#include "runtime/support/json/json.hpp"
#include "tests/listener.hpp"

#include <doctest/doctest.h>

#include <deque>
#include <random>

using namespace troupe;
using namespace troupe::testing;

namespace {

engine_options encoder_engine(const std::string& name) {
  engine_options o;
  o.model = test_data() + "/tiny_encoders/" + name;
  o.kv_cache_bytes = 1 << 20;
  o.compute.threads = 2;
  o.compute.dtype = "f32";
  return o;
}

generation text_request(std::vector<token_id> ids, std::int32_t second, pooling how) {
  generation g;
  g.prompt = std::move(ids);
  g.second = second;
  g.sampling.max_tokens = 1;
  g.embed = how;
  return g;
}

} // namespace

TEST_CASE("an encoder's embeddings do not depend on the texts beside them, and none may be generated") {
  const auto e = engine::start(encoder_engine("bert"));
  const auto info = e.wait_until_ready();
  CHECK(!info->generates);
  CHECK(info->max_context == 48);
  std::mt19937 random(9);
  std::vector<generation> texts;
  for (int i = 0; i < 40; ++i) {
    std::vector<token_id> ids(1 + random() % 48);
    for (auto& id : ids)
      id = static_cast<token_id>(2 + random() % 46);
    const auto second = static_cast<std::int32_t>(random() % ids.size());
    texts.push_back(text_request(ids, second, std::array{pooling::mean, pooling::cls, pooling::last}[random() % 3]));
  }
  std::deque<listener> crowd(texts.size());
  for (std::size_t i = 0; i < texts.size(); ++i)
    e.submit(texts[i], crowd[i].sink());
  for (std::size_t i = 0; i < texts.size(); ++i) {
    REQUIRE(crowd[i].wait());
    REQUIRE(crowd[i].result().done);
    listener alone;
    e.submit(texts[i], alone.sink());
    REQUIRE(alone.wait());
    CHECK(alone.result().done->embedding == crowd[i].result().done->embedding);
    CHECK(alone.result().done->cached_tokens == 0);
  }
  const auto failure_for = [&](generation g) {
    listener l;
    e.submit(std::move(g), l.sink());
    REQUIRE(l.wait());
    REQUIRE(l.result().failed);
    return l.result().failed->message;
  };
  CHECK(failure_for(text_request({2, 7, 3}, 0, pooling::none)) ==
        "this model is an encoder: it makes embeddings or scores of texts, and generates nothing");
  auto scored = text_request({2, 7, 3}, 0, pooling::none);
  scored.sampling.max_tokens = 0;
  scored.sampling.prompt_logprobs = 1;
  CHECK(failure_for(scored).starts_with("this model is an encoder"));
  CHECK(failure_for(text_request(std::vector<token_id>(49, 7), 0, pooling::mean)).find("48") != std::string::npos);
  CHECK(failure_for(text_request({2, 7, 3}, 3, pooling::mean)).find("second") != std::string::npos);
}
