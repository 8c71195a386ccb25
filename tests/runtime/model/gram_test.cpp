// Tables of n-grams, groups of positions and streams of low rank: what configurations mean, which rows tokens look up,
// that every part counts, and what is refused by name.
#include "kernels/planned_steps.hpp"
#include "runtime/model/decoder/memory_estimate.hpp"
#include "runtime/model/gram_layers.hpp"
#include "runtime/model/measuring/forwarding_backend.hpp"
#include "runtime/model/recurrent_layers.hpp"
#include "tests/runtime/model/decoder_checks.hpp"

using namespace troupe;
using namespace troupe::test;

namespace {

const char* const gram_model = "families/qwen4-exp";

/// Its configuration, in which `from` is `to`.
model_config gram_config_with(const std::string& from, const std::string& to) {
  auto text = content(data() / gram_model / "config.json");
  const auto at = text.find(from);
  REQUIRE(at != text.npos);
  return parse_model_config(json::document::parse(text.replace(at, from.size(), to), "config.json"));
}

std::string gram_refusal(const std::string& from, const std::string& to) {
  return failure_of([&] { gram_config_with(from, to); });
}

/// Tensors of another checkpoint, but for one that has other bytes.
class with_other_bytes final : public checkpoint {
public:
  with_other_bytes(const checkpoint& inner, std::string name) : inner_(inner), name_(std::move(name)) {}

  std::string name() const override { return inner_.name(); }
  std::vector<std::string> tensors() const override { return inner_.tensors(); }
  const tensor_info* find(std::string_view tensor) const override { return inner_.find(tensor); }
  tensor_data read(std::string_view tensor) const override {
    auto data = inner_.read(tensor);
    if (tensor != name_)
      return data;
    const auto bytes = inner_.find(tensor)->bytes;
    std::shared_ptr<char[]> other(new char[bytes]);
    std::copy_n(static_cast<const char*>(data.get()), bytes, other.get());
    ++other[0];
    return other;
  }
  std::string where(std::string_view tensor) const override { return inner_.where(tensor); }
  std::vector<file_state> files() const override { return inner_.files(); }

private:
  const checkpoint& inner_;
  std::string name_;
};

} // namespace

TEST_CASE(
  "N-grams: tokens look up the rows that transformers' module does, across ends of texts and before the first") {
  const auto config = open(gram_model).config;
  const auto& grams = config.grams;
  CHECK(grams.layers[0].multipliers ==
        std::vector<std::int64_t>{6697078691028197, 1827739439519661, 10478277199614203});
  CHECK(grams.layers[2].multipliers ==
        std::vector<std::int64_t>{6829426527611681, 7423608324312131, 10687316889711877});
  CHECK(grams.layers[0].rows == std::vector<std::int64_t>{257, 263, 269, 271});
  CHECK(grams.layers[2].rows == std::vector<std::int64_t>{277, 281, 283, 293});
  CHECK(grams.table_rows(0) == 1064);
  CHECK(grams.table_rows(2) == 1136);
  CHECK(grams.part_rows(2) == 568);
  CHECK_FALSE(grams.at(1));
  const std::vector<token_id> tokens{5, 700, 2, 17, 18, 2, 2, 9, 10, 11}; // 2 ends a text
  const std::vector<std::vector<std::int64_t>> expected[] = {{{103, 409, 567, 949},
                                                              {66, 478, 591, 956},
                                                              {190, 373, 615, 800},
                                                              {228, 468, 713, 1017},
                                                              {39, 398, 637, 908},
                                                              {14, 497, 578, 918},
                                                              {120, 411, 554, 1055},
                                                              {132, 314, 696, 802},
                                                              {222, 287, 737, 860},
                                                              {248, 427, 597, 842}},
                                                             {{3, 519, 612, 975},
                                                              {217, 482, 621, 975},
                                                              {26, 322, 677, 887},
                                                              {212, 427, 614, 911},
                                                              {161, 343, 589, 1020},
                                                              {141, 365, 637, 1104},
                                                              {275, 465, 814, 1037},
                                                              {92, 336, 668, 853},
                                                              {208, 363, 687, 1003},
                                                              {156, 521, 598, 914}}};
  for (const int layer : {0, 2})
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      const std::int32_t before[] = {i > 0 ? tokens[i - 1] : -1, i > 1 ? tokens[i - 2] : -1};
      std::vector<std::int64_t> rows(4);
      gram_rows(grams, layer, tokens[i], before, rows.data());
      CHECK(rows == expected[layer / 2][i]);
    }
}

