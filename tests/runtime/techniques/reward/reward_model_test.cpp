// What a reward model reads, and what it is refused for. tests/data/tiny_reward likes the letter o.
#include "runtime/techniques/reward/reward_model.hpp"

#include "runtime/engine/loading/opened_model.hpp"
#include "tests/test_data.hpp"

#include <doctest/doctest.h>

using namespace troupe;

namespace {

model_info opened(const std::string& folder) {
  engine_options options;
  options.model = folder;
  auto info = open_for(options, [](std::string) {}).info;
  info.max_context = 256;
  return info;
}

model_info reward() { return opened(test_data() + "/tiny_reward"); }

std::string read_by(const model_info& judge, const judged_prompt& prompt, const std::string& answer) {
  return judge.tokenizer->decode(judged_ids(judge, prompt, answer), false);
}

template <class F>
error fault(F f) {
  try {
    f();
  } catch (const failure& caught) {
    return caught.what_failed();
  }
  return {errc::internal, "nothing was wrong", {}};
}

} // namespace

TEST_CASE("A reward model reads a conversation by its own template, and a text as it is") {
  auto judge = reward();
  require_judge(judge);
  CHECK(read_by(judge, {.text = "Once "}, "upon") == "Once upon");
  const judged_prompt talk{
    .text = "as the model saw it: ",
    .messages = R"([{"role": "user", "content": "q\n"}, {"role": "assistant", "content": "a b"}])"};
  CHECK(read_by(judge, talk, " c") == "<user>q\n<assistant>a b<assistant> c");
  auto more = talk;
  more.continues_last = true;
  CHECK(read_by(judge, more, " c") == "<user>q\n<assistant>a b c");
  judge.chat = nullptr;
  CHECK(read_by(judge, talk, " c") == "as the model saw it:  c");
}

TEST_CASE("What a reward model cannot read is refused by a sentence about it") {
  const auto judge = reward();
  const auto long_one = fault([&] { judged_ids(judge, {.text = std::string(250, 'x')}, "answered"); });
  CHECK(long_one.code == errc::bad_request);
  CHECK(long_one.param == "search");
  CHECK(long_one.message.find("258 tokens") != std::string::npos);
  CHECK(fault([&] { judged_ids(judge, {}, ""); }).code == errc::bad_request);

  CHECK(fault([&] { require_judge(opened(golden("llama-gqa"))); }).message.find("ForSequenceClassification") !=
        std::string::npos);
  auto mute = judge;
  mute.tokenizer = nullptr;
  CHECK(fault([&] { require_judge(mute); }).message.find("no tokenizer") != std::string::npos);
}

TEST_CASE("A reward model's engine has the types and the device of the first, and room for one long text") {
  engine_options options;
  options.model = "big";
  options.techniques["reward_model"] = {"judge"};
  options.techniques["draft"] = {"small"};
  options.compute.quantize = "int8";
  options.compute.weights = "mapped";
  options.max_context = 4096;
  options.roles = "prefill:1,decode:1";
  const auto own = reward_options(options);
  CHECK(own.model == "judge");
  CHECK(own.techniques.empty()); // or it would have one, too
  CHECK(own.roles.empty());
  CHECK(own.compute.quantize == "int8");
  CHECK(own.compute.weights == "auto");
  CHECK(own.max_context == 4096);
  CHECK(own.cached_sequences == 1);
}
