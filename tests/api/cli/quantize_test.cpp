// Quantisation by calibration, as users run it: `troupe imatrix`, and `troupe quantize` with what it wrote or with a
// text.
#include "runtime/support/json/json.hpp"
#include "tests/api/cli/program.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <fstream>
#include <iterator>

using namespace troupe::test;
namespace json = troupe::json;

namespace {

/// The README, which is long enough.
std::string calibration_text(const temporary_folder& folder) {
  std::ifstream in(troupe::test_data() + "/golden/README.md");
  return folder.write("text.txt", {std::istreambuf_iterator<char>(in), {}});
}

double number_in(const std::string& line, const char* key) {
  return json::document::parse(line, "output").root()[key].get_double().value();
}

double perplexity_of(const std::string& model, const std::string& text) {
  const auto result = run_troupe({"bench", "perplexity", "--text", text, "--json", "--threads", "1", "--context", "128",
                                  "--model", model, "--dtype", "f32"});
  CHECK(result.status == 0);
  return number_in(result.out, "perplexity");
}

} // namespace

TEST_CASE("imatrix knows every matrix of recurrent layers, and what quantize has written of them is the same model") {
  const temporary_folder folder;
  const auto text = calibration_text(folder);
  for (const std::string name : {"qwen3-5", "granite-hybrid", "lfm2"}) {
    CAPTURE(name);
    const auto model = troupe::test_data() + "/families/" + name;
    const auto file = (folder.path / (name + ".imatrix.gguf")).string(),
               out = (folder.path / (name + ".gguf")).string();
    const auto made = run_troupe({"imatrix", "--model", model, "--text", text, "--out", file, "--context", "64",
                                  "--windows", "2", "--threads", "1"});
    CHECK(made.status == 0);
    const auto written = run_troupe(
      {"quantize", "--model", model, "--to", "q8_0", "--imatrix", file, "--out", out, "--threads", "1", "--json"});
    INFO(written.err);
    CHECK(written.status == 0);
    CHECK(written.err.find("has nothing for") == std::string::npos);
    CHECK(std::abs(perplexity_of(out, text) / perplexity_of(model, text) - 1) < 0.02);
  }
}

TEST_CASE("imatrix measures a text, and quantize weighs errors by it") {
  const temporary_folder folder;
  const auto text = calibration_text(folder);
  for (const std::string name : {"m.gguf", "m.dat"}) {
    const auto file = (folder.path / name).string(), out = (folder.path / ("q-" + name)).string() + ".gguf";
    const auto made = run_troupe({"imatrix", "--model", golden("llama-gqa"), "--text", text, "--out", file, "--context",
                                  "64", "--windows", "4", "--threads", "1", "--json"});
    CHECK(made.status == 0);
    CHECK(number_in(made.out, "tokens") == 256);
    CHECK(number_in(made.out, "windows") == 4);
    const auto written = run_troupe({"quantize", "--model", golden("llama-gqa"), "--to", "q3_k_m", "--imatrix", file,
                                     "--out", out, "--threads", "1", "--json"});
    CHECK(written.status == 0);
    CHECK(number_in(written.out, "bits_per_weight") < 8);
    CHECK(std::abs(perplexity_of(out, text) / perplexity_of(golden("llama-gqa"), text) - 1) < 0.15);
  }
  const auto small = run_troupe({"imatrix", "--model", golden("../tiny_encoders/bert"), "--text", text, "--out",
                                 (folder.path / "small.gguf").string(), "--windows", "2", "--threads", "1"});
  CHECK(small.out.find(" from 96 tokens in windows of 48") != std::string::npos); // all of its context
  const auto other = run_troupe({"quantize", "--model", golden("llama-mha-tied"), "--to", "q4_0", "--imatrix",
                                 (folder.path / "m.gguf").string(), "--out", (folder.path / "x.gguf").string()});
  CHECK(other.status == 1);
  CHECK(other.err.find("the importance matrix is of another model: ") != std::string::npos);
  const auto no_file = run_troupe({"quantize", "--model", golden("llama-gqa"), "--to", "q4_0", "--imatrix", text,
                                   "--out", (folder.path / "x.gguf").string()});
  CHECK(no_file.status == 1);
  CHECK(no_file.err.find("text.txt: ") != std::string::npos);
  CHECK(!std::filesystem::exists(folder.path / "x.gguf"));
}

