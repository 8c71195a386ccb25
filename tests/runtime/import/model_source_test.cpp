// Common mistakes in naming a model, and models in the hub's cache.
#include "tests/runtime/checkpoint/memory_checkpoint.hpp"
#include "tests/runtime/model/model_test_data.hpp"

#include "runtime/checkpoint/safetensors.hpp"
#include "runtime/engine/loading/loader.hpp"
#include "runtime/import/folder_files.hpp"
#include "runtime/import/hub_cache.hpp"
#include "runtime/import/model_source.hpp"

#include <bit>
#include <cstdlib>
#include <fstream>
#include <random>

using namespace troupe;
using namespace troupe::test;
namespace fs = std::filesystem;

namespace {

/// A variable of the environment for one test.
class variable {
public:
  variable(const char* name, const std::string& value) : name_(name) {
    if (const char* before = std::getenv(name))
      before_ = before;
    setenv(name, value.c_str(), 1);
  }
  ~variable() { before_ ? setenv(name_, before_->c_str(), 1) : unsetenv(name_); }
  variable(const variable&) = delete;
  variable& operator=(const variable&) = delete;

private:
  const char* name_;
  std::optional<std::string> before_;
};

std::string open_error(const fs::path& model) {
  return failure_of([&] { open_model(model.string()); });
}

} // namespace

TEST_CASE("A folder that is not a model is refused with what it is and what to do") {
  const temp_folder folder;
  const auto at = folder.path();
  const auto starts = [&](const std::string& what) {
    const auto told = open_error(at);
    CHECK_MESSAGE(told.starts_with(at.string() + ": " + what), told);
  };
  starts("the folder is empty; a model is a folder with config.json");
  write(at / "README.md", "x");
  CHECK(open_error(at) == (at / "config.json").string() + ": no such file");
  write(at / "tokenizer.model", "x");
  starts("holds a tokenizer and no model");
  CHECK(failure_of([&] { open_tokenizer(at.string()); }).find("is not a SentencePiece model") != std::string::npos);
  fs::rename(at / "tokenizer.model", at / "vocab.json");
  CHECK(failure_of([&] {
          open_tokenizer(at.string());
        }).find("has no tokenizer.json, only the tokenizer of an older format") != std::string::npos);
  write(at / "model.onnx", "x");
  starts("holds a model in ONNX's format");
  write(at / "pytorch_model.bin", "x");
  starts("holds weights in PyTorch's format, and reading that can run code; in Python, ");
  write(at / "params.json", "{}");
  write(at / "consolidated.00.pth", "x");
  starts("holds weights in their original training format");
  write(at / "adapter_config.json", R"({"base_model_name_or_path": "org/base"})");
  starts("is a LoRA adapter (PEFT), not a model; merge it into `org/base` first");
  write(at / "adapter_config.json", "not JSON");
  starts("is a LoRA adapter (PEFT), not a model; merge it into its base model first");
}

TEST_CASE("A checkpoint without safetensors is refused naming the format of its weights") {
  const temp_folder folder;
  fs::copy(data() / "golden/qwen2", folder.path(), fs::copy_options::recursive);
  fs::remove(folder.path() / "model.safetensors");
  CHECK(open_error(folder.path()).ends_with("holds neither model.safetensors nor model.safetensors.index.json"));
  write(folder.path() / "pytorch_model-00001-of-00002.bin", "x");
  CHECK(open_error(folder.path()).find("holds weights in PyTorch's format") != std::string::npos);
  fs::remove(folder.path() / "tokenizer.json");
  CHECK(failure_of([&] { open_tokenizer(folder.path().string()); }) ==
        (folder.path() / "tokenizer.json").string() + ": no such file");
}

TEST_CASE("A file that is not a model is refused with what it is") {
  const temp_folder folder;
  const auto told = [&](const std::string& name, std::string_view content) {
    write(folder.path() / name, content);
    return open_error(folder.path() / name).substr((folder.path() / name).string().size() + 2);
  };
  CHECK(told("x.safetensors", safetensors("{}", 0)).starts_with("is one file of a model; name the folder"));
  CHECK(told("x.bin", "PK\3\4...").starts_with("is a file of PyTorch"));
  CHECK(told("x.pth", "\x80\2...").starts_with("is a file of PyTorch"));
  CHECK(told("ggml.bin", "tjgg...").starts_with("is in a GGML format older than GGUF"));
  CHECK(told("empty", "").starts_with("the file is empty"));
  CHECK(told("x.txt", "Hello") == "a model is a folder or a .gguf file, not a file of another kind");
  CHECK(told("x", "version https://git-lfs.github.com/spec/v1\n").starts_with("is a Git LFS pointer"));
}