TEST_CASE("N-grams: what a configuration says, and which values are refused by key") {
  const auto config = open(gram_model).config;
  CHECK(config.indexer == indexer_config{.heads = 8, .dim = 16, .top = 67, .group = 4});
  CHECK(config.hyper.streams == 2);
  CHECK(config.hyper.rank == 16);
  CHECK(config.residual_width() == 128);
  CHECK(config.indexes(1));
  CHECK_FALSE(config.indexes(0));
  CHECK(gram_config_with(R"("indexed_attention")", R"("full_attention")") == config);
  CHECK(gram_config_with(R"("output_gate_type": null)", R"("output_gate_type": "sigmoid")").recurrent.sigmoid_gate);
  const auto shape = state_shape_of(config, 1, 0, 8);
  REQUIRE(shape.spread.size() == 3);
  CHECK(shape.spread[0].rows() == 2);
  CHECK(shape.spread[1].rows() == 9);
  CHECK(shape.spread[1].channels == 128);
  CHECK(gram_config_with("    1,\n    3\n", "").grams == gram_config());
  auto half = config;
  half.span = layer_span{1, 2, false, false};
  CHECK(state_shape_of(half, 1, 0, 8).spread.empty());
  const auto says = [&](const std::string& from, const std::string& to, const std::string& what) {
    CHECK(gram_refusal(from, to) == "config.json: " + what);
  };
  says(R"("indexer_compress_ratio": 4)", R"("indexer_compress_ratio": 3)",
       "`indexer_compress_ratio` is 3, supported are 2, 4, 8 and 16");
  says(R"("indexer_budget": 64)", R"("indexer_budget": 66)",
       "`indexer_budget` must be a multiple of `indexer_compress_ratio`, found 66 and 4");
  says(R"("indexer_budget": 64,)", "", "`indexer_budget` is missing");
  says(R"("indexer_kv_heads": 1)", R"("indexer_kv_heads": 2)", "`indexer_kv_heads` is 2, supported is 1");
  says(R"("indexer_head_dim": 16)", R"("indexer_head_dim": 14)",
       "`indexer_head_dim` is 14, supported are even numbers from the rotated dimensions of heads on, if these are a "
       "part");
  says("    1,\n    3\n", "    1,\n    2\n", "`ple_layer_ids` names layer 2, which is not linear_attention");
  says(R"("ple_embed_dim": 32)", R"("ple_embed_dim": 30)",
       "`ple_embed_dim` must be a multiple of the 4 rows that a token looks up, found 30");
  says(R"("eos_token_id": 2)", R"("eos_token_id": null)", "`eos_token_id` is missing, at which n-grams of tokens end");
  says(R"("split_ngram_parts": 2)", R"("split_ngram_parts": 1000)",
       "`split_ngram_parts` is 1000, supported are parts of less than 2^31 rows, none of them empty");
  says(R"("output_gate_type": null)", R"("output_gate_type": "tanh")",
       "`output_gate_type` is `tanh`, supported are silu and sigmoid");
}

TEST_CASE("N-grams: steps are planned with the rows that a token looks up, and the tokens before it") {
  struct planner final : forwarding_backend {
    using forwarding_backend::forwarding_backend;
    std::size_t scratch_bytes(const kernels::planned_steps& steps) const override {
      planned = steps;
      return 0;
    }
    mutable kernels::planned_steps planned;
  };
  const auto cpu = kernels::make_cpu_backend({.threads = 1, .target = targets().back()});
  for (const std::string model : {gram_model, "golden/llama-gqa"}) {
    CAPTURE(model);
    const auto source = open(model);
    const planner backend(*cpu);
    estimate_memory(*source.tensors, source.config, dtype::f32, backend, {.rows = 8, .context = 64});
    CHECK(backend.planned.looked_up == (model == gram_model ? 4 : 0));
    CHECK(backend.planned.recalled == (model == gram_model ? 2 : 0));
  }
}