TEST_CASE("quantize makes up for errors by GPTQ, into a folder or a GGUF file") {
  const temporary_folder folder;
  const auto text = calibration_text(folder);
  const auto model = golden("llama-gqa");
  const double exact = perplexity_of(model, text);
  const auto made = [&](const std::string& out, const strings& more) {
    const auto result = run_troupe(strings{"quantize", "--model", model, "--to", "gptq", "--text", text, "--context",
                                           "64", "--windows", "6", "--threads", "1", "--json", "--out", out} +
                                   more);
    CHECK(result.status == 0);
    return number_in(result.out, "bits_per_weight");
  };
  for (const int bits : {2, 3, 4, 8}) {
    CAPTURE(bits);
    const auto out = (folder.path / ("gptq-" + std::to_string(bits))).string();
    const double said = made(out,
                             strings{"--bits", std::to_string(bits), "--group-size", "32"} +
                               (bits == 3 ? strings{"--act-order"} : strings{}) +
                               (bits == 2 ? strings{"--asymmetric"} : strings{}));
    CHECK(said > bits);
    CHECK(said < bits + 2.2);
    CHECK(std::abs(perplexity_of(out, text) / exact - 1) < (bits == 2 ? 1.5 : bits == 3 ? 0.25 : 0.06));
    CHECK(std::filesystem::exists(out + "/tokenizer.json"));
    const auto again = run_troupe({"quantize", "--model", model, "--to", "gptq", "--text", text, "--out", out});
    CHECK(again.status == 1);
    CHECK(again.err.find("is there already; give the result another name") != std::string::npos);
  }
  const auto file = (folder.path / "gptq.gguf").string();
  made(file, {"--bits", "4"});
  CHECK(std::abs(perplexity_of(file, text) / exact - 1) < 0.06);
  CHECK(std::distance(std::filesystem::directory_iterator(folder.path), {}) == 6); // nothing unfinished is left
}

TEST_CASE("quantize says once what of a model is not used, also where it reads a text") {
  const temporary_folder folder;
  const auto result = run_troupe({"quantize", "--model", golden("../families/muse-glimmer"), "--to", "q4_0", "--text",
                                  calibration_text(folder), "--context", "32", "--windows", "1", "--threads", "1",
                                  "--out", (folder.path / "m.gguf").string()});
  CHECK(result.status == 0);
  const std::string note = "only the text is used";
  const auto said = result.err.find(note);
  REQUIRE(said != std::string::npos);
  CHECK(result.err.find(note, said + 1) == std::string::npos);
}

TEST_CASE("quantize writes fp8 as a folder, which loads as rounding while loading does") {
  const temporary_folder folder;
  const auto text = calibration_text(folder), out = (folder.path / "fp8").string();
  const auto written = run_troupe({"quantize", "--model", golden("llama-gqa"), "--to", "fp8", "--out", out, "--json"});
  CHECK(written.status == 0);
  CHECK(number_in(written.out, "bits_per_weight") < 8.5);
  CHECK(number_in(written.out, "relative_error") < 0.03);
  const double exact = perplexity_of(golden("llama-gqa"), text), stored = perplexity_of(out, text);
  CHECK(stored != exact);
  CHECK(std::abs(stored / exact - 1) < 0.02);
  const auto rounded = run_troupe({"bench", "perplexity", "--text", text, "--json", "--threads", "1", "--context",
                                   "128", "--model", golden("llama-gqa"), "--dtype", "f32", "--quantize", "fp8"});
  CHECK(rounded.status == 0);
  CHECK(std::abs(number_in(rounded.out, "perplexity") / stored - 1) < 0.01); // the head is rounded, too
  CHECK(run_troupe({"quantize", "--model", golden("llama-gqa"), "--to", "fp8", "--out", out})
          .err.find("is there already; give the result another name") != std::string::npos);
}

