// Includes simdjson without its on-demand parser, which has a version for each instruction set: 50,000 lines with
// vector intrinsics that every unit would parse for nothing. We use its DOM, whose parser is in the library and chooses
// its instructions at run time. Included in place of <simdjson.h>.
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
