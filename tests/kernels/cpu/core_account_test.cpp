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
  CHECK(share_cores(8, std::vector{8}, 6) == std::vector{2}); // ranks cannot be fewer
  CHECK(share_cores(8, std::vector{8, 8}, 4) == std::vector{2, 2});
  CHECK(share_cores(2, std::vector{2}, 4) == std::vector{1});
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

TEST_CASE("ranks take their threads from the others, and work within work of the same pool takes nothing more") {
  const int cores = thread_pool::usable_cores();
  thread_pool pool(cores);
  const core_claim step(&pool);
  {
    const core_claim ranks(nullptr, cores);
    CHECK(pool.may_use() == 1);
    {
      const core_claim within(&pool);
      CHECK(pool.may_use() == 1);
    }
    CHECK(pool.may_use() == 1);
  }
  CHECK(pool.may_use() == cores);
}
