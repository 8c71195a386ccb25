// Measures the machine's peaks: arithmetic in registers, and reading from memory. Benches compare kernels with them.
// Any thread; nothing else should run meanwhile.
#pragma once

namespace troupe::kernels {

/// Operations per second (a multiplication and an addition are two) and bytes per second, over all threads. 0: not
/// measured, because the processor lacks the instruction. f32 needs AVX2; dots need AVX2 (int8 only) or AVX-512.
struct machine_peaks {
  int threads = 0;
  double f32_fma = 0;
  double bf16_dot = 0; // VDPBF16PS
  double int8_dot = 0; // VPDPBUSD; with AVX2 only: VPMADDUBSW, VPMADDWD and VPADDD
  double bf16_amx = 0; // TDPBF16PS
  double int8_amx = 0; // TDPBUSD
  double read = 0;     // bytes per second, the best of several passes
  double read_median = 0;
};

/// Takes about two seconds; `threads` as for thread_pool. With one thread the clock is its CPU time, which other
/// processes disturb little. Reads `read_bytes` of memory per pass, which should exceed the caches. Throws device_error
/// if they cannot be allocated.
machine_peaks measure_machine(int threads, unsigned long read_bytes = 768ul << 20);

} // namespace troupe::kernels
