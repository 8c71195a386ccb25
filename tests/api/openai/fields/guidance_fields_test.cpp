#include "runtime/techniques/amateur/technique.hpp"
#include "runtime/techniques/dola/technique.hpp"
#include "runtime/techniques/guidance/technique.hpp"
#include "tests/api/openai/parse_request.hpp"

#include <doctest/doctest.h>

using namespace troupe;
using namespace troupe::test;

namespace {

error completion_fault(const std::string& fields) {
  return fault_of([&] { completion(R"({"prompt":"a",)" + fields + "}"); });
}

} // namespace

TEST_CASE("completions and chats say how they are guided, by text or by ids") {
  const auto one = completion(R"({"prompt":"a","guidance_scale":1.5,"negative_prompt":"no"})").prompts.at(0);
  CHECK(guidance_scale_of(one.sampling.techniques.find(guidance_technique)) == 1.5f);
  CHECK(one.negative_prompt == byte_model()->encode("no", true));
  const auto ids = completion(R"({"prompt":["a","b"],"guidance_scale":2,"negative_prompt":[3,4]})");
  REQUIRE(ids.prompts.size() == 2);
  CHECK(ids.prompts[1].negative_prompt == std::vector<token_id>{3, 4});
  const auto talk = chat(
    R"({"messages":[{"role":"user","content":"a"}],"guidance_scale":3,"negative_prompt":"no","stream":true})");
  CHECK(talk.prompts.at(0).negative_prompt == byte_model()->encode("no", false));
  CHECK(completion(R"({"prompt":"a","guidance_scale":2})").prompts.at(0).negative_prompt.empty());
  CHECK(completion(R"({"prompt":"a"})").prompts.at(0).sampling.paired() == false);
}

TEST_CASE("completions and chats say how they are contrasted") {
  const auto contrast = [](const generation_request& r) {
    return contrast_of(r.prompts.at(0).sampling.techniques.find(amateur_technique));
  };
  const auto one = completion(R"({"prompt":"a","contrastive_beta":0.5,"contrastive_alpha":0.25})");
  REQUIRE(contrast(one));
  CHECK(contrast(one)->beta == 0.5f);
  CHECK(contrast(one)->alpha == 0.25f);
  const auto talk = chat(R"({"messages":[{"role":"user","content":"a"}],"contrastive_beta":1})");
  REQUIRE(contrast(talk));
  CHECK(contrast(talk)->alpha == 0.1f);
  CHECK_FALSE(contrast(completion(R"({"prompt":"a","contrastive_beta":0})")));
  CHECK(completion_fault(R"("contrastive_beta":-1)").param == "contrastive_beta");
  CHECK(completion_fault(R"("contrastive_beta":"much")").param == "contrastive_beta");
  CHECK(completion_fault(R"("contrastive_beta":1,"contrastive_alpha":2)").param == "contrastive_alpha");
  CHECK(completion_fault(R"("contrastive_alpha":0.5)").message ==
        "`contrastive_beta` must be above 0 with `contrastive_alpha`, not 0.");
  CHECK(completion_fault(R"("contrastive_beta":1,"num_beams":2)").param == "contrastive_beta");
}

TEST_CASE("guidance that cannot be is refused by name") {
  auto fault = completion_fault(R"("negative_prompt":"no")");
  CHECK(fault.message == "`negative_prompt` needs `guidance_scale`");
  CHECK(fault.param == "negative_prompt");
  CHECK(completion_fault(R"("guidance_scale":2,"negative_prompt":7)").message ==
        "`negative_prompt` must be a string or a list of token ids, not 7");
  CHECK(completion_fault(R"("guidance_scale":2,"negative_prompt":[])").message ==
        "`negative_prompt` must have at least one token");
  CHECK(completion_fault(R"("guidance_scale":2,"negative_prompt":[-1])").param.starts_with("negative_prompt"));
  CHECK(completion_fault(R"("guidance_scale":2,"negative_prompt":")" + std::string(300, 'x') + '"').param ==
        "negative_prompt");
  CHECK(completion_fault(R"("guidance_scale":101)").param == "guidance_scale");
  CHECK(completion_fault(R"("guidance_scale":-1)").param == "guidance_scale");
  CHECK(completion_fault(R"("guidance_scale":1e999)").code == errc::bad_request);
  CHECK(completion_fault(R"("guidance_scale":2,"n":2)").message == "`n` must be 1 with `guidance_scale`, not 2");
  CHECK(completion_fault(R"("guidance_scale":2,"num_beams":2)").param == "guidance_scale");
  CHECK(completion_fault(R"("guidance_scale":2,"max_tokens":0,"echo":true)").param == "guidance_scale");
}

TEST_CASE("completions and chats say which layers they are contrasted with") {
  const auto layers = [](const sampling_params& p) {
    const auto* asked = layers_of(p.techniques.find(dola_technique));
    REQUIRE(asked);
    const auto found = asked->of_model(32, false);
    return std::vector(found.begin(), found.end());
  };
  CHECK(layers(completion(R"({"prompt":"a","dola_layers":[4,0]})").prompts.at(0).sampling) == std::vector{0, 4});
  CHECK(layers(completion(R"({"prompt":"a","dola_layers":"low"})").prompts.at(0).sampling).front() == 0);
  const auto talk = chat(R"({"messages":[{"role":"user","content":"a"}],"dola_layers":"high"})");
  CHECK(layers(talk.prompts.at(0).sampling).front() == 16);
  CHECK(completion(R"({"prompt":"a","dola_layers":null})").prompts.at(0).sampling.techniques.empty());
  const auto refused = [](const std::string& value) {
    const auto fault = completion_fault(R"("dola_layers":)" + value);
    CHECK(fault.code == errc::bad_request);
    CHECK(fault.param == "dola_layers");
    return fault.message;
  };
  CHECK(refused("7") == "`dola_layers` must be \"low\", \"high\" or a list of layers, not 7");
  CHECK(refused("true").starts_with("`dola_layers` must be \"low\", \"high\" or a list of layers"));
  CHECK(refused("{}").starts_with("`dola_layers` must be \"low\", \"high\" or a list of layers"));
  CHECK(refused("\"mid\"").ends_with("not \"mid\""));
  CHECK(refused("[]") == "`dola_layers` must name 1 to 16 layers, not 0");
  CHECK(refused("[1,1]") == "`dola_layers` names layer 1 twice");
  CHECK(refused("[0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16]") == "`dola_layers` may have at most 16 entries, not 17");
  for (const char* list : {"[-1]", "[1.5]", "[\"0\"]", "[[0]]", "[4294967296]", "[null]"})
    CHECK(refused(list).starts_with("`dola_layers` must be a list of integers between 0 and "));
  CHECK(refused("\"low\",\"contrastive_beta\":1") == "`dola_layers` cannot be used with `contrastive_beta`");
  CHECK(refused("\"low\",\"guidance_scale\":2") == "`dola_layers` cannot be used with `guidance_scale`");
  CHECK(refused("[1],\"num_beams\":2").starts_with("`dola_layers` cannot be used with beams"));
}
