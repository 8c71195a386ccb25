// `troupe quantize` writes every family that is read: in llama.cpp's form where that can hold the model, else in
// Troupe's own. The file is read again and computes what the folder does.
#include "kernels/cpu/thread_pool.hpp"
#include "runtime/checkpoint/gguf_file.hpp"
#include "runtime/checkpoint/weight_values.hpp"
#include "runtime/import/gguf/gguf_export.hpp"
#include "runtime/import/gguf/gguf_layout.hpp"
#include "runtime/import/gguf_model.hpp"
#include "runtime/import/head_tensors.hpp"
#include "runtime/model/tensor_names.hpp"
#include "tests/runtime/model/decoder_checks.hpp"

#include <filesystem>

using namespace troupe;
using namespace troupe::test;

namespace {

namespace fs = std::filesystem;

struct form_case {
  const char *model, *architecture;
};

constexpr form_case form_cases[] = {
  {"families/afmoe", "troupe"},
  {"families/bloom", "bloom"},
  {"families/cohere2-moe", "troupe"},
  {"families/deepseek-v32", "troupe"},
  {"families/deepseek-v4", "troupe"},
  {"families/exaone-moe", "troupe"},
  {"families/glm4-moe-lite", "deepseek2"},
  {"families/glm-moe-dsa", "troupe"},
  {"families/hy-v3", "troupe"},
  {"families/inkling", "troupe"},
  {"families/lfm3", "troupe"},
  {"families/mellum", "troupe"},
  {"families/minicpm3", "troupe"},
  {"families/mistral-large4", "troupe"},
  {"families/muse-glimmer", "troupe"},
  {"families/nanochat", "troupe"},
  {"families/olmoe", "troupe"}, // which clips, as llama.cpp does not
  {"families/qwen4-exp", "troupe"},
  {"families/youtu", "troupe"},
  {"families/opt", "troupe"},
  {"families/smollm3", "troupe"},
  {"tiny_encoders/bert", "bert"},
  {"tiny_encoders/bert-ranker", "bert"},
  {"tiny_encoders/embedding-gemma", "troupe"}, // whose scores are scaled by another width than that of heads
  {"tiny_encoders/jina-v3", "jina-bert-v3"},
  {"tiny_encoders/modernbert", "modern-bert"},
  {"tiny_encoders/modernbert-ranker", "modern-bert"},
  {"tiny_encoders/nomic", "nomic-bert"},
  {"tiny_encoders/qwen3-ranker", "troupe"},
  {"tiny_encoders/xlm-roberta", "bert"},
  {"tiny_encoders/xlm-roberta-ranker", "bert"},
  {"tiny_families/apertus", "apertus"},
  {"tiny_families/deepseek-v3", "deepseek2"},
  {"tiny_families/bailing-hybrid", "troupe"},
  {"tiny_families/falcon-alibi", "troupe"},
  {"tiny_families/falcon-h1-normed", "troupe"},
  {"tiny_families/gemma3-scaled", "troupe"}, // likewise
  {"tiny_families/gemma3n", "gemma3n"},
  {"tiny_families/gemma4", "gemma4"},
  {"tiny_families/gemma4-experts", "gemma4"},
  {"tiny_families/gemma4-keys", "gemma4"},
  {"tiny_families/gpt-bigcode", "starcoder"},
  {"tiny_families/gpt-bigcode-heads", "starcoder"},
  {"tiny_families/gptj", "troupe"},
  {"tiny_families/granite-swa", "troupe"},
  {"tiny_families/internlm3", "troupe"},
  {"tiny_families/laguna", "troupe"},
  {"tiny_families/longcat-flash", "troupe"},
  {"tiny_families/hy-v4", "troupe"},
  {"tiny_families/minimax-m3", "troupe"},
  {"tiny_families/mpt", "troupe"},
  {"tiny_families/phimoe", "troupe"},
  {"tiny_families/solar-open", "troupe"},
  {"tiny_families/llama4", "troupe"},
  {"tiny_families/mistral4", "mistral4"},
  {"tiny_families/olmo-hybrid", "troupe"},
  {"tiny_families/olmoe", "olmoe"},
  {"tiny_families/phi3-longrope", "phi3"},
  {"tiny_families/qwen2.5-vl", "troupe"},
  {"tiny_families/smallthinker", "troupe"}, // whose windows llama.cpp would take for others
  {"tiny_families/smallthinker-softmax", "smallthinker"},
  {"families/zamba2", "troupe"},
  {"tiny_families/zamba2", "troupe"},
  {"tiny_mtp/nemotron-h", "nemotron_h_moe"},
  {"tiny_mtp/qwen3-next", "qwen3next"},
};

/// A copy of a folder, with a tokenizer if it has none.
std::string with_some_tokenizer(const std::string& model, const fs::path& folder) {
  const auto to = folder / "model";
  fs::copy(data() / model, to, fs::copy_options::recursive);
  if (!fs::exists(to / "tokenizer.json"))
    fs::copy_file(data() / "tiny_mtp/qwen3-5/tokenizer.json", to / "tokenizer.json");
  return to.string();
}

/// Logits of all tokens, or the hidden states of models without a head.
std::vector<row_logits> results_of(const model_source& source, const std::vector<token_id>& ids) {
  engine e(source, targets().back(), 1, dtype::f32);
  if (source.config.has_head())
    return e.step({{ids, 0, first_blocks(ids.size())}});
  const auto rows = static_cast<std::int32_t>(ids.size());
  const std::vector<kernels::sequence_rows> sequences{{0, rows, 0, 0, rows}};
  std::vector<std::int32_t> all(ids.size());
  std::iota(all.begin(), all.end(), 0);
  const auto width = as_size(source.config.hidden);
  std::vector<float> hidden(ids.size() * width);
  e.graph().forward(ids, {sequences, first_blocks(ids.size())}, {}, e.cache(), {}, all,
                    {hidden.data(), dtype::f32, ids.size(), width, width});
  std::vector<row_logits> result;
  for (auto at = hidden.begin(); at != hidden.end(); at += static_cast<std::ptrdiff_t>(width))
    result.emplace_back(at, at + static_cast<std::ptrdiff_t>(width));
  return result;
}

double furthest(const std::vector<row_logits>& got, const std::vector<row_logits>& expected) {
  double worst = 0;
  for (std::size_t i = 0; i < expected.size(); ++i)
    worst = std::max(worst, largest_difference(got[i], expected[i]));
  return worst;
}

/// Whether a line tells of a tensor that heads are computed from.
bool tell_of_heads(const std::vector<std::string>& lines, const model_source& source) {
  for (const auto& name : head_tensors(source))
    for (const auto& line : lines)
      if (line.find('`' + name + '`') != line.npos)
        return true;
  return false;
}

} // namespace

