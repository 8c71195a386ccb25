#include "tests/runtime/checkpoint/gguf_test_data.hpp"
#include "tests/runtime/model/model_test_data.hpp"

#include "kernels/cpu/cpu_backend.hpp"
#include "runtime/engine/loading/loader.hpp"
#include "runtime/engine/loading/weight_loading.hpp"
#include "runtime/import/gguf/gguf_words.hpp"
#include "runtime/import/gguf_model.hpp"
#include "runtime/import/model_source.hpp"
#include "runtime/model/decoder/decoder.hpp"
#include "runtime/model/decoder/memory_estimate.hpp"
#include "runtime/model/tensor_names.hpp"
#include "runtime/support/json/json.hpp"
#include "runtime/tokenizer/pre_tokenizer.hpp"

#include <cmath>
#include <ctime>
#include <fstream>
#include <functional>
#include <numeric>

using namespace troupe;
using namespace troupe::test;
using kernels::dtype;

namespace {

std::filesystem::path gguf(const std::string& name) { return data() / "gguf" / (name + ".gguf"); }

/// The logits after the last of `ids`.
std::vector<float> last_logits(const model_source& source, const std::vector<token_id>& ids, dtype compute) {
  const auto backend = kernels::make_cpu_backend({.threads = 1});
  const auto weights = load_weights(*source.tensors, source.config, *backend, compute);
  CHECK(weights->bytes == estimate_memory(*source.tensors, source.config, compute, *backend, {}).weights);
  const auto rows = static_cast<std::int32_t>(ids.size());
  decoder graph(weights, *backend, rows, rows);
  std::vector<std::int32_t> blocks((ids.size() + kernels::block_tokens - 1) / kernels::block_tokens);
  std::iota(blocks.begin(), blocks.end(), 0);
  const auto cache = backend->make_kv_cache(kv_shape_of(source.config, compute, blocks.size()));
  const auto vocab = static_cast<std::size_t>(source.config.vocab);
  const auto memory = backend->allocate(vocab * sizeof(float));
  const kernels::tensor out{memory.get(), dtype::f32, 1, vocab, vocab};
  const kernels::sequence_rows all{0, rows, 0, 0};
  const std::int32_t last = rows - 1;
  graph.forward(ids, {{&all, 1}, blocks}, {&last, 1}, *cache, out);
  std::vector<float> logits(vocab);
  backend->download(logits.data(), out);
  return logits;
}

struct same_checkpoint {
  const char* file;
  const char* golden;
};
const same_checkpoint pairs[] = {
  {"llama3-q8_0", "llama-mqa-rope3"}, {"qwen2-bf16", "qwen2"}, {"spm-vocab", "mistral-swa"}};

json::document expected_of(const char* golden) {
  return json::document::load(data() / "golden" / golden / "expected.json");
}

/// A llama of one layer, without tensors; `change` may replace or drop entries.
using entries = std::map<std::string, std::string>;
std::string metadata_only(const std::function<void(entries&)>& change) {
  const auto number = [](std::uint32_t n) { return packed_type(gguf_type::u32) + packed(n); };
  const auto text = [](std::string_view t) { return packed_type(gguf_type::string) + packed_string(t); };
  const auto words = [](const std::vector<std::string>& list) {
    std::string bytes;
    for (const auto& word : list)
      bytes += packed_string(word);
    return packed_type(gguf_type::array) + packed_type(gguf_type::string) + packed(std::uint64_t{list.size()}) + bytes;
  };
  entries all{
    {"general.architecture", text("llama")},
    {"llama.context_length", number(64)},
    {"llama.embedding_length", number(32)},
    {"llama.block_count", number(1)},
    {"llama.feed_forward_length", number(64)},
    {"llama.attention.head_count", number(2)},
    {"llama.attention.layer_norm_rms_epsilon", packed_type(gguf_type::f32) + packed(1e-5f)},
    {"tokenizer.ggml.model", text("gpt2")},
    {"tokenizer.ggml.pre", text("gpt-2")},
    {"tokenizer.ggml.tokens", words({"a", "b", "ab", "<|im_end|>"})},
    {"tokenizer.ggml.merges", words({"a b"})},
    {"tokenizer.ggml.token_type",
     packed_type(gguf_type::array) + packed_type(gguf_type::i32) + packed(std::uint64_t{4}) + packed(1) + packed(1) +
       packed(1) + packed(3)},
    {"tokenizer.ggml.eos_token_id", number(2)},
  };
  change(all);
  gguf_text file;
  for (const auto& [key, value] : all)
    file.keys.push_back(packed_string(key) + value);
  return file.str();
}

std::string number(std::uint32_t n) { return packed_type(gguf_type::u32) + packed(n); }
std::string real(float f) { return packed_type(gguf_type::f32) + packed(f); }
std::string text(std::string_view t) { return packed_type(gguf_type::string) + packed_string(t); }

/// A file in a folder of its own that holds these metadata.
class metadata_file {
public:
  explicit metadata_file(const std::function<void(entries&)>& change) { write(path(), metadata_only(change)); }
  std::filesystem::path path() const { return folder_.path() / "m.gguf"; }
  gguf_file open() const { return gguf_file(path()); }

private:
  temp_folder folder_;
};

model_config config_with(const std::function<void(entries&)>& change) {
  return parse_gguf_config(metadata_file(change).open());
}

/// The error message, without the folder.
std::string shortened(std::string message) {
  const auto at = message.find("m.gguf");
  return at == std::string::npos ? message : message.substr(at);
}

std::string config_error(const std::function<void(entries&)>& change) {
  return shortened(failure_of([&] { config_with(change); }));
}

std::string tokenizer_error(const std::function<void(entries&)>& change) {
  const metadata_file file(change);
  return shortened(failure_of([&] { make_gguf_tokenizer(file.open()); }));
}

} // namespace

