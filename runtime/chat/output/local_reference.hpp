// References within one JSON Schema: "#/$defs/R". Pure.
#pragma once

#include "runtime/support/json/json.hpp"

namespace troupe {

/// The schema that `schema`, a part of `document`, refers to, through references within the document. Other references,
/// and those that lead nowhere, are left as they are: compiling the schema tells what is wrong with them.
json::value resolved_schema(json::value document, json::value schema);

/// Whether the schema, or a part of it, refers to another.
bool has_references(json::value schema);

} // namespace troupe