TEST_CASE("GGUF: every family is written, and computes the same when it is read again") {
  kernels::thread_pool pool(1);
  for (const auto& c : form_cases) {
    CAPTURE(std::string(c.model));
    const temp_folder folder;
    const auto from = with_some_tokenizer(c.model, folder.path()), file = (folder.path() / "m.gguf").string();
    std::vector<std::string> lines;
    export_gguf(from, *find_export_format("f32"), file, pool, {}, {}, [&](std::string line) { lines.push_back(line); });
    const gguf_file opened(file);
    const auto architecture = std::string(opened.metadata().string("general.architecture").value_or(""));
    CHECK(architecture == c.architecture);
    CHECK(std::ranges::any_of(lines, [](const std::string& line) { return line.find("own, which") != line.npos; }) ==
          (architecture == "troupe"));
    const auto original = open_model(from), written = open_model(file);
    CHECK_FALSE(tell_of_heads(lines, original));
    CHECK_FALSE(tell_of_heads(check_tensors(*written.tensors, written.config, head_tensors(written)), written));
    if (written.load_ranker || written.dense)
      CHECK(tell_of_heads(check_tensors(*written.tensors, written.config), written));
    std::mt19937 random(4);
    const auto ids = random_tokens(random, std::min<std::size_t>(50, as_size(original.config.max_context)),
                                   original.config.vocab);
    const auto expected = results_of(original, ids);
    CHECK(furthest(results_of(written, ids), expected) < 1e-4);
    CHECK(written.mtp.has_value() == original.mtp.has_value());
    REQUIRE(bool(written.load_ranker) == bool(original.load_ranker));
    if (original.load_ranker) {
      const auto head = original.load_ranker(*original.tensors), other = written.load_ranker(*written.tensors);
      CHECK(head->how() == other->how());
      CHECK(std::abs((*head)(expected.front()).front() - (*other)(expected.front()).front()) < 1e-6f);
    }
    // And from that file, in fewer bits.
    const auto again = (folder.path() / "again.gguf").string();
    export_gguf(file, *find_export_format("f16"), again, pool);
    const auto coarse = open_model(again);
    CHECK(coarse.config == written.config);
    if (original.config.experts.count == 0) // which roundings may swap
      CHECK(furthest(results_of(coarse, ids), expected) < 0.2);
    CHECK(bool(coarse.load_ranker) == bool(original.load_ranker));
    CHECK(coarse.mtp.has_value() == original.mtp.has_value());
  }
}

