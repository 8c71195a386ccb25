// The commands of troupe_bench_tools, as their users run them.
#include "runtime/support/json/json.hpp"
#include "tests/api/cli/program.hpp"

#include <doctest/doctest.h>

#include <fstream>
#include <iterator>
#include <sstream>
#include <string>

using namespace troupe::test;
namespace json = troupe::json;

namespace {

const strings few{"--threads",  "1",    "--device",        "cpu", "--max-context", "256",
                  "--kv-cache", "4MiB", "--max-sequences", "4"};

std::string content_of(const std::string& file) {
  std::ifstream in(file);
  return {std::istreambuf_iterator<char>(in), {}};
}

outcome run_tools(strings arguments) { return program(TROUPE_BENCH_TOOLS, std::move(arguments)).wait(); }

} // namespace

TEST_CASE("bench kv-move prints one JSON object with the rate of each way") {
  const auto result = run_tools(
    {"bench", "kv-move", "--model", golden("llama-gqa"), "--blocks", "4", "--repeat", "1", "--threads", "1", "--json"});
  INFO(result.err);
  REQUIRE(result.status == 0);
  const auto object = json::document::parse(result.out, "output");
  CHECK(std::int64_t(object.root()["blocks"]) == 4);
  for (const char* key : {"memcpy_gbps", "export_gbps", "import_gbps", "disk_gbps", "cached_gbps"})
    CHECK(object.root()[key].get_double().value() > 0);
}

TEST_CASE("the program itself has none of the tools") {
  for (const std::string tool : {"kv-move", "scores", "speculate"})
    CHECK(run_troupe({"bench", tool}).status == 2);
}

TEST_CASE("bench scores shows every layer, draws a picture and writes a configuration") {
  const temporary_folder folder;
  const auto text = folder.write("text.txt", content_of(troupe::test_data() + "/golden/README.md"));
  const auto picture = (folder.path / "scores.svg").string(), config = (folder.path / "gpu.toml").string();
  const strings base{"bench", "scores",   "--model", golden("llama-gqa"), "--text",
                     text,    "--tokens", "64",      "--threads",         "1"};
  const auto table = run_tools(base);
  CHECK(table.status == 0);
  CHECK(table.out.find("--unified-maximum") != std::string::npos);
  const auto made = run_tools(base + strings{"--json", "--picture", picture, "--write-config", config});
  CHECK(made.status == 0);
  const auto document = json::document::parse(made.out, "output");
  json::array layers;
  REQUIRE(!document.root()["layers"].get(layers));
  CHECK(layers.size() > 1);
  for (const auto layer : layers) {
    const double share = layer["weights_below_2^-8"].get_double().value();
    CHECK(share >= layer["weights_below_2^-16"].get_double().value());
    CHECK(share < 1);
  }
  CHECK(content_of(picture).starts_with("<svg "));
  CHECK(content_of(picture).ends_with("</svg>\n"));
  CHECK(content_of(config).find("\nunified-maximum = ") != std::string::npos);
  const auto read = run_troupe(strings{"bench", "perplexity", "--model", golden("llama-gqa"), "--text", text,
                                       "--device", "cpu", "--config", config});
  CHECK(read.err.find("`unified_maximum` is for NVIDIA GPUs") != std::string::npos); // and was found there
  CHECK(run_tools(base + strings{"--picture", picture}).err.find("is there already") != std::string::npos);
  const auto few = run_tools(strings{"bench", "scores", "--model", golden("llama-gqa"), "--text",
                                     folder.write("few.txt", "Hello"), "--tokens", "64"});
  CHECK(few.status == 1);
  CHECK(few.err.find("tokens, and --tokens asks for 64") != std::string::npos);
}

TEST_CASE("bench speculate makes as many guesses as --draft-tokens says") {
  const auto result = run_tools(strings{"bench", "speculate", "--model", golden("llama-gqa"), "--source", "jacobi",
                                        "--draft-tokens", "3", "--generate", "24", "--repeat", "1", "--json"} +
                                few);
  INFO(result.err);
  REQUIRE(result.status == 0);
  const auto object = json::document::parse(result.out.substr(0, result.out.find('\n')), "bench");
  const auto guesses = std::int64_t(object.root()["accepted"]) + std::int64_t(object.root()["rejected"]);
  CHECK(guesses > 24);
  CHECK(guesses <= 3 * 24);
}

TEST_CASE("bench speculate prints one JSON object per batch size and source") {
  const auto result = run_tools(strings{"bench", "speculate", "--model", golden("llama-gqa"), "--draft",
                                        golden("llama-gqa"), "--source", "0.9,0,draft,prediction", "--batch", "1,3",
                                        "--prompt", "8", "--generate", "24", "--repeat", "1", "--json"} +
                                few);
  INFO(result.err);
  CHECK(result.status == 0);
  std::istringstream lines(result.out);
  std::vector<std::string> seen;
  for (std::string line; std::getline(lines, line);) {
    const auto object = json::document::parse(line, "bench");
    const auto root = object.root();
    seen.push_back(std::to_string(std::int64_t(root["batch"])) + " " + std::string(std::string_view(root["source"])));
    for (const char* key : {"with_tps", "without_tps", "ratio"})
      CHECK(root[key].get_double().value() > 0);
    CHECK(std::int64_t(root["accepted"]) >= 0);
  }
  CHECK(seen ==
        std::vector<std::string>{"1 0.9", "1 0", "1 draft", "1 prediction", "3 0.9", "3 0", "3 draft", "3 prediction"});
}

TEST_CASE("bench speculate refuses sources that there are not") {
  for (const std::string wrong : {"1.5", "medusa", "0.5x", "off"}) {
    const auto result = run_tools({"bench", "speculate", "--model", golden("llama-gqa"), "--source", wrong});
    CHECK(result.status == 2);
    CHECK(only_line(result.err) ==
          "troupe: --source must be a probability from 0 to 1, draft: and such a probability, prediction, auto, draft, "
          "mtp, ngram, lookahead or "
          "jacobi, not `" +
            wrong + "`");
  }
}
