#include "api/openai/embeddings.hpp"
#include "tests/api/openai/run_job.hpp"

#include <doctest/doctest.h>

using namespace troupe;
using namespace troupe::test;

namespace {

generation_job embeddings(const std::string& fields, std::shared_ptr<const served_model> model = byte_model()) {
  return parsed(
    "{" + fields + "}", [](const field_reader& body, const auto& served) { return embedding_job(body, served, {}); },
    std::move(model));
}

done_event pooled(std::vector<float> values, std::uint32_t tokens) {
  auto e = ended(tokens, 0);
  e.embedding = std::move(values);
  return e;
}

} // namespace

TEST_CASE("Inputs of embeddings are texts or token ids, one or several") {
  const auto prompts = [](const std::string& input) {
    std::vector<std::string> result;
    for (const auto& one : embeddings(R"("input":)" + input).prompts)
      result.push_back(text_of(one.prompt));
    return result;
  };
  using texts = std::vector<std::string>;
  CHECK(prompts(R"("ab")") == texts{"<s>ab"});
  CHECK(prompts(R"(["ab","c"])") == texts{"<s>ab", "<s>c"});
  CHECK(prompts("[97,98]") == texts{"ab"});
  CHECK(prompts("[[97],[98,99]]") == texts{"a", "bc"});
  CHECK(prompts(R"("ab","add_special_tokens":false)") == texts{"ab"});
  auto model = byte_model();
  model->embeddings = {pooling::mean, false};
  CHECK(embeddings(R"("input":"a")", model).prompts.at(0).embed == pooling::mean);
}

TEST_CASE("A text that cannot fit into the context is refused before it is tokenised") {
  auto model = byte_model(10);
  model->most_bytes_per_token = 4;
  model->encode = [](std::string_view, bool) -> std::vector<token_id> {
    FAIL("tokenised");
    return {};
  };
  for (const std::string end : {"\"", "\",\"b\"]"}) {
    const auto why = fault_of([&] {
      embeddings("\"input\":" + std::string(end.size() > 1 ? "[" : "") + '"' + std::string(50, 'x') + end, model);
    });
    CHECK(why.param == "input");
    CHECK(why.message ==
          "This model's maximum context length is 10 tokens. However, `input` is a text of 50 bytes, which has more.");
  }
}

TEST_CASE("Embeddings are normalised as the checkpoint says, and shortened as the client says") {
  auto model = byte_model();
  const auto answer = [&](const std::string& fields) {
    auto job = embeddings(R"("input":["a","b"])" + fields, model);
    job.writer->take(1, pooled({0, 0, 0, 0}, 2));
    job.writer->take(0, pooled({3, 4, 0, 12}, 2));
    return job.writer->body();
  };
  const auto with = [](const std::string& first, const std::string& second) {
    return R"({"object":"list","data":[{"object":"embedding","index":0,"embedding":)" + first +
      R"(},{"object":"embedding","index":1,"embedding":)" + second +
      R"(}],"model":"org/bytes","usage":{"prompt_tokens":4,"total_tokens":4}})";
  };
  model->embeddings.normalise = false;
  CHECK(answer("") == with("[3,4,0,12]", "[0,0,0,0]"));
  CHECK(answer(R"(,"dimensions":2)") == with("[0.6,0.8]", "[0,0]"));
  CHECK(answer(R"(,"dimensions":2,"encoding_format":"float")") == with("[0.6,0.8]", "[0,0]"));
  // Little-endian floats: 3.0f is 00 00 40 40, 4.0f 00 00 80 40, 12.0f 00 00 40 41.
  CHECK(answer(R"(,"encoding_format":"base64")") ==
        with(R"("AABAQAAAgEAAAAAAAABAQQ==")", R"("AAAAAAAAAAAAAAAAAAAAAA==")"));
  model->embeddings.normalise = true;
  CHECK(answer(R"(,"dimensions":1)") == with("[1]", "[0]"));
  CHECK(answer("").find("0.23076923,0.30769232,0,0.9230769") != std::string::npos);
  CHECK(answer(R"(,"normalize":false)") == with("[3,4,0,12]", "[0,0,0,0]"));
  CHECK(answer(R"(,"normalize":false,"dimensions":2)") == with("[3,4]", "[0,0]"));
}

TEST_CASE("What is wrong with a request for embeddings is named") {
  const auto refused = [](const std::string& fields, const std::string& param) {
    CAPTURE(fields);
    CHECK(fault_of([&] { embeddings(fields); }).param == param);
  };
  refused("", "input");
  refused(R"("input":[])", "input");
  refused(R"("input":{})", "input");
  refused(R"("input":[97,"a"])", "input");
  refused(R"("input":["a",97])", "input");
  refused(R"("input":[[]])", "input");
  refused(R"("input":[257])", "input");
  refused(R"("input":")" + std::string(200, 'x') + '"', "input");
  refused(R"("input":"a","dimensions":5)", "dimensions");
  refused(R"("input":"a","dimensions":0)", "dimensions");
  refused(R"("input":"a","encoding_format":"hex")", "encoding_format");
  refused(R"("input":"a","truncate_prompt_tokens":3)", "truncate_prompt_tokens");
  refused(R"("input":"a","task":"retrieval.query")", "task");
  refused(R"("input":"a","model":"other")", "model");
  std::string many = "\"a\"";
  for (std::size_t i = 0; i < most_inputs; ++i)
    many += ",\"a\"";
  refused(R"("input":[)" + many + ']', "input");
  auto model = byte_model();
  model->embeddings = {pooling::none, false, "its pooling is odd"};
  CHECK(fault_of([&] { embeddings(R"("input":"a")", model); }).message.find("its pooling is odd") != std::string::npos);
}
