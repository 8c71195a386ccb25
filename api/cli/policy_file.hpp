// Reads a server's policy from a TOML file.
#pragma once

#include "api/service/policy.hpp"

#include <string>

namespace troupe::cli {

/// `banned`, `logit_bias`, `max_temperature`, `max_tokens`, and the same in sections [key.NAME]. Throws
/// failure(bad_request | not_found | bad_file) that names the file, the line and the key.
server_policy read_policy(const std::string& file);

} // namespace troupe::cli
