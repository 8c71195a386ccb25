// Requests that do not fit into the model's context. Clients act on these errors, by compacting a conversation or
// taking another model, and know them by their code or by how the sentence begins: all are made here. Pure.
#pragma once

#include "runtime/support/error.hpp"

#include <string>
#include <string_view>

namespace troupe {

/// failure(bad_request): "This model's maximum context length is 4096 tokens. However, <why>."
inline failure beyond_context(int max_context, std::string_view why, std::string param) {
  return failure(errc::bad_request,
                 "This model's maximum context length is " + std::to_string(max_context) + " tokens. However, " +
                   std::string(why) + '.',
                 std::move(param));
}

/// Whether it is the sentence of such an error.
inline bool is_beyond_context(std::string_view sentence) {
  return sentence.starts_with("This model's maximum context length is ");
}

/// Whether beyond_context made it.
inline bool is_beyond_context(const error& what) {
  return what.code == errc::bad_request && is_beyond_context(what.message);
}

} // namespace troupe
