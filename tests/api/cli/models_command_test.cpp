// `troupe models`, and its names as values of --model.
#include "runtime/support/json/json.hpp"
#include "tests/api/cli/program.hpp"

#include <doctest/doctest.h>

#include <cstdlib>

using namespace troupe::test;
namespace fs = std::filesystem;
namespace json = troupe::json;

namespace {

/// Sets HOME for programs that are started meanwhile.
class other_home {
public:
  explicit other_home(const fs::path& home) : before_(std::getenv("HOME") ? std::getenv("HOME") : "/") {
    setenv("HOME", home.c_str(), 1);
  }
  ~other_home() { setenv("HOME", before_.c_str(), 1); }
  other_home(const other_home&) = delete;
  other_home& operator=(const other_home&) = delete;

private:
  std::string before_;
};

} // namespace

TEST_CASE("models lists what is there, with why a model does not load, and --model takes its names") {
  const temporary_folder folder;
  const other_home home(folder.path);
  const auto none = run_troupe({"models"});
  CHECK(none.status == 0);
  CHECK(none.out.empty());
  CHECK(only_line(none.err).starts_with("troupe: no models in " + folder.path.string() + "/models, "));
  CHECK(run_troupe({"models", "--json"}).out == "{\"models\":[]}\n");

  fs::create_directories(folder.path / "models");
  fs::copy(golden("llama-gqa"), folder.path / "models/small");
  fs::create_directories(folder.path / "models/broken");
  folder.write("models/broken/config.json", R"({"model_type": "\u001b[31mred"})");
  const auto table = run_troupe({"models"});
  CHECK(table.status == 0);
  CHECK(table.err.empty());
  CHECK(table.out.find("\nsmall   ~/models  llama ") != std::string::npos);
  CHECK(table.out.find("\nbroken  ~/models  -") != std::string::npos);
  CHECK(table.out.find("config.json: `model_type`") != std::string::npos);
  CHECK(table.out.find('\x1b') == std::string::npos);
  CHECK(table.out.find("FITS") == std::string::npos);

  const auto estimates = run_troupe({"models", "--estimate", "--max-context", "64"});
  CHECK(estimates.status == 0);
  CHECK(estimates.out.find("FITS") != std::string::npos);

  const auto listed = run_troupe({"models", "--estimate", "--json"});
  const auto document = json::document::parse(listed.out, "stdout");
  const json::array models = document.root()["models"];
  REQUIRE(models.size() == 2);
  CHECK(std::string_view(models.at(0)["error"]).find("model_type") != std::string_view::npos);
  const auto small_model = models.at(1);
  CHECK(std::string_view(small_model["name"]) == "small");
  CHECK(bool(small_model["loads"]));
  CHECK(std::uint64_t(small_model["estimate"]["needed_bytes"]) > std::uint64_t(small_model["file_bytes"]) / 2);

  CHECK(run_troupe({"tokenize", "--model", "small", "x"}).status == 0);
  const auto answer = run_troupe(strings{"run", "--model", "small", "--raw", "--max-tokens", "2", "--quiet", "x"} +
                                 small);
  CHECK(answer.status == 0);
  CHECK(only_line(run_troupe({"tokenize", "--model", "smalls", "x"}).err) ==
        "troupe: there is no model `smalls` on this machine; did you mean `small`?");
}

TEST_CASE("models --estimate counts on paper what a configuration says, without weights") {
  const temporary_folder folder;
  const auto config = (folder.path / "config.json").string();
  folder.write("config.json", R"({"model_type":"llama","hidden_size":4096,"intermediate_size":11008,
    "num_attention_heads":32,"num_hidden_layers":32,"vocab_size":32000,"max_position_embeddings":4096,
    "rms_norm_eps":1e-5,"tie_word_embeddings":false})");
  for (const auto& model : {config, folder.path.string()}) {
    const auto told = run_troupe({"models", "--estimate", model, "--memory", "40GB"});
    CHECK(told.status == 0);
    CHECK(told.out.find("llama, 6.74 B parameters, context of 4096 tokens") != std::string::npos);
    CHECK(told.out.find("bf16    12.6 GiB, 34 % of 37.3 GiB") != std::string::npos);
    CHECK(told.out.find("bf16     512 KiB") != std::string::npos);
  }
  const auto one = run_troupe({"models", "--estimate", config, "--kv-dtype", "bf16", "--dtype", "bf16"});
  CHECK(one.out.find("f32") == std::string::npos);
  CHECK(one.out.find("K and V in bf16") != std::string::npos);
  const auto listed = run_troupe({"models", "--estimate", config, "--json"});
  const auto document = json::document::parse(only_line(listed.out), "models");
  CHECK(std::uint64_t(document.root()["kv_bytes_per_token"]["bf16"]) == 512 << 10);
  CHECK(std::uint64_t(document.root()["parameters"]) == 6'738'415'616);
  folder.write("config.json", R"({"model_type":"no-such"})");
  const auto wrong = run_troupe({"models", "--estimate", config});
  CHECK(wrong.status == 1);
  CHECK(only_line(wrong.err).find("no-such") != std::string::npos);
  CHECK(run_troupe({"models", config}).status == 2);
  CHECK(run_troupe({"models", "--memory", "1GB", "--estimate"}).status == 2);
  CHECK(run_troupe({"models", "--estimate", (folder.path / "nothing").string()}).status == 1);
}
