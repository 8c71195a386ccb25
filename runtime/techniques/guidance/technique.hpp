// Classifier-free guidance as a technique: a request runs with a twin that has another prompt (guided_pair.hpp).
#pragma once

#include "runtime/techniques/technique.hpp"

namespace troupe {

extern const technique guidance_technique;

/// A use at this scale; null at 1, which leads nowhere.
technique_use_ptr guided_by(float scale);

/// The scale of a use of this technique; 1: it is null.
float guidance_scale_of(const technique_use* use);

} // namespace troupe
