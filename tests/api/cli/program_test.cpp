// The program as users run it, on the golden checkpoints: its command line, tokenize, quantize and bench.
#include "runtime/support/json/json.hpp"
#include "tests/api/cli/program.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <regex>
#include <sstream>

using namespace troupe::test;
namespace json = troupe::json;

TEST_CASE("--version and --help are answered on stdout") {
  const auto version = run_troupe({"--version"});
  CHECK(version.status == 0);
  CHECK(version.out == "troupe 0.2.0\n");
  const auto help = run_troupe({"--help"});
  CHECK(help.status == 0);
  CHECK(help.err.empty());
  for (const std::string name : {"run", "chat", "serve", "score", "tokenize", "bench"})
    CHECK(help.out.find("\n  " + name + " ") != std::string::npos);
}

TEST_CASE("--help of every command shows its flags, their defaults and examples") {
  const std::vector<strings> commands{
    {"run"},     {"chat"},  {"serve"},          {"run-batch"},          {"score"}, {"tokenize"}, {"quantize"},
    {"imatrix"}, {"steer"}, {"bench", "model"}, {"bench", "perplexity"}};
  for (const auto& command : commands) {
    const auto help = run_troupe(command + strings{"--help"});
    INFO(command.back());
    CHECK(help.status == 0);
    CHECK(help.err.empty());
    for (const std::string part : {"Usage: ", "--model", "--config", "Examples:\n  "})
      CHECK(help.out.find(part) != std::string::npos);
  }
  CHECK(run_troupe({"serve", "--help"}).out.find("--port INT=8080") != std::string::npos);
}

TEST_CASE(
  "--help shows the everyday flags and --help-all every flag, in lines that fit, with the command's own examples") {
  const std::vector<strings> commands{{"run"},
                                      {"chat"},
                                      {"serve"},
                                      {"run-batch"},
                                      {"score"},
                                      {"tokenize"},
                                      {"detect"},
                                      {"quantize"},
                                      {"imatrix"},
                                      {"steer"},
                                      {"models"},
                                      {"pull"},
                                      {"guide"},
                                      {"guide", "check"},
                                      {"guide", "bench"},
                                      {"bench"},
                                      {"bench", "model"},
                                      {"bench", "machine"},
                                      {"bench", "perplexity"}};
  for (const auto& command : commands) {
    auto path = std::string("troupe");
    for (const auto& name : command)
      path += " " + name;
    INFO(path);
    const auto everyday = run_troupe(command + strings{"--help"}).out,
               all = run_troupe(command + strings{"--help-all"}).out;
    for (const auto& help : {everyday, all}) {
      std::istringstream lines(help);
      for (std::string line; std::getline(lines, line);) {
        INFO(line);
        CHECK((line.size() <= 100 || line.starts_with("  troupe ")));
        CHECK(!line.ends_with(' '));
      }
      REQUIRE(help.find("Examples:\n") != std::string::npos);
      CHECK(help.substr(help.find("Examples:\n")).find(path) != std::string::npos);
    }
    CHECK(everyday.size() <= all.size());
  }
  const auto run = run_troupe({"run", "--help"}).out, all = run_troupe({"run", "--help-all"}).out;
  const auto flags = [](const std::string& help) {
    const std::regex flag("\n  (-[a-zA-Z],)?--");
    return std::distance(std::sregex_iterator(help.begin(), help.end(), flag), {});
  };
  CHECK(flags(run) >= 15);
  CHECK(flags(run) <= 20);
  CHECK(flags(all) > 60);
  CHECK(run.find("`troupe run --help-all` shows all") != std::string::npos);
  CHECK(run.find("--mirostat") == std::string::npos);
  CHECK(all.find("--mirostat") != std::string::npos);
}

