// Stochastic beams as a technique: beams that are samples (stochastic_beam_search.hpp).
#pragma once

#include "runtime/techniques/technique.hpp"

namespace troupe {

extern const technique stochastic_beams_technique;

/// Asks for so many beams; 0: as many as `num_beams` or the number of answers says, once the request is settled.
technique_use_ptr stochastic_beams(int width);

} // namespace troupe
