#include "runtime/techniques/watermark/technique.hpp"
#include "runtime/techniques/watermark/watermark_fields.hpp"
#include "tests/api/openai/parse_request.hpp"

#include <doctest/doctest.h>

#include <cmath>

using namespace troupe;
using namespace troupe::test;

namespace {

sampling_params sampling_of(const std::string& fields, const served_model& model = *byte_model()) {
  const auto parsed = json::document::parse("{\"prompt\":\"a\"," + fields + "}", "the body", errc::bad_request);
  return parse_generation(dialect::completions, field_reader(parsed.root()), model).prompts.front().sampling;
}

watermarks::detection_request detection_of(const std::string& body, const served_model& model) {
  const auto parsed = json::document::parse(body, "the body", errc::bad_request);
  return watermarks::read_detection(field_reader(parsed.root()), model.techniques, model.vocab_size, 100,
                                    [&](std::string_view text) { return model.encode(text, false); });
}

const auto own_key = watermarks::key_of("the server's own");
const auto own_mark = std::make_shared<const watermarks::options>();

const watermarks::options* mark_of(const sampling_params& p) {
  return watermarks::mark_of(p.techniques.find(watermark_technique));
}

std::shared_ptr<served_model> marking_model(bool always) {
  auto model = byte_model();
  watermarks::settings kept{.key = own_key};
  if (always)
    kept.mark = own_mark;
  model->techniques.set(watermark_technique, std::make_shared<watermarks::settings>(std::move(kept)));
  return model;
}

} // namespace

TEST_CASE("samplers of every kind are read") {
  const auto p = sampling_of(
    R"("typical_p":0.9,"top_n_sigma":1.5,"top_a":0.1,"epsilon_cutoff":0.01,"eta_cutoff":0.02,"xtc_probability":0.5,
       "xtc_threshold":0.2,"dynatemp_range":0.5,"dynatemp_exponent":2,"smoothing_factor":0.3,"smoothing_curve":1.5,
       "repetition_penalty_range":64,"no_repeat_ngram_size":3,"dry_multiplier":0.8,"dry_base":2,"dry_allowed_length":3,
       "dry_range":100,"samplers":["top_k","temperature"],"allowed_token_ids":[5,3,5])");
  CHECK(p.typical_p == 0.9f);
  CHECK(p.top_n_sigma == 1.5f);
  CHECK(p.xtc_threshold == 0.2f);
  CHECK(p.dynatemp_exponent == 2);
  CHECK(p.smoothing_curve == 1.5f);
  CHECK(p.repetition_penalty_range == 64);
  CHECK(p.no_repeat_ngram_size == 3);
  CHECK(p.dry_range == 100);
  CHECK(p.samplers.steps().size() == 2);
  CHECK(std::vector(p.allowed_token_ids.begin(), p.allowed_token_ids.end()) == std::vector<token_id>{3, 5});
  CHECK(p.dry_breakers.contains('\n')); // unless the request says which
  const auto mirostat = sampling_of(R"("mirostat":2,"mirostat_tau":3,"mirostat_eta":0.2)");
  CHECK(mirostat.mirostat == 2);
  CHECK(mirostat.mirostat_tau == 3);
  CHECK_FALSE(sampling_of(R"("typical_p":1,"mirostat":0,"bad_words":[],"logit_bias":{},"watermark":false)").extended());
}

TEST_CASE("words and biases are turned into tokens") {
  const auto p = sampling_of(R"("bad_words":["ab"],"logit_bias":{"7":1,"xy":-2.5,"-":3},"dry_multiplier":1,
                               "dry_sequence_breakers":[";"])");
  REQUIRE(p.sequence_biases.size() == 3);
  const auto* entries = p.sequence_biases.begin();
  CHECK(entries[0].tokens == std::vector<token_id>{'a', 'b'});
  CHECK(entries[0].bias == -INFINITY);
  CHECK(entries[1].tokens == std::vector<token_id>{'x', 'y'});
  CHECK(entries[1].bias == -2.5f);
  CHECK(entries[2].tokens == std::vector<token_id>{'-'});
  REQUIRE(p.logit_bias.size() == 1);
  CHECK(p.logit_bias.begin()->first == 7);
  CHECK(p.dry_breakers.contains(';'));
  CHECK_FALSE(p.dry_breakers.contains('*'));

  auto without = byte_model();
  without->encode = nullptr;
  without->decode = nullptr;
  for (const auto* field : {R"("bad_words":["x"])", R"("logit_bias":{"x":1})", R"("dry_sequence_breakers":["x"])"}) {
    const auto body = std::string(R"({"prompt":[1],)") + field + "}";
    const auto parsed = json::document::parse(body, "the body", errc::bad_request);
    const auto fault = fault_of([&] { parse_generation(dialect::completions, field_reader(parsed.root()), *without); });
    CHECK(fault.message.find("tokenizer") != std::string::npos);
    CHECK(std::string(field).find(fault.param) == 1);
  }
}

