// What a server's policy makes of requests.
#include "api/service/policy.hpp"

#include "runtime/support/text/banned_texts.hpp"
#include "runtime/techniques/guides/technique.hpp"
#include "tests/api/openai/parse_request.hpp"

#include <doctest/doctest.h>

using namespace troupe;
using namespace troupe::test;

namespace {

/// A chat's request under the rules.
generation under(const policy_rules& rules, const std::string& fields = {},
                 const std::shared_ptr<served_model>& model = byte_model()) {
  const auto body = json::document::parse(R"({"messages":[{"role":"user","content":"x"}])" + fields + "}", "the body",
                                          errc::bad_request);
  auto one = parse_generation(dialect::chat, field_reader(body.root()), *model).prompts.at(0);
  apply_policy(rules, *model, one);
  return one;
}

using biases = std::vector<logit_bias_map::entry>;

biases biases_under(const policy_rules& rules, const std::string& fields = {}) {
  const auto bias = under(rules, fields).sampling.logit_bias;
  return {bias.begin(), bias.end()};
}

std::string wrong_rule(const policy_rules& rules) {
  return fault_of([&] { check_rules(rules); }).param;
}

} // namespace

TEST_CASE("no answer contains what is banned, whatever else it follows") {
  const policy_rules rules{.banned = std::vector<std::string>{"foo", "bar"}};
  const auto free = guides::source_of(under(rules));
  REQUIRE(free);
  CHECK(free->what == guides::guide_source::kind::anything);
  CHECK(free->banned == std::vector<std::string>{"foo", "bar"});
  const auto json = guides::source_of(under(rules, R"(,"response_format":{"type":"json_object"})"));
  CHECK(json->what == guides::guide_source::kind::json_object);
  CHECK(json->banned.size() == 2);
  CHECK_FALSE(guides::source_of(under({.banned = std::vector<std::string>{}})));
  auto mute = byte_model();
  mute->decode = nullptr;
  generation ids;
  ids.prompt = {1};
  CHECK_THROWS_AS(apply_policy(rules, *mute, ids), failure);
  ids.embed = pooling::mean; // nothing is said
  apply_policy(rules, *mute, ids);
  CHECK_FALSE(guides::source_of(ids));
  generation scored;
  scored.sampling.max_tokens = 0;
  scored.sampling.prompt_logprobs = 0;
  apply_policy(rules, *byte_model(), scored);
  CHECK_FALSE(guides::source_of(scored));
}

TEST_CASE("clients may go below the highest temperature, and are refused above it") {
  const policy_rules rules{.max_temperature = 0.5f};
  CHECK(under(rules).sampling.temperature == 0.5f); // nobody asked for the default
  CHECK(under(rules, R"(,"temperature":0.2)").sampling.temperature == 0.2f);
  CHECK(under(rules, R"(,"temperature":0)").sampling.temperature == 0);
  const auto hot = fault_of([&] { under(rules, R"(,"temperature":0.7)"); });
  CHECK(hot.param == "temperature");
  CHECK(hot.message == "`temperature` may be at most 0.5 on this server, not 0.7");
  CHECK(fault_of([&] { under(rules, R"(,"temperature":0.4,"dynatemp_range":0.3)"); }).param == "dynatemp_range");
  CHECK(under(rules, R"(,"temperature":0.2,"dynatemp_range":0.3)").sampling.dynatemp_range == 0.3f);
}

TEST_CASE("answers end where the policy says, or earlier") {
  const policy_rules rules{.max_tokens = 7};
  CHECK(under(rules).sampling.max_tokens == 7);
  CHECK(under(rules, R"(,"max_tokens":3)").sampling.max_tokens == 3);
  CHECK(under(rules, R"(,"max_tokens":30)").sampling.max_tokens == 7);
  CHECK(under(rules, R"(,"max_tokens":30,"min_tokens":20)").sampling.min_tokens == 7);
}

TEST_CASE("a policy says how far a key's requests come ahead of other clients'") {
  server_policy policy;
  policy.of_key["quick"].min_priority = -5;
  policy.of_key["slow"].min_priority = 3;
  const auto bounded = [&](const char* key, int priority) { // as the engine counts: higher runs first
    generation g;
    g.priority = priority;
    bound_priority(policy.of(key), g);
    CHECK(g.preference == priority);
    return g.priority;
  };
  CHECK(bounded("any", 1'000'000) == 0);
  CHECK(bounded("any", -7) == -7);
  CHECK(bounded("quick", 1'000'000) == 5);
  CHECK(bounded("quick", 2) == 2);
  CHECK(bounded("slow", 0) == -3);
  CHECK_FALSE(policy.is_empty());
}

