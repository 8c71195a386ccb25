// Translates requests of other APIs into bodies of completions and chats, so that one parser decides what every field
// means. If that parser refuses a request, the error uses the names of the client's own API. Pure; runs on worker
// threads.
#pragma once

#include "api/openai/openai_request.hpp"

#include <span>
#include <stop_token>
#include <string>
#include <string_view>

namespace troupe {

/// A field of a translated body, and what the client calls it; or what follows an index in both.
struct field_name {
  std::string_view translated, own;
};

/// `what` with the names of fields replaced, in its sentence and its `param`.
error in_own_names(error what, std::span<const field_name> names);

/// parse_generation of a translated body. Throws as that, with fields in the client's names.
generation_request parse_translated(dialect speaks, const std::string& body, const served_model& model,
                                    std::span<const field_name> names, const std::stop_token& stop,
                                    sampling_convention users = sampling_convention::openai);

/// count_chat_tokens of a translated body. Throws as that, with fields in the client's names.
counted_prompt count_translated(const std::string& body, const served_model& model, std::span<const field_name> names,
                                const std::stop_token& stop, std::size_t most);

} // namespace troupe
