// What commands write is none of the files that they read.
#include "tests/api/cli/program.hpp"

#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>

using namespace troupe::test;

namespace {

namespace fs = std::filesystem;

std::string content_of(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

} // namespace

TEST_CASE("no command overwrites a file that it reads, by whatever name") {
  const temporary_folder folder;
  const auto at = [&](const char* name) { return (folder.path / name).string(); };
  const auto model = at("model");
  fs::copy(golden("llama-gqa"), model, fs::copy_options::recursive);
  std::string words;
  for (int i = 0; i < 200; ++i)
    words += "Once upon a time there was a fox. ";
  const auto text = folder.write("text", words), good = folder.write("good", "good\nfine\n"),
             bad = folder.write("bad", "bad\nawful\n"), config = folder.write("c.toml", "threads = 1\n"),
             requests = folder.write("in.jsonl", "{}\n");
  fs::create_symlink(text, at("link"));
  fs::create_hard_link(text, at("hard"));
  fs::create_symlink("in.jsonl", at("in_output.jsonl"));
  const strings quantize{"quantize", "--model", model, "--to", "q4_0", "--out"},
    imatrix{"imatrix", "--model", model, "--text", text, "--windows", "1", "--context", "32", "--out"},
    steer{"steer", "--model", model, "--positive", good, "--negative", bad, "--out"};
  const auto matrix = at("matrix.gguf");
  REQUIRE(run_troupe(imatrix + strings{matrix}).status == 0);
  const struct {
    std::string file;
    strings command;
  } all[]{
    {model + "/model.safetensors", quantize + strings{model + "/model.safetensors"}},
    {model + "/tokenizer.json", quantize + strings{model + "/../model/tokenizer.json"}},
    {text, quantize + strings{text, "--text", text}},
    {text, quantize + strings{at("hard"), "--text", at("link")}},
    {matrix, quantize + strings{matrix, "--imatrix", matrix}},
    {text, imatrix + strings{text}},
    {text, imatrix + strings{at("link")}},
    {model + "/config.json", imatrix + strings{model + "/config.json"}},
    {good, steer + strings{good}},
    {bad, steer + strings{bad}},
    {config, steer + strings{config, "--config", config}},
    {requests, {"run-batch", requests, "--model", model, "--out", requests}},
    {requests, {"run-batch", requests, "--model", model}}, // the default is a link to it
  };
  for (const auto& [file, command] : all) {
    CAPTURE(command.back());
    const auto before = content_of(file);
    const auto ended = run_troupe(command);
    CHECK(ended.status == 2);
    CHECK(only_line(ended.err).find(" is a file that the command reads (") != std::string::npos);
    CHECK(content_of(file) == before);
  }
  CHECK(run_troupe(imatrix + strings{model + "/new"}).status == 0);
  CHECK(run_troupe(imatrix + strings{"/dev/null"}).err.find("not a regular file") != std::string::npos);
}