TEST_CASE("GGUF: positions whose scaling llama.cpp cannot say are in Troupe's own form") {
  kernels::thread_pool pool(1);
  for (const std::string scaling :
       {R"("rope_type": "dynamic", "factor": 2.0)", R"("rope_type": "yarn", "factor": 4.0, "truncate": false)"}) {
    CAPTURE(scaling);
    const temp_folder folder;
    const auto from = folder.path() / "model", file = folder.path() / "m.gguf";
    fs::copy(golden("llama-gqa"), from);
    auto config = content(from / "config.json");
    const std::string plain = "\"rope_type\": \"default\"";
    REQUIRE(config.find(plain) != std::string::npos);
    write(from / "config.json", config.replace(config.find(plain), plain.size(), scaling));
    std::string said;
    export_gguf(from.string(), *find_export_format("q8_0"), file, pool, {}, {},
                [&](std::string line) { said += line; });
    CHECK(said.find("GGUF cannot say how its positions are scaled") != std::string::npos);
    const auto original = open_model(from.string()), written = open_model(file.string());
    CHECK(written.config == original.config);
    CHECK(written.config.family == "llama"); // whose rows of q and k are in another order elsewhere
    std::mt19937 random(4);
    const auto ids = random_tokens(random, 40, original.config.vocab);
    CHECK(furthest(results_of(written, ids), results_of(original, ids)) < 0.5);
    const auto text = "It's 1234 o'clock";
    CHECK(written.load_tokenizer()->encode(text, true) == original.load_tokenizer()->encode(text, true));
  }
}

TEST_CASE("GGUF: Gemma 4 says that its logits are not capped, and shares K and V only as llama.cpp can follow") {
  kernels::thread_pool pool(1);
  const temp_folder folder;
  const auto file = folder.path() / "m.gguf";
  export_gguf(with_some_tokenizer("tiny_families/gemma4-keys", folder.path()), *find_export_format("f32"), file, pool);
  CHECK(gguf_file(file).metadata().number("gemma4.final_logit_softcapping", 0, 1) == 0.0);
  CHECK(open_gguf(file).config.logit_cap == 0);
  auto config = test::open("tiny_families/gemma4").config;
  CHECK(config.kv_layers == std::vector<int>{0, 1, 2, 3, 2, 3});
  gguf_writer one, other;
  describe_model(one, config, "m");
  config.kv_layers[4] = 1;
  CHECK(failure_of([&] { describe_model(other, config, "m"); }) ==
        "m: GGUF cannot say that layer 4 reads K and V of layer 1");
}

