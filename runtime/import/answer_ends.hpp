// Which tokens end a model's answers. Files rarely name all of them in one place, and some that carry several models'
// conversions name the wrong ones. README.md of this folder has the rule.
#pragma once

#include "runtime/chat/chat_template.hpp"
#include "runtime/tokenizer/tokenizer.hpp"

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

using token_lookup = std::function<std::optional<token_id>(std::string_view)>;

/// Whether a token of this name ends a turn in every vocabulary that has one, whatever kind its file gives it. For GGUF
/// files, which name one end or two of several.
bool is_end_by_name(std::string_view token);
/// Whether a control token ends answers by its name, which other vocabularies also have as ordinary text.
bool is_end_by_name_of_control(std::string_view token);

/// Where `<|return|>` and `<|call|>` (or `<|flush|>` and `<|calls|>`) are tokens, these end answers, and `<|end|>` ends
/// but one of an answer's messages. The result is sorted and without duplicates.
std::vector<token_id> without_message_ends(std::vector<token_id> ends, const token_lookup& find);

/// The ends of answers: those that the files state, the tokenizer's end of sequence, and the special token that the
/// chat template writes behind an answer if it writes none of these. Appends a line for the log to `remarks` if so.
std::vector<token_id> answer_ends(std::vector<token_id> stated, const tokenizer& tokens, const chat_template* chat,
                                  std::vector<std::string>& remarks);

} // namespace troupe
