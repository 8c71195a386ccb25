#include "api/openai/openai_response.hpp"
#include "api/server/wire/websocket_frames.hpp"
#include "runtime/techniques/beams/technique.hpp"
#include "tests/api/openai/parse_request.hpp"

#include <doctest/doctest.h>

#include <limits>

using namespace troupe;
using namespace troupe::test;

namespace {

/// What they say of beams; nothing: no search.
beam_options options_of(const sampling_params& p) {
  const auto* how = troupe::beams_of(p);
  return how ? *how : beam_options{};
}

sampling_params sampling_of(const std::string& fields) {
  const auto asked = completion(R"({"prompt":"a",)" + fields + "}").prompts.front().sampling;
  const auto chatted = chat(R"({"messages":[{"role":"user","content":"a"}],)" + fields + "}").prompts.front().sampling;
  CHECK(options_of(asked).width == options_of(chatted).width);
  CHECK(asked.best_of == chatted.best_of);
  return asked;
}

generation_request ranked_request(dialect speaks, int n, bool stream) {
  generation_request request;
  request.speaks = speaks;
  request.stream = stream;
  request.prompts.emplace_back().sampling.n = n;
  request.prompts.front().sampling.best_of = n + 2;
  return request;
}

token_event last_piece(std::uint32_t index, std::string text) {
  token_event e;
  e.index = index;
  e.text = std::move(text);
  e.finish = finish_reason::stop;
  return e;
}

done_event ranked_done(std::vector<choice_summary> choices) {
  done_event done;
  done.choices = std::move(choices);
  return done;
}

} // namespace

TEST_CASE("Every field of beams and best_of arrives") {
  const auto asked = sampling_of(
    R"("use_beam_search":true,"num_beams":6,"n":2,"length_penalty":-0.5,"early_stopping":"never",
    "num_beam_groups":3,"diversity_penalty":0.25)");
  const auto p = options_of(asked);
  CHECK(p.width == 6);
  CHECK(asked.n == 2);
  CHECK(p.length_penalty == -0.5f);
  CHECK(p.stopping == early_stopping::never);
  CHECK(p.groups == 3);
  CHECK(p.diversity_penalty == 0.25f);
  const auto beams_of = [](const std::string& fields) { return options_of(sampling_of(fields)); };
  CHECK(beams_of(R"("num_beams":2,"early_stopping":true)").stopping == early_stopping::on);
  CHECK(beams_of(R"("num_beams":2,"early_stopping":false)").stopping == early_stopping::off);
  CHECK(beams_of(R"("use_beam_search":true,"best_of":3)").width == 3);
  CHECK(beams_of(R"("use_beam_search":true,"n":2)").width == 2);
  CHECK(beams_of(R"("num_beams":1)").width == 0);
  const auto own = sampling_of(R"("stochastic_beams":true,"n":4,"temperature":0.5)");
  CHECK(own.width() == 4);
  CHECK(own.group()->field == "stochastic_beams");
  const auto best = sampling_of(R"("best_of":5,"n":2,"best_of_rank":"mean")");
  CHECK(best.best_of == 5);
  CHECK(best.rank == best_of_rank::mean);
  CHECK(best.width() == 5);
  CHECK_FALSE(best.grouped());
}

TEST_CASE("With beams, the checkpoint's temperature and filters do not apply unless the request has them") {
  auto model = *byte_model();
  model.defaults.sampling.temperature = 0.6f;
  model.defaults.sampling.top_k = 20;
  model.defaults.sampling.top_p = 0.95f;
  const auto read = [&](const std::string& fields) {
    const auto body = json::document::parse(R"({"prompt":"a",)" + fields + "}", "the body", errc::bad_request);
    return parse_generation(dialect::completions, field_reader(body.root()), model).prompts.front().sampling;
  };
  const auto beams = read(R"("num_beams":2)");
  CHECK(beams.temperature == 1);
  CHECK(beams.top_k == 0);
  CHECK(beams.top_p == 1);
  CHECK(read(R"("best_of":2)").temperature == 0.6f);
  CHECK(read(R"("stochastic_beams":true,"n":2,"temperature":0.5)").temperature == 0.5f);
  CHECK(options_of(read(R"("num_beams":2,"temperature":0.6)")).sampled);
  CHECK(read(R"("num_beams":2,"repeat_penalty":1.2)").repetition_penalty == 1.2f);
}