TEST_CASE("troupe alone, a group of commands alone, and help print help") {
  CHECK(run_troupe({}).out == run_troupe({"--help"}).out);
  CHECK(run_troupe({}).status == 0);
  CHECK(run_troupe({"bench"}).out == run_troupe({"bench", "--help"}).out);
  CHECK(run_troupe({"guide"}).status == 0);
  CHECK(run_troupe({"help"}).out == run_troupe({"--help"}).out);
  CHECK(run_troupe({"help", "run"}).out == run_troupe({"run", "--help"}).out);
  CHECK(run_troupe({"bench"}).out.find("perplexity") != std::string::npos);
}

TEST_CASE("a wrong command line is reported in one line, with exit status 2") {
  const auto told = [](const strings& arguments) {
    const auto result = run_troupe(arguments);
    CHECK(result.status == 2);
    CHECK(result.out.empty());
    return only_line(result.err);
  };
  CHECK(told({"frobnicate"}) == "troupe: there is no command `frobnicate` (see `troupe --help`)");
  CHECK(told({"bench", "all"}) == "troupe: there is no command `all` (see `troupe bench --help`)");
  CHECK(told({"caht"}) == "troupe: there is no command `caht`; did you mean `chat`?");
  CHECK(told({"server"}) == "troupe: there is no command `server`; did you mean `serve`?");
  CHECK(told({"--frobnicate"}) == "troupe: there is no flag --frobnicate (see `troupe --help-all`)");
  CHECK(told({"score"}) == "troupe: TEXT is required (see `troupe score --help`)");
  CHECK(told({"run", "one", "two"}) ==
        "troupe: unexpected argument `two`; put the text in quotes: `troupe run \"one two\"`");
  CHECK(told({"run", "Tell", "me", "a", "story"}) ==
        "troupe: unexpected argument `me`; put the text in quotes: `troupe run \"Tell me a story\"`");
  CHECK(told({"run", "llama3", "Why is the sky blue?"}) ==
        "troupe: unexpected argument `Why is the sky blue?`; a model is given with -m: `troupe run -m llama3 \"Why is "
        "the sky blue?\"`");
  CHECK(told({"chat", "smollm2"}) ==
        "troupe: unexpected argument `smollm2`; a model is given with -m: `troupe chat -m smollm2`");
  for (const char* habit : {"list", "ps", "show", "rm", "cp", "create", "stop"})
    CHECK(told({habit, "x"}).starts_with("troupe: there is no command `" + std::string(habit) + "`: "));
  CHECK(told({"list"}).find("`troupe models`") != std::string::npos);
  CHECK(told({"run", "-m", "a", "-m", "b", "hi"}) == "troupe: --model: is given twice, as a and b; one is expected");
  CHECK(told({"run", ""}) == "troupe: the prompt is empty: `troupe run \"Tell me a story\"`");
  CHECK(told({"run", "hi", "--treads", "2"}) == "troupe: there is no flag --treads; did you mean --threads?");
  CHECK(told({"run", "hi", "--temprature=0"}) == "troupe: there is no flag --temprature; did you mean --temperature?");
  CHECK(told({"run", "hi", "--ctx-size", "2"}) == "troupe: there is no flag --ctx-size; did you mean --max-context?");
  CHECK(told({"run", "-p", "hi"}) == "troupe: there is no flag -p; did you mean `troupe run \"PROMPT\"`?");
  CHECK(told({"run", "hi", "--threads", "two"}) == "troupe: --threads: must be an integer from 0 to 1024, found `two`");
  CHECK(told({"serve", "--kv-cache", "2XB"}) ==
        "troupe: --kv-cache: must be a size such as 512MiB or 2GiB, found `2XB`");
  CHECK(told({"run", "hi", "--speculate", "fast"}) ==
        "troupe: --speculate: must be auto, off, draft, mtp, ngram, lookahead or jacobi, found `fast`");
  CHECK(told({"score", "hi", "--top", "21"}) == "troupe: --top: must be an integer from 0 to 20, found `21`");
  CHECK(told({"serve", "--port", "70000"}) == "troupe: --port: must be an integer from 0 to 65535, found `70000`");
  for (const std::string flag : {"--temperature", "--temp"})
    CHECK(told({"run", "hi", flag, "3"}) == "troupe: --temperature: must be a number from 0 to 2, found `3`");
  CHECK(told({"run", "hi", "--dtype", "f8"}) == "troupe: --dtype: must be auto, f32 or bf16, found `f8`");
  for (const std::string bad : {"0", "many"})
    CHECK(told({"run", "hi", "--step-tokens", bad}) ==
          "troupe: --step-tokens: must be auto or an integer from 1 to 268435456, found `" + bad + "`");
  for (const std::string bad : {"0", "-0", "-5ms", "soon", "nan", "80us", "1e400ms", "601s"})
    CHECK(told({"serve", "--itl-target", bad}) ==
          "troupe: --itl-target: must be a time from 0.1ms to 600s such as 80ms or 0.2s, found `" + bad + "`");
  CHECK(told({"run", "hi", "--threads", "1", "--temperature", "0.5x"}) ==
        "troupe: --temperature: must be a number from 0 to 2, found `0.5x`");
  CHECK(told({"bench", "model", "--batch", "1,none"}) ==
        "troupe: --batch: must be an integer from 1 to 1048576, found `none`");
  CHECK(told({"run", "hi", "--json-object", "--regex", "a"}) ==
        "troupe: `--json-object` and `--regex` cannot both be given");
  CHECK(told({"run", "hi", "--logit-bias", "x"}) == "troupe: --logit-bias must be TEXT=NUMBER or ID=NUMBER, not x");
}

