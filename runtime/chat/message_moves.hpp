// Rewrites a conversation into other shapes with the same texts, for templates that refuse some turns or leave them
// out. Pure functions on a template's values; any thread.
#pragma once

#include "runtime/chat/jinja/value.hpp"

#include <array>
#include <string_view>
#include <vector>

namespace troupe {

/// Dicts with `role`, `content` (a text or null) and perhaps `tool_calls`, `tool_call_id`.
using chat_messages = std::vector<jinja::value>;

/// What is moved, or written otherwise.
struct message_moves {
  bool calls_as_text = false;       // an assistant's
  bool results_as_users = false;    // of tools, and what has any other role that few templates know
  bool system_into_user = false;    // the first system message goes ahead of the first user's
  bool text_into_result = false;    // a user's text behind a result joins it
  bool late_system_as_user = false; // system messages behind others
  bool empty_users = false;         // ahead of assistants that follow no user or result
  bool text_before_calls = false;   // an assistant's text beside calls is a message of its own
  bool joined_neighbours = false;   // of one role
  bool developer_as_system = false;
  bool short_ids = false; // of calls: nine letters and digits, as Mistral's templates demand
  // How calls are written:
  bool empty_content = false;  // beside them, rather than null
  bool text_arguments = false; // JSON rather than dicts
  bool dict_arguments = false; // also of calls that were cut off, whose text is a member of one

  bool operator==(const message_moves&) const = default;
};

struct move_kind {
  bool message_moves::*is;
  std::string_view told; // what a client is told of it
};

/// The moves that alter who says what, and where: the most intrusive first.
inline constexpr auto move_kinds = std::to_array<move_kind>({
  {&message_moves::calls_as_text, "calls are assistants' texts"},
  {&message_moves::results_as_users, "results of tools are users' messages"},
  {&message_moves::system_into_user, "the system message is part of the first user message"},
  {&message_moves::text_into_result, "users' texts behind results of tools are part of these"},
  {&message_moves::late_system_as_user, "system messages behind others are users'"},
  {&message_moves::empty_users, "empty user messages stand between others"},
  {&message_moves::text_before_calls, "assistants' texts beside calls are messages of their own"},
  {&message_moves::joined_neighbours, "neighbouring messages of one role are joined"},
  {&message_moves::developer_as_system, "developer messages are system messages"},
  {&message_moves::short_ids, "ids of calls are shortened"},
});

/// The moves that would make a difference, except in how calls are written.
message_moves moves_for(const chat_messages& messages);

chat_messages moved(const chat_messages& messages, const message_moves& how);

/// A message's role; empty if it has none.
std::string_view role_of_message(const jinja::value& message);
/// Its text; empty if it has none.
std::string_view text_of_message(const jinja::value& message);
/// Its calls; empty if it has none.
const std::vector<jinja::value>& calls_of_message(const jinja::value& message);
/// The arguments of a call, or null.
const jinja::value* arguments_of_call(const jinja::value& call);
/// The call with other arguments.
jinja::value with_arguments(const jinja::value& call, jinja::value arguments);

/// `text` without white space around it.
std::string_view trimmed(std::string_view text);

} // namespace troupe
