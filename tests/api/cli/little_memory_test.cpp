// The program where it may have very little memory: it answers, or says in a sentence that it cannot.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) // which take terabytes of addresses
#include "tests/api/cli/program.hpp"

#include <doctest/doctest.h>

#include <algorithm>

using namespace troupe::test;

namespace {

/// `troupe` with an address space of `kilobytes`, ended after 20 s.
outcome run_within(int kilobytes, const std::string& arguments) {
  const auto script = "ulimit -v " + std::to_string(kilobytes) + "; exec timeout -s KILL 20 '" TROUPE_PROGRAM "' " +
    arguments;
  return program("/bin/sh", {"-c", script}).wait();
}

void check_sentence(const outcome& result) {
  INFO(result.err);
  if (result.err.find("error while loading shared libraries") != std::string::npos) // it has not begun
    return;
  CHECK((result.status == 0 || result.status == 1));
  if (result.status == 1)
    CHECK(result.err.find("troupe: ") != std::string::npos);
}

} // namespace

TEST_CASE("With very little memory the program answers or says that there is too little") {
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
