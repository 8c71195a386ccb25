// Second models on the command line: --draft and --speculate; --amateur and contrasts, with layers too.
#include "tests/api/cli/program.hpp"

#include <doctest/doctest.h>

#include <string>

using namespace troupe::test;

namespace {

const strings few{"--threads",  "1",    "--device",        "cpu", "--max-context", "256",
                  "--kv-cache", "4MiB", "--max-sequences", "4"};

std::string last_error_line(const std::string& text) { return text.substr(text.rfind('\n', text.size() - 2) + 1); }

} // namespace

TEST_CASE("a draft model of another vocabulary, or none at all, is refused in one line") {
  const auto told = [](const std::string& draft) {
    const auto result = run_troupe(
      strings{"run", "hi", "--raw", "--max-tokens", "2", "--model", golden("llama-gqa"), "--draft", draft} + few);
    CHECK(result.status == 1);
    return last_error_line(result.err);
  };
  CHECK(told(golden("qwen2")).starts_with("troupe: the draft model qwen2 has another vocabulary than llama-gqa: "));
  CHECK(told("/nowhere/at/all").starts_with("troupe: /nowhere/at/all"));
  const auto none = run_troupe(
    strings{"run", "hi", "--raw", "--max-tokens", "2", "--model", golden("llama-gqa"), "--draft", "none"} + few);
  CHECK(none.status == 0);
}

TEST_CASE("an unknown kind of speculation is reported in one line, with exit status 2") {
  const auto result = run_troupe({"run", "hi", "--speculate", "medusa"});
  CHECK(result.status == 2);
  CHECK(only_line(result.err) ==
        "troupe: --speculate: must be auto, off, draft, mtp, ngram, lookahead or jacobi, found `medusa`");
}

TEST_CASE("run answers the same with every kind of speculation") {
  const auto answer = [](const strings& how) {
    const auto result = run_troupe(strings{"run", "Once upon a time", "--raw", "--quiet", "--max-tokens", "40",
                                           "--temperature", "0.7", "--seed", "3", "--model", golden("llama-gqa")} +
                                   few + how);
    CHECK(result.status == 0);
    return result.out;
  };
  const auto without = answer({"--speculate", "off"});
  CHECK_FALSE(without.empty());
  for (const std::string kind : {"auto", "draft", "ngram", "lookahead", "jacobi"})
    for (const std::string guesses : {"0", "5"})
      CHECK(answer({"--speculate", kind, "--draft", golden("llama-gqa"), "--draft-tokens", guesses}) == without);
  CHECK(run_troupe({"run", "hi", "--draft-tokens", "17"}).status == 2);
}

TEST_CASE("run is contrasted with an amateur, which must be there and have the same vocabulary") {
  const auto told = [](const strings& how) {
    return run_troupe(strings{"run", "Once upon a time", "--raw", "--quiet", "--max-tokens", "20", "--temperature", "0",
                              "--model", golden("qwen3")} +
                      few + how);
  };
  const strings contrast{"--contrastive-beta", "2", "--contrastive-alpha", "0.01"};
  const strings amateur{"--amateur", golden("qwen2")};
  const auto plain = told({}), changed = told(amateur + contrast);
  CHECK(changed.status == 0);
  CHECK(changed.out != plain.out);
  CHECK(told(amateur).out == plain.out);
  CHECK(told(amateur + contrast + strings{"--step-tokens", "3"}).out == changed.out);
  const auto without = told(contrast);
  CHECK(without.status == 1);
  CHECK(last_error_line(without.err) == "troupe: `contrastive_beta` needs an amateur model, given with --amateur\n");
  const auto other = told(strings{"--amateur", golden("llama-gqa")} + contrast);
  CHECK(other.status == 1);
  CHECK(
    last_error_line(other.err).starts_with("troupe: the amateur model llama-gqa has another vocabulary than qwen3: "));
}

TEST_CASE("run is contrasted with inner layers, named by a word or by numbers") {
  const auto told = [](const strings& how) {
    return run_troupe(strings{"run", "Once upon a time", "--raw", "--quiet", "--max-tokens", "20", "--temperature", "0",
                              "--model", golden("llama-gqa")} +
                      few + how);
  };
  const auto plain = told({}), high = told({"--dola-layers", "high"});
  CHECK(high.status == 0);
  CHECK(high.out != plain.out);
  CHECK(told({"--dola-layers", "1"}).out == high.out);
  CHECK(told({"--dola-layers", "2, 0", "--step-tokens", "3"}).out == told({"--dola-layers", "0,2"}).out);
  const auto refused = [&](const std::string& layers, int status) {
    const auto result = told({"--dola-layers", layers});
    CHECK(result.status == status);
    return last_error_line(result.err);
  };
  CHECK(refused("middle", 2).starts_with("troupe: `dola_layers` must be \"low\", \"high\" or a list of layers"));
  CHECK(refused("", 2).starts_with("troupe: `dola_layers` must"));
  CHECK(refused("1,1", 2).starts_with("troupe: `dola_layers` names layer 1 twice"));
  CHECK(refused("3", 1) == "troupe: `dola_layers` must consist of layers from 0 to 2, not 3\n");
}