TEST_CASE("Contradictory options of beams and best_of are refused by their field") {
  const std::pair<const char*, const char*> cases[] = {
    {R"("num_beams":129)", "num_beams"},
    {R"("num_beams":-1)", "num_beams"},
    {R"("num_beams":2.5)", "num_beams"},
    {R"("use_beam_search":1)", "use_beam_search"},
    {R"("use_beam_search":false,"num_beams":4)", "num_beams"},
    {R"("num_beams":2,"n":3)", "n"},
    {R"("num_beams":2,"best_of":3)", "best_of"},
    {R"("num_beams":4,"num_beam_groups":3,"diversity_penalty":1)", "num_beam_groups"},
    {R"("num_beams":4,"diversity_penalty":101,"num_beam_groups":2)", "diversity_penalty"},
    {R"("num_beams":4,"num_beam_groups":2)", "diversity_penalty"},
    {R"("num_beams":2,"length_penalty":11)", "length_penalty"},
    {R"("num_beams":2,"length_penalty":"1")", "length_penalty"},
    {R"("num_beams":2,"early_stopping":"always")", "early_stopping"},
    {R"("num_beams":2,"early_stopping":1)", "early_stopping"},
    {R"("early_stopping":true)", "early_stopping"},
    {R"("length_penalty":0.5)", "length_penalty"},
    {R"("num_beams":2,"top_p":0.5,"do_sample":false)", "top_p"},
    {R"("num_beams":2,"mirostat":2)", "mirostat"},
    {R"("num_beams":2,"stochastic_beams":true,"temperature":0)", "temperature"},
    {R"("num_beams":2,"stochastic_beams":"yes")", "stochastic_beams"},
    {R"("best_of":1,"n":2)", "best_of"},
    {R"("best_of":129)", "best_of"},
    {R"("best_of_rank":"median","best_of":2)", "best_of_rank"},
    {R"("best_of_rank":"mean")", "best_of_rank"},
    {R"("stream":true,"num_beams":3,"n":2)", "stream"},
    {R"("stream":true,"best_of":3,"n":2)", "stream"},
  };
  for (const auto& [fields, param] : cases) {
    CAPTURE(fields);
    const auto fault = fault_of([&] { completion(R"({"prompt":"a",)" + std::string(fields) + "}"); });
    CHECK(fault.code == errc::bad_request);
    CHECK(fault.param == param);
    CHECK(fault.message.find('`') != std::string::npos);
  }
  // One choice is streamed once it is final.
  CHECK(completion(R"({"prompt":"a","stream":true,"num_beams":3})").stream);
  CHECK(completion(R"({"prompt":"a","stream":true,"best_of":3})").stream);
}

TEST_CASE("The sequences of all prompts together are bounded, candidates and beams included") {
  std::string prompts = "[1]";
  for (int i = 1; i < 9; ++i)
    prompts += ",[1]";
  const auto fault = [&](const char* fields) {
    return fault_of([&] { completion("{\"prompt\":[" + prompts + "]," + fields + "}"); }).param;
  };
  CHECK(fault(R"("best_of":128)") == "best_of");
  CHECK(fault(R"("num_beams":128)") == "num_beams");
  CHECK(fault(R"("n":128)") == "n");
}

TEST_CASE("Choices of beams and best_of come with their log-probability and score") {
  for (const auto speaks : {dialect::completions, dialect::chat}) {
    response_writer writer(ranked_request(speaks, 2, false), byte_model());
    writer.add(0, last_piece(0, "x"));
    writer.add(0, last_piece(1, "y"));
    const auto none = -std::numeric_limits<double>::infinity();
    writer.add(0, ranked_done({{0, finish_reason::stop, 1, -1.5, -0.75}, {1, finish_reason::stop, 1, none, none}}));
    const auto body = writer.body();
    CHECK(body.find(R"("finish_reason":"stop","stop_reason":null,"cumulative_logprob":-1.5,"score":-0.75})") !=
          std::string::npos);
    CHECK(body.find(R"("cumulative_logprob":-9999.0,"score":-9999.0})") != std::string::npos);
  }
  response_writer plain(completion(R"({"prompt":"a"})"), byte_model());
  plain.add(0, last_piece(0, "x"));
  plain.add(0, ranked_done({{0, finish_reason::stop, 1}}));
  CHECK(plain.body().find("cumulative_logprob") == std::string::npos);
}

TEST_CASE("A stream's last piece of a ranked choice waits for its score") {
  response_writer writer(ranked_request(dialect::completions, 1, true), byte_model());
  auto first = last_piece(0, "x");
  first.finish.reset();
  CHECK(writer.chunk(0, first).find(R"("text":"x")") != std::string::npos);
  CHECK(writer.chunk(0, last_piece(0, "y")).empty());
  writer.add(0, ranked_done({{0, finish_reason::stop, 2, -3, -1.5}}));
  CHECK(writer.last_chunks(0).find(R"("text":"y","logprobs":null,"finish_reason":"stop","stop_reason":null,)"
                                   R"("cumulative_logprob":-3,"score":-1.5})") != std::string::npos);
}

TEST_CASE("The frame that ends a WebSocket request has the scores of ranked choices") {
  const auto done = ranked_done({{0, finish_reason::length, 4, -2.5, -0.625}});
  CHECK(done_frame("a", done, true)
          .find(R"("choices":[{"index":0,"finish_reason":"length","cumulative_logprob":-2.5,"score":-0.625}])") !=
        std::string::npos);
  CHECK(done_frame("a", done, false).find(R"("choices":[{"index":0,"finish_reason":"length"}])") != std::string::npos);
}
