// Who may ask: API keys and browsers' origins. Pure functions over configured lists; any thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

/// Whether both are the same, in a time that depends on their lengths alone.
bool same_in_constant_time(std::string_view a, std::string_view b);

/// Whether an `Authorization` header holds one of the keys as its bearer token. True where no keys are configured.
bool is_authorized(const std::vector<std::string>& keys, std::string_view authorization);

/// The value for Access-Control-Allow-Origin, or nothing where that origin is not allowed. "*" in the list allows all.
std::optional<std::string> allowed_origin(const std::vector<std::string>& origins, std::string_view origin);

/// Whether a page of `origin` was served under the very `host` that it now calls.
bool is_same_origin(std::string_view origin, std::string_view host);

} // namespace troupe