TEST_CASE("empty names of files and empty keys are refused") {
  const auto told = [](const strings& arguments) {
    const auto result = run_troupe(arguments);
    CHECK(result.status == 2);
    return only_line(result.err);
  };
  for (const std::string flag :
       {"--policy", "--api-key", "--api-keys", "--api-key-file", "--metrics-key-file", "--watermark-key-file",
        "--model", "--draft", "--reward-model", "--chat-template", "--config"})
    CHECK(told({"serve", "--port", "0", flag, ""}) == "troupe: " + flag + ": must not be empty");
  for (const std::string flag : {"--packed-cache", "--kv-disk"})
    CHECK(told({"serve", "--port", "0", flag, ""}) == "troupe: " + flag + ": must name a folder");
  for (const std::string flag : {"--json-schema", "--grammar", "--structural-tag"})
    CHECK(told({"run", "hi", flag, ""}) == "troupe: " + flag + ": must not be empty");
  for (const std::string flag : {"--out", "--imatrix", "--text"})
    CHECK(told({"quantize", "--to", "q4_k", "--out", "x.gguf", flag, ""}) == "troupe: " + flag + ": must not be empty");
  const temporary_folder folder; // configuration files refuse empty values by themselves
  CHECK(told({"serve", "--config", folder.write("x.toml", "policy = \"\"\n")}).ends_with("`policy` has no value"));
}

TEST_CASE("a feature that the device lacks is reported in one line, with exit status 1") {
  const auto told = [](const strings& arguments) {
    const auto result = run_troupe(strings{"run", "hi", "--quiet"} + small + arguments);
    CHECK(result.status == 1);
    CHECK(result.out.empty());
    return only_line(result.err);
  };
  CHECK(told({"--swap", "64MiB", "--no-prefix-cache"}) ==
        "troupe: `swap` keeps what the prefix cache evicts, but the prefix cache is off");
  CHECK(told({"--kv-disk", "/proc/version"}) == "troupe: `kv_disk` must name a folder, which /proc/version is not");
  CHECK(told({"--device", "cpu", "--unified-maximum", "1"}) == "troupe: `unified_maximum` is for NVIDIA GPUs");
  CHECK(told({"--packed-cache", "/proc/version"}) ==
        "troupe: `packed_cache` must be a folder, which /proc/version is not");
  CHECK(told({"--device", "cuda:77"}).starts_with("troupe: there is no device `cuda:77`: "));
}