TEST_CASE("A tokenizer is read from a file of an unknown architecture, without weights") {
  const metadata_file file([](entries& e) {
    e["general.architecture"] = text("rwkv7");
    e.erase("llama.block_count");
  });
  CHECK(open_tokenizer(file.path().string())->encode("ab", false) == std::vector<token_id>{2});
  // Nor does it need tensors that can be read: here there should be one.
  auto bytes = metadata_only([](entries&) {});
  bytes[8] = 1;
  write(file.path(), bytes);
  CHECK(open_tokenizer(file.path().string())->encode("ab", false) == std::vector<token_id>{2});
  CHECK_THROWS_AS(gguf_file{file.path()}, failure);
}

TEST_CASE("GGUF models: logits are those of a forward pass over blocks as they are and inputs rounded to int8") {
  const auto document = json::document::load(data() / "gguf/gguf.json");
  for (const char* name : {"llama3-q8_0", "mixed"}) {
    CAPTURE(std::string(name));
    const auto source = open_gguf(gguf(name));
    CHECK(check_tensors(*source.tensors, source.config).empty());
    const auto c = document.root()[name];
    const auto ids = list<token_id>(c["ids"]);
    const auto expected = list<float>(c["logits"]);
    CHECK(natural_compute(*source.tensors) == dtype::bf16);
    CHECK(largest_difference(last_logits(source, ids, dtype::f32), expected) < 2e-4);
    const double coarse = largest_difference(last_logits(source, ids, dtype::bf16), expected);
    CHECK(coarse > 2e-4);
    CHECK(coarse < 0.3);
  }
}

TEST_CASE("GGUF models: a bf16 file has the configuration and the logits of the checkpoint that it was made from") {
  const auto source = open_model(gguf("qwen2-bf16").string());
  const auto original = open_model((data() / "golden/qwen2").string());
  CHECK(source.name == "qwen2-bf16");
  CHECK(source.config == original.config);
  CHECK(source.generation.stops == std::vector<token_id>{0, 2}); // <|endoftext|> too, by its name
  CHECK(source.tensors->tensors() == original.tensors->tensors());
  const auto document = expected_of("qwen2");
  for (json::value c : json::find(document.root(), "cases")->get_array()) {
    const auto ids = list<token_id>(c["ids"]);
    CHECK(largest_difference(last_logits(source, ids, dtype::f32), list<float>(c["last_logits"])) < 2e-4);
  }
}

TEST_CASE("GGUF tokenizers give the reference ids and texts of the checkpoints that they were made from") {
  for (const auto& [name, golden] : pairs) {
    CAPTURE(std::string(name));
    const gguf_file file(gguf(name));
    const auto tokens = make_gguf_tokenizer(file);
    const auto original = tokenizer::load(data() / "golden" / golden);
    CHECK(tokens->vocab_size() == original->vocab_size());
    CHECK(tokens->bos() == original->bos());
    CHECK(tokens->eos() == original->eos());
    const auto document = expected_of(golden);
    int compared = 0;
    for (json::value c : json::find(document.root(), "tokenize")->get_array()) {
      const std::string words(c["text"].get_string().value());
      CAPTURE(words);
      CHECK(tokens->encode(words, true) == list<token_id>(c["ids"]));
      const auto plain = list<token_id>(c["ids_no_special"]);
      CHECK(tokens->encode(words, false) == plain);
      CHECK(tokens->decode(plain, true) == c["decoded"].get_string().value());
      CHECK(tokens->decode(plain, false) == c["decoded_with_special"].get_string().value());
      ++compared;
    }
    CHECK(compared > 10);
  }
}

