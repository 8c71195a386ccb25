// How the load of a model ended: to an engine from its loader, and to a judge from the engine of its own model.
#pragma once

#include "actors/messages.hpp"

namespace troupe {

struct model_loaded {
  loaded_model_ptr model;
};

struct load_failed {
  error why;
};

} // namespace troupe

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::model_loaded)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::load_failed)
