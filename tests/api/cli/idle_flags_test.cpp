// Flags that would have no effect as the others are.
#include "tests/api/cli/program.hpp"

#include <doctest/doctest.h>

using namespace troupe::test;

TEST_CASE("a flag that has no effect as the others are is refused, and says what it needs") {
  const auto told = [](const strings& arguments) {
    const auto ran = run_troupe(arguments);
    CHECK(ran.status == 2);
    CHECK(ran.out.empty());
    return only_line(ran.err);
  };
  const strings run{"run", "x", "--model", golden("llama-gqa")};
  CHECK(told({"tokenize", "x", "--keep-special"}) == "troupe: --keep-special has no effect without --decode");
  CHECK(told({"tokenize", "1", "--no-special", "--decode"}) == "troupe: --no-special has no effect with --decode");
  CHECK(told({"models", "--max-sequences", "2"}) == "troupe: --max-sequences has no effect without --estimate");
  CHECK(told({"bench", "model", "--rank", "4"}) == "troupe: --rank has no effect without --adapters");
  CHECK(told(run + strings{"--branching", "3"}) == "troupe: --branching has no effect without --simulations");
  CHECK(told(run + strings{"--dry-base", "2"}) == "troupe: --dry-base has no effect without --dry-multiplier");
  CHECK(told(run + strings{"--watermark-key-file", "x"}) ==
        "troupe: --watermark-key-file has no effect without --watermark");
  CHECK(told(run + strings{"--do-sample"}) ==
        "troupe: --do-sample has no effect without --num-beams or --use-beam-search");
  CHECK(told(run + strings{"--microbatches", "2"}) ==
        "troupe: --microbatches has no effect without --stages or --layers");
}

TEST_CASE("a flag with what it needs, or that is off, is not refused") {
  const temporary_folder folder;
  const strings tokenize{"tokenize", "--model", golden("qwen2")};
  CHECK(run_troupe(tokenize + strings{"--decode", "1 2", "--keep-special"}).status == 0);
  const auto off = folder.write("off.toml", "no-special = false\nkeep-special = false\n");
  CHECK(run_troupe(tokenize + strings{"--decode", "1 2", "--config", off}).status == 0);
  CHECK(run_troupe({"run", "x", "--raw", "--max-tokens", "2", "--use-beam-search", "--length-penalty", "0.5",
                    "--repetition-penalty-range", "9", "--model", golden("llama-gqa")})
          .status == 0);
}