TEST_CASE("A file takes the place of a GGUF file's chat template, with the tokens of the file") {
  const auto file = (std::filesystem::temp_directory_path() / "troupe-template-instead.jinja").string();
  std::ofstream(file) << "{{ eos_token }}|{{ messages[0].content }}";
  const gguf_file opened(gguf("llama3-q8_0"));
  const auto chat = make_gguf_chat_template(opened, file);
  REQUIRE(chat);
  const auto messages = json::document::parse(R"([{"role": "user", "content": "Hello"}])", "messages");
  const auto text = chat->render({.messages = jinja::from_json(messages.root())});
  CHECK(text.ends_with("|Hello"));
  CHECK(text.size() > 6);
  std::filesystem::remove(file);
  CHECK(failure_of([&] { make_gguf_chat_template(opened, file); }) == file + ": no such file");
}

TEST_CASE("GGUF chat templates render the reference conversations") {
  for (const auto& [name, golden] : pairs) {
    CAPTURE(std::string(name));
    const auto chat = make_gguf_chat_template(gguf_file(gguf(name)));
    REQUIRE(chat);
    const auto document = expected_of(golden);
    int rendered = 0;
    for (json::value c : json::find(document.root(), "chat")->get_array()) {
      chat_template::arguments args{.messages = jinja::from_json(*json::find(c, "messages"))};
      if (const auto prompt = json::find(c, "add_generation_prompt"))
        args.add_generation_prompt = prompt->get_bool();
      if (const auto tools = json::find(c, "tools"))
        args.tools = jinja::from_json(*tools);
      if (const auto expected = json::find(c, "rendered"))
        CHECK(chat->render(args) == expected->get_string().value());
      else
        CHECK_FALSE(failure_of([&] { chat->render(args); }).empty());
      ++rendered;
    }
    CHECK(rendered > 2);
  }
}

TEST_CASE("GGUF chat templates: that for tools and all special tokens are read as those of folders are") {
  const auto with = [](const std::string& tools) {
    return metadata_file([&](entries& e) {
      e["tokenizer.chat_template"] = text("plain {{ bos_token }}{{ eos_token }}{{ pad_token }}{{ unk_token }}");
      if (!tools.empty())
        e["tokenizer.chat_template.tool_use"] = text(tools);
      e["tokenizer.ggml.padding_token_id"] = number(1);
      e["tokenizer.ggml.unknown_token_id"] = number(0);
    });
  };
  const jinja::value some = jinja::value::list({jinja::value("f")});
  const auto both = *make_gguf_chat_template(with("tools {{ tools[0] }}{{ eos_token }}").open());
  CHECK(both.render({.messages = jinja::value::list({})}) == "plain abba");
  CHECK(both.render({.messages = jinja::value::list({}), .tools = some}) == "tools fab");
  CHECK(both.text().find("tools {{") != std::string::npos); // by which its format of calls is found
  const temp_folder folder;
  write(folder.path() / "other.jinja", "other");
  const auto other = *make_gguf_chat_template(with("tools").open(), (folder.path() / "other.jinja").string());
  CHECK(other.render({.messages = jinja::value::list({}), .tools = some}) == "other"); // it takes the place of both
  const auto one = *make_gguf_chat_template(with("").open());
  CHECK(one.render({.messages = jinja::value::list({}), .tools = some}) == "plain abba");
  CHECK(failure_of([&] { make_gguf_chat_template(with("{{").open()); }).find("that for tools") != std::string::npos);
}