TEST_CASE("GGUF: SmallThinker's windows are in llama.cpp's form if they are as it takes them") {
  kernels::thread_pool pool(1);
  using replacement = std::pair<std::string, std::string>;
  const std::string layout = "0,\n    1,\n    1,\n    1,\n    0", other = "1,\n    0,\n    1,\n    1,\n    0";
  for (const auto& [windows, architecture] : {replacement(layout, "smallthinker"), replacement(other, "troupe")}) {
    CAPTURE(windows);
    const temp_folder folder;
    const auto from = with_some_tokenizer("tiny_families/smallthinker", folder.path()),
               file = (folder.path() / "m.gguf").string();
    auto config = content(fs::path(from) / "config.json");
    for (const auto& [what, by] :
         {replacement(R"("sliding_window_size": 7)", R"("sliding_window_size": 4096)"), replacement(layout, windows)})
      for (auto at = config.find(what); at != config.npos; at = config.find(what, at + by.size()))
        config.replace(at, what.size(), by);
    write(fs::path(from) / "config.json", config);
    export_gguf(from, *find_export_format("f32"), file, pool);
    CHECK(gguf_file(file).metadata().string("general.architecture") == architecture);
    const auto original = open_model(from), written = open_model(file);
    CHECK(original.config.windows[0] == (windows == layout ? 0 : 4096));
    CHECK(written.config.windows == original.config.windows);
    CHECK(written.config.unrotated == original.config.unrotated);
    CHECK(written.config.experts == original.config.experts);
    std::mt19937 random(4);
    const auto ids = random_tokens(random, 40, original.config.vocab);
    CHECK(furthest(results_of(written, ids), results_of(original, ids)) < 1e-5);
  }
}

TEST_CASE("GGUF: what a folder says of embeddings is in the file: pooling, prompts, layers behind") {
  kernels::thread_pool pool(1);
  const temp_folder folder;
  const auto file = (folder.path() / "m.gguf").string();
  const auto from = with_some_tokenizer("tiny_encoders/bert", folder.path());
  export_gguf(from, *find_export_format("q8_0"), file, pool);
  const auto original = open_model(from), written = open_model(file);
  CHECK(written.embeddings.how == pooling::mean);
  CHECK(written.embeddings.normalise);
  REQUIRE(written.embeddings.prompts.size() == original.embeddings.prompts.size());
  for (std::size_t i = 0; i < original.embeddings.prompts.size(); ++i) {
    CHECK(written.embeddings.prompts[i].name == original.embeddings.prompts[i].name);
    CHECK(written.embeddings.prompts[i].text == original.embeddings.prompts[i].text);
  }
  CHECK(written.config.max_context == 48);
  const gguf_file opened(file);
  CHECK(opened.metadata().integer("bert.pooling_type", 0, 9) == 1);
  CHECK(opened.metadata().boolean("bert.attention.causal") == false);
  CHECK(opened.tensors().at("position_embd.weight").info.shape == std::vector<std::size_t>{48, 16});

  // Layers behind the pooling are in Troupe's own form but for EmbeddingGemma's.
  const fs::path model(from);
  fs::create_directory(model / "3_Dense");
  write(model / "3_Dense/config.json",
        R"({"in_features":16,"out_features":4,"bias":false,"activation_function":"torch.nn.modules.activation.Tanh"})");
  const std::string header = R"({"linear.weight":{"dtype":"F32","shape":[4,16],"data_offsets":[0,256]}})";
  auto dense = safetensors(header, 256);
  for (std::size_t i = 0; i < 64; ++i) {
    const float value = static_cast<float>(i % 7) - 3;
    std::memcpy(dense.data() + 8 + header.size() + i * 4, &value, 4);
  }
  write(model / "3_Dense/model.safetensors", dense);
  write(model / "modules.json",
        R"([{"path":"","type":"sentence_transformers.models.Transformer"},
{"path":"1_Pooling","type":"sentence_transformers.models.Pooling"},
{"path":"3_Dense","type":"sentence_transformers.models.Dense"}])");
  std::string said;
  const auto other = (folder.path() / "dense.gguf").string();
  export_gguf(from, *find_export_format("q8_0"), other, pool, {}, {}, [&](std::string line) { said += line; });
  CHECK(said.find("which layers are behind the pooling") != std::string::npos);
  const auto behind = open_model(other);
  CHECK_FALSE(behind.embeddings.normalise);
  CHECK(behind.embeddings.how == pooling::mean);
  REQUIRE(behind.dense);
  const std::vector<float> state(16, 0.125f);
  CHECK((*behind.dense)(state) == (*open_model(from).dense)(state));
}

