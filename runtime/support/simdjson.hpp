// simdjson without what its on-demand parser has for each instruction set: 50,000 lines, vector intrinsics among them,
// that a unit would parse for nothing. We use its DOM, whose parser is in the library and chooses its instructions when
// the program runs. Included in place of <simdjson.h>.
#pragma once

#ifndef SIMDJSON_H
#define SIMDJSON_IMPLEMENTATION_ICELAKE 0
#define SIMDJSON_IMPLEMENTATION_HASWELL 0
#define SIMDJSON_IMPLEMENTATION_WESTMERE 0
#define SIMDJSON_IMPLEMENTATION_ARM64 0
#define SIMDJSON_IMPLEMENTATION_PPC64 0
#define SIMDJSON_IMPLEMENTATION_FALLBACK 1
#include <simdjson.h>
#endif