TEST_CASE("a request's watermark is read; a server's own cannot be chosen") {
  using watermarks::context_kind;
  const auto p = sampling_of(
    R"("watermark":{"type":"green","scheme":"selfhash","context_width":5,"gamma":0.4,"delta":-1.5,"key":"k"})");
  const auto* mark = mark_of(p);
  REQUIRE(mark);
  CHECK(mark->what == watermarks::kind::green);
  CHECK(mark->context == context_kind::self);
  CHECK(mark->width == 5);
  CHECK(mark->gamma == 0.4f);
  CHECK(mark->delta == -1.5f);
  CHECK(mark->key == watermarks::key_of("k"));
  const auto gumbel = sampling_of(R"("watermark":"gumbel")", *marking_model(false));
  CHECK(mark_of(gumbel)->width == 4);
  CHECK(mark_of(gumbel)->context == context_kind::sequence);
  CHECK(mark_of(gumbel)->key == own_key);
  CHECK(mark_of(sampling_of(R"("watermark":{"type":"green"})", *marking_model(false)))->width == 1);

  const auto always = marking_model(true);
  CHECK(mark_of(sampling_of(R"("n":1)", *always)) == own_mark.get());
  for (const auto* chosen : {R"("watermark":false)", R"("watermark":{"type":"green","key":"k"})"})
    CHECK(fault_of([&] { sampling_of(chosen, *always); }).param == "watermark");
  CHECK(fault_of([&] { sampling_of(R"("num_beams":2)", *always); }).param == "watermark");
}

TEST_CASE("no message holds a key") {
  for (const auto* mark : {R"({"type":"red","key":"hush"})", R"({"type":"green","key":["hush"]})",
                           R"({"type":"green","key":{"hush":1}})", R"({"type":"green","key":"hush","delta":99})"}) {
    const auto fault = fault_of([&] { sampling_of(std::string("\"watermark\":") + mark); });
    CHECK(fault.code == errc::bad_request);
    CHECK(fault.message.find("hush") == std::string::npos);
  }
}

TEST_CASE("a detection is asked for by text or ids, with the request's watermark or the server's") {
  const auto model = marking_model(true);
  CHECK(detection_of(R"({"text":"abc"})", *model).tokens == std::vector<token_id>{'a', 'b', 'c'});
  CHECK(detection_of(R"({"tokens":[1,2]})", *model).mark == own_mark);
  const auto own = detection_of(R"({"text":"a","watermark":{"type":"gumbel","key":"x"}})", *model);
  CHECK(own.mark->key == watermarks::key_of("x"));
  const auto blamed = [&](const char* body) {
    return fault_of([&] { detection_of(body, *marking_model(false)); }).param;
  };
  CHECK(blamed(R"({"text":"a"})") == "watermark");
  CHECK(blamed(R"({"watermark":"green"})") == "text");
  CHECK(blamed(R"({"watermark":"green","text":"a","tokens":[1]})") == "text");
  CHECK(blamed(R"({"watermark":"green","tokens":[257]})") == "tokens");
  CHECK(blamed(R"({"watermark":"green","text":7})") == "text");

  watermarks::detection found;
  found.tokens = 12, found.score = 9, found.z = 4.5, found.p = 1e-7;
  CHECK(watermarks::detection_object({}, found) ==
        R"({"object":"watermark.detection","type":"green","tokens":12,"green":9,"z":4.5,"p":1e-07})");
}