TEST_CASE("GGUF files say how to sample, as generation_config.json does") {
  const auto of = [](const std::function<void(entries&)>& change) {
    return parse_gguf_generation(metadata_file(change).open());
  };
  const auto integer = [](std::int32_t n) { return packed_type(gguf_type::i32) + packed(n); };
  const auto plain = of([](entries&) {});
  CHECK(plain.sampling_source.empty());
  const auto said = of([&](entries& e) {
    e["general.sampling.temp"] = real(0.5f);
    e["general.sampling.top_k"] = integer(20);
    e["general.sampling.top_p"] = real(0.75f);
    e["general.sampling.min_p"] = real(0.25f);
    e["general.sampling.penalty_repeat"] = real(1.5f);
    e["general.sampling.penalty_last_n"] = integer(64);
    e["general.sampling.xtc_probability"] = real(0.125f);
    e["general.sampling.xtc_threshold"] = real(0.0625f);
  });
  const auto& s = said.sampling;
  CHECK(said.sampling_source == "general.sampling.* of the GGUF file");
  CHECK(std::tuple(s.temperature, s.top_k, s.top_p, s.min_p) == std::tuple(0.5f, 20, 0.75f, 0.25f));
  CHECK(std::tuple(s.repetition_penalty, s.repetition_penalty_range) == std::tuple(1.5f, 64));
  CHECK(std::tuple(s.xtc_probability, s.xtc_threshold) == std::tuple(0.125f, 0.0625f));
  CHECK(said.remarks.empty());
  const auto wild = of([&](entries& e) { e["general.sampling.temp"] = real(5); });
  CHECK(wild.sampling.temperature == 2);
  REQUIRE(wild.remarks.size() == 1);
  CHECK(shortened(wild.remarks[0]) == "m.gguf: `general.sampling.temp` is 5, taken as 2: it must be from 0 to 2");
  const auto none = of([&](entries& e) {
    e["general.sampling.penalty_repeat"] = real(1.5f);
    e["general.sampling.penalty_last_n"] = integer(0);
  });
  CHECK(none.sampling.repetition_penalty == 1);
  CHECK(none.sampling_source.empty()); // neither a temperature nor a filter
}

TEST_CASE("A folder with one GGUF file is a model, and loads with tokenizer and chat template") {
  const temp_folder folder;
  std::filesystem::copy(gguf("qwen2-bf16"), folder.path() / "one.gguf");
  engine_options options;
  options.model = folder.path().string();
  options.compute.threads = 1;
  options.max_context = 64;
  const auto model = load_model(options, {});
  CHECK(model->info.id == "one");
  CHECK(model->info.chat);
  REQUIRE(model->info.tokenizer);
  CHECK(model->info.tokenizer->encode("Hello", true) ==
        open_tokenizer((data() / "golden/qwen2").string())->encode("Hello", true));
  CHECK(open_tokenizer(options.model)->vocab_size() == 720);

  std::filesystem::copy(gguf("spm-vocab"), folder.path() / "two.gguf");
  CHECK(failure_of([&] { open_model(options.model); }).ends_with("holds several .gguf files; name one of them"));
  write(folder.path() / "x.bin", "x");
  CHECK(failure_of([&] {
          open_model((folder.path() / "x.bin").string());
        }).ends_with("a model is a folder or a .gguf file, not a file of another kind"));
  CHECK(failure_of([&] { open_model(gguf("spm-vocab").string()); }).empty()); // opening reads no weights
  const auto empty = open_model(gguf("spm-vocab").string());
  CHECK(failure_of([&] { check_tensors(*empty.tensors, empty.config); }) ==
        gguf("spm-vocab").string() +
          " (`token_embd.weight`): tensor `model.embed_tokens.weight` is missing, expected with the shape [800, 128]");
}

TEST_CASE("A GGUF file is recognised by its extension, ignoring case, or by its first bytes") {
  const temp_folder folder;
  const std::map<std::string, std::string> names{
    {"Q.GGUF", "Q"}, {"sha256-0.a1", "sha256-0.a1"}, {"v1.5.gguf", "v1.5"}};
  for (const auto& [file, name] : names) {
    CAPTURE(file);
    std::filesystem::copy(gguf("qwen2-bf16"), folder.path() / file);
    CHECK(open_model((folder.path() / file).string()).name == name);
    CHECK(open_tokenizer((folder.path() / file).string())->vocab_size() == 720);
  }
  std::filesystem::remove(folder.path() / "v1.5.gguf");
  CHECK(open_model(folder.path().string()).name == "Q"); // in a folder, by its extension
  const auto loop = folder.path() / "loop";
  std::filesystem::create_symlink("loop", loop);
  CHECK(failure_of([&] { open_model(loop.string()); }) ==
        loop.string() + ": cannot be read: Too many levels of symbolic links");
  const auto copy = folder.path() / "copy";
  std::filesystem::copy(data() / "golden/qwen2", copy);
  for (const char* name : {"tokenizer_config.json", "generation_config.json", "model.safetensors"}) {
    CAPTURE(std::string(name));
    std::filesystem::remove(copy / name);
    std::filesystem::create_symlink(name, copy / name);
    const auto said = failure_of([&] {
      open_model(copy.string());
      open_tokenizer(copy.string());
    });
    CHECK(said.starts_with((copy / name).string() + ": "));
    std::filesystem::remove(copy / name);
  }
}