TEST_CASE("GGUF: tokenizers of every kind are written, and cut texts as they did") {
  const auto tried = [](const fs::path& folder, const model_config& config, std::string_view kind, bool exact) {
    CAPTURE(folder.string());
    const auto tokens = tokenizer::load(folder);
    gguf_writer to;
    const auto lines = describe_words(to, folder, config, {}, *tokens, "m");
    const auto head = to.head();
    const auto metadata = read_gguf(std::as_bytes(std::span(head)), "m").metadata;
    CHECK(metadata.string("tokenizer.ggml.model") == kind);
    CHECK(bool(metadata.find(exact_tokenizer_key)) == exact);
    CHECK(lines.empty() == (kind != "none"));
    const auto read = make_gguf_tokenizer(metadata, "m");
    for (const char* text :
         {"", "a fox", "  The  FOX\njumps d\u00e9j\u00e0 12, [MASK] </s>", "\U0001F642 \u65e5\u672c"}) {
      CAPTURE(std::string(text));
      CHECK(read->encode(text, true) == tokens->encode(text, true));
      CHECK(read->decode(tokens->encode(text, false), true) == tokens->decode(tokens->encode(text, false), true));
      if (!config.encoder) // others read no pairs
        continue;
      CHECK(read->encode_pair("a fox", text, 99).ids == tokens->encode_pair("a fox", text, 99).ids);
      CHECK(read->encode_pair("a fox", text, 99).second == tokens->encode_pair("a fox", text, 99).second);
    }
  };
  model_config encoder;
  encoder.encoder = true;
  encoder.vocab = 48;
  tried(data() / "tiny_encoders/bert", encoder, "bert", true); // whose second texts have a type of their own
  model_config config;
  for (const std::string model : {"unigram", "unigram-bytes"}) {
    config.vocab = static_cast<int>(tokenizer::load(data() / "older_tokenizers" / model)->vocab_size());
    tried(data() / "older_tokenizers" / model, config, "t5", false);
  }
  // What GGUF has no name for: digits in groups of two.
  const temp_folder folder;
  fs::copy(golden("llama-gqa"), folder.path() / "model");
  auto words = content(folder.path() / "model/tokenizer.json");
  const std::string digits = "{1,3}";
  write(folder.path() / "model/tokenizer.json", words.replace(words.find(digits), digits.size(), "{1,2}"));
  config.vocab = static_cast<int>(tokenizer::load(folder.path() / "model")->vocab_size());
  tried(folder.path() / "model", config, "none", true);
  for (const auto& model : golden_models) {
    config.vocab = read_config(golden(model)).model.vocab;
    const auto bytes = content(golden(model) + "/tokenizer.json").find("\"byte_fallback\": true") == std::string::npos;
    tried(golden(model), config, bytes ? "gpt2" : "llama", false);
  }
}

TEST_CASE("GGUF: files in Troupe's own form are checked as others are") {
  const temp_folder folder;
  const auto file = folder.path() / "m.gguf";
  const auto refusal = [&](std::initializer_list<std::pair<const char*, const char*>> keys) {
    gguf_writer writer;
    writer.add("general.architecture", "troupe");
    for (const auto& [key, value] : keys)
      writer.add(key, value);
    writer.write(file, [](std::size_t) { return std::span<const std::byte>(); });
    const auto why = failure_of([&] { open_gguf(file); });
    return why.substr(why.find("gguf: ") + 6);
  };
  CHECK(refusal({}) == "`troupe.config` is missing");
  CHECK(refusal({{"troupe.config", "{"}}).starts_with("`troupe.config`: "));
  CHECK(refusal({{"troupe.config", R"({"model_type":"nothing"})"}}).find("`model_type` is `nothing`") !=
        std::string::npos);
}
