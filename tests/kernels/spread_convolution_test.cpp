// What layers with tables of n-grams need, on a CPU (spread_checks.hpp).
#include "tests/kernels/spread_checks.hpp"

using namespace troupe::kernels;
using namespace troupe::kernels::testing;

TEST_CASE("Spread convolutions and the tokens before depend on no chunks, guesses, forks or snapshots") {
  for (int threads = 1; threads <= 3; ++threads)
    check_spread(*make_backend(available_isas().back(), threads));
}

TEST_CASE("A line of a tree of guesses has the tokens of its ancestors before it") {
  check_tree_tokens(*make_backend(available_isas().back()));
}

TEST_CASE("Rows take of a value what the root of their agreement says") {
  check_agreement(*make_backend(available_isas().back(), 2));
}
