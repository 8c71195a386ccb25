#include "runtime/import/pooling_config.hpp"
#include "tests/runtime/model/model_test_data.hpp"

#include <doctest/doctest.h>

#include <fstream>

using namespace troupe;
using namespace troupe::test;

namespace {

const std::string pooling_module =
  R"({"idx":0,"name":"0","path":"","type":"sentence_transformers.models.Transformer"},)"
  R"({"idx":1,"name":"1","path":"1_Pooling","type":"sentence_transformers.models.Pooling"})";

/// The style of a folder with these files; an empty text: without the file.
embedding_style style_of(const std::string& modules, const std::string& pooling_config) {
  const temp_folder folder;
  std::filesystem::create_directories(folder.path() / "1_Pooling");
  if (!modules.empty())
    std::ofstream(folder.path() / "modules.json") << modules;
  if (!pooling_config.empty())
    std::ofstream(folder.path() / "1_Pooling" / "config.json") << pooling_config;
  return read_sentence_style(folder.path()).embeddings;
}

} // namespace

TEST_CASE("A checkpoint that says nothing of embeddings pools the last token, as in vLLM") {
  const auto style = style_of("", "");
  CHECK(style.how == pooling::last);
  CHECK(style.normalise);
  CHECK(style.refusal.empty());
}

TEST_CASE("A sentence-transformers checkpoint says how its embeddings are pooled and whether they are normalised") {
  const std::string mean =
    R"({"word_embedding_dimension":8,"pooling_mode_cls_token":false,"pooling_mode_mean_tokens":true})";
  const std::string last = R"({"pooling_mode_lasttoken":true,"include_prompt":true})";
  const std::string normalise =
    R"(,{"idx":2,"name":"2","path":"2_Normalize","type":"sentence_transformers.models.Normalize"})";
  auto style = style_of('[' + pooling_module + ']', mean);
  CHECK(style.how == pooling::mean);
  CHECK(!style.normalise);
  style = style_of('[' + pooling_module + normalise + ']', last);
  CHECK(style.how == pooling::last);
  CHECK(style.normalise);
  CHECK(style_of('[' + pooling_module + ']', R"({"pooling_mode":"cls"})").how == pooling::cls);
  style = style_of("", mean); // without modules.json
  CHECK(style.how == pooling::mean);
  CHECK(!style.normalise);
}

TEST_CASE("What cannot be done to embeddings is the reason why there are none") {
  const auto refusal = [](const std::string& modules, const std::string& config) {
    const auto style = style_of(modules, config);
    CHECK(style.how == pooling::none);
    return style.refusal;
  };
  CHECK(refusal('[' + pooling_module + ']', R"({"pooling_mode_max_tokens":true})").find("`max_tokens`") !=
        std::string::npos);
  CHECK(refusal('[' + pooling_module + ']', R"({"pooling_mode_cls_token":true,"pooling_mode_mean_tokens":true})")
          .find("`cls_token and mean_tokens`") != std::string::npos);
  const std::string weights = R"(,{"idx":2,"path":"2_WordWeights","type":"sentence_transformers.models.WordWeights"})";
  CHECK(refusal('[' + pooling_module + weights + ']', R"({"pooling_mode_mean_tokens":true})").find("`WordWeights`") !=
        std::string::npos);
  CHECK(refusal('[' + pooling_module + ']', R"({"pooling_mode_mean_tokens":true,"include_prompt":false})")
          .find("leaves prompts out") != std::string::npos);
  CHECK(refusal("[]", "").find("no pooling") != std::string::npos);
}

TEST_CASE("Malformed descriptions of embeddings are refused naming the file") {
  const auto refused = [](const std::string& modules, const std::string& config) {
    return failure_of([&] { style_of(modules, config); });
  };
  CHECK(refused("{}", "").find("modules.json") != std::string::npos);
  CHECK(refused('[' + pooling_module + ']', "{}").find("does not name a pooling mode") != std::string::npos);
  CHECK(refused('[' + pooling_module + ']', R"({"pooling_mode_mean_tokens":1})").find("pooling_mode_mean_tokens") !=
        std::string::npos);
  CHECK(!refused('[' + pooling_module + ']', "").empty());
  CHECK(refused(R"([{"path":"../x","type":"a.Pooling"}])", "").find("path") != std::string::npos);
}

TEST_CASE("The longest text, and the activation of scores, are where old and new sentence-transformers write them") {
  const temp_folder folder;
  const auto write = [&](const std::string& name, const std::string& text) {
    std::ofstream(folder.path() / name) << text;
    return read_sentence_style(folder.path());
  };
  CHECK(write("tokenizer_config.json", R"({"model_max_length":64})").max_tokens == 0); // of any model
  const auto newer = write("config_sentence_transformers.json",
                           R"({"model_type":"CrossEncoder","activation_fn":"torch.nn.modules.linear.Identity"})");
  CHECK(newer.activation == "torch.nn.modules.linear.Identity");
  CHECK(newer.max_tokens == 64);
  CHECK(write("sentence_bert_config.json", R"({"transformer_task":"feature-extraction"})").max_tokens == 64);
  CHECK(write("sentence_bert_config.json", R"({"max_seq_length":48})").max_tokens == 48);
  CHECK(write("sentence_bert_config.json", "{}").max_tokens == 64);
  CHECK(write("tokenizer_config.json", R"({"model_max_length":1000000000000000019884624838656})").max_tokens == 0);
  CHECK(write("tokenizer_config.json", R"({"model_max_length":1e30})").max_tokens == 0);
}
