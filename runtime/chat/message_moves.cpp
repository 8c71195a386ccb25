#include "runtime/chat/message_moves.hpp"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

namespace troupe {

namespace {

constexpr std::size_t short_id = 9;

bool is_word(char c) { return (c >= '0' && c <= '9') || ((c | 0x20) >= 'a' && (c | 0x20) <= 'z'); }

std::string_view text_member(const jinja::dict& of, std::string_view key) {
  const auto* found = of.find(key);
  return found && found->is_string() ? std::string_view(found->str()) : std::string_view();
}

bool is_system(std::string_view role) { return role == "system" || role == "developer"; }
bool is_result(std::string_view role) { return role == "tool" || role == "function"; }
bool has_calls(const jinja::value& message) { return !calls_of_message(message).empty(); }

jinja::value with(const jinja::value& message, std::string_view key, jinja::value value) {
  auto members = message.map();
  members.set(key, std::move(value));
  return jinja::value(std::move(members));
}

jinja::value without(const jinja::value& message, std::string_view key) {
  jinja::dict members;
  for (const auto& [name, value] : message.map().entries())
    if (!name.is_string() || name.str() != key)
      members.set(name.str(), value);
  return jinja::value(std::move(members));
}

jinja::value message_of(std::string_view role, std::string text) {
  jinja::dict members;
  members.set("role", role);
  members.set("content", std::move(text));
  return jinja::value(std::move(members));
}

std::string joined(std::string_view first, std::string_view second, std::string_view between) {
  std::string result(first);
  if (!first.empty() && !second.empty())
    result += between;
  return result += second;
}

std::string json_of(const jinja::value& v) {
  auto meter = jinja::meter::unlimited(); // values were bounded when they were read
  return jinja::to_json(meter, v);
}

/// Ids of nine letters and digits: the last ones of an id, or others if another id has these.
class id_shortener {
public:
  std::string operator()(const std::string& id) {
    const auto [at, is_new] = known_.try_emplace(id);
    if (!is_new)
      return at->second;
    std::string last;
    for (auto c = id.rbegin(); c != id.rend() && last.size() < short_id; ++c)
      if (is_word(*c))
        last.insert(last.begin(), *c);
    last.insert(0, short_id - last.size(), '0');
    for (std::size_t number = 1; !used_.emplace(last, true).second; ++number) {
      const auto digits = std::to_string(number);
      last.replace(short_id - digits.size(), digits.size(), digits);
    }
    return at->second = last;
  }

private:
  std::map<std::string, std::string> known_;
  std::map<std::string, bool> used_;
};

bool is_short(std::string_view id) { return id.size() == short_id && std::ranges::all_of(id, is_word); }

void shorten_ids(chat_messages& messages) {
  id_shortener shorten;
  const auto shortened = [&](const jinja::value& of, std::string_view key) {
    const auto* id = of.map().find(key);
    return id && id->is_string() ? with(of, key, jinja::value(shorten(id->str()))) : of;
  };
  for (auto& message : messages) {
    message = shortened(message, "tool_call_id");
    if (!has_calls(message))
      continue;
    auto calls = calls_of_message(message);
    for (auto& call : calls)
      call = shortened(call, "id");
    message = with(message, "tool_calls", jinja::value::list(std::move(calls)));
  }
}

std::string_view name_of_call(const jinja::value& call) {
  const auto* function = call.map().find("function");
  return function && function->is(jinja::kind::dict) ? text_member(function->map(), "name") : std::string_view();
}

/// A call as models without a format of their own write it.
std::string written_call(const jinja::value& call) {
  jinja::dict written;
  written.set("name", name_of_call(call));
  if (const auto* arguments = arguments_of_call(call))
    written.set("arguments", *arguments);
  return json_of(jinja::value(std::move(written)));
}

void make_results_users(chat_messages& messages) {
  std::map<std::string, std::string, std::less<>> names; // of functions, by ids of their calls
  for (auto& message : messages) {
    for (const auto& call : calls_of_message(message))
      names[std::string(text_member(call.map(), "id"))] = name_of_call(call);
    const auto role = role_of_message(message);
    if (is_system(role) || role == "user" || role == "assistant")
      continue;
    std::string text;
    if (is_result(role)) {
      const auto known = names.find(text_member(message.map(), "tool_call_id"));
      text = known == names.end() || known->second.empty() ? "Result:\n" : "Result of " + known->second + ":\n";
    }
    message = message_of("user", text += text_of_message(message));
  }
}

void write_calls_as_text(chat_messages& messages) {
  for (auto& message : messages) {
    if (!has_calls(message))
      continue;
    std::string text(text_of_message(message));
    for (const auto& call : calls_of_message(message))
      text = joined(text, written_call(call), "\n");
    message = with(without(message, "tool_calls"), "content", jinja::value(std::move(text)));
  }
}

/// A message, and whether it has become a user's.
struct turn {
  jinja::value message;
  bool is_moved = false;
};

std::vector<turn> with_late_systems(const chat_messages& messages, bool moves) {
  std::vector<turn> result;
  bool leading = true;
  for (const auto& message : messages) {
    const bool moves_it = moves && is_system(role_of_message(message)) && !leading;
    leading = leading && is_system(role_of_message(message));
    result.push_back(moves_it ? turn{message_of("user", std::string(text_of_message(message))), true} : turn{message});
  }
  return result;
}

/// Whether the second may be a part of the first.
bool are_neighbours(const jinja::value& first, const jinja::value& second, bool splits_calls) {
  const auto role = role_of_message(first);
  if (role != role_of_message(second) || is_result(role))
    return false;
  return role != "assistant" || (!has_calls(first) && !(splits_calls && has_calls(second)));
}

chat_messages with_joined(const std::vector<turn>& turns, const message_moves& how) {
  chat_messages result;
  bool was_moved = false;
  for (const auto& [message, is_moved] : turns) {
    const bool joins = how.joined_neighbours || is_moved || was_moved;
    was_moved = is_moved;
    if (result.empty() || !joins || !are_neighbours(result.back(), message, how.text_before_calls)) {
      result.push_back(message);
      continue;
    }
    auto text = joined(text_of_message(result.back()), text_of_message(message), "\n");
    result.back() = with(has_calls(message) ? message : result.back(), "content", jinja::value(std::move(text)));
  }
  return result;
}

void put_texts_into_results(std::vector<turn>& turns) {
  std::vector<turn> result;
  for (auto& one : turns) {
    if (role_of_message(one.message) == "user" && !result.empty() &&
        is_result(role_of_message(result.back().message))) {
      auto& before = result.back().message;
      before = with(before, "content",
                    jinja::value(joined(text_of_message(before), text_of_message(one.message), "\n")));
    } else {
      result.push_back(std::move(one));
    }
  }
  turns = std::move(result);
}

void put_system_into_user(std::vector<turn>& turns) {
  std::string text;
  std::size_t leading = 0;
  for (; leading < turns.size() && is_system(role_of_message(turns[leading].message)); ++leading)
    text = joined(text, text_of_message(turns[leading].message), "\n");
  if (leading == 0)
    return;
  turns.erase(turns.begin(), turns.begin() + static_cast<std::ptrdiff_t>(leading));
  const auto user = std::ranges::find_if(turns, [](const turn& one) { return role_of_message(one.message) == "user"; });
  if (user == turns.end())
    turns.insert(turns.begin(), {message_of("user", std::move(text))});
  else
    user->message = with(user->message, "content", jinja::value(joined(text, text_of_message(user->message), "\n\n")));
}

void split_calls(std::vector<turn>& turns) {
  std::vector<turn> result;
  for (auto& one : turns) {
    if (has_calls(one.message) && !trimmed(text_of_message(one.message)).empty()) {
      result.push_back({without(one.message, "tool_calls")});
      auto calls = without(one.message, "reasoning_content");
      one.message = with(calls, "content", nullptr);
    }
    result.push_back(std::move(one));
  }
  turns = std::move(result);
}

void put_users_between(chat_messages& messages) {
  chat_messages result;
  for (auto& message : messages) {
    if (role_of_message(message) == "assistant") {
      const auto before = result.empty() ? std::string_view() : role_of_message(result.back());
      if (before != "user" && !is_result(before))
        result.push_back(message_of("user", {}));
    }
    result.push_back(std::move(message));
  }
  messages = std::move(result);
}

jinja::value respelled(const jinja::value& call, const message_moves& how) {
  const auto* arguments = arguments_of_call(call);
  if (!arguments || !(arguments->is_string() ? how.dict_arguments : how.text_arguments))
    return call;
  if (!arguments->is_string())
    return with_arguments(call, jinja::value(json_of(*arguments)));
  jinja::dict whole;
  whole.set("arguments", *arguments);
  return with_arguments(call, jinja::value(std::move(whole)));
}

void respell_calls(chat_messages& messages, const message_moves& how) {
  for (auto& message : messages) {
    if (!has_calls(message))
      continue;
    const auto* content = message.map().find("content");
    if (how.empty_content && (!content || content->is_none()))
      message = with(message, "content", jinja::value(std::string()));
    auto calls = calls_of_message(message);
    for (auto& call : calls)
      call = respelled(call, how);
    message = with(message, "tool_calls", jinja::value::list(std::move(calls)));
  }
}

} // namespace

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view space = " \t\r\n";
  const auto first = text.find_first_not_of(space);
  return first == text.npos ? std::string_view() : text.substr(first, text.find_last_not_of(space) - first + 1);
}

