#include "api/openai/rankings.hpp"
#include "runtime/import/ranker_config.hpp"
#include "runtime/model/pooled_head.hpp"
#include "tests/api/openai/run_job.hpp"

#include <doctest/doctest.h>

using namespace troupe;
using namespace troupe::test;

namespace {

generation_job reranked(const std::string& fields, std::shared_ptr<const served_model> model) {
  return parsed(
    "{" + fields + "}", [](const field_reader& body, const auto& served) { return rerank_job(body, served, {}); },
    std::move(model));
}

generation_job scored(const std::string& fields, std::shared_ptr<const served_model> model) {
  return parsed(
    "{" + fields + "}", [](const field_reader& body, const auto& served) { return score_job(body, served, {}); },
    std::move(model));
}

/// Scores a pair by the first number of its state.
std::shared_ptr<served_model> cross_encoder(std::size_t labels = 1) {
  auto model = byte_model();
  pooled_layer layer;
  layer.outputs = labels;
  layer.inputs = 2;
  layer.weight.assign(labels * 2, 0);
  layer.weight[0] = 1;
  model->ranker = std::make_shared<const pooled_head>(pooling::cls, std::vector{layer});
  model->generates = false;
  model->encode_pair = [model = model.get()](std::string_view first, std::string_view second, std::size_t most) {
    token_pair both{model->encode(first, true), 0};
    both.second = static_cast<std::int32_t>(both.ids.size());
    for (const auto id : model->encode(second.substr(0, most), false))
      both.ids.push_back(id);
    return both;
  };
  return model;
}

done_event state_of(std::vector<float> values) {
  auto e = ended(3, 0);
  e.embedding = std::move(values);
  return e;
}

} // namespace

TEST_CASE("Documents are ranked by the scores of pairs, in the shape of Jina and vLLM") {
  const auto answer = [](const std::string& fields) {
    auto job = reranked(R"("query":"q","documents":["a",{"text":"b"},"c"])" + fields, cross_encoder());
    REQUIRE(job.prompts.size() == 3);
    CHECK(text_of(job.prompts[1].prompt) == "<s>qb");
    CHECK(job.prompts[1].embed == pooling::cls);
    CHECK(job.prompts[1].second == std::ssize(job.prompts[1].prompt) - 1);
    job.writer->take(2, state_of({0.5f, 9}));
    job.writer->take(0, state_of({0.25f, 9}));
    job.writer->take(1, state_of({0.5f, -9}));
    return without(job.writer->body(), "\"id\":\"rerank-");
  };
  const std::string begin =
    R"({"id":"rerank-X","model":"org/bytes","usage":{"prompt_tokens":9,"total_tokens":9},"results":[)";
  CHECK(answer("") ==
        begin +
          R"({"index":1,"relevance_score":0.5,"document":{"text":"b"}},)"
          R"({"index":2,"relevance_score":0.5,"document":{"text":"c"}},)"
          R"({"index":0,"relevance_score":0.25,"document":{"text":"a"}}]})");
  CHECK(answer(R"(,"top_n":1,"return_documents":false)") == begin + R"({"index":1,"relevance_score":0.5}]})");
}

TEST_CASE("Tokens of a document are limited by request, and what cannot be ranked is refused by name") {
  CHECK(
    text_of(
      reranked(R"("query":"q","documents":["abcdef"],"max_tokens_per_doc":2)", cross_encoder()).prompts.at(0).prompt) ==
    "<s>qab");
  const auto param = [](const std::string& fields) {
    return fault_of([&] { reranked(fields, cross_encoder()); }).param;
  };
  CHECK(param(R"("documents":["a"])") == "query");
  CHECK(param(R"("query":"q")") == "documents");
  CHECK(param(R"("query":"q","documents":[])") == "documents");
  CHECK(param(R"("query":"q","documents":[7])") == "documents");
  CHECK(param(R"("query":"q","documents":[{"title":"a"}])") == "documents");
  CHECK(param(R"("query":"q","documents":["a"],"top_n":0)") == "top_n");
  std::string many = "\"a\"";
  for (std::size_t i = 0; i < most_ranked; ++i)
    many += ",\"a\"";
  CHECK(param(R"("query":"q","documents":[)" + many + "]") == "documents");
  CHECK(fault_of([&] { reranked(R"("query":"q","documents":["a"])", cross_encoder(3)); }).message ==
        "this model has scores for 3 labels, and texts are ranked by one");
}

TEST_CASE("Pairs are scored one with many and as many with as many") {
  auto job = scored(R"("text_1":"q","text_2":["a","b"])", cross_encoder());
  REQUIRE(job.prompts.size() == 2);
  job.writer->take(0, state_of({0.25f, 0}));
  job.writer->take(1, state_of({0.75f, 0}));
  const auto body = without(without(job.writer->body(), "\"id\":\"score-"), "\"created\":", ",");
  CHECK(
    body ==
    R"({"id":"score-X","object":"list","created":X,"model":"org/bytes","data":[{"index":0,"object":"score","score":0.25},)"
    R"({"index":1,"object":"score","score":0.75}],"usage":{"prompt_tokens":6,"total_tokens":6,"completion_tokens":0}})");
  CHECK(text_of(scored(R"("text_1":["q","r"],"text_2":["a","b"])", cross_encoder()).prompts.at(1).prompt) == "<s>rb");
  const auto param = [](const std::string& fields) { return fault_of([&] { scored(fields, cross_encoder()); }).param; };
  CHECK(param(R"("text_1":["q","r"],"text_2":["a"])") == "text_1");
  CHECK(param(R"("text_2":["a"])") == "text_1");
  CHECK(param(R"("text_1":"q")") == "text_2");
}

TEST_CASE("Models without a classifier compare embeddings, and embed the query once") {
  auto model = byte_model();
  auto job = scored(R"("text_1":"q","text_2":["a","b","a"])", model);
  REQUIRE(job.prompts.size() == 4);
  job.writer->take(0, state_of({3, 4}));
  job.writer->take(1, state_of({4, 3}));
  job.writer->take(2, state_of({-3, -4}));
  job.writer->take(3, state_of({4, 3}));
  const auto body = job.writer->body();
  CHECK(body.find(R"("index":0,"object":"score","score":0.96)") != body.npos);
  CHECK(body.find(R"("index":1,"object":"score","score":-1)") != body.npos);
  model->embeddings.prompts = {{"document", "D: "}};
  model->embeddings.usual_prompt = "document";
  const auto prompted = reranked(R"("query":"q","documents":["abcdef","a"],"max_tokens_per_doc":6)", model).prompts;
  CHECK(text_of(prompted.at(0).prompt) == "<s>D: q");
  CHECK(text_of(prompted.at(1).prompt) == "<s>D: ab"); // six tokens with those around the text
  CHECK(text_of(prompted.at(2).prompt) == "<s>D: a");
  model->embeddings = {.how = pooling::none, .normalise = false, .refusal = "its pooling is odd"};
  CHECK(fault_of([&] { scored(R"("text_1":"q","text_2":"a")", model); }).message ==
        "this model has no embeddings: its pooling is odd");
}

TEST_CASE("Rerankers that answer yes or no are asked in their own words") {
  auto model = cross_encoder();
  model->ranked_pair = std::make_shared<const pair_prompt>(pair_prompt{"[", "|", "]"});
  CHECK(text_of(reranked(R"("query":"q","documents":["abc"],"max_tokens_per_doc":2)", model).prompts.at(0).prompt) ==
        "[q|ab]");
}
