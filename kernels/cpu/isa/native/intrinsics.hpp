// The compiler's intrinsics. The emulated build shadows this header and adds intrinsics that its compiler flags
// exclude.
#pragma once

#if defined(__AVX2__)
#include <immintrin.h>
#endif
