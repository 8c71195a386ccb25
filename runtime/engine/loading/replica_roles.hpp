// The replicas of an engine, as its options say: how many, and what each is for.
#pragma once

#include "runtime/engine/engine_options.hpp"
#include "runtime/scheduling/routing/replica_role.hpp"

#include <vector>

namespace troupe {

/// At least one. Those that prefill come first. Throws failure(bad_request) that names the option.
std::vector<replica_role> replica_roles(const engine_options& options);

int replica_count(const engine_options& options);

} // namespace troupe
