// The program as its users have it, on the golden checkpoints.
#include "runtime/support/json.hpp"
#include "tests/api/cli/program.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <csignal>
#include <cstdint>
#include <regex>
#include <sstream>

using troupe::test::golden;
using troupe::test::program;
using troupe::test::run_troupe;
using troupe::test::temporary_folder;
namespace json = troupe::json;

namespace {

using strings = std::vector<std::string>;

strings operator+(strings a, const strings& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

const strings small{"--max-context", "256", "--kv-cache", "4MiB", "--threads", "1"};

std::string only_line(const std::string& text) {
  CHECK(text.ends_with('\n'));
  CHECK(text.find('\n') == text.size() - 1);
  return text.substr(0, text.size() - 1);
}

} // namespace

TEST_CASE("--version and --help are answered on stdout") {
  const auto version = run_troupe({"--version"});
  CHECK(version.status == 0);
  CHECK(version.out == "troupe 0.1.0\n");
  const auto help = run_troupe({"--help"});
  CHECK(help.status == 0);
  CHECK(help.err.empty());
  for (const std::string name : {"run", "chat", "serve", "tokenize", "bench"})
    CHECK(help.out.find("\n  " + name + " ") != std::string::npos);
}

TEST_CASE("every command explains itself, with its flags, their defaults and examples") {
  const std::vector<strings> commands{
    {"run"}, {"chat"}, {"serve"}, {"tokenize"}, {"quantize"}, {"bench", "model"}, {"bench", "perplexity"}};
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

TEST_CASE("a wrong command line is told in one line, with exit status 2") {
  const auto told = [](const strings& arguments) {
    const auto result = run_troupe(arguments);
    CHECK(result.status == 2);
    CHECK(result.out.empty());
    return only_line(result.err);
  };
  CHECK(told({}) == "troupe: a command is missing (`troupe --help` shows how)");
  CHECK(told({"bench"}) == "troupe: a command is missing (`troupe bench --help` shows how)");
  CHECK(told({"frobnicate"}) == "troupe: there is no command `frobnicate` (`troupe --help` shows how)");
  CHECK(told({"bench", "all"}) == "troupe: there is no command `all` (`troupe bench --help` shows how)");
  CHECK(told({"--frobnicate"}) == "troupe: there is no flag --frobnicate (`troupe --help` shows how)");
  CHECK(told({"run"}) == "troupe: PROMPT is required (`troupe run --help` shows how)");
  CHECK(told({"run", "one", "two"}) == "troupe: unexpected argument `two` (`troupe run --help` shows how)");
  CHECK(told({"run", "hi", "--treads", "2"}) == "troupe: there is no flag --treads (`troupe run --help` shows how)");
  CHECK(told({"run", "hi", "--threads", "two"}) ==
        "troupe: --threads: must be an integer from 0 to 1024, found `two` (`troupe run --help` shows how)");
  CHECK(told({"serve", "--kv-cache", "2XB"}) ==
        "troupe: --kv-cache: must be a size such as 512MiB or 2GiB, found `2XB` (`troupe serve --help` shows how)");
  CHECK(told({"serve", "--port", "70000"}) ==
        "troupe: --port: must be an integer from 0 to 65535, found `70000` (`troupe serve --help` shows how)");
  CHECK(told({"run", "hi", "--temperature", "3"}) ==
        "troupe: --temperature: must be a number from 0 to 2, found `3` (`troupe run --help` shows how)");
  CHECK(told({"run", "hi", "--dtype", "f8"}) ==
        "troupe: --dtype: must be auto, f32 or bf16, found `f8` (`troupe run --help` shows how)");
  CHECK(told({"run", "hi", "--threads", "1", "--temperature", "0.5x"}) ==
        "troupe: --temperature: must be a number from 0 to 2, found `0.5x` (`troupe run --help` shows how)");
  CHECK(told({"bench", "model", "--batch", "1,none"}) ==
        "troupe: --batch: must be an integer from 1 to 1048576, found `none` (`troupe bench model --help` shows how)");
}

TEST_CASE("what a device cannot do is told in one line, with exit status 1") {
  const auto told = [](const strings& arguments) {
    const auto result = run_troupe(strings{"run", "hi", "--quiet"} + small + arguments);
    CHECK(result.status == 1);
    CHECK(result.out.empty());
    return only_line(result.err);
  };
  CHECK(told({"--swap", "64MiB"}) ==
        "troupe: `swap` is for devices with memory of their own; on a CPU, give the 64.0 MiB to the KV cache");
  CHECK(told({"--device", "cpu", "--quantize", "fp8"}) ==
        "troupe: `quantize` fp8 needs an NVIDIA GPU; on a CPU weights are quantised to int8 or int4");
  CHECK(told({"--device", "cpu", "--unified-maximum", "1"}) == "troupe: `unified_maximum` is for NVIDIA GPUs");
  CHECK(told({"--packed-cache", "/proc/version"}) ==
        "troupe: `packed_cache` must be a folder, which /proc/version is not");
  CHECK(told({"--device", "cuda:77"}).starts_with("troupe: there is no device `cuda:77`: "));
}

TEST_CASE("a model that is not there is told in one line, with exit status 1") {
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

TEST_CASE("run --raw continues a text as transformers does") {
  for (const std::string name : {"llama-gqa", "qwen3", "mistral-swa"}) {
    INFO(name);
    const auto expected = json::document::load(golden(name) + "/expected.json");
    const auto first = expected.root()["cases"].at(0);
    const std::string text{std::string_view(first["text"])};
    const auto result = run_troupe(strings{"run", text, "--raw", "--model", golden(name), "--dtype", "f32",
                                           "--temperature", "0", "--max-tokens", "3", "--verbose", "--ignore-eos"} +
                                   small);
    CHECK(result.status == 0);
    std::string ids;
    std::int64_t prompt_tokens = 0;
    for (auto id : json::array(first["ids"]))
      prompt_tokens += id.is_int64();
    for (std::size_t i = 0; i < 3; ++i) {
      REQUIRE(double(first["greedy"]["margins"].at(i)) > 1e-3);
      ids += std::to_string(std::int64_t(first["greedy"]["ids"].at(i))) + " ";
    }
    const auto decoded = run_troupe({"tokenize", "--decode", ids, "--model", golden(name)});
    // A text that follows another may start with a space which it would not have alone.
    CHECK(result.out.substr(result.out.starts_with(' ') && !decoded.out.starts_with(' ')) == decoded.out);
    const auto timings = "\n" + std::to_string(prompt_tokens) + " tokens in (0 cached), 3 out; ";
    CHECK(result.err.find(timings) != std::string::npos);
  }
}

TEST_CASE("run takes the prompt from stdin, and a seed gives the same text again") {
  const auto ask = [](const std::string& seed) {
    return run_troupe(strings{"run", "-", "--quiet", "--model", golden("llama-mha-tied"), "--seed", seed,
                              "--max-tokens", "24", "--ignore-eos", "--temperature", "1"} +
                        small,
                      "Once upon a time");
  };
  const auto once = ask("7");
  CHECK(once.status == 0);
  CHECK(once.err.empty());
  CHECK(once.out.size() > 10);
  CHECK(ask("7").out == once.out);
  CHECK(ask("8").out != once.out);
}

TEST_CASE(
  "run, bench model and bench perplexity give the same without a packed cache, with a cold one and a warm one") {
  const temporary_folder folder;
  const auto text = folder.write("text", "ROMEO: the sun, the moon and all the stars of heaven are not as bright.");
  for (const std::string dtype : {"f32", "bf16"})
    for (const auto& command :
         {strings{"run", "ROMEO:", "--raw", "--seed", "3", "--max-tokens", "40", "--ignore-eos"} + small,
          strings{"bench", "perplexity", "--text", text, "--json"}}) {
      const auto with = [&](const strings& more) {
        return run_troupe(command + strings{"--model", golden("llama-gqa"), "--quantize", "int8", "--dtype", dtype} +
                          more);
      };
      const auto cache = (folder.path / (command[1] + dtype)).string();
      const auto absent = with({}), cold = with({"--packed-cache", cache}), warm = with({"--packed-cache", cache});
      INFO(cold.err << warm.err);
      CHECK(absent.status == 0);
      CHECK(absent.out.size() > 40);
      CHECK(cold.out == absent.out);
      CHECK(warm.out == absent.out);
      CHECK(absent.err.find("packed weights") == std::string::npos);
      CHECK(cold.err.find("packed weights will be kept in " + cache) != std::string::npos);
      CHECK(cold.err.find(", are kept in " + cache) != std::string::npos);
      CHECK(warm.err.find("packed weights come from " + cache) != std::string::npos);
    }
  const auto bench = [&] {
    return run_troupe({"bench", "model", "--model", golden("llama-gqa"), "--prompt", "8", "--generate", "2", "--batch",
                       "1", "--repeat", "1", "--packed-cache", (folder.path / "bench").string()});
  };
  CHECK(bench().err.find("packed weights will be kept in ") != std::string::npos);
  CHECK(bench().err.find("packed weights come from ") != std::string::npos);
}

TEST_CASE("run says that it continues a text where the model has no chat template") {
  const temporary_folder folder;
  const auto plain = (folder.path / "plain").string();
  std::filesystem::copy(golden("llama-gqa"), plain);
  std::filesystem::remove(folder.path / "plain" / "chat_template.jinja");
  const auto told = [](const std::string& model, const strings& more) {
    const auto result = run_troupe(strings{"run", "Once", "--model", model, "--max-tokens", "1"} + small + more);
    CHECK(result.status == 0);
    CHECK(result.err.find("cuda") == std::string::npos); // which nobody has asked for
    CHECK(result.err.find("CUDA") == std::string::npos);
    return result.err.find("has no chat template: the text is continued as it is, as with --raw\n") !=
      std::string::npos;
  };
  CHECK(told(plain, {}));
  CHECK(!told(plain, {"--raw"}));
  CHECK(!told(golden("llama-gqa"), {}));
}

TEST_CASE("run -n prints each answer under its number") {
  const auto result = run_troupe(strings{"run", "Once", "-n", "3", "--quiet", "--model", golden("qwen2"),
                                         "--max-tokens", "4", "--ignore-eos", "--raw", "--seed", "1"} +
                                 small);
  CHECK(result.status == 0);
  CHECK(result.out.starts_with("[1]\n"));
  CHECK(result.out.find("\n[2]\n") != std::string::npos);
  CHECK(result.out.find("\n[3]\n") != std::string::npos);
  CHECK(result.out.ends_with('\n'));
}

TEST_CASE("run says what is wrong with a request, with exit status 1") {
  std::string longer;
  for (int i = 0; i < 400; ++i)
    longer += "word ";
  const auto result = run_troupe(strings{"run", longer, "--quiet", "--model", golden("llama-gqa"), "--raw"} + small);
  CHECK(result.status == 1);
  CHECK(result.out == "");
  CHECK(only_line(result.err).starts_with("troupe: "));
  CHECK(result.err.find("256") != std::string::npos);
}

TEST_CASE("Ctrl-C ends an answer with exit status 130") {
  program endless(TROUPE_PROGRAM,
                  {"run", "Once", "--raw", "--quiet", "--model", golden("llama-gqa"), "--max-tokens", "100000",
                   "--ignore-eos", "--max-context", "2048", "--kv-cache", "16MiB", "--threads", "1", "--temperature",
                   "0"});
  REQUIRE(endless.prints(" "));
  endless.signal(SIGINT);
  const auto result = endless.wait();
  CHECK(result.status == 130);
  CHECK(result.out.ends_with('\n'));
}

TEST_CASE("A model's file that is cut short while it is used ends the program with a sentence") {
  const temporary_folder folder;
  const auto model = folder.path / "model";
  std::filesystem::copy(golden("llama-gqa"), model);
  program endless(TROUPE_PROGRAM,
                  {"run", "Once", "--raw", "--quiet", "--model", model.string(), "--max-tokens", "100000",
                   "--ignore-eos", "--max-context", "2048", "--kv-cache", "16MiB", "--threads", "1", "--temperature",
                   "0"});
  REQUIRE(endless.prints(" "));
  std::filesystem::resize_file(model / "model.safetensors", 0);
  const auto result = endless.wait();
  CHECK(result.status == 1);
  CHECK(only_line(result.err) == "troupe: a file of the model was cut short or became unreadable while it was in use");
}

TEST_CASE("loading says what is done, and what memory it will take") {
  const auto result = run_troupe(strings{"run", "Once", "--raw", "--model", golden("llama-gqa"), "--max-tokens", "1"} +
                                 small);
  CHECK(result.status == 0);
  CHECK(result.err.find("KV cache 4.0 MiB") != std::string::npos);
  CHECK(result.err.find('\r') == std::string::npos); // no bar where stderr is no terminal
}

TEST_CASE("chat keeps the conversation and computes only what is new") {
  const std::string question = "Tell me a story about a fox and a bird and a river";
  const auto result = run_troupe({"chat", "--quiet", "--verbose", "--model", golden("llama-mha-tied"), "--max-tokens",
                                  "6", "--temperature", "0", "--ignore-eos", "--max-context", "1024", "--kv-cache",
                                  "16MiB", "--threads", "1"},
                                 question + "\nWho was in it?\n/reset\n" + question);
  CHECK(result.status == 0);
  // Three lines of timings: the second turn is longer and finds its start cached, the third is the first again.
  std::vector<unsigned> prompts, cached;
  std::istringstream lines(result.err);
  for (std::string line; std::getline(lines, line);) {
    unsigned in = 0, had = 0;
    REQUIRE(std::sscanf(line.c_str(), "%u tokens in (%u cached)", &in, &had) == 2);
    prompts.push_back(in);
    cached.push_back(had);
  }
  REQUIRE(prompts.size() == 3);
  CHECK(cached[0] == 0);
  CHECK(prompts[1] > prompts[0]);
  CHECK(cached[1] >= 16);
  CHECK(prompts[2] == prompts[0]);
  CHECK(cached[2] >= 16);
}

TEST_CASE("chat explains itself, refuses unknown commands and ends at /exit") {
  const auto result = run_troupe(strings{"chat", "--quiet", "--model", golden("llama-mha-tied")} + small,
                                 "/help\n\n/what\n/exit\nHello\n");
  CHECK(result.status == 0);
  CHECK(result.out.starts_with("/reset  forget the conversation\n"));
  CHECK(only_line(result.err) == "troupe: unknown command `/what`; /help shows those there are");
}

TEST_CASE("tokenize shows ids and pieces, and decodes them again") {
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

TEST_CASE("tokenize --decode refuses what is no id") {
  CHECK(only_line(run_troupe({"tokenize", "--decode", "1 x", "--model", golden("qwen2")}).err) ==
        "troupe: must be an integer from 0 to 2147483647, found `x`");
  CHECK(only_line(run_troupe({"tokenize", "--decode", "100000", "--model", golden("qwen2")}).err) ==
        "troupe: token 100000 is outside the vocabulary of 720");
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
    strings{"run", "ROMEO:", "--raw", "--temperature", "0", "--max-tokens", "16", "--model", file} + small);
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
  const auto exact = perplexity({"--model", golden("llama-gqa")}), coarse = perplexity({"--model", file});
  CHECK(exact > 1);
  CHECK(coarse != exact);
  CHECK(std::abs(coarse / exact - 1) < 0.1);
  const auto refused = run_troupe({"bench", "perplexity", "--model", golden("llama-gqa"), "--text", "/nowhere"});
  CHECK(refused.status == 1);
  CHECK(refused.err.find("troupe: /nowhere: no such file") != std::string::npos);
}

TEST_CASE("bench model prints one JSON object per batch size") {
  const auto result = run_troupe({"bench", "model", "--model", golden("llama-mha-tied"), "--prompt", "20", "--generate",
                                  "3", "--batch", "1,3", "--step-tokens", "7", "--repeat", "2", "--threads", "1",
                                  "--kv-dtype", "int8", "--json"});
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
    CHECK(std::string_view(root["kv_dtype"]) == "int8");
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

TEST_CASE("bench model --ceilings measures the machine first, and shows what share of it was reached") {
  const strings command{"bench",     "model", "--model",    golden("llama-mha-tied"),
                        "--prompt",  "16",    "--generate", "2",
                        "--batch",   "1",     "--repeat",   "1",
                        "--threads", "1",     "--device",   "cpu"};
  const auto with = run_troupe(command + strings{"--ceilings", "--json"});
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
    CHECK(result.status == 1);
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

TEST_CASE("a configuration file stands for flags, and the command line wins") {
  const temporary_folder folder;
  const auto file = folder.write("x.toml",
                                 "model = \"" + golden("llama-mha-tied") +
                                   "\"\nthreads = 1\n"
                                   "[bench.model]\nprompt = 8\ngenerate = 2\nbatch = \"2\"\n"
                                   "repeat = 1\njson = true\n"
                                   "[serve]\nport = 1\n");
  const auto result = run_troupe({"bench", "model", "--config", file, "--generate", "3"});
  CHECK(result.status == 0);
  const auto object = json::document::parse(result.out, "bench");
  CHECK(std::int64_t(object.root()["prompt"]) == 8);
  CHECK(std::int64_t(object.root()["generate"]) == 3);
  CHECK(std::int64_t(object.root()["batch"]) == 2);
}

TEST_CASE("what is wrong in a configuration file is told with its name, with exit status 2") {
  const temporary_folder folder;
  const auto unknown = folder.write("a.toml", "treads = 2\n"), wrong = folder.write("b.toml", "threads = \"two\"\n");
  const auto with = [](const std::string& file) { return run_troupe({"run", "hi", "--config", file}); };
  const auto first = with(unknown), second = with(wrong), third = with("/nowhere.toml");
  CHECK(first.status == 2);
  CHECK(only_line(first.err) == "troupe: " + unknown + ": line 1: unknown key `treads`");
  CHECK(second.status == 2);
  CHECK(only_line(second.err) == "troupe: " + wrong + ": --threads: must be an integer from 0 to 1024, found `two`");
  CHECK(third.status == 2);
  CHECK(only_line(third.err) == "troupe: /nowhere.toml: no such file");
}

TEST_CASE("every configuration that comes along is good for every command") {
  const temporary_folder folder;
  const auto nowhere = (folder.path / "no-model").string();
  std::size_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(TROUPE_CONFIGS)) {
    INFO(entry.path().string());
    const std::vector<strings> commands{{"run", "hi"}, {"chat"}, {"serve"}, {"tokenize", "hi"}, {"bench", "model"}};
    for (const auto& command : commands) {
      const bool serves = command.front() == "serve";
      const auto parsed = run_troupe(command + strings{"--config", entry.path().string(), "--model", nowhere} +
                                     (serves ? strings{"--host", "127.0.0.1", "--port", "0"} : strings{}));
      INFO(parsed.err);
      CHECK(parsed.status == 1); // parsed, and failed for want of the model
    }
    ++files;
  }
  CHECK(files >= 3);
}

TEST_CASE("every configuration that comes along starts a server of the bundled model") {
  for (const auto& entry : std::filesystem::directory_iterator(TROUPE_CONFIGS)) {
    INFO(entry.path().string());
    program server(TROUPE_PROGRAM, {"serve", "--config", entry.path().string(), "--host", "127.0.0.1", "--port", "0"});
    CHECK(server.prints("\nServing "));
    server.signal(SIGTERM);
    const auto result = server.wait();
    INFO(result.err);
    CHECK(result.status == 0);
  }
}

TEST_CASE("serve listens for other machines only with a key, or where everybody is to be let in") {
  const strings everywhere = strings{"serve", "--host", "0.0.0.0", "--port", "0", "--model", golden("llama-gqa")} +
    small;
  const auto refused = run_troupe(everywhere);
  CHECK(refused.status == 1);
  CHECK(refused.out.empty());
  CHECK(only_line(refused.err) ==
        "troupe: other machines could use this server, as --host is 0.0.0.0 and there is no key: name one with "
        "--api-key (or "
        "in TROUPE_API_KEY), or let everybody in with --allow-anonymous");
  const auto started = [&](const strings& more) {
    program server(TROUPE_PROGRAM, everywhere + more);
    CHECK(server.prints("curl -N http://127.0.0.1:")); // which can be pasted
    server.signal(SIGTERM);
    const auto result = server.wait();
    CHECK(result.status == 0);
    CHECK(std::regex_match(
      result.out, std::regex("Listening on http://0\\.0\\.0\\.0:[0-9]+ \\(all addresses of this machine\\)\n")));
    return result.err.find("everybody who reaches this address may use the server") != std::string::npos;
  };
  CHECK(started({"--allow-anonymous"}));
  CHECK(!started({"--api-key", "secret"}));
}

TEST_CASE("serve prints its URL at once, answers and ends with status 0 when asked to") {
  for (const int number : {SIGINT, SIGTERM}) {
    program server(TROUPE_PROGRAM, strings{"serve", "--port", "0", "--model", golden("llama-gqa")} + small);
    REQUIRE(server.prints("Listening on http://127.0.0.1:"));
    REQUIRE(server.prints("curl -N http://127.0.0.1:"));
    server.signal(number);
    const auto result = server.wait();
    INFO(result.err);
    CHECK(result.status == 0);
    CHECK(only_line(result.out).starts_with("Listening on http://127.0.0.1:"));
  }
}

TEST_CASE("serve ends with a sentence where the port is taken") {
  program server(TROUPE_PROGRAM, strings{"serve", "--port", "0", "--quiet", "--model", golden("llama-gqa")} + small);
  REQUIRE(server.prints("\n"));
  const auto line = server.out();
  const auto port = line.substr(line.rfind(':') + 1, line.size() - line.rfind(':') - 2);
  const auto second = run_troupe(strings{"serve", "--quiet", "--port", port, "--model", golden("llama-gqa")} + small);
  CHECK(second.status == 1);
  CHECK(only_line(second.err).starts_with("troupe: "));
  CHECK(second.err.find(port) != std::string::npos);
}

TEST_CASE("the embedding example streams to a callback and to an actor, cancels and stops") {
  const auto result = program(TROUPE_EMBED, {golden("llama-gqa"), golden("llama-mha-tied")}).wait();
  INFO(result.err);
  CHECK(result.status == 0);
  CHECK(std::regex_search(result.out, std::regex("\\[callback: [1-9][0-9]* tokens\\]\n")));
  CHECK(std::regex_search(result.out, std::regex("\\[messages: [1-9][0-9]* tokens\\]\n")));
  CHECK(result.out.find(" tokens, cancelled]\n") != std::string::npos);
}
