#include "runtime/scheduling/request.hpp"

#include <doctest/doctest.h>

using namespace troupe;

TEST_CASE("an answer is within its reasoning from its mark, or from the start, until the mark that ends it") {
  const reasoning_marks marked{"<think>", "</think>", false, {}};
  CHECK_FALSE(marked.holds(""));
  CHECK_FALSE(marked.holds(" \n"));
  CHECK_FALSE(marked.holds("<thin"));
  CHECK_FALSE(marked.holds("well, <think>"));
  CHECK(marked.holds("\n<think>"));
  CHECK(marked.holds("<think>so </thin"));
  CHECK_FALSE(marked.holds("<think>so</think>"));
  CHECK_FALSE(marked.holds("<think>so</think> <think>"));
  const reasoning_marks open{"<think>", "</think>", true, {}};
  CHECK(open.holds(""));
  CHECK(open.holds("so"));
  CHECK_FALSE(open.holds("so</think>it"));
}
