// What else the rows of simulated requests are made from: adapters, each name with several files that are loaded under it in turn,
// and steering vectors. The libraries are the real ones, over small files that this process writes once; in the place of
// products is a hash.
#pragma once

#include "runtime/engine/loading/loaded_model.hpp"
#include "runtime/scheduling/request.hpp"
#include "runtime/scheduling/row_features.hpp"

#include <array>
#include <cstdint>
#include <string>

namespace troupe::simulation {

inline constexpr std::array adapter_names{"red", "blue"}, steering_names{"up", "down"};
inline constexpr int adapter_versions = 2;

/// Gives a model that is being made the libraries, and one version of each adapter.
void add_variants(loaded_model& model, int version);

/// Loads and unloads, as clients of a server do.
void load_adapter(const loaded_model& model, const std::string& name, int version);
void unload_adapter(const loaded_model& model, const std::string& name);

bool names_adapter(const generation& g);

/// What such rows are made from beside their tokens, whatever the salts say. Where that is nothing, the salt: what a client
/// keeps apart.
std::uint64_t made_from(const row_features& of);

} // namespace troupe::simulation