TEST_CASE("Matrices in blocks, which --quantize does not apply to, are logged") {
  const auto lines = [](const std::filesystem::path& model, kernels::quantization how) {
    const auto source = open_model(model.string());
    const auto backend = kernels::make_cpu_backend({.threads = 1});
    std::vector<std::string> said;
    const auto say = [&](std::string line) { said.push_back(std::move(line)); };
    load_weights(source, {}, {dtype::bf16, how}, *backend, {}, say);
    return said;
  };
  using said = std::vector<std::string>;
  using kernels::quantization;
  CHECK(lines(gguf("llama3-q8_0"), quantization::none).empty());
  CHECK(lines(gguf("llama3-q8_0"), quantization::int8) ==
        said{"`quantize` int8 changes nothing: all matrices are in blocks already"});
  CHECK(lines(gguf("mixed"), quantization::int4) ==
        said{"`quantize` int4 is for 1 of 8 matrices: the others are in blocks already"});
  CHECK(lines(gguf("qwen2-bf16"), quantization::int8).empty());
}

TEST_CASE("GGUF configurations: keys become the decoder's sizes, positions, windows and stops") {
  const auto plain = config_with([](entries&) {});
  CHECK(plain.family == "llama");
  CHECK(plain.vocab == 4);
  CHECK(plain.kv_heads == 2);
  CHECK(plain.head_dim == 16);
  CHECK(plain.tied);
  CHECK(plain.rope == rope_config{});
  CHECK(plain.max_context == 64);
  CHECK(plain.windows == std::vector{0});
  CHECK(parse_gguf_generation(metadata_file([](entries&) {}).open()).stops == std::vector<token_id>{2, 3});
  const auto linear = config_with([](entries& e) {
    e["llama.rope.scaling.type"] = text("linear");
    e["llama.rope.scaling.factor"] = real(4);
    e["llama.attention.sliding_window"] = number(7);
    e["llama.vocab_size"] = number(9);
  });
  CHECK(linear.rope.type == rope_type::linear);
  CHECK(linear.rope.factor == 4);
  CHECK(linear.windows == std::vector{7});
  CHECK(linear.vocab == 9);
  const auto yarn = config_with([](entries& e) {
    e["llama.rope.scaling.type"] = text("yarn");
    e["llama.rope.scaling.factor"] = real(4);
    e["llama.rope.scaling.original_context_length"] = number(32);
  });
  CHECK(yarn.rope.type == rope_type::yarn);
  CHECK(yarn.rope.original_context == 32);
  CHECK(yarn.rope.attention_factor == doctest::Approx(0.1 * std::log(4) + 1));
  CHECK(yarn.max_context == 128);
}

