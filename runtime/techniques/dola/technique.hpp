// DoLa as a technique: requests name the inner layers that they are contrasted with (dola_layers.hpp), and runners keep
// what is behind these (dola_rows.hpp).
#pragma once

#include "runtime/techniques/dola/dola_layers.hpp"
#include "runtime/techniques/technique.hpp"

namespace troupe {

extern const technique dola_technique;

/// A request's use of such layers; null: it names none.
technique_use_ptr contrasted_with(dola_layers layers);

/// The layers of a use of this technique. Null: it is null.
const dola_layers* layers_of(const technique_use* use);

} // namespace troupe
