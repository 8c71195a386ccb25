// Which files a model is loaded from, as a checksum over their bytes: to see later whether they were others.
#pragma once

#include "runtime/engine/engine_options.hpp"

#include <string>

namespace troupe::cli {

/// Sixteen hexadecimal digits, over the files of the model in the order of their names; not over those of drafts and
/// others beside it. Empty: they cannot be read, or it has none. Reads all of them: seconds for a large model.
std::string checksum_of_files(const engine_options& options);

} // namespace troupe::cli
