#include "kernels/cpu/cpu_backend.hpp"
#include "kernels/cpu/machine.hpp"

#include <doctest/doctest.h>

#include <algorithm>

using namespace troupe::kernels;

TEST_CASE("a machine has peaks for the instructions that it supports") {
  const auto found = measure_machine(1, 1 << 20);
  const auto available = available_isas();
  const auto has = [&](isa i) { return std::ranges::find(available, i) != available.end(); };
  CHECK(found.threads == 1);
  CHECK((found.f32_fma > 0) == has(isa::avx2));
  CHECK((found.bf16_dot > 0) == has(isa::avx512_bf16));
  CHECK((found.int8_dot > 0) == (available.back() == isa::avx2 || has(isa::avx512_vnni)));
  CHECK((found.bf16_amx > 0) == has(isa::avx512_amx));
  CHECK((found.int8_amx > 0) == has(isa::avx512_amx));
  CHECK(found.read >= found.read_median);
  CHECK(found.read_median > 1e8);
  CHECK(found.f32_fma < 1e12); // more than a core can do would mean that the loop was optimised away
}

TEST_CASE("products of bf16 pairs are used where they are the faster ones") {
  const bool used = available_isas().back() == isa::avx512_bf16;
  const auto agrees = [&] { // once in some measurements, as another thread of the same core may take half of any
    const auto found = measure_machine(1, 1 << 20);
    if (found.bf16_dot == 0 || found.bf16_amx > 0)
      return true;
    return used ? found.bf16_dot > 1.2 * found.f32_fma : found.bf16_dot < 0.9 * found.f32_fma;
  };
  bool agreed = false;
  for (int i = 0; i < 10 && !agreed; ++i)
    agreed = agrees();
  CHECK(agreed);
}

TEST_CASE("the read peak accepts any size, also less than one iteration of its loop") {
  const auto found = measure_machine(2, 1);
  CHECK(found.threads == 2);
  CHECK(found.read > 0);
}
