// The compiler's intrinsics. The emulated build has a header of the same path that adds those which its flags leave out.
#pragma once

#if defined(__AVX2__)
#include <immintrin.h>
#endif