TEST_CASE("GGUF configurations: latent attention, experts in groups and layers that predict further tokens") {
  const auto deepseek = [](entries& e) {
    for (const char* key : {"context_length", "embedding_length", "block_count", "feed_forward_length",
                            "attention.head_count", "attention.layer_norm_rms_epsilon"})
      e[std::string("deepseek2.") + key] = e["llama." + std::string(key)];
    e["general.architecture"] = text("deepseek2");
    e["deepseek2.block_count"] = number(3);
    e["deepseek2.nextn_predict_layers"] = number(1);
    e["deepseek2.attention.kv_lora_rank"] = number(12);
    e["deepseek2.attention.q_lora_rank"] = number(0);
    e["deepseek2.rope.dimension_count"] = number(4);
    e["deepseek2.attention.key_length"] = number(10);
    e["deepseek2.attention.value_length"] = number(7);
    e["deepseek2.expert_count"] = number(8);
    e["deepseek2.expert_used_count"] = number(3);
    e["deepseek2.expert_gating_func"] = number(2);
    e["deepseek2.expert_group_count"] = number(4);
    e["deepseek2.expert_group_used_count"] = number(2);
  };
  const auto config = config_with(deepseek);
  CHECK(config.layers == 2);
  CHECK(config.latent == latent_config{.kv_rank = 12, .plain = 6, .rotated = 4, .value = 7});
  CHECK(config.family == "deepseek_v3");
  CHECK(config.experts.groups == 4);
  CHECK(config.experts.group_by_two);
  const auto error = [&](const char* key, std::uint32_t value) {
    return config_error([&](entries& e) {
      deepseek(e);
      e[std::string("deepseek2.") + key] = number(value);
    });
  };
  CHECK(error("rope.dimension_count", 10) ==
        "m.gguf: `deepseek2.rope.dimension_count` is 10, expected fewer than the 10 dimensions of a key");
  CHECK(error("attention.kv_lora_rank", 1000) ==
        "m.gguf: `deepseek2.attention.kv_lora_rank` and `deepseek2.rope.dimension_count` are 1000 and 4, supported are "
        "even numbers up to 640 together");
  CHECK(
    config_error([&](entries& e) {
      deepseek(e);
      e["deepseek2.attention.head_count"] = number(16);
      e["deepseek2.attention.key_length"] = number(1u << 20);
    }) ==
    "m.gguf: latent attention with 16 heads of up to 1048579 rows in 2 layers is not supported, only 65536 heads and "
    "4194304 rows of a layer");
  CHECK(error("nextn_predict_layers", 3) ==
        "m.gguf: `deepseek2.nextn_predict_layers` is 3, expected fewer than the 3 of `deepseek2.block_count`");
  CHECK(error("expert_gating_func", 3) ==
        "m.gguf: `deepseek2.expert_gating_func` is 3, supported are 1 (softmax) and 2 (sigmoid)");
  CHECK(
    error("expert_group_count", 3) ==
    "m.gguf: `deepseek2.expert_group_count` is 3 and `deepseek2.expert_group_used_count` is 2, which does not fit 8 "
    "experts of which 3 are chosen");
  CHECK(config_error([&](entries& e) {
          deepseek(e);
          e.erase("deepseek2.attention.kv_lora_rank");
        }) == "m.gguf: `deepseek2.attention.kv_lora_rank` is missing");
  CHECK(config_error([](entries& e) {
          e["general.architecture"] = text("gemma2");
          for (const char* key : {"context_length", "embedding_length", "block_count", "feed_forward_length",
                                  "attention.head_count", "attention.layer_norm_rms_epsilon"})
            e[std::string("gemma2.") + key] = e["llama." + std::string(key)];
          e["gemma2.attention.sliding_window_pattern"] = packed_type(gguf_type::array) +
            packed_type(gguf_type::boolean) + packed(std::uint64_t{2}) + std::string(2, '\1');
        }) == "m.gguf: `gemma2.attention.sliding_window_pattern` has 2 elements, expected one for each of 1 layers");
}

TEST_CASE("GGUF configurations: missing, contradictory or unsupported values are refused naming the key") {
  CHECK(config_error([](entries& e) { e.erase("general.architecture"); }) ==
        "m.gguf: `general.architecture` is missing");
  CHECK(config_error([](entries& e) {
          e["general.architecture"] = text("rwkv7");
        }).starts_with("m.gguf: `general.architecture` is `rwkv7`, supported are llama, qwen2, qwen3, "));
  CHECK(config_error([](entries& e) { e.erase("llama.block_count"); }) == "m.gguf: `llama.block_count` is missing");
  CHECK(config_error([](entries& e) { e["llama.block_count"] = number(1u << 30); }) ==
        "m.gguf: `llama.block_count` must be from 1 to 4096, found 1073741824");
  CHECK(config_error([](entries& e) { e["llama.attention.head_count_kv"] = number(3); }) ==
        "m.gguf: `llama.attention.head_count` must be a multiple of `llama.attention.head_count_kv`, found 2 and 3");
  CHECK(config_error([](entries& e) {
          e["llama.attention.head_count"] = number(5);
        }).starts_with("m.gguf: `llama.embedding_length` must be a multiple of `llama.attention.head_count`"));
  CHECK(config_error([](entries& e) { e["llama.attention.key_length"] = number(15); }) ==
        "m.gguf: heads of 15 dimensions are not supported, only even numbers up to 256");
  CHECK(config_error([](entries& e) {
          e["llama.attention.value_length"] = number(8);
        }).starts_with("m.gguf: `llama.attention.value_length` is 8, only as many as keys have, here 16"));
  CHECK(config_error([](entries& e) {
          e["llama.rope.dimension_count"] = number(8);
        }).starts_with("m.gguf: `llama.rope.dimension_count` is 8, only heads that are rotated whole"));
  CHECK(config_error([](entries& e) { e["llama.rope.scaling.type"] = text("longrope"); }) ==
        "m.gguf: `llama.rope.scaling.type` is `longrope`, supported are none, linear and yarn");
  CHECK(config_error([](entries& e) { e.erase("llama.attention.layer_norm_rms_epsilon"); }) ==
        "m.gguf: `llama.attention.layer_norm_rms_epsilon` is missing");
  CHECK(config_error([](entries& e) { e["llama.expert_count"] = number(8); }) ==
        "m.gguf: `llama.expert_used_count` is missing");
}