TEST_CASE("a missing model is reported in one line, with exit status 1") {
  const std::vector<strings> commands{{"run", "hi", "--quiet"},
                                      {"chat", "--quiet"},
                                      {"serve", "--quiet", "--port", "0"},
                                      {"tokenize", "hi"},
                                      {"bench", "model"}};
  for (const auto& command : commands) {
    const auto result = run_troupe(command + strings{"--model", "/nowhere/at/all"});
    INFO(command.front() << ": " << result.err);
    CHECK(result.status == 1);
    const auto last = result.err.substr(result.err.rfind('\n', result.err.size() - 2) + 1);
    CHECK(last.starts_with("troupe: /nowhere/at/all"));
  }
}

TEST_CASE("tokenize prints ids and pieces, and decodes them again") {
  const auto model = golden("llama-gqa");
  const auto expected = json::document::load(model + "/expected.json");
  std::size_t compared = 0;
  for (auto item : json::array(expected.root()["tokenize"])) {
    const std::string text{std::string_view(item["text"])};
    if (text.empty() || text.starts_with('-') || text.find('\0') != std::string::npos || ++compared > 5)
      continue;
    const auto object = run_troupe({"tokenize", "-", "--json", "--model", model}, text);
    CHECK(object.status == 0);
    const auto got = json::document::parse(object.out, "tokenize");
    CHECK(simdjson::minify(got.root()["tokens"]) == simdjson::minify(item["ids"]));
    const auto lines = run_troupe({"tokenize", "-", "--no-special", "--model", model}, text);
    std::string ids;
    std::istringstream all(lines.out);
    for (std::string line; std::getline(all, line);)
      ids += (ids.empty() ? "" : ",") + line.substr(0, line.find('\t'));
    CHECK("[" + ids + "]" == simdjson::minify(item["ids_no_special"]));
  }
  CHECK(compared >= 5);
}

TEST_CASE("tokenize --decode refuses anything but ids") {
  CHECK(only_line(run_troupe({"tokenize", "--decode", "1 x", "--model", golden("qwen2")}).err) ==
        "troupe: an id must be an integer from 0 to 2147483647, found `x`");
  CHECK(only_line(run_troupe({"tokenize", "--decode", "100000", "--model", golden("qwen2")}).err) ==
        "troupe: token 100000 is outside the vocabulary of 720");
}

TEST_CASE("steer makes a vector from two lists of prompts, and run is steered by it") {
  const temporary_folder folder;
  const auto positive = folder.write("positive.txt", "O happy day\nWhat joy\r\n\n"),
             negative = folder.write("negative.txt", "O woeful night\nWhat grief\n");
  const strings of_model{"--model", golden("llama-gqa"), "--threads", "1"};
  const auto make = [&](const std::string& file, const strings& more) {
    return run_troupe(strings{"steer", "--positive", positive, "--negative", negative, "--out", file} + of_model +
                      more);
  };
  const auto file = (folder.path / "v.gguf").string();
  const auto made = make(file, {"--method", "pca", "--json"});
  CHECK(made.status == 0);
  const auto about = json::document::parse(only_line(made.out), "steer");
  CHECK(about.root()["positive"].get_int64().value() == 2);
  CHECK(about.root()["layers"].get_int64().value() == 3);
  CHECK(make((folder.path / "v").string(), {}).out.find("directions of 3 layers from 2 positive and 2 negative") !=
        std::string::npos);

  const auto told = [&](const strings& more) {
    return run_troupe(strings{"run", "ROMEO:", "--raw", "--temperature", "0", "--max-tokens", "16", "--quiet"} +
                      of_model + more);
  };
  const strings steer{"--steer", "mood=" + file};
  const auto plain = told({}), changed = told(steer + strings{"--steering", "mood=30@1-2"});
  CHECK(changed.status == 0);
  CHECK(plain.out != changed.out);
  CHECK(told(steer).out == plain.out);
  CHECK(told(steer + strings{"--steering", "mood=0"}).out == plain.out);
  const auto refused = told(steer + strings{"--steering", "other"});
  CHECK(refused.status == 1);
  CHECK(only_line(refused.err) == "troupe: `steering[0].name` must be one of \"mood\", not \"other\"");
  CHECK(told({"--steer", "mood"}).status == 2);
  CHECK(told({"--steering", "mood=1@2"}).status == 2);

  const auto empty = folder.write("empty.txt", "\n");
  const auto nothing = run_troupe(strings{"steer", "--positive", empty, "--negative", negative, "--out", file} +
                                  of_model);
  CHECK(nothing.status == 1);
  CHECK(only_line(nothing.err) == "troupe: there are no positive prompts");
}

