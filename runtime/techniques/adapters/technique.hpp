// Adapters as a technique: requests choose one of those that the engine has (the flag `lora`) by its name, as `model`.
#pragma once

#include "runtime/techniques/technique.hpp"

#include <string>

namespace troupe {

extern const technique adapters_technique; // keeps a shared_ptr of an adapter_library

/// A request's use of the adapter of this name.
technique_use_ptr adapted_by(std::string name);

} // namespace troupe
