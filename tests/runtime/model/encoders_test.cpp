// Encoders and heads over pooled states against transformers, and independent of what is computed beside them.
#include "runtime/model/pooled_head.hpp"
#include "runtime/model/tensor_names.hpp"
#include "tests/runtime/model/decoder_checks.hpp"

using namespace troupe;
using namespace troupe::test;

namespace {

const std::vector<std::string> encoder_models{"bert",    "embedding-gemma", "bert-ranker",
                                              "jina-v3", "modernbert",      "modernbert-ranker",
                                              "nomic",   "xlm-roberta",     "xlm-roberta-ranker"};

struct encoded_text {
  std::vector<token_id> tokens;
  std::int32_t second = 0;
};

/// The last hidden states of texts that are computed in one step, by text and position.
std::vector<std::vector<row_logits>> states_of(engine& e, const std::vector<encoded_text>& texts,
                                               kernels::backend& backend) {
  std::vector<token_id> tokens;
  std::vector<std::int32_t> tables, wanted;
  std::vector<kernels::sequence_rows> sequences;
  for (const auto& text : texts) {
    const auto first = static_cast<std::int32_t>(tokens.size()), rows = static_cast<std::int32_t>(text.tokens.size());
    sequences.push_back({first, rows, 0, static_cast<std::int32_t>(tables.size()), rows, text.second});
    for (const auto block : first_blocks(text.tokens.size(), static_cast<std::int32_t>(tables.size())))
      tables.push_back(block);
    tokens.insert(tokens.end(), text.tokens.begin(), text.tokens.end());
    for (std::int32_t r = 0; r < rows; ++r)
      wanted.push_back(first + r);
  }
  const auto width = as_size(e.weights().config.hidden);
  const auto memory = backend.allocate(wanted.size() * width * sizeof(float));
  e.graph().forward(tokens, {sequences, tables}, {}, e.cache(), {}, wanted,
                    {memory.get(), dtype::f32, wanted.size(), width, width});
  std::vector<float> all(wanted.size() * width);
  backend.download(all.data(), {memory.get(), dtype::f32, wanted.size(), width, width});
  std::vector<std::vector<row_logits>> result;
  std::size_t row = 0;
  for (const auto& text : texts) {
    auto& own = result.emplace_back();
    for (std::size_t i = 0; i < text.tokens.size(); ++i, ++row)
      own.emplace_back(all.begin() + static_cast<std::ptrdiff_t>(row * width),
                       all.begin() + static_cast<std::ptrdiff_t>((row + 1) * width));
  }
  return result;
}

row_logits pooled_of(const std::vector<row_logits>& states, pooling how) {
  if (how == pooling::cls)
    return states.front();
  if (how == pooling::last)
    return states.back();
  row_logits mean(states.front().size());
  for (const auto& state : states)
    for (std::size_t i = 0; i < mean.size(); ++i)
      mean[i] += state[i] / static_cast<float>(states.size());
  return mean;
}

} // namespace

TEST_CASE("Encoders: last hidden states and scores are transformers', in f32 on every target") {
  auto models = encoder_models;
  models.push_back("qwen3-ranker");
  for (const auto& model : models)
    for (const isa target : targets()) {
      CAPTURE(model);
      const auto source = open("tiny_encoders/" + model);
      check_tensors(*source.tensors, source.config);
      CHECK(source.config.encoder == (model != "qwen3-ranker"));
      CHECK(!source.config.has_head());
      const auto backend = kernels::make_cpu_backend({.threads = 1});
      engine e(source, target, 1, dtype::f32);
      const auto document = json::document::load(data() / "tiny_encoders" / model / "expected.json");
      const auto ids = list<token_id>(document.root()["ids"]);
      const auto positions = list<int>(document.root()["positions"]);
      const auto second = static_cast<std::int32_t>(std::int64_t(document.root()["second"]));
      const auto states = states_of(e, {{ids, second}}, *backend).front();
      json::array expected;
      REQUIRE(!document.root()["hidden"].get(expected));
      for (std::size_t i = 0; i < positions.size(); ++i) {
        CAPTURE(positions[i]);
        CHECK(largest_difference(states[as_size(positions[i])], list<float>(expected.at(i))) < 2e-4);
      }
      CHECK(bool(source.load_ranker) == model.ends_with("-ranker"));
      if (!source.load_ranker)
        continue;
      const auto ranker = source.load_ranker(*source.tensors);
      CHECK(ranker->outputs() == 1);
      const double score = document.root()["score"];
      CHECK((*ranker)(pooled_of(states, ranker->how())).front() == doctest::Approx(score).epsilon(1e-4));
    }
}

