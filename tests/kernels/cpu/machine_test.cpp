#include "kernels/cpu/cpu_backend.hpp"
#include "kernels/cpu/machine.hpp"

#include <doctest/doctest.h>

using namespace troupe::kernels;

TEST_CASE("a machine has peaks for the instructions that it supports") {
  const auto found = measure_machine(1, 1 << 20);
  const isa best = available_isas().back();
  CHECK(found.threads == 1);
  CHECK((found.f32_fma > 0) == (best >= isa::avx2));
  CHECK((found.bf16_dot > 0) == (best >= isa::avx512_bf16));
  CHECK((found.int8_dot > 0) == (best == isa::avx2 || best >= isa::avx512_vnni));
  CHECK((found.bf16_amx > 0) == (best >= isa::avx512_amx));
  CHECK((found.int8_amx > 0) == (best >= isa::avx512_amx));
  CHECK(found.read >= found.read_median);
  CHECK(found.read_median > 1e8);
  CHECK(found.f32_fma < 1e12); // more than a core can do would mean that the loop was optimised away
}

TEST_CASE("the read peak accepts any size, also less than one iteration of its loop") {
  const auto found = measure_machine(2, 1);
  CHECK(found.threads == 2);
  CHECK(found.read > 0);
}