TEST_CASE("GGUF tokenizers: words are split like the named pre-tokenizer does, and BOS and EOS are added on request") {
  const metadata_file file([](entries& e) {
    e["tokenizer.ggml.bos_token_id"] = number(0);
    e["tokenizer.ggml.add_bos_token"] = packed_type(gguf_type::boolean) + packed(char{1});
    e["tokenizer.ggml.add_eos_token"] = packed_type(gguf_type::boolean) + packed(char{1});
  });
  const auto tokens = make_gguf_tokenizer(file.open());
  CHECK(tokens->encode("ab<|im_end|>ba", true) == std::vector<token_id>{0, 2, 3, 1, 0, 2});
  CHECK(tokens->encode("ab", false) == std::vector<token_id>{2});
  CHECK(tokens->is_special(3));
  CHECK(tokens->eos() == 2);
  // A vocabulary of digits, in which two digits would merge where a word holds them both.
  const auto digits = [](const char* pre) {
    const metadata_file of([&](entries& e) {
      e["tokenizer.ggml.pre"] = text(pre);
      e["tokenizer.ggml.tokens"] = packed_type(gguf_type::array) + packed_type(gguf_type::string) +
        packed(std::uint64_t{4}) + packed_string("1") + packed_string("11") + packed_string("1111") +
        packed_string("2");
      e["tokenizer.ggml.merges"] = packed_type(gguf_type::array) + packed_type(gguf_type::string) +
        packed(std::uint64_t{2}) + packed_string("1 1") + packed_string("11 11");
      e.erase("tokenizer.ggml.token_type");
    });
    return make_gguf_tokenizer(of.open())->encode("1111", false);
  };
  CHECK(digits("gpt-2") == std::vector<token_id>{2});
  CHECK(digits("smollm") == std::vector<token_id>{0, 0, 0, 0});
  CHECK(digits("qwen2") == std::vector<token_id>{0, 0, 0, 0});
  CHECK(digits("llama-bpe") == std::vector<token_id>{1, 0, 0});
  CHECK(digits("tekken") == std::vector<token_id>{0, 0, 0, 0});
  CHECK(digits("kimi-k2") == std::vector<token_id>{1, 0, 0});
  CHECK(digits("falcon") == std::vector<token_id>{1, 0, 0});
  for (const auto* from_the_right : {"afmoe", "tiny_aya"})
    CHECK(digits(from_the_right) == std::vector<token_id>{0, 1, 0});
}

TEST_CASE("GGUF tokenizers: Phi 3's special tokens take in the spaces behind them") {
  const auto ids = [](const char* name) {
    const metadata_file file([&](entries& e) {
      const auto list = [](std::initializer_list<std::string_view> texts) {
        std::string bytes;
        for (const auto t : texts)
          bytes += packed_string(t);
        return packed_type(gguf_type::array) + packed_type(gguf_type::string) + packed(std::uint64_t{texts.size()}) +
          bytes;
      };
      e["general.name"] = text(name);
      e["tokenizer.ggml.tokens"] = list({"a", "\u0120", "\u0120a", "<|im_end|>"});
      e["tokenizer.ggml.merges"] = list({"\u0120 a"});
    });
    return make_gguf_tokenizer(file.open())->encode("<|im_end|> a", false);
  };
  CHECK(ids("Phi 2") == std::vector<token_id>{3, 2});
  CHECK(ids("Microsoft Phi-3 mini") == std::vector<token_id>{3, 0});
}