TEST_CASE("bench says what an encoder is, of which it measures nothing") {
  const auto encoder = golden("../tiny_encoders/bert");
  for (const auto& command : {strings{"perplexity", "--text", encoder + "/config.json"}, strings{"model"}}) {
    const auto result = run_troupe(strings{"bench"} + command + strings{"--model", encoder});
    CHECK(result.status == 1);
    CHECK(only_line(result.err).starts_with("troupe: this model is an encoder: "));
  }
}

TEST_CASE("quantize writes a file that run answers from, and bench perplexity measures") {
  const temporary_folder folder;
  const auto file = (folder.path / "m.gguf").string();
  const auto written = run_troupe(
    {"quantize", "--model", golden("llama-gqa"), "--to", "q8_0", "--out", file, "--json"});
  CHECK(written.status == 0);
  const auto about = json::document::parse(only_line(written.out), "quantize");
  CHECK(about.root()["relative_error"].get_double().value() < 0.01);
  const auto answer = run_troupe(
    strings{"run", "ROMEO:", "--raw", "--temperature", "0", "--max-tokens", "16", "--verbose", "--model", file} +
    small);
  CHECK(answer.status == 0);
  CHECK(answer.out.size() > 10);
  CHECK(answer.err.find("Q8_0 weights") != std::string::npos);

  const auto again = strings{"quantize", "--model", file, "--to", "q4_0", "--out", (folder.path / "4.gguf").string()};
  const auto twice = run_troupe(again);
  CHECK(twice.status == 1);
  CHECK(twice.err.find("its matrices are quantised already, to Q8_0; take the original") != std::string::npos);
  CHECK(run_troupe(again + strings{"--requantize"}).status == 0);

  const auto text = folder.write("text.txt", answer.out + answer.out);
  const auto perplexity = [&](const strings& more) {
    const auto result = run_troupe(strings{"bench", "perplexity", "--text", text, "--json", "--threads", "1"} + more);
    CHECK(result.status == 0);
    return json::document::parse(only_line(result.out), "perplexity").root()["perplexity"].get_double().value();
  };
  const auto told = run_troupe(
    {"bench", "perplexity", "--text", text, "--json", "--threads", "1", "--model", golden("llama-gqa")});
  const auto figures = json::document::parse(only_line(told.out), "perplexity");
  const auto figure = [&](const char* key) { return figures.root()[key].get_double().value(); };
  CHECK(figure("bytes") == double(2 * answer.out.size())); // what stands before them is a special token
  CHECK(figure("bits_per_byte") ==
        doctest::Approx(figure("loss") * figure("tokens") / std::log(2.0) / figure("bytes")).epsilon(1e-9));
  const auto exact = perplexity({"--model", golden("llama-gqa")}), coarse = perplexity({"--model", file});
  CHECK(exact > 1);
  CHECK(coarse != exact);
  CHECK(std::abs(coarse / exact - 1) < 0.1);
  const auto sparse = perplexity({"--model", golden("llama-gqa"), "--sparsity", "0.5:0.3"});
  CHECK(sparse != exact);
  CHECK(std::abs(sparse / exact - 1) < 0.5);
  const auto refused = run_troupe({"bench", "perplexity", "--model", golden("llama-gqa"), "--text", "/nowhere"});
  CHECK(refused.status == 1);
  CHECK(refused.err.find("troupe: /nowhere: no such file") != std::string::npos);
}

