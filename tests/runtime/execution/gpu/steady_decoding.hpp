// What the host calls while a request on the emulated GPU decodes.
#pragma once

#include "tests/runtime/execution/gpu/gpu_engine.hpp"

namespace troupe::testing {

/// Counted between the tenth and the `last` token of a request that has some more. This thread may be late on a busy
/// machine, so it counts again until it has seen so many replays.
struct steady_decoding {
  kernels::cuda::emulated::host_counts before, after;

  steady_decoding(gpu_engine& engine, const generation& g, std::size_t last, std::uint64_t replays) {
    bool in_time = false;
    for (int tries = 0; tries < 50 && !in_time; ++tries) {
      listener l;
      engine.submit(g, l);
      REQUIRE(l.wait_for_tokens(10));
      before = kernels::cuda::emulated::counted(); // includes steps whose tokens have not arrived here yet
      REQUIRE(l.wait_for_tokens(last));
      after = kernels::cuda::emulated::counted();
      in_time = after.replays >= before.replays + replays && !l.result().done;
      REQUIRE(l.wait());
    }
    CHECK(in_time);
  }
};

} // namespace troupe::testing
