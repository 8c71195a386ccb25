// Which models `troupe serve` serves, and how: from --model, --models-dir, and the tables [[model]] of a configuration
// file.
#pragma once

#include "api/catalogue/catalogue.hpp"

#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace troupe::cli {

struct serve_options;

/// The flags that each model may have for itself: those of engine_options, the template and the formats of answers.
/// `models`: where `--model` may be given several times; null: it is one.
void add_model_settings(CLI::App& command, engine_options& options, std::vector<std::string>* models);

/// What its clients call a model: the name that it was given, or that of its file or folder.
std::string served_name(const engine_options& options);

/// Never empty; of several, each has a name. `given`: the command line, whose settings hold for all models that have none
/// of their own. Throws usage_failure and failure, with the file and the line of what is wrong there.
std::vector<catalogue_model> list_served(const serve_options& options, const CLI::App& given);

} // namespace troupe::cli
