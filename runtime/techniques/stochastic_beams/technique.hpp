// Stochastic beams as a technique: beams that are samples (stochastic_beam_search.hpp).
#pragma once

#include "runtime/techniques/technique.hpp"

namespace troupe {

extern const technique stochastic_beams_technique;

technique_use_ptr stochastic_beams();

} // namespace troupe