TEST_CASE("N-grams: every part of a layer with a table is part of the result") {
  const auto with = [&](const std::function<void(model_config&)>& change) {
    auto source = open(gram_model);
    std::vector<token_id> ids(150);
    for (std::size_t i = 0; i < ids.size(); ++i)
      ids[i] = static_cast<token_id>(5 + i * i % 97);
    change(source.config);
    engine e(source, targets().back(), 1, dtype::f32);
    return e.step({{ids, 0, first_blocks(ids.size())}}).back();
  };
  const auto changes = [&](const std::function<void(model_config&)>& change) {
    return largest_difference(with(change), with([](model_config&) {})) > 1e-3;
  };
  CHECK(changes([](model_config& c) { c.grams.layers[0].multipliers.clear(); }));
  CHECK(changes([](model_config& c) { c.grams.stop = 84; })); // the last token but one
  CHECK(changes([](model_config& c) { c.indexer.top -= 4; }));
  CHECK(changes([](model_config& c) { c.indexer.group = 2; }));
  CHECK(changes([](model_config& c) { c.recurrent.sigmoid_gate = true; }));
}

TEST_CASE("N-grams: hashes that a checkpoint stores must be those of its configuration") {
  const auto source = open(gram_model);
  const auto cpu = kernels::make_cpu_backend({.threads = 1});
  for (const std::string name : {"multipliers", "rows", "first_rows"}) {
    const auto full = "model.layers.2.grams." + name;
    REQUIRE(source.tensors->find(full));
    const with_other_bytes other(*source.tensors, full);
    const auto said = failure_of([&] { load_weights(other, source.config, *cpu, dtype::f32); });
    CHECK_MESSAGE(said.ends_with("is not what the configuration gives for the hashes of n-grams"), said);
  }
}

TEST_CASE("N-grams: stages take tokens along, and give the bits of the whole") {
  const auto source = open(gram_model);
  std::mt19937 random(3);
  const auto ids = random_tokens(random, 150, source.config.vocab);
  engine whole(source, targets().back(), 1, dtype::f32);
  const auto expected = whole.step({{ids, 0, first_blocks(ids.size())}});
  const auto cpu = kernels::make_cpu_backend({.threads = 2, .target = targets().back()});
  const auto rows = static_cast<std::int32_t>(ids.size());
  const std::vector<kernels::sequence_rows> sequences{{0, rows, 0, 0, rows}};
  const auto blocks = first_blocks(ids.size());
  std::vector<std::int32_t> all(ids.size());
  std::iota(all.begin(), all.end(), 0);
  const auto vocab = as_size(source.config.vocab);
  std::vector<float> logits(ids.size() * vocab), passed;
  for (const auto& span : {layer_span{0, 2, true, false}, layer_span{2, 4, false, true}}) {
    auto config = source.config;
    config.span = span;
    decoder part(load_weights(*source.tensors, config, *cpu, dtype::f32), *cpu, rows, 512);
    const auto cache = cpu->make_kv_cache(kv_shape_of(config, dtype::f32, pool_blocks));
    const auto width = as_size(config.residual_width());
    if (span.embeds) {
      part.embed(ids, {sequences, blocks});
    } else {
      part.receive({passed.data(), dtype::f32, ids.size(), width, width});
      CHECK_THROWS(part.run({sequences, blocks}, *cache)); // it does not know the tokens
      part.know(ids);
    }
    part.run({sequences, blocks}, *cache);
    if (span.heads) {
      part.conclude(all, {logits.data(), dtype::f32, ids.size(), vocab, vocab});
    } else {
      passed.resize(ids.size() * width);
      cpu->download(passed.data(), part.residual());
    }
  }
  bool equal = true;
  for (std::size_t i = 0; i < ids.size(); ++i)
    equal = equal && std::equal(expected[i].begin(), expected[i].end(), &logits[i * vocab]);
  CHECK(equal);
}