TEST_CASE("Encoders: to a model with one type of tokens, a second text is as the first") {
  for (const auto& [model, alike] : {std::pair("xlm-roberta", true), {"bert", false}}) {
    CAPTURE(std::string(model));
    const auto source = open(std::string("tiny_encoders/") + model);
    const auto backend = kernels::make_cpu_backend({.threads = 1});
    engine e(source, targets().back(), 1, dtype::f32);
    const std::vector<token_id> ids{2, 9, 7, 3, 11, 12, 3};
    CHECK((states_of(e, {{ids, 4}}, *backend) == states_of(e, {{ids, 0}}, *backend)) == alike);
  }
}

TEST_CASE("Jina's original files: matrices beside which adapters for tasks stand are the model's own") {
  const temp_folder folder;
  const auto to = folder.path() / "jina";
  std::filesystem::copy(data() / "tiny_encoders/jina-v3", to);
  const auto replace = [](std::string& text, std::string_view what, std::string_view by) {
    for (auto at = text.find(what); at != text.npos; at = text.find(what, at + by.size()))
      text.replace(at, what.size(), by);
  };
  auto config = content(to / "config.json");
  replace(config, R"("model_type": "jina_embeddings_v3")",
          R"("model_type": "xlm-roberta", "position_embedding_type": "rotary", "rotary_emb_base": 20000.0)");
  replace(config, R"("rope_parameters")", R"("unused")");
  write(to / "config.json", config);
  auto file = content(to / "model.safetensors");
  std::size_t length = 0;
  for (int i = 0; i < 8; ++i)
    length |= std::size_t(static_cast<unsigned char>(file[as_size(i)])) << (8 * i);
  auto header = file.substr(8, length);
  const auto values = file.substr(8 + length);
  for (const std::string stem :
       {"mixer.Wqkv", "mixer.out_proj", "mlp.fc1", "mlp.fc2", "word_embeddings", "token_type_embeddings"})
    replace(header, "." + stem + ".weight\"", "." + stem + ".parametrizations.weight.original\"");
  replace(header, "\"encoder.", "\"roberta.encoder.");
  replace(header, "\"embeddings.", "\"roberta.embeddings.");
  replace(header, "\"emb_ln.", "\"roberta.emb_ln.");
  const auto end = std::to_string(values.size()), end_after = std::to_string(values.size() + 40);
  header = header.substr(0, header.rfind('}')) +
    R"(,"roberta.encoder.layers.0.mixer.Wqkv.parametrizations.weight.0.lora_A":{"dtype":"F32","shape":[5,2,1],)" +
    R"("data_offsets":[)" + end + "," + end_after + "]}}";
  write(to / "model.safetensors", safetensors(header, 0) + values + std::string(40, '\0'));

  const auto original = open("tiny_encoders/jina-v3"), source = open_model(to.string());
  CHECK(source.config == original.config);
  REQUIRE(source.remarks.size() == 1);
  CHECK(source.remarks.front().ends_with("its adapters for tasks are not used"));
  CHECK(check_tensors(*source.tensors, source.config).size() == 1);
  std::mt19937 random(2);
  const std::vector<encoded_text> texts{{random_tokens(random, 30, source.config.vocab), 0}};
  const auto backend = kernels::make_cpu_backend({.threads = 1});
  engine one(original, targets().back(), 1, dtype::f32), other(source, targets().back(), 1, dtype::f32);
  CHECK(states_of(one, texts, *backend) == states_of(other, texts, *backend));
}

