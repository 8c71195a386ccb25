// `troupe bench scores`, as users run it.
#include "runtime/support/json.hpp"
#include "tests/api/cli/program.hpp"

#include <doctest/doctest.h>

#include <fstream>
#include <iterator>
#include <string>

using namespace troupe::test;
namespace json = troupe::json;

namespace {

std::string content_of(const std::string& file) {
  std::ifstream in(file);
  return {std::istreambuf_iterator<char>(in), {}};
}

} // namespace

TEST_CASE("bench scores shows every layer, draws a picture and writes a configuration") {
  const temporary_folder folder;
  const auto text = folder.write("text.txt", content_of(troupe::test_data() + "/golden/README.md"));
  const auto picture = (folder.path / "scores.svg").string(), config = (folder.path / "gpu.toml").string();
  const strings base{"bench", "scores",   "--model", golden("llama-gqa"), "--text",
                     text,    "--tokens", "64",      "--threads",         "1"};
  const auto table = run_troupe(base);
  CHECK(table.status == 0);
  CHECK(table.out.find("--unified-maximum") != std::string::npos);
  const auto made = run_troupe(base + strings{"--json", "--picture", picture, "--write-config", config});
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
  CHECK(run_troupe(base + strings{"--picture", picture}).err.find("is there already") != std::string::npos);
  const auto few = run_troupe(strings{"bench", "scores", "--model", golden("llama-gqa"), "--text",
                                      folder.write("few.txt", "Hello"), "--tokens", "64"});
  CHECK(few.status == 1);
  CHECK(few.err.find("tokens, and --tokens asks for 64") != std::string::npos);
}

TEST_CASE("attention_threshold is a share, and says that results are approximate") {
  const temporary_folder folder;
  const auto text = folder.write("text.txt", content_of(troupe::test_data() + "/golden/README.md"));
  const auto perplexity = [&](const std::string& threshold) {
    const auto result = run_troupe({"bench", "perplexity", "--model", golden("llama-gqa"), "--text", text, "--context",
                                    "128", "--json", "--attention-threshold", threshold});
    CHECK(result.status == 0);
    const bool said = result.err.find("attention_threshold " + threshold + ": results are approximate") !=
      result.err.npos;
    CHECK(said == (threshold != "0"));
    return json::document::parse(result.out, "output").root()["perplexity"].get_double().value();
  };
  const double exact = perplexity("0");
  CHECK(perplexity("0.9") != exact);
  CHECK(perplexity("1e-06") == doctest::Approx(exact).epsilon(0.001));
  const auto refused = run_troupe(
    {"bench", "perplexity", "--model", golden("llama-gqa"), "--text", text, "--attention-threshold", "1"});
  CHECK(refused.status == 2);
  CHECK(refused.err.find("--attention-threshold") != std::string::npos);
}
