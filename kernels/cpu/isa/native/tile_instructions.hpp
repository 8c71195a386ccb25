// The instructions of AMX. GCC's own macros take no template arguments and do not declare the memory they read. The
// emulated build shadows this header with plain C++.
#pragma once

#include "kernels/cpu/isa/amx/tile_configuration.hpp"

namespace troupe::kernels {
namespace {

inline void tile_configure(const tile_configuration& shapes) {
  asm volatile("ldtilecfg %0" : : "m"(shapes) : "memory");
}
inline void tile_release() { asm volatile("tilerelease"); }

template <int Tile>
inline void tile_zero() {
  asm volatile("tilezero %%tmm%c0" : : "i"(Tile));
}
template <int Tile>
inline void tile_load(const void* from, long stride) {
  asm volatile("tileloadd (%0,%1,1), %%tmm%c2" : : "r"(from), "r"(stride), "i"(Tile) : "memory");
}
template <int Tile>
inline void tile_store(void* to, long stride) {
  asm volatile("tilestored %%tmm%c2, (%0,%1,1)" : : "r"(to), "r"(stride), "i"(Tile) : "memory");
}

/// Sums += pairs of bf16 times pairs of bf16.
template <int Sums, int A, int B>
inline void tile_dot_bf16() {
  asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(Sums), "i"(A), "i"(B));
}
/// Sums += quadruples of int8 times quadruples of int8.
template <int Sums, int A, int B>
inline void tile_dot_int8() {
  asm volatile("tdpbssd %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(Sums), "i"(A), "i"(B));
}

} // namespace
} // namespace troupe::kernels