TEST_CASE("clients may add to biases, and not work against them") {
  using list = std::vector<std::pair<std::string, float>>;
  const policy_rules rules{.logit_bias = list{{"5", -10.f}, {"9", 4.f}, {"a", -3.f}, {"bc", -8.f}}};
  const biases own{{5, -10.f}, {9, 4.f}, {'a', -3.f}};
  CHECK(biases_under(rules) == own);
  CHECK(biases_under(rules, R"(,"logit_bias":{"5":50,"9":-50,"a":100,"99":100})") == own); // "c" ends "bc"
  CHECK(biases_under(rules, R"(,"logit_bias":{"5":-50,"9":50,"7":1})") ==
        biases{{5, -50.f}, {7, 1.f}, {9, 50.f}, {'a', -3.f}});
  const auto texts = under(rules, R"(,"logit_bias":{"xc":20,"xd":20})").sampling.sequence_biases;
  REQUIRE(texts.size() == 2);
  CHECK(texts.begin()->bias == -8.f);
  CHECK((texts.begin() + 1)->tokens == std::vector<token_id>{'x', 'd'});
  CHECK(under(rules, R"(,"num_beams":2)").sampling.sequence_biases.size() == 1);
}

TEST_CASE("what stands at a key holds instead of what holds for all") {
  server_policy policy;
  CHECK(policy.is_empty());
  policy.of_all = {.banned = std::vector<std::string>{"x"}, .max_tokens = 10};
  policy.of_key["ann"] = {.banned = std::vector<std::string>{}, .max_temperature = 1.f};
  CHECK_FALSE(policy.is_empty());
  CHECK(policy.of("ann").banned->empty());
  CHECK(policy.of("ann").max_tokens == 10);
  CHECK(policy.of("ann").max_temperature == 1.f);
  CHECK(policy.of("bob").banned->size() == 1);
  CHECK_FALSE(policy.of("bob").max_temperature);
}

TEST_CASE("rules that are wrong by themselves are refused by name") {
  using texts = std::vector<std::string>;
  using list = std::vector<std::pair<std::string, float>>;
  CHECK(wrong_rule({.banned = texts{""}}) == "banned");
  CHECK(wrong_rule({.banned = texts{"\xFF"}}) == "banned");
  CHECK(wrong_rule({.banned = texts{std::string(1 << 17, 'x')}}) == "banned");
  CHECK(wrong_rule({.logit_bias = list{{"5", 101.f}}}) == "logit_bias");
  CHECK(wrong_rule({.logit_bias = list{{"", 1.f}}}) == "logit_bias");
  for (const std::string no_id : {"-1", "2147483648", "99999999999999999999"})
    CHECK(wrong_rule({.logit_bias = list{{no_id, 1.f}}}) == "logit_bias");
  for (const std::string name : {"0", "50256", "-", "-x", "1.5"})
    check_rules({.logit_bias = list{{name, 1.f}}});
  CHECK(wrong_rule({.logit_bias = list(2000, {"a", 1.f})}) == "logit_bias");
  CHECK(wrong_rule({.max_temperature = -1.f}) == "max_temperature");
  CHECK(wrong_rule({.max_tokens = 0}) == "max_tokens");
  CHECK(
    wrong_rule({.banned = texts{"x"}, .logit_bias = list{{"5", -100.f}}, .max_temperature = 0.f, .max_tokens = 1}) ==
    "nothing");
}

TEST_CASE("what looks for banned texts is made once, and a key's own list stands for itself") {
  server_policy policy;
  policy.of_all = {.banned = std::vector<std::string>{"x"}};
  policy.of_key["ann"] = {.banned = std::vector<std::string>{}};
  policy.of_key["bob"] = {.banned = std::vector<std::string>{"y"}};
  policy.of_key["eve"] = {.max_tokens = 3};
  const banned_by_policy banned(policy);
  REQUIRE(banned.of("anybody"));
  CHECK(banned.of("eve") == banned.of("anybody"));
  CHECK_FALSE(banned.of("ann"));
  REQUIRE(banned.of("bob"));
  CHECK_FALSE(banned.of("bob")->advance(0, "y"));
  CHECK(banned.of("bob")->advance(0, "x"));
  CHECK_FALSE(banned_by_policy(server_policy()).of("ann"));
}

TEST_CASE("a bias for a text of more tokens than one may have is refused once, not for each client") {
  server_policy policy;
  policy.of_all.logit_bias = {{"short", -1.0f}};
  check_policy(policy, *byte_model());
  policy.of_key["ann"].logit_bias = {{std::string(65, 'x'), -1.0f}};
  try {
    check_policy(policy, *byte_model());
    FAIL("nothing was refused");
  } catch (const failure& f) {
    CHECK(f.what_failed().message.starts_with(
      "the policy's `key.ann.logit_bias` has a text of 65 tokens, which may have at most 64: \"xxx"));
  }
}