TEST_CASE("GGUF tokenizers: every name for a way to split texts can be read, and no text is lost by it") {
  std::string text;
  for (const auto* part :
       {"It's 12345 O'Neill's ", "caf\u00e9 na\u0308ive\n\n\t x=1;  ", "\u4f60\u597d\u3002\u30ac\uac00 "})
    text += part;
  const auto& alphabet = tokenization::byte_level_alphabet();
  std::string words;
  for (const auto& letter : alphabet)
    words += packed_string(letter);
  for (const auto& rule : word_rules()) {
    CAPTURE(rule.name);
    const metadata_file of([&](entries& e) {
      e["tokenizer.ggml.pre"] = ::text(rule.name);
      e["tokenizer.ggml.tokens"] = packed_type(gguf_type::array) + packed_type(gguf_type::string) +
        packed(std::uint64_t{256}) + words;
      e["tokenizer.ggml.merges"] = packed_type(gguf_type::array) + packed_type(gguf_type::string) +
        packed(std::uint64_t{0});
      e.erase("tokenizer.ggml.token_type");
    });
    const auto tokens = make_gguf_tokenizer(of.open());
    const auto ids = tokens->encode(text, false);
    if (rule.characters || rule.nfc)
      continue; // the vocabulary is not theirs, or the text changes
    CHECK(ids.size() == text.size());
    CHECK(tokens->decode(ids, false) == text);
    // Linear time on what look-aheads could make quadratic: 64 times as long for eight times the text.
    const auto seconds = [&](std::size_t digits) {
      const auto started = std::clock();
      tokens->encode(std::string(digits, '1') + "x", false);
      return static_cast<double>(std::clock() - started) / CLOCKS_PER_SEC;
    };
    bool linear = false;
    for (int tries = 0; tries < 5 && !linear; ++tries) { // a busy machine charges for what it takes away
      const auto eighth = seconds(1 << 12);
      linear = seconds(1 << 15) < 24 * eighth + 0.3;
    }
    CHECK(linear);
  }
  CHECK(word_rules().size() > 70);
}

TEST_CASE("GGUF tokenizers: missing, contradictory or unsupported values are refused naming the key") {
  CHECK(tokenizer_error([](entries& e) { e.erase("tokenizer.ggml.model"); }) ==
        "m.gguf: `tokenizer.ggml.model` is missing");
  CHECK(tokenizer_error([](entries& e) { e["tokenizer.ggml.model"] = text("rwkv"); }) ==
        "m.gguf: `tokenizer.ggml.model` is `rwkv`, supported are gpt2, llama, t5, bert and gemma4");
  CHECK(tokenizer_error([](entries& e) {
          e["tokenizer.ggml.pre"] = text("mine");
        }).starts_with("m.gguf: `tokenizer.ggml.pre` is `mine`, supported are gpt-2, "));
  for (const auto* model : {"t5", "bert"})
    CHECK(tokenizer_error([&](entries& e) { e["tokenizer.ggml.model"] = text(model); }) ==
          "m.gguf: `tokenizer.ggml.unknown_token_id` is missing");
  CHECK(tokenizer_error([](entries& e) {
          e["tokenizer.ggml.model"] = text("t5");
          e["tokenizer.ggml.unknown_token_id"] = number(0);
        }) == "m.gguf: `tokenizer.ggml.scores` is missing");
  CHECK(tokenizer_error([](entries& e) { e.erase("tokenizer.ggml.tokens"); }) ==
        "m.gguf: `tokenizer.ggml.tokens` is missing or empty");
  CHECK(tokenizer_error([](entries& e) { e.erase("tokenizer.ggml.merges"); }) ==
        "m.gguf: `tokenizer.ggml.merges` is missing");
  CHECK(tokenizer_error([](entries& e) { e["tokenizer.ggml.bos_token_id"] = number(4); }) ==
        "m.gguf: `tokenizer.ggml.bos_token_id` is 4, but there are 4 tokens");
  CHECK(tokenizer_error([](entries& e) {
          e["tokenizer.ggml.merges"] = packed_type(gguf_type::array) + packed_type(gguf_type::string) +
            packed(std::uint64_t{1}) + packed_string("ab");
        }) == "m.gguf: `tokenizer.ggml.merges` holds `ab` at index 0, expected two tokens with a space between");
  CHECK(tokenizer_error([](entries& e) { e["tokenizer.ggml.model"] = text("llama"); }) ==
        "m.gguf: `tokenizer.ggml.scores` is missing");
  CHECK(tokenizer_error([](entries& e) {
          e["tokenizer.ggml.model"] = text("llama");
          e["tokenizer.ggml.scores"] = packed_type(gguf_type::array) + packed_type(gguf_type::f32) +
            packed(std::uint64_t{1}) + packed(1.0f);
        }) == "m.gguf: `tokenizer.ggml.scores` has 1 entries, expected 4, one per token");
}
