// The program with very little memory: it answers, or fails with a sentence.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) // they need terabytes of address space
#include "tests/api/cli/program.hpp"

#include <doctest/doctest.h>

#include <algorithm>

using namespace troupe::test;

namespace {

/// Runs `troupe` with an address space of `kilobytes`.
outcome run_within(int kilobytes, const std::string& arguments) {
  const auto script = "ulimit -v " + std::to_string(kilobytes) + "; exec '" TROUPE_PROGRAM "' " + arguments;
  return program("/bin/sh", {"-c", script}).wait();
}

void check_sentence(const outcome& result) {
  INFO(result.err);
  if (result.err.find("error while loading shared libraries") != std::string::npos) // the program did not start
    return;
  CHECK((result.status == 0 || result.status == 1));
  if (result.status == 1)
    CHECK(result.err.find("troupe: ") != std::string::npos);
}

} // namespace

TEST_CASE("With very little memory the program answers or reports the lack of it") {
  int answered = 0, refused = 0;
  for (int kilobytes = 60'000; kilobytes < 400'000; kilobytes += 30'000) {
    CAPTURE(kilobytes);
    const auto result = run_within(kilobytes, "run --quiet --threads 2 --max-context 64 --max-tokens 2 hi");
    check_sentence(result);
    ++(result.status == 0 ? answered : refused);
  }
  CHECK(refused > 0);
}
#endif
