// Finds out from a chat template how the model writes reasoning and calls. Pure.
#pragma once

#include "runtime/chat/output/chat_format.hpp"
#include "runtime/support/types.hpp"

#include <string>
#include <string_view>
#include <vector>

namespace troupe {

class tokenizer;

/// A template that mentions no calls leads to bare JSON objects, so that calls can be forced on any model. Throws
/// failure(bad_request) naming the parser that does not exist.
chat_format find_chat_format(std::string_view chat_template, const format_names& names = {});

/// The special tokens whose texts the format is made of, sorted. They must be left in the text for the parser.
std::vector<token_id> special_markers(const chat_format& format, const tokenizer& tokens);

/// "auto", "none", and the names of all formats.
std::vector<std::string> call_format_names();
std::vector<std::string> reasoning_format_names();

} // namespace troupe
