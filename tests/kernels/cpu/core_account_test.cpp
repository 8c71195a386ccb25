#include "kernels/cpu/core_account.hpp"

#include "kernels/cpu/thread_pool.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <vector>

using namespace troupe::kernels;

namespace {

std::vector<int> shares(int cores, const std::vector<int>& wanted) { return share_cores(cores, wanted); }

} // namespace

TEST_CASE("cores are divided equally among those that want them, and what one does not want goes to the others") {
  CHECK(shares(8, {8}) == std::vector{8});
  CHECK(shares(2, {8}) == std::vector{8}); // as its user wants
  CHECK(shares(8, {8, 8}) == std::vector{4, 4});
  CHECK(shares(8, {2, 8}) == std::vector{2, 6});
  CHECK(shares(8, {8, 2, 8}) == std::vector{3, 2, 3});
  CHECK(shares(7, {8, 8}) == std::vector{3, 4});
  CHECK(shares(2, {2, 2, 2}) == std::vector{1, 1, 1}); // none goes without
  CHECK(shares(8, {4, 4}) == std::vector{4, 4});
  CHECK(shares(8, {}).empty());
}

TEST_CASE("while two pools are in a step, each has its share, and afterwards all of its threads") {
  const int cores = thread_pool::usable_cores();
  thread_pool first(cores), second(cores);
  {
    const core_claim one(&first);
    CHECK(first.may_use() == cores);
    {
      const core_claim two(&second), nobody(nullptr);
      CHECK(first.may_use() + second.may_use() == std::max(2, cores));
    }
    CHECK(first.may_use() == cores);
    CHECK(second.may_use() == cores);
  }
  CHECK(first.may_use() == cores);
}
