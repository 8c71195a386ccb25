// The guide flags of `troupe run` and `troupe guide check`, which say what an answer or a document must look like.
#pragma once

#include "runtime/guide/guide_source.hpp"

#include <memory>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace troupe::cli {

struct guide_options {
  std::string json_schema, regex, grammar, structural_tag; // regex: itself; the others: files
  std::vector<std::string> choices;
  bool json_object = false, any_order = false, compact = false;

  /// Reads and checks the files. Null if none is named. Throws failure(bad_request) if several are, if flags have no
  /// effect, or with file and line if a guide is malformed.
  std::shared_ptr<const guides::guide_source> source() const;
};

/// `group`: of the help text; empty: the first.
void add_guide_options(CLI::App& command, guide_options& options, const std::string& group = {});

/// Those of JSON alone.
void add_json_style_options(CLI::App& command, bool& any_order, bool& compact, const std::string& group = {});

} // namespace troupe::cli