TEST_CASE("quantize leaves 2 of 4 weights by each law, in a folder that loads as it is") {
  const temporary_folder folder;
  const auto text = calibration_text(folder), matrix = (folder.path / "m.gguf").string();
  const auto model = golden("llama-gqa");
  CHECK(run_troupe({"imatrix", "--model", model, "--text", text, "--out", matrix, "--windows", "2", "--context", "64"})
          .status == 0);
  const auto pruned = [&](const std::string& name, const strings& more) {
    const auto out = (folder.path / name).string();
    const auto made = run_troupe(
      strings{"quantize", "--model", model, "--sparsity", "2:4", "--threads", "1", "--json", "--out", out} + more);
    CHECK(made.status == 0);
    CHECK(made.out.find("\"format\":\"" + name + "\"") != std::string::npos);
    CHECK(number_in(made.out, "bits_per_weight") < 17.1);
    CHECK(std::filesystem::exists(out + "/tokenizer.json"));
    return perplexity_of(out, text);
  };
  const strings seen{"--text", text, "--context", "64", "--windows", "6"};
  const double exact = perplexity_of(model, text), by_size = pruned("magnitude", {}),
               by_inputs = pruned("wanda", strings{"--imatrix", matrix}), made_up_for = pruned("sparsegpt", seen);
  CHECK(by_size != exact);
  CHECK(by_inputs != by_size);
  CHECK(std::abs(made_up_for / exact - 1) < 0.7);
  const auto measured = (folder.path / "measured").string();
  CHECK(run_troupe(
          strings{"quantize", "--model", model, "--sparsity", "2:4", "--prune-by", "wanda", "--out", measured} + seen)
          .status == 0);
  CHECK(std::abs(perplexity_of(measured, text) / by_inputs - 1) < 0.3);
}

TEST_CASE("What quantize cannot do is a wrong command line") {
  const temporary_folder folder;
  const auto told = [&](const strings& more) {
    const auto result = run_troupe(
      strings{"quantize", "--model", golden("llama-gqa"), "--out", (folder.path / "out").string()} + more);
    CHECK(result.status == 2);
    return result.err;
  };
  CHECK(told({"--to", "gptq"}) == "troupe: --to gptq needs a calibration text: --text FILE\n");
  CHECK(told({"--to", "q4_0", "--text", "a", "--imatrix", "b"}) ==
        "troupe: --text and --imatrix exclude each other: errors are weighed by one or the other\n");
  CHECK(told({"--to", "q4_0", "--text", "a", "--act-order"}).find("--act-order is for folders") != std::string::npos);
  CHECK(told({"--to", "q4_0", "--text", "a", "--asymmetric"}).find("--asymmetric is for folders") != std::string::npos);
  CHECK(told({"--to", "fp8", "--text", "a"}) == "troupe: --to fp8 looks at no text and no importance matrix\n");
  CHECK(told({}) == "troupe: say what to make: --to FORMAT or --sparsity 2:4\n");
  CHECK(told({"--to", "q4_0", "--sparsity", "2:4"}).find("exclude each other") != std::string::npos);
  CHECK(told({"--to", "q4_0", "--prune-by", "wanda"}) == "troupe: --prune-by has no effect without --sparsity\n");
  CHECK(told({"--sparsity", "1:4"}).find("1:4") != std::string::npos);
  CHECK(told({"--sparsity", "2:4", "--prune-by", "wanda"}).find("--text or --imatrix") != std::string::npos);
  CHECK(told({"--sparsity", "2:4", "--prune-by", "sparsegpt", "--imatrix", "a"}).find("--text FILE") !=
        std::string::npos);
  CHECK(told({"--sparsity", "2:4", "--prune-by", "magnitude", "--text", "a"}).find("looks at no text") !=
        std::string::npos);
  CHECK(told({"--to", "q9_k"}).find("q9_k") != std::string::npos);
  // Flags that would have no effect.
  CHECK(told({"--to", "q4_0", "--bits", "3"}).find("--bits is for --to gptq") != std::string::npos);
  CHECK(told({"--to", "q4_0", "--group-size", "32"}).find("--group-size is for folders") != std::string::npos);
  CHECK(told({"--to", "q4_0", "--windows", "3"}).find("--windows is for the text") != std::string::npos);
  CHECK(told({"--to", "q4_0", "--context", "64"}).find("--context is for the text") != std::string::npos);
  CHECK(told({"--to", "f16", "--imatrix", "a"}).find("not for floats") != std::string::npos);
  CHECK(told({"--to", "bf16", "--pure"}).find("--pure is for") != std::string::npos);
  CHECK(told({"--to", "fp8", "--requantize"}).find("--requantize is for") != std::string::npos);
  CHECK(told({"--sparsity", "2:4", "--pure"}).find("--pure is for") != std::string::npos);
  CHECK(told({"--to", "gptq", "--text", "a", "--bits", "5"}).find("5") != std::string::npos);
}
