// Images of blocks when memory is refused.
#include "runtime/scheduling/block_image.hpp"
#include "tests/actors/failing_memory.hpp"

#include <doctest/doctest.h>

#include <new>

using namespace troupe;

TEST_CASE("an image whose memory is refused is given back once") {
  int refused = 0;
  for (int nth = 1;; ++nth, ++refused) {
    CAPTURE(nth);
    const image_pool pool(64, 2);
    test::failing_allocation failing(nth);
    block_image_ptr image;
    failing.arm();
    try {
      image = pool.take();
    } catch (const std::bad_alloc&) {
      // of what it will be given back to
    }
    failing.disarm();
    if (!failing.happened())
      break;
    CHECK_FALSE(image);
    const auto one = pool.take(), other = pool.take();
    CHECK(one);
    CHECK(other);
    CHECK_FALSE(pool.take());
  }
  CHECK(refused >= 4);
}