TEST_CASE("Encoders: a text's states do not depend on the texts beside it or on threads") {
  std::mt19937 random(3);
  for (const auto& model : encoder_models)
    for (const dtype compute : {dtype::f32, dtype::bf16}) {
      CAPTURE(model);
      const auto source = open("tiny_encoders/" + model);
      const auto backend = kernels::make_cpu_backend({.threads = 1});
      engine alone(source, targets().back(), 1, compute), beside(source, targets().back(), 2, compute);
      for (int round = 0; round < 4; ++round) {
        std::vector<encoded_text> texts;
        for (int i = 0; i < 5; ++i) {
          const auto length = 1 + random() % 44;
          texts.push_back(
            {random_tokens(random, length, source.config.vocab), static_cast<std::int32_t>(random() % length)});
        }
        const auto all = states_of(beside, texts, *backend);
        for (std::size_t i = 0; i < texts.size(); ++i)
          CHECK(all[i] == states_of(alone, {texts[i]}, *backend).front());
      }
    }
}

TEST_CASE("Encoders: a part of a text is refused, and so are logits") {
  const auto source = open("tiny_encoders/bert");
  engine e(source, targets().back(), 1, dtype::f32);
  const std::vector<token_id> ids{2, 7, 3};
  const auto run = [&](kernels::sequence_rows rows) {
    const std::vector<std::int32_t> table{0};
    e.graph().forward(ids, {{&rows, 1}, table}, {}, e.cache(), {});
  };
  CHECK_NOTHROW(run({0, 3, 0, 0, 3}));
  CHECK_THROWS_AS(run({0, 3, 0, 0, 4}), failure);
  CHECK_THROWS_AS(run({0, 3, 1, 0, 4}), failure);
  CHECK_THROWS_AS(e.step({{ids, 0, {0}}}), failure);
}

TEST_CASE("Sentence encoders bring their pooling, their prompts and the longest text") {
  const auto source = open("tiny_encoders/bert");
  CHECK(source.embeddings.how == pooling::mean);
  CHECK(source.embeddings.normalise);
  CHECK(source.embeddings.prompts.size() == 2);
  CHECK(source.embeddings.usual_prompt.empty());
  CHECK(source.config.max_context == 48);
  CHECK(open("tiny_encoders/bert-ranker").embeddings.how == pooling::none);
  CHECK(open("tiny_encoders/xlm-roberta").config.max_context == 62);
}

TEST_CASE("Heads over pooled states: layers, activations, norms and the scale of a single score") {
  using act = pooled_layer::activation;
  pooled_layer first{2, 3, {1, 0, -1, 0.5f, 0.5f, 0.5f}, {0.25f, 0}, act::tanh};
  pooled_layer last{1, 2, {2, -1}};
  const std::vector<float> state{0.5f, 1, -0.25f};
  const double a = std::tanh(0.75 + 0.25), b = std::tanh(0.625), score = 2 * a - b;
  CHECK(pooled_head(pooling::cls, {first, last})(state).front() == doctest::Approx(score));
  CHECK(pooled_head(pooling::cls, {first, last}, score_scale::sigmoid)(state).front() ==
        doctest::Approx(1 / (1 + std::exp(-score))));
  first.act = act::none;
  first.norm = {1, 2};
  first.norm_bias = {0, 1};
  const auto normed = pooled_head(pooling::cls, {first})(state); // 1 and 0.625
  CHECK(normed[0] == doctest::Approx(1).epsilon(1e-3));
  CHECK(normed[1] == doctest::Approx(-1).epsilon(1e-3));
  CHECK_THROWS_AS(pooled_head(pooling::cls, {last})(state), failure);
}
