// Steering through the whole engine: what it changes and what not, and what is refused.
#include "tests/api/embed/small_engine.hpp"
#include "tests/api/embed/steering_vectors.hpp"

using namespace troupe;
using namespace troupe::testing;

namespace {

engine_options with_vectors() {
  auto o = small();
  o.techniques["steer"] = vectors_for(o.model);
  return o;
}

generation steered_request(std::vector<steering_choice> choices) {
  auto g = ask(std::vector<token_id>(40, 20), 24);
  g.sampling.ignore_eos = true;
  g.sampling.logprobs = 0;
  g.sampling.techniques.set(troupe::steered_by(std::move(choices)));
  return g;
}

/// Why an engine of these options does not start.
std::string start_failure(const engine_options& options) {
  try {
    engine::start(options).wait_until_ready();
  } catch (const failure& f) {
    return f.what();
  }
  return {};
}

} // namespace

TEST_CASE("steering changes an answer; without effect it changes nothing, and shares the prefix cache") {
  const auto e = engine::start(with_vectors());
  e.wait_until_ready();
  const auto plain = run(e, steered_request({}));
  REQUIRE(plain.done);
  const auto changed = run(e, steered_request({{"one", 2}}));
  REQUIRE(changed.done);
  CHECK(changed.ids != plain.ids);
  CHECK(changed.done->cached_tokens == 0);
  CHECK(run(e, steered_request({{"one", 2}})).done->cached_tokens == 32);
  CHECK(run(e, steered_request({{"one", 2, 1, {}}})).done->cached_tokens == 32); // it has nothing for layer 0
  CHECK(run(e, steered_request({{"one", -2}})).done->cached_tokens == 0);
  const auto neutral = run(e, steered_request({{"one", 0}, {"one", 5, 0, 0}}));
  REQUIRE(neutral.done);
  CHECK(neutral.ids == plain.ids);
  CHECK(neutral.done->cached_tokens == 32);
}

TEST_CASE("an engine refuses steering that it does not have, and goes on") {
  const auto e = engine::start(with_vectors()), without = engine::start(small());
  e.wait_until_ready(), without.wait_until_ready();
  const auto refused = [](const engine& by, const std::vector<steering_choice>& choices) {
    const auto answer = run(by, steered_request(choices));
    REQUIRE(answer.failed);
    CHECK(answer.failed->code == errc::bad_request);
    return answer.failed->message;
  };
  CHECK(refused(e, {{"none"}}) == "`steering[0].name` must be one of \"one\", \"other\", not \"none\"");
  CHECK(refused(e, {{"one", 1, 3, {}}}) == "`steering[0].first_layer` must be a layer of the model, 0 to 2, not 3");
  CHECK(refused(without, {{"one"}}) ==
        "`steering[0].name` names a steering vector, but there are none; --steer NAME=FILE adds one");
  CHECK(run(e, steered_request({{"one", 1000}})).done); // nonsense, but an answer
  CHECK(run(e, steered_request({})).done);
}

TEST_CASE("an engine does not start with vectors of another model") {
  auto options = with_vectors();
  auto& files = options.techniques["steer"] = vectors_for(golden("qwen3"));
  const auto file = parse_named_file(files.back()).second;
  files.erase(files.begin());
  CHECK(start_failure(options) ==
        file + ": tensor `direction.0` has the shape [96], expected [128], the model's hidden size");
  files = {"x=/nowhere/x"};
  CHECK(start_failure(options).find("/nowhere/x") != std::string::npos);
}
