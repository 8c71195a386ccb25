// The techniques that this build has: those of TROUPE_TECHNIQUES (runtime/techniques/CMakeLists.txt).
#pragma once

#include "runtime/techniques/technique.hpp"

#include <span>

namespace troupe {

std::span<const technique* const> repertoire();

} // namespace troupe
