// What this machine can do at most, measured: arithmetic from registers, reading from memory. Kernels are judged by it.
// Called on any thread, while nothing else should run.
#pragma once

namespace troupe::kernels {

/// Operations per second (a multiplication and an addition are two) and bytes per second, of all threads together; 0:
/// the processor has no such instruction, or none that is looked for (f32 from AVX2 on; dots with AVX2 alone, in int8, and from AVX-512 on).
struct machine_peaks {
  int threads = 0;
  double f32_fma = 0;
  double bf16_dot = 0; // VDPBF16PS
  double int8_dot = 0; // VPDPBUSD; where AVX2 is all there is, VPMADDUBSW, VPMADDWD and VPADDD
  double bf16_amx = 0; // TDPBF16PS
  double int8_amx = 0; // TDPBUSD
  double read = 0;     // bytes, the best of several passes
  double read_median = 0;
};

/// Takes about two seconds; `threads` as for thread_pool. With one thread the clock is its CPU time, which other
/// processes disturb little. Reads `read_bytes` of memory per pass, which should exceed the caches. Throws device_error
/// where that cannot be allocated.
machine_peaks measure_machine(int threads, unsigned long read_bytes = 768ul << 20);

} // namespace troupe::kernels