TEST_CASE("bench model prints one JSON object per batch size") {
  const auto result = run_troupe({"bench", "model", "--model", golden("llama-mha-tied"), "--prompt", "20", "--generate",
                                  "3", "--batch", "1,3", "--step-tokens", "7", "--repeat", "2", "--threads", "1",
                                  "--kv-dtype", "fp8", "--json"});
  CHECK(result.status == 0);
  std::istringstream lines(result.out);
  std::vector<std::int64_t> batches;
  for (std::string line; std::getline(lines, line);) {
    const auto object = json::document::parse(line, "bench");
    const auto root = object.root();
    batches.push_back(root["batch"]);
    CHECK(std::string_view(root["model"]) == "llama-mha-tied");
    CHECK(std::string_view(root["weights"]) == "BF16");
    CHECK(std::string_view(root["dtype"]) == "bf16");
    CHECK(std::string_view(root["kv_dtype"]) == "fp8");
    CHECK(std::string_view(root["device"]).starts_with("cpu, "));
    CHECK(std::int64_t(root["threads"]) == 1);
    CHECK(std::int64_t(root["prompt"]) == 20);
    CHECK(std::int64_t(root["generate"]) == 3);
    for (const char* key : {"prefill_tps", "decode_tps", "prefill_ms", "decode_ms_per_step", "load_s"})
      CHECK(root[key].get_double().value() > 0);
    CHECK(std::int64_t(root["peak_rss_bytes"]) > 1'000'000);
    CHECK(std::int64_t(root["weight_bytes"]) >= 2 * std::int64_t(root["multiply_adds_per_token"]));
    CHECK(std::int64_t(root["multiply_adds_per_token"]) > 10'000);
  }
  CHECK(batches == std::vector<std::int64_t>{1, 3});
}

TEST_CASE("bench model counts the weights that zeros save, and says how they came about") {
  const auto bench = [](const strings& more) {
    const auto result = run_troupe(strings{"bench", "model", "--prompt", "4", "--generate", "2", "--batch", "1",
                                           "--repeat", "1", "--threads", "1", "--device", "cpu"} +
                                   more);
    CHECK(result.status == 0);
    return result;
  };
  struct counts {
    double read, skipped;
  };
  const auto counted = [&](const strings& more) {
    const auto object = json::document::parse(only_line(bench(more + strings{"--json"}).out), "bench");
    const auto number = [&](const char* key) { return object.root()[key].get_double().value(); };
    return counts{number("decode_bytes_per_step"), number("decode_skipped_bytes_per_step")};
  };
  const strings dense{"--model", golden("llama-gqa")}, sparse = dense + strings{"--sparsity", "0.9"};
  const auto all = counted(dense), few = counted(sparse);
  CHECK(all.skipped == 0);
  CHECK(few.skipped > 0);
  CHECK(few.read + few.skipped == doctest::Approx(all.read));

  const auto table = bench(sparse);
  CHECK(table.out.find("sparsity 0.9: ") != std::string::npos);
  CHECK(table.err.find("sparsity 0.9: results are approximate") != std::string::npos);
  CHECK(bench(dense).out.find("sparsity") == std::string::npos);
  const auto refused = run_troupe(strings{"bench", "model", "--quantize", "int8"} + sparse);
  CHECK(refused.status == 1);
  CHECK(refused.err.find("troupe: `sparsity` skips nothing in weights that are quantised to int8") !=
        std::string::npos);
}

TEST_CASE("bench model --peaks measures the machine first, and shows what share of it is reached") {
  const strings command{"bench",     "model", "--model",    golden("llama-mha-tied"),
                        "--prompt",  "16",    "--generate", "2",
                        "--batch",   "1",     "--repeat",   "1",
                        "--threads", "1",     "--device",   "cpu"};
  const auto with = run_troupe(command + strings{"--peaks", "--json"});
  CHECK(with.status == 0);
  CHECK(with.err.find("measuring what cpu, ") != std::string::npos);
  const auto object = json::document::parse(only_line(with.out), "bench");
  const auto root = object.root();
  CHECK(std::string_view(root["bandwidth_of"]) == "memory read");
  const auto number = [&](const char* key) { return root[key].get_double().value(); };
  CHECK(number("decode_bandwidth_share") ==
        doctest::Approx(number("decode_bytes_per_step") * number("decode_tps") / number("bandwidth_gbps") / 1e9));
  if (number("peak_gops") > 0) {
    CHECK(!std::string_view(root["peak_of"]).empty());
    CHECK(number("prefill_peak_share") ==
          doctest::Approx(number("prefill_operations") / number("prefill_ms") * 1e3 / number("peak_gops") / 1e9));
  }
  for (const char* key : {"device_ms_per_step", "step_overhead_share"}) // of a GPU
    CHECK(root[key].error() != simdjson::SUCCESS);
  const auto table = run_troupe(command + strings{"--ceilings"}), without = run_troupe(command);
  CHECK(table.out.find("\nmemory read ") != std::string::npos);
  CHECK(table.out.find("prefill of peak  decode of bandwidth\n") != std::string::npos);
  CHECK(without.out.find("of bandwidth") == std::string::npos);
  CHECK(without.err.find("measuring") == std::string::npos);
}

TEST_CASE("bench model refuses what exceeds the model's context, and nothing to do") {
  const auto told = [](const std::string& prompt, const std::string& generate) {
    const auto result = run_troupe(
      {"bench", "model", "--model", golden("qwen2"), "--prompt", prompt, "--generate", generate});
    CHECK(result.status == (prompt == "0" ? 2 : 1));
    return result.err.substr(result.err.find("troupe: "));
  };
  CHECK(told("4000", "1") == "troupe: a prompt of 4000 and 1 generated tokens exceed the 2048 that qwen2 allows\n");
  CHECK(told("0", "0") == "troupe: --prompt and --generate are both 0, which leaves nothing to measure\n");
}

TEST_CASE("bench machine measures one thread, then as many as asked for") {
  const auto result = run_troupe({"bench", "machine", "--threads", "2", "--memory", "1MiB", "--json"});
  CHECK(result.status == 0);
  std::istringstream lines(result.out);
  std::vector<std::int64_t> threads;
  for (std::string line; std::getline(lines, line);) {
    const auto object = json::document::parse(line, "bench");
    const auto root = object.root();
    threads.push_back(root["threads"]);
    CHECK(root["read_gbps"].get_double().value() >= root["read_median_gbps"].get_double().value());
    CHECK(root["read_median_gbps"].get_double().value() > 0);
    for (const char* key : {"f32_fma_gflops", "bf16_dot_gflops", "bf16_amx_gflops", "int8_dot_gops", "int8_amx_gops"})
      CHECK(root[key].get_double().value() >= 0);
  }
  CHECK(threads == std::vector<std::int64_t>{1, 2});
}

TEST_CASE("the embedding example streams to a callback and to an actor, cancels and stops") {
  const auto result = program(TROUPE_EMBED, {golden("llama-gqa"), golden("llama-mha-tied")}).wait();
  INFO(result.err);
  CHECK(result.status == 0);
  CHECK(std::regex_search(result.out, std::regex("\\[callback: [1-9][0-9]* tokens\\]\n")));
  CHECK(std::regex_search(result.out, std::regex("\\[messages: [1-9][0-9]* tokens\\]\n")));
  CHECK(result.out.find(" tokens, cancelled]\n") != std::string::npos);
}
