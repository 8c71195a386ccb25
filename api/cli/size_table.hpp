// What a model takes on paper, by its configuration alone, as a text or as JSON.
#pragma once

#include "runtime/execution/compute_options.hpp"

#include <cstddef>
#include <string>

namespace troupe::cli {

/// The table of a config.json, a folder, a GGUF file's head or the name of a model on this machine; weights are not
/// read. It has the types that `options` name, or all of them. `memory`: what it is to fit into; 0: anything. Throws
/// failure(not_found | bad_file | unsupported).
std::string size_table(const std::string& model, const compute_options& options, int max_context, std::size_t memory,
                       bool json);

} // namespace troupe::cli