TEST_CASE("A model in the hub's cache is found and named by its id, and a path of that name wins") {
  const temp_folder folder;
  const auto cache = folder.path() / "hub", repository = cache / "models--org--small-model";
  const auto snapshot = repository / "snapshots" / "0123abc";
  const variable cache_variable("HF_HUB_CACHE", cache.string());
  CHECK(open_error("org/small-model") ==
        "there is no model `org/small-model` on this machine; `troupe pull org/small-model` fetches it");
  fs::create_directories(repository / "refs");
  fs::create_directories(snapshot.parent_path());
  fs::create_directory(repository / "blobs");
  fs::create_directory(snapshot);
  for (const auto& file : fs::directory_iterator(data() / "golden/qwen2")) { // as the hub's programs do
    fs::copy_file(file, repository / "blobs" / file.path().filename());
    fs::create_symlink(fs::path("../../blobs") / file.path().filename(), snapshot / file.path().filename());
  }
  CHECK(open_error("org/small-model").find("`troupe pull org/small-model`") != std::string::npos); // no refs/main
  write(repository / "refs" / "main", "0123abc\n");
  CHECK(open_model("org/small-model").name == "org/small-model");
  CHECK(open_model(snapshot.string()).name == "org/small-model");
  CHECK(open_tokenizer("org/small-model")->vocab_size() == 720);
  {
    const variable no_cache("HF_HUB_CACHE", ""), home("HF_HOME", folder.path().string());
    CHECK(open_model("org/small-model").name == "org/small-model");
  }
  write(repository / "refs" / "main", "../../../elsewhere");
  CHECK(open_error("org/small-model").ends_with("refs/main: names no version"));
  write(repository / "refs" / "main", "4567def");
  CHECK(open_error("org/small-model").find("`troupe pull org/small-model`") != std::string::npos);
  for (const char* wrong : {"../x", "a/b/c", "/a", "a/", "a/..", "-a/b", "a b/c"})
    CHECK_MESSAGE(!is_hub_id(wrong), wrong);
  CHECK(open_error("a/b/c") == "there is no model `a/b/c` on this machine; `troupe models` lists those there are");

  const auto before = fs::current_path();
  fs::current_path(folder.path());
  fs::create_directories("org");
  fs::copy(data() / "golden/qwen3", "org/small-model");
  CHECK(open_model("org/small-model").config.family == "qwen3");
  fs::current_path(before);
}

TEST_CASE("A synthetic model with ReLU has as many zeros as its name says") {
  const auto zeros_of = [](const std::string& name) {
    const auto source = open_model(name);
    const auto hidden = static_cast<std::size_t>(source.config.hidden);
    const auto weights = source.tensors->read("model.layers.3.mlp.up_proj.weight");
    const auto biases = source.tensors->read("model.layers.3.mlp.up_proj.bias");
    const auto* w = static_cast<const std::uint16_t*>(weights.get());
    const auto value = [](std::uint16_t bits) { return std::bit_cast<float>(std::uint32_t{bits} << 16); };
    const float bias = value(*static_cast<const std::uint16_t*>(biases.get()));
    std::mt19937 random(1);
    std::normal_distribution<float> normal;
    std::vector<float> x(hidden); // as behind a layer norm
    for (float& v : x)
      v = normal(random);
    int zeros = 0;
    for (std::size_t i = 0; i < 1000; ++i) {
      float sum = bias;
      for (std::size_t k = 0; k < hidden; ++k)
        sum += x[k] * value(w[i * hidden + k]);
      zeros += sum <= 0;
    }
    return zeros / 1000.0;
  };
  CHECK(zeros_of("synthetic:opt-1b") == doctest::Approx(0.5).epsilon(0.1));
  CHECK(zeros_of("synthetic:opt-1b:90") == doctest::Approx(0.9).epsilon(0.03));
  CHECK(zeros_of("synthetic:opt-1b:97.5") == doctest::Approx(0.975).epsilon(0.02));
  for (const char* wrong : {"", "0", "100", "-5", "nan", "9x", "x"})
    CHECK(open_error("synthetic:opt-1b:" + std::string(wrong)) ==
          "synthetic:opt-1b:" + std::string(wrong) +
            ": after the colon comes the percentage of zeros after ReLU, above 0 and at most 99.99");
  const auto fewer = open_model("synthetic:llama-1b+kv2@q8_0");
  CHECK(fewer.config.kv_heads == 2);
  CHECK(fewer.tensors->find("model.layers.0.self_attn.k_proj.weight")->shape == std::vector<std::size_t>{128, 2048});
  CHECK(fewer.tensors->find("model.layers.0.self_attn.k_proj.weight")->type == tensor_type::q8_0);
  for (const char* wrong : {"", "kv", "kv0", "kv3", "kv-1", "kv2x", "2"})
    CHECK(open_error("synthetic:llama-1b+" + std::string(wrong)) ==
          "synthetic:llama-1b+" + std::string(wrong) +
            ": after + comes the number of KV heads, as kv2; it must divide the 32 heads");
  CHECK(open_error("synthetic:llama-135m:50").starts_with("synthetic:llama-135m:50: no such shape, there are "));
}

