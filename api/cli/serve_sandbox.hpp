// Which files `serve` may touch while it serves: those that its settings name.
#pragma once

#include "api/catalogue/catalogue.hpp"
#include "runtime/support/machine/confinement.hpp"

#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace troupe::cli {

struct serve_options;

/// Readable: the models with their adapters, drafts and templates, the places where names of models are looked up, and the
/// folders of the files that settings of type FILE name, for these are read again and may be replaced; all, if clients may
/// name adapters (--lora-endpoints). Writable: the packed cache, --kv-disk, and the folders of --length-model and of a
/// socket's path. Makes the writable folders.
confinement sandbox_of(const serve_options& options, const CLI::App& given, const std::vector<catalogue_model>& models);

/// Why these models cannot be served within one; empty if they can. A GPU's driver opens files that nobody lists.
std::string sandbox_hindrance(const std::vector<catalogue_model>& models);

} // namespace troupe::cli
