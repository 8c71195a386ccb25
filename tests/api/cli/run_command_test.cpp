// `troupe run` and `troupe chat` as users run them, on the golden checkpoints.
#include "api/cli/terminal/answer.hpp"
#include "runtime/support/json/json.hpp"
#include "tests/api/cli/program.hpp"

#include <doctest/doctest.h>

#include <csignal>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <sstream>

using namespace troupe::test;
namespace json = troupe::json;

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
    // A continuation may start with a space that the text alone would not have.
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
         {strings{"run", "ROMEO:", "--raw", "--seed", "3", "--max-tokens", "40", "--ignore-eos", "--verbose"} + small,
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

TEST_CASE("run reports that it continues the text if the model has no chat template") {
  const temporary_folder folder;
  const auto plain = (folder.path / "plain").string();
  std::filesystem::copy(golden("llama-gqa"), plain);
  std::filesystem::remove(folder.path / "plain" / "chat_template.jinja");
  const auto told = [](const std::string& model, const strings& more) {
    const auto result = run_troupe(strings{"run", "Once", "--model", model, "--max-tokens", "1"} + small + more);
    CHECK(result.status == 0);
    CHECK(result.err.find("cuda") == std::string::npos); // not asked for
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

TEST_CASE("run reports an invalid request, with exit status 1") {
  std::string longer;
  for (int i = 0; i < 400; ++i)
    longer += "word ";
  const auto result = run_troupe(strings{"run", longer, "--quiet", "--model", golden("llama-gqa"), "--raw"} + small);
  CHECK(result.status == 1);
  CHECK(result.out == "");
  CHECK(only_line(result.err).starts_with("troupe: "));
  CHECK(result.err.find("256") != std::string::npos);
}

TEST_CASE("run refuses options of beams that contradict each other, without loading a model") {
  const std::pair<strings, std::string> cases[] = {
    {{"--num-beams", "2", "--do-sample", "--temperature", "0"}, "`temperature`"},
    {{"--num-beams", "2", "--simulations", "5"}, "`num_beams`"},
    {{"--use-beam-search", "--num-beams", "2", "-n", "3"}, "`n`"},
    {{"--best-of", "2", "-n", "3"}, "`best_of`"},
    {{"--length-penalty", "0.5"}, "`length_penalty`"},
    {{"--early-stopping", "never"}, "`early_stopping`"},
    {{"--stochastic-beams", "--temperature", "0"}, "`temperature`"},
    {{"--best-of-rank", "mean"}, "--best-of-rank has no effect without --best-of"},
  };
  for (const auto& [flags, field] : cases) {
    const auto result = run_troupe(strings{"run", "a", "--model", "/nowhere"} + flags);
    CHECK(result.status == 2);
    CHECK(only_line(result.err).starts_with("troupe: " + field));
  }
  CHECK(run_troupe({"run", "a", "--early-stopping", "maybe"}).status == 2);
  CHECK(run_troupe({"run", "a", "--num-beams", "129"}).status == 2);
}

TEST_CASE("Ctrl-C ends an answer with exit status 130") {
  outcome result;
  int tries = 0;
  do { // on a busy machine the answer, which takes seconds of the bundled model, may be over before
    program endless(TROUPE_PROGRAM,
                    {"run", "Once", "--raw", "--quiet", "--max-tokens", "100000", "--ignore-eos", "--max-context",
                     "8192", "--kv-cache", "64MiB", "--threads", "1", "--temperature", "0"});
    REQUIRE(endless.prints(" "));
    endless.signal(SIGINT);
    result = endless.wait();
  } while (result.status == 0 && ++tries < 20);
  CHECK(result.status == 130);
  CHECK(result.out.ends_with('\n'));
}

TEST_CASE("A model file that is truncated while in use ends the program with a sentence") {
  outcome result;
  int tries = 0;
  do { // on a busy machine the answer may be over before the file is cut
    const temporary_folder folder;
    const auto model = folder.path / "model";
    std::filesystem::copy(golden("llama-gqa"), model);
    program endless(TROUPE_PROGRAM,
                    {"run", "Once", "--raw", "--quiet", "--model", model.string(), "--max-tokens", "100000",
                     "--ignore-eos", "--max-context", "2048", "--kv-cache", "16MiB", "--threads", "1", "--temperature",
                     "0"});
    REQUIRE(endless.prints(" "));
    std::filesystem::resize_file(model / "model.safetensors", 0);
    result = endless.wait();
  } while (result.status == 0 && ++tries < 20);
  CHECK(result.status == 1);
  CHECK(only_line(result.err) == "troupe: a model file was truncated or became unreadable while in use");
}

TEST_CASE("loading prints its stages and the memory it will take if asked for, and nothing otherwise") {
  const auto ask = [](const strings& more) {
    return run_troupe(
      strings{"run", "Once", "--raw", "--model", golden("llama-gqa"), "--max-tokens", "1", "--ignore-eos"} + small +
      more);
  };
  const auto verbose = ask({"--verbose"});
  CHECK(verbose.status == 0);
  CHECK(verbose.err.find("KV cache 4.0 MiB") != std::string::npos);
  CHECK(verbose.err.find('\r') == std::string::npos); // no bar unless stderr is a terminal
  CHECK(ask({}).err == "(stopped at --max-tokens 1)\n");
  CHECK(ask({"--quiet"}).err.empty());
}

TEST_CASE("an answer that was cut says by what") {
  const auto told = [](const strings& more) {
    const auto result = run_troupe(
      strings{"run", "Once", "--raw", "--model", golden("llama-gqa"), "--ignore-eos", "--temperature", "0"} + small +
      more);
    CHECK(result.status == 0);
    return result.err;
  };
  CHECK(told({"--max-tokens", "5"}) == "(stopped at --max-tokens 5)\n");
  CHECK(told({}) == "(stopped at the end of the context, 256 tokens)\n");
  CHECK(told({"--max-tokens", "3", "-n", "2"}) == "([1], [2] stopped at --max-tokens 3)\n");
  CHECK(told({"--max-tokens", "9", "--choice", "a"}).empty());
}

TEST_CASE("cut answers are told apart") {
  using troupe::cli::cut_note;
  troupe::done_event done;
  CHECK(cut_note(done, 8, 64).empty());
  done.choices = {{.index = 0, .reason = troupe::finish_reason::length, .tokens = 8},
                  {.index = 1, .reason = troupe::finish_reason::stop, .tokens = 8},
                  {.index = 2, .reason = troupe::finish_reason::length, .tokens = 3},
                  {.index = 3, .reason = troupe::finish_reason::cancelled, .tokens = 3}};
  CHECK(cut_note(done, 8, 64) == "([1] stopped at --max-tokens 8; [3] stopped at the end of the context, 64 tokens)");
  done.choices = {{.index = 0, .reason = troupe::finish_reason::timeout, .tokens = 3}};
  CHECK(cut_note(done, 8, 64) == "(stopped at the end of its time, --request-timeout)");
}

TEST_CASE("run reads its prompt from a pipe, and common habits work") {
  const auto ask = [](const strings& flags, const std::string& typed) {
    return run_troupe(strings{"run", "--quiet", "--max-tokens", "8", "--ignore-eos"} + small + flags, typed);
  };
  const auto named = ask({"Once", "--model", golden("llama-gqa"), "--temperature", "0"}, "");
  CHECK(named.status == 0);
  CHECK(ask({"-m", golden("llama-gqa"), "--temp", "0"}, "Once\n").out == named.out); // as echo writes it
  CHECK(ask({"-", "-m", golden("llama-gqa"), "--temp", "0"}, "Once").out == named.out);
}

TEST_CASE("A malformed guide is refused with file and line, without loading a model") {
  const temporary_folder folder;
  const auto told = [&](const std::string& flag, const std::string& text, int status = 2) {
    const auto file = folder.write("guide", text);
    const auto result = run_troupe({"run", "a", "--model", "/nowhere", flag, file});
    CHECK(result.status == status);
    const auto line = only_line(result.err);
    CHECK(line.starts_with("troupe: " + file + ": "));
    return line.substr(std::min(line.size(), ("troupe: " + file + ": ").size()));
  };
  CHECK(told("--json-schema", "{\n  \"type\": \"object\",\n  \"properties\": {},\n}")
          .starts_with("line 4: not valid JSON"));
  CHECK(told("--json-schema", "{\"type\": \"objekt\"}").starts_with("JSON Schema at `#/type`: "));
  CHECK(told("--structural-tag", "{\n  oops\n}").starts_with("line 2: not valid JSON"));
  CHECK(!told("--grammar", "root ::= \"a").empty());
  CHECK(run_troupe({"run", "a", "--model", "/nowhere", "--regex", "("}).status == 2);
  const auto missing = run_troupe({"run", "a", "--model", "/nowhere", "--json-schema", "/no/schema.json"});
  CHECK(missing.status == 1);
  CHECK(only_line(missing.err) == "troupe: /no/schema.json: no such file");
}

TEST_CASE("A chat template is taken from a file, and a model without one is refused before it is loaded") {
  const temporary_folder folder;
  const auto plain = folder.path / "plain";
  std::filesystem::copy(golden("llama-gqa"), plain);
  std::filesystem::remove(plain / "chat_template.jinja");
  const auto ask = [&](const strings& flags, const std::string& typed) {
    return run_troupe(strings{"chat", "--verbose", "--max-tokens", "2", "--temperature", "0", "--ignore-eos", "--model",
                              plain.string()} +
                        small + flags,
                      typed);
  };
  const auto refused = ask({}, "Hello\n");
  CHECK(refused.status == 1);
  CHECK(only_line(refused.err) == // and no stage of loading
        "troupe: " + plain.string() +
          " has no chat template: give one with --chat-template FILE, or continue a plain text with `troupe run "
          "--raw`");
  const auto file = folder.write("chat.jinja", "{{ bos_token }}{% for m in messages %}{{ m.content }}{% endfor %}");
  const auto taken = ask({"--chat-template", file}, "Hello\n");
  CHECK(taken.status == 0);
  const auto raw = run_troupe(strings{"run", "Hello", "--raw", "--quiet", "--max-tokens", "2", "--temperature", "0",
                                      "--ignore-eos", "--model", plain.string()} +
                              small);
  CHECK(taken.out == raw.out);
  const auto wrong = folder.write("wrong.jinja", "{% for m in messages %}");
  CHECK(only_line(ask({"--chat-template", wrong}, "").err).starts_with("troupe: " + wrong + ": "));
  CHECK(only_line(ask({"--chat-template", "/no/file"}, "").err) == "troupe: /no/file: no such file");
}

TEST_CASE("chat keeps the conversation and computes only what is new") {
  const std::string question = "Tell me a story about a fox and a bird and a river";
  const auto result = run_troupe({"chat", "--quiet", "--verbose", "--model", golden("llama-mha-tied"), "--max-tokens",
                                  "6", "--temperature", "0", "--ignore-eos", "--max-context", "1024", "--kv-cache",
                                  "16MiB", "--threads", "1"},
                                 question + "\nWho was in it?\n/reset\n" + question);
  CHECK(result.status == 0);
  // Three lines of timings: the second turn is longer and its start is cached, the third equals the first.
  std::vector<unsigned> prompts, cached;
  std::istringstream lines(result.err);
  for (std::string line; std::getline(lines, line);) {
    unsigned in = 0, had = 0;
    if (std::sscanf(line.c_str(), "%u tokens in (%u cached)", &in, &had) != 2)
      continue; // that the limit cut the answer, or how it was sampled
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

TEST_CASE("chat prints its help, refuses unknown commands and ends at /exit") {
  for (const std::string end : {"/exit", "/bye", "/quit"}) {
    const auto result = run_troupe(strings{"chat", "--quiet", "--model", golden("llama-mha-tied")} + small,
                                   "/help\n\n/what\n/rest\n/clear\n" + end + "\nHello\n");
    CHECK(result.status == 0);
    CHECK(result.out.starts_with("/set NAME VALUE  change a sampling flag"));
    CHECK(result.err ==
          "troupe: unknown command `/what`; /help lists the commands\n"
          "troupe: unknown command `/rest`; did you mean /reset?\n");
  }
  const strings chat = strings{"chat", "--quiet", "--model", golden("llama-mha-tied")} + small;
  CHECK(run_troupe(chat, "/?\n").out == run_troupe(chat, "/help\n").out);
}