TEST_CASE("A synthetic model in fp8 has scales of 128 inputs, and weights as spread as in bf16") {
  const std::string name = "model.layers.0.mlp.down_proj.weight";
  double squares[2] = {};
  for (const bool narrow : {false, true}) {
    const auto source = open_model(narrow ? "synthetic:llama-135m@fp8" : "synthetic:llama-135m");
    CHECK(source.tensors->find(name)->type == (narrow ? tensor_type::fp8_128 : tensor_type::bf16));
    for (const float weight : presented_weights(*source.tensors, name))
      squares[narrow] += double(weight) * weight;
  }
  CHECK(squares[1] == doctest::Approx(squares[0]).epsilon(0.02));
}

TEST_CASE(
  "A head that differs from the embeddings is used where the configuration calls it tied, with a line that says so") {
  const temp_folder folder;
  fs::copy(data() / "golden/llama-gqa", folder.path());
  auto config = content(folder.path() / "config.json");
  const std::string untied = "\"tie_word_embeddings\": false";
  config.replace(config.find(untied), untied.size(), "\"tie_word_embeddings\": true");
  write(folder.path() / "config.json", config);
  const auto source = open_model(folder.path().string());
  CHECK(!source.config.tied);
  const auto line = folder.path().string() +
    ": `tie_word_embeddings` is true, but `lm_head.weight` is there and differs from the embeddings; it is used";
  CHECK(source.remarks == std::vector{line});
  engine_options options;
  options.model = folder.path().string();
  options.compute.device = "cpu";
  std::vector<std::string> said;
  const auto model = load_model(options, [&](const load_status& status) { said.push_back(status.line); });
  CHECK(std::ranges::count(said, line) == 1);
  CHECK(!model->info.tied);

  // A copy of the embeddings needs no head of its own.
  const auto file = folder.path() / "model.safetensors";
  auto bytes = content(file);
  const auto header = read_safetensors_header(std::as_bytes(std::span(bytes)), "m");
  const auto head = header.at("lm_head.weight"), embeddings = header.at("model.embed_tokens.weight");
  REQUIRE(head.info.bytes == embeddings.info.bytes);
  bytes.replace(head.offset, head.info.bytes, bytes.substr(embeddings.offset, embeddings.info.bytes));
  write(file, bytes);
  const auto copied = open_model(folder.path().string());
  CHECK(copied.config.tied);
  CHECK(copied.remarks.empty());
  // The last value counts as well.
  bytes[head.offset + head.info.bytes - 1] ^= 1;
  write(file, bytes);
  CHECK(!open_model(folder.path().string()).config.tied);
}

TEST_CASE("What the list of a folder's files has is all that a model is read from") {
  for (const char* kind : {"golden/qwen3", "tiny_encoders/bert", "tiny_encoders/bert-ranker"}) {
    CAPTURE(kind);
    const auto whole = data() / kind;
    const temp_folder part;
    const auto copy = [&](const std::string& path) {
      fs::create_directories((part.path() / path).parent_path());
      fs::copy_file(whole / path, part.path() / path, fs::copy_options::overwrite_existing);
    };
    for (const auto& entry : fs::recursive_directory_iterator(whole))
      if (const auto path = fs::relative(entry.path(), whole).string();
          entry.is_regular_file() && (is_folder_file(path) || is_folder_weights(path, false)))
        copy(path);
    if (const auto list = whole / modules_file; fs::exists(list))
      for (const auto& path : module_files(json::document::load(list)))
        if (fs::exists(whole / path))
          copy(path);
    const auto read = open_model(part.path().string()), all = open_model(whole.string());
    CHECK(read.embeddings.how == all.embeddings.how);
    CHECK(read.embeddings.prompts.size() == all.embeddings.prompts.size());
    CHECK(read.config.max_context == all.config.max_context);
    CHECK(read.load_tokenizer()->vocab_size() == all.load_tokenizer()->vocab_size());
    CHECK(read.load_chat_template({}).has_value() == all.load_chat_template({}).has_value());
    CHECK((read.load_ranker == nullptr) == (all.load_ranker == nullptr));
  }
}

TEST_CASE("A sentence encoder's modules have files that their list names") {
  const auto list = json::document::parse(
    R"([{"idx":0,"path":"","type":"x.Transformer"},{"idx":1,"path":"pool","type":"x.Pooling"}])", "modules.json",
    errc::bad_file);
  CHECK(module_files(list) == std::vector<std::string>{"pool/config.json", "pool/model.safetensors"});
  for (const char* wrong : {"..", "a/b", "../x"}) {
    const auto bad = json::document::parse(std::string(R"([{"path":")") + wrong + R"(","type":"x.Pooling"}])",
                                           "modules.json", errc::bad_file);
    CHECK(failure_of([&] { module_files(bad); }).find("folder beside it") != std::string::npos);
  }
}
