// The compiler's intrinsics. The emulated build shadows this header and adds intrinsics that its compiler flags
// exclude.
#pragma once

#if defined(__AVX2__)
#include <immintrin.h>
#elif defined(TROUPE_SVE)
#include <arm_neon.h>
#include <arm_sve.h>
#elif defined(TROUPE_NEON)
#include <arm_neon.h>
#endif