std::string_view role_of_message(const jinja::value& message) { return text_member(message.map(), "role"); }

std::string_view text_of_message(const jinja::value& message) { return text_member(message.map(), "content"); }

const std::vector<jinja::value>& calls_of_message(const jinja::value& message) {
  static const std::vector<jinja::value> none;
  const auto* calls = message.map().find("tool_calls");
  return calls && calls->is(jinja::kind::sequence) ? calls->seq().items : none;
}

const jinja::value* arguments_of_call(const jinja::value& call) {
  const auto* function = call.map().find("function");
  return function && function->is(jinja::kind::dict) ? function->map().find("arguments") : nullptr;
}

jinja::value with_arguments(const jinja::value& call, jinja::value arguments) {
  return with(call, "function", with(*call.map().find("function"), "arguments", std::move(arguments)));
}

message_moves moves_for(const chat_messages& messages) {
  message_moves result;
  bool leading = true;
  const jinja::value* before = nullptr;
  for (const auto& message : messages) {
    const auto role = role_of_message(message);
    const auto last = before ? role_of_message(*before) : std::string_view();
    const bool calls = has_calls(message);
    result.system_into_user |= !before && is_system(role);
    result.late_system_as_user |= is_system(role) && !leading;
    leading = leading && is_system(role);
    result.calls_as_text |= calls;
    result.results_as_users |= !is_system(role) && role != "user" && role != "assistant";
    result.text_into_result |= (role == "user" || is_system(role)) && is_result(last);
    result.empty_users |= role == "assistant" && last != "user" && !is_result(last);
    result.text_before_calls |= calls && !trimmed(text_of_message(message)).empty();
    result.joined_neighbours |= before && are_neighbours(*before, message, false);
    result.developer_as_system |= role == "developer";
    const auto* id = message.map().find("tool_call_id");
    result.short_ids |= id && id->is_string() && !is_short(id->str());
    for (const auto& call : calls_of_message(message))
      result.short_ids |= !is_short(text_member(call.map(), "id"));
    before = &message;
  }
  // What these make may need it.
  result.empty_users |= result.text_before_calls;
  result.joined_neighbours |= result.results_as_users || result.system_into_user;
  return result;
}

chat_messages moved(const chat_messages& messages, const message_moves& how) {
  auto all = messages;
  if (how.developer_as_system)
    for (auto& message : all)
      if (role_of_message(message) == "developer")
        message = with(message, "role", "system");
  if (how.results_as_users)
    make_results_users(all);
  if (how.calls_as_text)
    write_calls_as_text(all);
  auto turns = with_late_systems(all, how.late_system_as_user);
  if (how.text_before_calls)
    split_calls(turns);
  if (how.system_into_user)
    put_system_into_user(turns);
  if (how.text_into_result)
    put_texts_into_results(turns);
  all = with_joined(turns, how);
  if (how.empty_users)
    put_users_between(all);
  if (how.short_ids)
    shorten_ids(all);
  if (how.empty_content || how.text_arguments || how.dict_arguments)
    respell_calls(all, how);
  return all;
}

} // namespace troupe
