// --attention-threshold, as users set it.
#include "runtime/support/json/json.hpp"
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
