// A size that a GPU's runner and the plan of memory share.
#pragma once

namespace troupe {

/// Hidden states that a GPU norms at a time before they are copied to the host, where prompts are pooled.
inline constexpr int states_at_once = 256;

} // namespace troupe
